"""The tree ensembles of a graph as arrays, from ops of ai.onnx.ml and from their lowering."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, Node, Value, known_op
from tenonnx.extend.transforms import bind
from tenonnx_explain.lowered import lowered_ensembles
from tenonnx_onnx_ml.tree_ensemble import ensemble_of

Array = np.ndarray[Any, Any]

_OPS = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")


@dataclass(frozen=True, eq=False)
class Forest:
    """An ensemble of summed trees, whose nodes are slots of arrays; the roots are the first slots.

    A row goes from slot ``s`` to ``following[s] + 1`` if its feature is at most the threshold, else (also for NaN) to
    ``following[s]``; a leaf points to itself. Trees index the first ``lowered`` features, with NaN replaced by minus
    infinity, followed by all features. ``votes`` is ``float[slots, columns]``. ``cover`` is the number of training rows
    of each leaf, None if unknown. ``scores`` is the value of the summed votes, up to an affine function.
    """

    X: Value
    scores: Value
    features: Array
    thresholds: Array
    following: Array
    votes: Array
    roots: int
    lowered: int
    cover: Array | None

    @property
    def leaf(self) -> Array:
        """Whether each slot is a leaf."""
        return _is_leaf(self.following)


def has_trees(graph: Graph) -> bool:
    """Whether a graph has a tree ensemble, as an op or in its lowered form."""
    return any(_is_ensemble(node) for node in graph.nodes) or any(True for _ in lowered_ensembles(graph))


def forests(graph: Graph) -> list[Forest]:
    """All tree ensembles of a graph. Raises ``InvalidCall`` for an aggregation other than sum and average."""
    return [*_ensemble_ops(graph), *(Forest(*ensemble, None) for ensemble in lowered_ensembles(graph))]


def _is_ensemble(node: Node) -> bool:
    return node.domain == "ai.onnx.ml" and node.op_type in _OPS


def _ensemble_ops(graph: Graph) -> Iterator[Forest]:
    for node in filter(_is_ensemble, graph.nodes):
        inputs, attributes = bind(node)
        rows = inputs[0]
        assert rows is not None
        ensemble = ensemble_of(known_op(node), attributes)
        if ensemble.aggregate not in ("SUM", "AVERAGE"):
            raise InvalidCall(
                f"{node.title}: trees are not summed",
                given=f"aggregate_function {ensemble.aggregate}",
                do="use kernel-shap",
            )
        post = attributes["post_transform"]
        if post not in ("NONE", 0):
            raise InvalidCall(f"{node.title}: scores are transformed within the op", given=f"post_transform {post}")
        trees, _, votes, _ = ensemble.planted(rows.dtype.numpy)
        scores = node.outputs[-1]
        assert scores is not None
        if ensemble.aggregate == "AVERAGE":
            votes = votes / trees.count
        cover = _leaf_cover(attributes)
        yield Forest(
            rows,
            scores,
            trees.features,
            trees.thresholds,
            trees.following,
            votes,
            trees.count,
            trees.lowered,
            None if cover is None else np.where(_is_leaf(trees.following), cover[trees.leaves], 0),
        )


def _is_leaf(following: Array) -> Array:
    is_leaf: Array = following == np.arange(len(following))
    return is_leaf


def _leaf_cover(attributes: dict[str, Any]) -> Array | None:
    """Training rows of each leaf, from the attribute nodes_hitrates; None unless that has counts of rows.

    Many converters write 1 for each node. Hit rates are counts if each node has the sum of its children.
    """
    if "nodes_nodeids" not in attributes:
        return None  # TreeEnsemble has hit rates of inner nodes only
    tensor, listed = attributes.get("nodes_hitrates_as_tensor"), attributes["nodes_hitrates"]
    hitrates = np.asarray(listed or (), float) if tensor is None else np.asarray(tensor.array(), float).reshape(-1)
    modes = np.asarray(attributes["nodes_modes"])
    leaf = modes == "LEAF"
    if len(hitrates) != len(modes) or not len(modes):
        return None
    known = zip(attributes["nodes_treeids"], attributes["nodes_nodeids"], strict=True)
    places = {key: number for number, key in enumerate(known)}
    for number in np.flatnonzero(~leaf):
        tree = attributes["nodes_treeids"][number]
        both = [places[tree, attributes[name][number]] for name in ("nodes_truenodeids", "nodes_falsenodeids")]
        if abs(hitrates[both].sum() - hitrates[number]) > 1e-3 * max(1e-6, hitrates[number]):
            return None
    return hitrates[leaf]
