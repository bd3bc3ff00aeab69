"""Validation of a program's JSON: names, operators and expressions are checked before PyTorch reads them.

PyTorch evaluates expressions of sizes, imports and calls objects by name, and writes names into Python code that it
executes. Therefore operators must be in ``effectless_operators.txt``, expressions are parsed by our own parser, and
names must be identifiers.
"""

from __future__ import annotations

import json
import keyword
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import torch

from tenonnx.extend import InvalidCall, InvalidModel
from tenonnx_torch.pt2.archive import DOTTED, TRUST
from tenonnx_torch.pt2.expressions import SYMBOL, parsed

#: Functions of sizes, by their names in files.
_OF_SIZES = frozenset(
    {
        *(f"_operator.{name}" for name in ("eq", "ne", "le", "ge", "lt", "gt", "neg", "pos", "mul", "add", "sub")),
        *(f"_operator.{name}" for name in ("floordiv", "mod", "pow", "truediv", "and_", "or_", "lshift", "rshift")),
        *(f"torch.sym_{name}" for name in ("not", "int", "float", "ite", "max", "min", "sqrt")),
        "_operator.getitem",
        "math.trunc",
    }
)

#: Containers of arguments and results that execute no code.
_STRUCTURES = frozenset({"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"})

#: Keys of objects with code.
_OBJECTS = frozenset({"as_custom_obj", "custom_obj", "token"})

#: Keys of dotted names, such as ``encoder.0.weight``.
_DOTTED = frozenset({"parameter_name", "buffer_name", "tensor_constant_name", "fqn"})

#: Keys of names of values.
_NAMES = frozenset({"name", "as_name", "user_input_name"})

#: Mappings keyed by names of values.
_BY_NAME = frozenset({"tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values", "range_constraints"})

_DEEPEST = 64


@cache
def effectless_operators() -> Mapping[str, frozenset[str]]:
    """Names of operators without side effects, without overloads, by namespace."""
    found: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in files("tenonnx_torch.pt2").joinpath("effectless_operators.txt").read_text().splitlines():
        if line.startswith("["):
            names = found.setdefault(line.strip("[]"), set())
        elif not line.startswith("#"):
            names.update(line.split())
    return {namespace: frozenset(names) for namespace, names in found.items()}


