"""Structural checks of booster files before C++ parsers read them: all references between nodes are valid."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenonnx.extend import InvalidModel

#: Number formats of UBJSON by their marker.
_NUMBERS = {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}

#: Maximum nesting depth of lists and objects.
_DEPTH = 64


class _Broken(Exception):
    """The file is invalid."""


def check_structure(contents: bytes, path: str) -> None:
    """Raise ``InvalidModel`` for an XGBoost or LightGBM file with dangling references in its trees."""
    try:
        if contents.startswith(b"tree"):
            _check_lightgbm(contents.decode("utf-8"))
        elif contents[:1] == b"{":
            _check_xgboost(_Ubjson(contents).value() if contents[1:2] in b"LiUIl" else json.loads(contents))
    except (_Broken, ValueError, RecursionError, struct.error, OverflowError, IndexError, KeyError, TypeError) as error:
        given = f'"{path}": {type(error).__name__}: {error}'.replace("_Broken: ", "")
        raise InvalidModel("a file of a booster is broken", given=given[:300], do="save the booster again") from error


# ----- trees ----------------------------------------------------------------------------------------------------------


def _check_tree(left: Sequence[int], right: Sequence[int], where: str) -> None:
    """Check that every node except the first is the child of exactly one other; negative children are leaves."""
    children = [child for child in (*left, *right) if child >= 0]
    if len(left) != len(right) or any(child >= len(left) for child in children):
        raise _Broken(f"a child that is not a node in {where}")
    if 0 in children or len(set(children)) != len(children):
        raise _Broken(f"a node with two parents in {where}")


def _check_xgboost(model: Any) -> None:
    learner = model["learner"]
    count = int(learner["learner_model_param"]["num_feature"])
    booster = learner["gradient_booster"]
    ensemble = booster.get("model") or booster.get("gbtree", {}).get("model")
    trees = [] if ensemble is None or "trees" not in ensemble else ensemble["trees"]
    for number, tree in enumerate(trees):
        where = f"tree {number}"
        left, right, splits = (list(map(int, tree[n])) for n in ("left_children", "right_children", "split_indices"))
        nodes = int(tree["tree_param"]["num_nodes"])
        sizes = {
            len(tree[n])
            for n in ("left_children", "right_children", "split_indices", "split_conditions", "default_left")
        }
        if sizes != {nodes} or not nodes:
            raise _Broken(f"lists of different sizes in {where}")
        _check_tree(left, right, where)
        if any(a < 0 <= b or b < 0 <= a for a, b in zip(left, right, strict=True)):
            raise _Broken(f"a node with one child in {where}")
        if any(not 0 <= split < count for split, child in zip(splits, left, strict=True) if child >= 0):
            raise _Broken(f"a split by a feature beyond {count} in {where}")
        _check_categories(tree, nodes, where)
    classes = max(int(learner["learner_model_param"].get("num_class", 0)), 1)
    targets = max(int(learner["learner_model_param"].get("num_target", 1)), 1)
    groups = [] if ensemble is None else list(map(int, ensemble.get("tree_info", [])))
    if len(groups) != len(trees) or any(not 0 <= group < max(classes, targets) for group in groups):
        raise _Broken("a tree of an output that does not exist")


def _check_categories(tree: Mapping[str, Any], nodes: int, where: str) -> None:
    starts, sizes = (list(map(int, tree.get(name, []))) for name in ("categories_segments", "categories_sizes"))
    nodes_with_categories, total = list(map(int, tree.get("categories_nodes", []))), len(tree.get("categories", []))
    fits = len(starts) == len(sizes) == len(nodes_with_categories) and all(
        0 <= node < nodes for node in nodes_with_categories
    )
    if not fits or any(
        start < 0 or size < 0 or start + size > total for start, size in zip(starts, sizes, strict=True)
    ):
        raise _Broken(f"categories that do not exist in {where}")
    if any(not 0 <= int(each) < 1 << 24 for each in tree.get("categories", [])):
        raise _Broken(f"a category beyond 2^24 in {where}")


def _check_lightgbm(text: str) -> None:
    head, *blocks = text.split("\nTree=")
    facts = _facts(head)
    highest, trees = (
        int(facts["max_feature_idx"]),
        len(facts["tree_sizes"].split()) if "tree_sizes" in facts else len(blocks),
    )
    if trees != len(blocks) or not 0 <= highest < 1 << 24:
        raise _Broken(f"{len(blocks)} trees, where the head says {trees}")
    if any(len(facts.get(name, "").split()) != highest + 1 for name in ("feature_names", "feature_infos")):
        raise _Broken("names for other features than there are")
    per_round = int(facts.get("num_tree_per_iteration", 1))
    if per_round < 1 or int(facts.get("num_class", 1)) < 1 or len(blocks) % per_round:
        raise _Broken("rounds with other numbers of trees")
    sizes = list(map(int, facts.get("tree_sizes", "").split()))
    for number, (block, size) in enumerate(zip(blocks, sizes or [0] * len(blocks), strict=True)):
        where = f"tree {number}"
        body = block.split("\nend of trees")[0]
        if sizes and len(f"Tree={body}".encode()) - size not in (-1, 0, 1, 2):
            raise _Broken(f"{where} of another size than the head says")
        _check_lightgbm_tree(_facts(body), highest, where)


def _check_lightgbm_tree(facts: Mapping[str, str], highest: int, where: str) -> None:
    leaves, categories = int(facts["num_leaves"]), int(facts.get("num_cat", 0))

    def numbers(name: str, kind: Any = int) -> list[Any]:
        return [kind(each) for each in facts.get(name, "").split()]

    values = numbers("leaf_value", float)
    if leaves < 1 or len(values) != leaves:
        raise _Broken(f"{len(values)} values for {leaves} leaves in {where}")
    if leaves == 1:
        return
    left, right, splits = numbers("left_child"), numbers("right_child"), numbers("split_feature")
    thresholds, decisions = numbers("threshold", float), numbers("decision_type")
    if {len(left), len(right), len(splits), len(thresholds), len(decisions)} != {leaves - 1}:
        raise _Broken(f"lists of different sizes in {where}")
    _check_tree(left, right, where)
    ends = sorted(~child for child in (*left, *right) if child < 0)
    if ends != list(range(leaves)):
        raise _Broken(f"leaves that do not exist in {where}")
    if any(not 0 <= split <= highest for split in splits):
        raise _Broken(f"a split by a feature beyond {highest} in {where}")
    bounds = numbers("cat_boundaries")
    words = len(numbers("cat_threshold"))
    if categories and (len(bounds) != categories + 1 or bounds != sorted(bounds) or bounds[0] or bounds[-1] != words):
        raise _Broken(f"categories that do not exist in {where}")
    for threshold, decision in zip(thresholds, decisions, strict=True):
        if decision & 1 and not (threshold.is_integer() and 0 <= threshold < categories):
            raise _Broken(f"categories that do not exist in {where}")
        if math.isnan(threshold):
            raise _Broken(f"a threshold that is not a number in {where}")
    if int(facts.get("is_linear", 0)):
        counts = numbers("num_features")
        features = numbers("leaf_features")
        if len(counts) != leaves or sum(counts) != len(features) or any(not 0 <= f <= highest for f in features):
            raise _Broken(f"linear leaves of features that do not exist in {where}")


def _facts(block: str) -> dict[str, str]:
    return {name: value for line in block.splitlines() for name, found, value in [line.partition("=")] if found}


# ----- UBJSON ---------------------------------------------------------------------------------------------------------


class _Ubjson:
    """Parser of UBJSON, the binary form of JSON that XGBoost writes."""

    def __init__(self, contents: bytes) -> None:
        self._contents, self._offset = contents, 0

    def value(self, mark: str = "", depth: int = 0) -> Any:
        if depth > _DEPTH:
            raise _Broken("it is nested too deep")
        mark = mark or self._mark()
        if mark in _NUMBERS:
            return self._number(_NUMBERS[mark])
        if mark in ("Z", "T", "F"):
            return {"Z": None, "T": True, "F": False}[mark]
        if mark in ("S", "H"):
            return self._text()
        if mark == "[":
            return list(self._items(depth))
        if mark == "{":
            return dict(self._members(depth))
        raise _Broken(f"a value of the kind {mark!r}")

    def _items(self, depth: int) -> Iterator[Any]:
        kind, count = self._head()
        if kind in _NUMBERS:
            size = struct.calcsize(_NUMBERS[kind])
            part = self._bytes(size * count)
            yield from (each[0] for each in struct.iter_unpack(_NUMBERS[kind], part))
            return
        while count != 0:
            if count < 0 and self._peek("]"):
                return
            yield self.value(kind, depth + 1)
            count -= 1

    def _members(self, depth: int) -> Iterator[tuple[str, Any]]:
        kind, count = self._head()
        while count != 0:
            if count < 0 and self._peek("}"):
                return
            yield self._text(), self.value(kind, depth + 1)
            count -= 1

    def _head(self) -> tuple[str, int]:
        """The type of all values and their number, or a negative one for a container with an end marker."""
        kind = self._mark() if self._peek("$") else ""
        if not self._peek("#"):
            if kind:
                raise _Broken("a list of one kind without its size")
            return "", -1
        count = self.value()
        if not isinstance(count, int) or not 0 <= count <= len(self._contents):
            raise _Broken(f"a list of {count} values")
        return kind, count

    def _text(self) -> str:
        length = self.value()
        if not isinstance(length, int) or length < 0:
            raise _Broken(f"a text of {length} bytes")
        return self._bytes(length).decode("utf-8")

    def _mark(self) -> str:
        mark = "N"
        while mark == "N":
            mark = self._bytes(1).decode("latin-1")
        return mark

    def _peek(self, mark: str) -> bool:
        result = self._contents[self._offset : self._offset + 1] == mark.encode()
        self._offset += result
        return result

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _bytes(self, length: int) -> bytes:
        part = self._contents[self._offset : self._offset + length]
        if len(part) != length:
            raise _Broken(f"it ends within a value at byte {self._offset}")
        self._offset += length
        return part
