"""Fused operators of onnxruntime in decoders: attention in groups with its cache and rotation, and norms of sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Node, Value, constant
from tenonnx.extend.transforms import Call, Rewriter, prune
from tenonnx_contrib_ms.grouped_query import group_query_attention

#: Ops that are found by their bodies, in this order: each only among what those before it left.
_FOUND = (
    ("RMSNormalization", "RotaryEmbedding", "Attention"),
    ("com.microsoft::SkipSimplifiedLayerNormalization",),
)

#: The opset at which attention and rotary embeddings are ops of ai.onnx.
_OPSET = 24

#: Divisors of the head sizes that onnxruntime supports, and of those that it rotates.
_MULTIPLE, _ROTATED = 8, 16

#: Positions at which tables are compared with what the graph computes.
_PROBE = (3, 11)


class Tables(NamedTuple):
    """Cosines and sines of a rotation by position, float32 of (positions, half a head)."""

    cosines: np.ndarray[Any, Any]
    sines: np.ndarray[Any, Any]


def fused(graph: Graph, positions: int) -> Graph | None:
    """A decoder with ``com.microsoft::GroupQueryAttention`` and fused norms, None where no attention is found.

    Rotations become tables of ``positions`` rows inside of the attention where they follow from ``position_ids`` alone.
    onnxruntime takes one token for each sequence of a batch behind a past, and rotates prompts from their first
    position on, so that prompts are padded on the right.
    """
    found = tx.retarget(graph, opset_version=_OPSET, domains=["ai.onnx", "com.microsoft"])
    for names in _FOUND:
        found = tx.fuse(found, names)
    if not any(_fits(node) for node in found.nodes):
        return None
    return tx.simplify(prune(Rewriter(found, _Grouping(found, positions).decide).run()))


def _fits(node: Node) -> bool:
    """Whether a node is attention behind a past that the fused op computes, too."""
    if node.op is not ops.attention or len(node.inputs) < 6:
        return False
    if any(x is None for x in node.inputs[:6]) or any(x is not None for x in node.inputs[6:]):
        return False
    query, key, value, mask = _tensors(node.inputs[:4])
    if any(x.shape is None or len(x.shape) != 4 for x in (query, key, value, mask)):
        return False
    size = query.shape[3]
    whole = all(isinstance(each, int) for each in (size, query.shape[1], key.shape[1])) and size % _MULTIPLE == 0
    usual = not node.attributes.get("is_causal") and not node.attributes.get("qk_matmul_output_mode")
    return whole and usual and key.shape[3] == value.shape[3] == size and mask.dtype is query.dtype


class _Grouping:
    """Replaces attention in a graph by the fused op."""

    def __init__(self, graph: Graph, positions: int) -> None:
        self.graph, self.positions = graph, positions
        self.known: dict[tuple[str, str], Tables | None] = {}

    def decide(self, rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None or not _fits(call.node):
            return None
        query, key, value, mask, *past = _tensors(call.inputs[:6])
        rotation, rotary = self._rotation(call.node), list[Any]()
        if rotation is not None:
            query, key = (_tensors(x.producer.inputs)[0] for x in (query, key))
            rotary = [*map(constant, rotation), rewriter.graph["position_ids"]]
        (_, heads, _, size), count = query.shape, key.shape[1]
        total = ops.cast(ops.shape(past[0], start=2, end=3) + ops.shape(key, start=2, end=3), to=DType.int32)
        last = ops.expand(total - 1, ops.shape(query, end=1))
        given = [*map(_joined, (query, key, value)), *past, last, total, *(rotary or [None] * 3), mask]
        attributes = {
            "num_heads": heads,
            "kv_num_heads": count,
            "do_rotary": int(rotation is not None),
            "scale": call.attributes.get("scale") or size**-0.5,
            "softcap": call.attributes.get("softcap") or 0.0,
        }
        fuse: Any = group_query_attention
        y, *present = fuse(*given, **attributes)
        return ops.transpose(ops.reshape(y, [0, 0, heads, size]), perm=[0, 2, 1, 3]), *present[:2]

    def _rotation(self, node: Node) -> Tables | None:
        """Tables of a rotation of both queries and keys."""
        heads = _tensors(node.inputs[:2])
        if heads[0].shape[3] % _ROTATED:
            return None
        pair = [x.producer for x in heads]
        if any(each is None or each.op is not ops.rotary_embedding for each in pair):
            return None
        one, other = (each for each in pair if each is not None)
        same = one.inputs[1:] == other.inputs[1:] and dict(one.attributes) == dict(other.attributes)
        cosines, sines = one.inputs[1:3]
        if not same or any(one.inputs[3:]) or any(one.attributes.values()) or cosines is None or sines is None:
            return None
        key = cosines.name, sines.name
        if key not in self.known:
            self.known[key] = _tables(self.graph, key, self.positions)
        return self.known[key]


def _joined(x: Any) -> Value:
    """(batch, heads, length, size) as (batch, length, heads * size)."""
    return ops.reshape(ops.transpose(x, perm=[0, 2, 1, 3]), [0, 0, x.shape[1] * x.shape[3]])


def _tensors(values: Sequence[Value | None]) -> list[Any]:
    """Values that are given, with known shapes."""
    return [value for value in values if value is not None]


def _tables(graph: Graph, names: tuple[str, str], positions: int) -> Tables | None:
    """Cosines and sines by position; None where they depend on more than that."""
    part = tx.extract(graph, None, list(names))
    inputs = {value.name for value in part.inputs}
    if "position_ids" not in inputs or inputs - {"position_ids", "input_ids"}:
        return None

    def run(begin: int, end: int) -> Mapping[str, Any]:
        places = np.arange(begin, end, dtype=np.int64)[None]
        feeds = {"position_ids": places, "input_ids": places % 2 + begin % 2}
        return part.run({name: feeds[name] for name in inputs}, backend="numpy")

    whole, probe = run(0, positions), run(*_PROBE)
    tables = [np.asarray(whole[name]) for name in names]
    for name, table in zip(names, tables, strict=True):
        if table.ndim != 3 or not np.allclose(table[:, slice(*_PROBE)], probe[name], atol=1e-6):
            return None
    return Tables(*(np.ascontiguousarray(table[0]) for table in tables))