def checked(program: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the program for PyTorch's reader, with expressions as parsed objects, and without metadata and guards.

    Raises ``InvalidCall`` listing operators, objects and containers that may execute code, and ``InvalidModel`` for
    names and expressions that no exporter writes.
    """
    wanted = list(dict.fromkeys(_refusals(program)))
    if wanted:
        raise InvalidCall(
            "the program calls operators that can run code or have side effects",
            given=", ".join(wanted)[:400],
            do=TRUST,
        )
    found: dict[str, Any] = _copied(program, "", 0)
    return {
        **found,
        "guards_code": [],
        "verifiers": [each for each in _texts(found, "verifiers") if each == "TRAINING"],
    }


def _texts(program: Mapping[str, Any], key: str) -> list[str]:
    listed = program.get(key)
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []


def _refusals(program: Mapping[str, Any]) -> Iterator[str]:
    pending: list[Any] = [program]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += reversed(each)
        elif isinstance(each, Mapping):
            pending += reversed([value for key, value in each.items() if key != "metadata"])
            for key in ("target", "as_operator"):
                if key in each and not _is_allowed(each[key]):
                    yield str(each[key])[:100]
            for key in _OBJECTS & each.keys():
                yield f"an object ({key})"
            if each.get("custom_obj_values"):
                yield "objects (custom_obj_values)"
            for key in ("in_spec", "out_spec"):
                if key in each:
                    yield from (f"the structure {name}" for name in _unknown_structures(each[key]))


def _is_allowed(target: Any) -> bool:
    if not isinstance(target, str):
        return False
    if target in _OF_SIZES:
        return True
    first, second, namespace, *names = [*target.split("."), "", "", ""]
    listed = effectless_operators().get(namespace, frozenset())
    return (first, second) == ("torch", "ops") and names[0] in listed and all(map(_is_identifier, filter(None, names)))


def resolved(target: str) -> Any:
    """The operator or function of an allowed name. Raises ``InvalidCall`` where it is not installed."""
    names = target.split(".")
    result: Any = {"_operator": operator, "math": math, "torch": torch}[names[0]]
    for name in names[1:]:
        result = getattr(result, name, None)
    if result is None or isinstance(result, str):
        raise InvalidCall(
            f"PyTorch {torch.__version__} lacks an operator of the program",
            given=target[:100],
            do="install the package that registers it, or a newer PyTorch",
        )
    return result


def _unknown_structures(text: Any) -> list[str]:
    result: list[str] = []
    pending = [_structure(text)]
    while pending:
        each = pending.pop()
        kind = each.get("type")
        if kind is not None and kind not in _STRUCTURES:
            result.append(str(kind)[:100])
        pending += [child for child in each.get("children_spec", ()) if isinstance(child, dict)]
    return result


def _structure(text: Any) -> dict[str, Any]:
    try:
        version, result = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid("a structure", text) from error
    if version != 1 or not isinstance(result, dict):
        raise _invalid("a structure", text)
    return result


def _plain_structure(text: Any) -> str:
    """A container whose keys are numbers or texts without quotes, since PyTorch generates Python code with them."""

    def plain(each: Any, depth: int) -> dict[str, Any]:
        if not isinstance(each, dict) or depth > _DEEPEST or not isinstance(each.get("children_spec"), list):
            raise _invalid("a structure", text)
        kind, context = each.get("type"), each.get("context")
        try:
            keys = json.loads(context) if isinstance(context, str) else context
        except ValueError as error:
            raise _invalid("a structure", text) from error
        for key in keys if isinstance(keys, list) else [] if keys is None else [keys]:
            if not isinstance(key, int) and not (isinstance(key, str) and DOTTED.fullmatch(key)):
                raise _invalid("a structure", text)
        return {
            "type": kind,
            "context": None if kind is None else json.dumps(keys),
            "children_spec": [plain(child, depth + 1) for child in each["children_spec"]],
        }

    return json.dumps([1, plain(_structure(text), 0)])


def _copied(each: Any, key: str, depth: int) -> Any:
    if depth > 4 * _DEEPEST:
        raise InvalidModel("the program is nested too deeply")
    rule = _RULES.get(key)
    if rule is not None:
        return rule(each)
    if isinstance(each, list):
        return [_copied(value, "", depth + 1) for value in each]
    if isinstance(each, dict):
        if key in _BY_NAME:
            for name in each:
                _name(name)
        return {name: _copied(value, "" if key in _BY_NAME else name, depth + 1) for name, value in each.items()}
    return each


def _is_identifier(name: str) -> bool:
    return SYMBOL.fullmatch(name) is not None or (name.isascii() and name.isidentifier())


def _name(name: Any) -> Any:
    """A valid name of a value; empty and None for values without a name."""
    if name is None or name == "":
        return name
    if not isinstance(name, str) or not _is_identifier(name) or keyword.iskeyword(name):
        raise _invalid("a name", name)
    return name


def _argument_names(names: Any) -> Any:
    if names is None:
        return None
    if not isinstance(names, list):
        raise _invalid("names of arguments", names)
    return [_name(name) for name in names]


def _dotted(name: Any) -> Any:
    if not isinstance(name, str) or not DOTTED.fullmatch(name):
        raise _invalid("a name", name)
    return name


def _notes(notes: Any) -> dict[str, str]:
    """The metadata of a node about its modules; other metadata may contain code."""
    kept = notes.get("nn_module_stack") if isinstance(notes, dict) else None
    is_plain = isinstance(kept, str) and all(
        DOTTED.fullmatch(part) and part.count(",") == 0 for each in kept.split(";") for part in each.split(",")
    )
    is_plain = is_plain and all(each.count(",") == 2 for each in str(kept).split(";"))
    return {"nn_module_stack": str(kept)} if is_plain else {}


def _invalid(what: str, given: Any) -> InvalidModel:
    return InvalidModel(f"{what} in the program is not valid", given=repr(given)[:200])


#: Validators of JSON values, by key.
_RULES: Mapping[str, Callable[[Any], Any]] = {
    "expr_str": parsed,
    **dict.fromkeys(_NAMES, _name),
    **dict.fromkeys(_DOTTED, _dotted),
    "forward_arg_names": _argument_names,
    "metadata": _notes,
    "custom_obj_values": lambda each: {},
    "treespec_namedtuple_fields": lambda each: {},
    "device": lambda each: {"type": "cpu", "index": None},
    "as_device": lambda each: {"type": "cpu", "index": None},
    "in_spec": _plain_structure,
    "out_spec": _plain_structure,
}
