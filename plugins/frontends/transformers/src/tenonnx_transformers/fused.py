"""Fusion of decoders for onnxruntime: GroupQueryAttention with cache and rotary embedding, and skip norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, Node, Value, constant
from tenonnx.extend.transforms import Call, Rewriter, prune
from tenonnx_contrib_ms.grouped_query import group_query_attention

#: Groups of ops to fuse, in this order: patterns of later groups contain results of earlier ones.
_FOUND = (
    ("RMSNormalization", "RotaryEmbedding", "Attention"),
    ("com.microsoft::SkipSimplifiedLayerNormalization",),
)

#: Opset at which ai.onnx has Attention and RotaryEmbedding.
_OPSET = 24

#: onnxruntime supports head sizes that are multiples of the first number, and rotates multiples of the second.
_MULTIPLE, _ROTATED = 8, 16

#: Range of positions (begin, end) at which tables are compared with the graph.
_PROBE = (3, 11)


class Tables(NamedTuple):
    """Cosine and sine caches of a rotary embedding, float32 of shape (positions, head_size / 2)."""

    cosines: np.ndarray[Any, Any]
    sines: np.ndarray[Any, Any]


def fused(graph: Graph, positions: int) -> Graph | None:
    """Return a decoder with ``com.microsoft::GroupQueryAttention`` and fused norms; None if it has no such attention.

    A rotary embedding that depends only on ``position_ids`` becomes a part of the attention, with tables of
    ``positions`` rows. For batches with a past, onnxruntime's kernel takes one new token per sequence. It rotates
    prompts from position 0 on, so they have to be padded on the right.
    """
    found = tx.retarget(graph, opset_version=_OPSET, domains=["ai.onnx", "com.microsoft"])
    for names in _FOUND:
        found = tx.fuse(found, names)
    if not any(_fits(node) for node in found.nodes):
        return None
    return tx.simplify(prune(Rewriter(found, _Grouping(found, positions).decide).run()))


def _fits(node: Node) -> bool:
    """Whether a node is an Attention with a past that the fused op can replace."""
    if node.op is not ops.attention or len(node.inputs) < 6:
        return False
    if any(x is None for x in node.inputs[:6]) or any(x is not None for x in node.inputs[6:]):
        return False
    query, key, value, mask = _present(node.inputs[:4])
    if any(x.shape is None or len(x.shape) != 4 for x in (query, key, value, mask)):
        return False
    size = query.shape[3]
    whole = all(isinstance(each, int) for each in (size, query.shape[1], key.shape[1])) and size % _MULTIPLE == 0
    usual = not node.attributes.get("is_causal") and not node.attributes.get("qk_matmul_output_mode")
    return whole and usual and key.shape[3] == value.shape[3] == size and mask.dtype is query.dtype


class _Grouping:
    """Rewrite of Attention nodes into the fused op."""

    def __init__(self, graph: Graph, positions: int) -> None:
        self.graph, self.positions = graph, positions
        self.tables: dict[tuple[str, str], Tables | None] = {}

    def decide(self, rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.node is None or not _fits(call.node):
            return None
        query, key, value, mask, *past = _present(call.inputs[:6])
        rotation, rotary = self._rotation(call.node), list[Any]()
        if rotation is not None:
            query, key = (_present(x.producer.inputs)[0] for x in (query, key))
            rotary = [*map(constant, rotation), rewriter.graph["position_ids"]]
        (_, heads, _, size), count = query.shape, key.shape[1]
        total = ops.cast(ops.shape(past[0], start=2, end=3) + ops.shape(key, start=2, end=3), to=DType.int32)
        last = ops.expand(total - 1, ops.shape(query, end=1))
        given = [*map(_merge_heads, (query, key, value)), *past, last, total, *(rotary or [None] * 3), mask]
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
        """Return the tables of the rotary embedding, if queries and keys have the same one; else None."""
        heads = _present(node.inputs[:2])
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
        if key not in self.tables:
            self.tables[key] = _tables(self.graph, key, self.positions)
        return self.tables[key]


def _merge_heads(x: Any) -> Value:
    """Reshape (batch, heads, length, size) to (batch, length, heads * size)."""
    return ops.reshape(ops.transpose(x, perm=[0, 2, 1, 3]), [0, 0, x.shape[1] * x.shape[3]])


def _present(values: Sequence[Value | None]) -> list[Any]:
    """Values that are present, typed as Any since their shapes are known."""
    return [value for value in values if value is not None]


def _tables(graph: Graph, names: tuple[str, str], positions: int) -> Tables | None:
    """Compute the tables of a rotary embedding; None if they depend on more than the position."""
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
