"""Indexers of sparse attention: select the best blocks of keys, or the best compressed keys, for each query."""

from __future__ import annotations

from typing import Any, NamedTuple

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    at_least,
    constant,
    dtypes,
    floats,
    holds,
    integers,
    one_of,
    op,
    same_dtype,
    shapes,
)
from tenonnx_contrib_ms.sparse_selection import Scoring, best, compressed, least, most, rows_at, tokens_of_blocks
from tenonnx_standard.checking import dim_of


@op("SparseAttentionIndexer", domain="com.microsoft")
def sparse_attention_indexer(
    query,
    key=None,
    query_norm_weight=REQUIRED,
    key_norm_weight=REQUIRED,
    cos_cache=REQUIRED,
    sin_cache=REQUIRED,
    mask=None,
    past_key=REQUIRED,
    gate=None,
    position_bias=None,
    head_weights=None,
    position_ids=None,
    past_sequence_length=None,
    past_proj_buffer=None,
    *,
    compress_ratio: int,
    epsilon=1e-6,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    policy_mode: str,
    scale: float | None = None,
    token_budget: int | None = None,
    _outputs=None,
):
    """The keys that each query may read, best first and padded with -1; and the keys so far.

    With ``policy_mode`` qsa, these are tokens: visible keys are split into blocks of ``compress_ratio``, whose mean is
    compared with the query. The tokens of the best blocks are followed by those of the incomplete last block. With csa,
    these are compressed keys: each block becomes one key by a gated softmax over it and the previous block; tokens of
    an incomplete block are kept in ``past_proj_buffer``.
    """
    scoring = Scoring(
        (query_norm_weight, key_norm_weight),
        (cos_cache, sin_cache),
        epsilon,
        scale,
        head_weight_scale,
        trailing=policy_mode == "csa",
    )
    cache = _Cache(past_key, past_sequence_length)
    if policy_mode == "qsa":
        if key is None:
            key, query = query[:, :, -dim_of(past_key, 2) :], query[:, :, : -dim_of(past_key, 2)]
        return (*_best_tokens(scoring, query, key, mask, cache, compress_ratio, token_budget), None)[:_outputs]
    projected = ops.concat(ops.unsqueeze(key, [0]), ops.unsqueeze(gate, [0]), axis=0)
    blocks = _Blocks.of(past_proj_buffer, projected, dim_of(query, 1), compress_ratio)
    new = scoring.keys(blocks.compressed(position_bias, dim_of(key_norm_weight, 0)), blocks.positions(cache.length))
    present = cache.appended(ops.cast(new, to=past_key.dtype))
    scores = scoring.scores(query, position_ids, ops.cast(present, to=DType.float32), head_weights)
    found, _ = best(scores, (position_ids + 1) // compress_ratio, index_topk)
    return (ops.cast(found, to=DType.int32), present, blocks.remaining_tokens)[:_outputs]


sparse_attention_indexer.traits(on_request=True)


class _Cache(NamedTuple):
    """The keys so far (batch, length, size), or a buffer filled up to ``filled``."""

    keys: Value
    filled: Value | None

    @property
    def length(self) -> Any:
        """Number of keys before the new ones."""
        if self.filled is None:
            return dim_of(self.keys, 1)
        return ops.reshape(ops.cast(self.filled, to=DType.int64), [])

    def appended(self, new: Value) -> Value:
        if self.filled is None:
            return ops.concat(self.keys, new, axis=1)  # type: ignore[no-any-return]
        places = self.length + ops.reshape(ops.range_(0, dim_of(new, 1), 1), [1, -1, 1])
        return ops.scatter_elements(self.keys, ops.expand(places, ops.shape(new)), new, axis=1)  # type: ignore[no-any-return]


def _best_tokens(
    scoring: Scoring, query: Value, key: Value, mask: Value | None, cache: _Cache, ratio: int, budget: int
) -> tuple[Value, Value]:
    """The tokens of the best blocks of visible keys for each query, and all keys."""
    batch, length = dim_of(query, 0), dim_of(query, 1)
    present = cache.appended(key)
    order, upto = _visible(mask, batch, dim_of(present, 1))
    blocks = dim_of(present, 1) // ratio
    rows = rows_at(present, order[:, : blocks * ratio])
    rows = ops.cast(ops.reshape(rows, [0, blocks, ratio, dim_of(present, 2)]), to=DType.float32)
    firsts = ops.reshape(order[:, : blocks * ratio], [0, blocks, ratio])[:, :, 0]
    keys = scoring.keys(ops.reduce_mean(rows, [2], keepdims=0), firsts)
    positions = ops.expand(cache.length + ops.reshape(ops.range_(0, length, 1), [1, -1]), [batch, 1])
    seen = ops.gather_elements(upto, positions, axis=1)
    ranks, used = tokens_of_blocks(scoring.scores(query, positions, keys), seen, ratio, budget)
    tokens = ops.gather_elements(
        ops.expand(ops.unsqueeze(order, [1]), [1, length, 1]), ops.where(used, ranks, 0), axis=2
    )
    return ops.cast(ops.where(used, tokens, -1), to=DType.int32), present


def _visible(mask: Value | None, batch: Any, total: Any) -> tuple[Value, Value]:
    """The tokens visible in ``mask``, packed, and their number up to each token."""
    shown = ops.expand(constant(1, DType.int64), [batch, total])
    if mask is not None:
        shown = ops.cast(ops.not_(ops.equal(mask, 0)), to=DType.int64)
        shown = ops.pad(shown, [0, 0, 0, ops.reshape(total - dim_of(mask, 1), [])])
    upto = ops.cumsum(shown, 1)
    places = ops.where(ops.equal(shown, 0), total, upto - 1)
    nowhere = ops.expand(constant(0, DType.int64), [batch, total + 1])
    tokens = ops.expand(ops.range_(0, total, 1), ops.shape(places))
    return ops.scatter_elements(nowhere, places, tokens, axis=1)[:, :total], upto


class _Blocks(NamedTuple):
    """Blocks of tokens compressed to one key each.

    ``projected`` are keys and gates (2, batch, length, size); the last ``window`` tokens before the first block belong
    to the previous block.
    """

    projected: Value
    window: Any
    count: Any
    ratio: int

    @classmethod
    def of(cls, waiting: Value, new: Value, length: Any, ratio: int) -> _Blocks:
        """The blocks completed by the ``waiting`` tokens and ``length`` new ones."""
        waiting_count = dim_of(waiting, 2)
        window = ratio * least(waiting_count // ratio, 1)
        return cls(ops.concat(waiting, new, axis=2), window, (waiting_count - window + length) // ratio, ratio)

    def compressed(self, bias: Value, size: Any) -> Value:
        starts = ops.expand(ops.reshape(self.window, [1, 1]), [dim_of(self.projected, 1), 1])
        return compressed(self.projected[0], self.projected[1], bias, starts, self.count, self.ratio, size)

    def positions(self, before: Any) -> Value:
        """The position of the first token of each block; ``before`` is the number of earlier blocks."""
        firsts = (before + ops.reshape(ops.range_(0, self.count, 1), [1, -1])) * self.ratio
        return ops.expand(firsts, [dim_of(self.projected, 1), 1])  # type: ignore[no-any-return]

    @property
    def remaining_tokens(self) -> Value:
        """Tokens of the incomplete block, and the last complete block."""
        return self.projected[:, :, most(self.window + (self.count - 1) * self.ratio, 0) :]


# ----- requirements ---------------------------------------------------------------------------------------------------


def _hold_policy(
    policy_mode: str, token_budget: int | None, index_topk: int | None, compress_ratio: int, head_weight_scale: Any
) -> str | None:
    if policy_mode == "qsa":
        if index_topk is not None or head_weight_scale is not None:
            return "index_topk or head_weight_scale is given, with policy_mode qsa"
        if token_budget is None or token_budget < 1 or token_budget % compress_ratio:
            return "token_budget is not a multiple of compress_ratio, with policy_mode qsa"
        return None
    if token_budget is not None or index_topk is None or index_topk < 1:
        return "index_topk is below 1 or token_budget is given, with policy_mode csa"
    return None


def _hold_inputs(
    policy_mode: str, key: Any, gate: Any, position_bias: Any, head_weights: Any, position_ids: Any
) -> str | None:
    others = gate, position_bias, head_weights, position_ids
    if policy_mode == "qsa":
        missing = any(x is not None for x in others)
        return "gate, position_bias, head_weights or position_ids is given, with policy_mode qsa" if missing else None
    if any(x is None for x in (key, *others)):
        return "key, gate, position_bias, head_weights or position_ids is missing, with policy_mode csa"
    return None


def _hold_mask(policy_mode: str, mask: Any, past_proj_buffer: Any) -> str | None:
    if (policy_mode == "csa") != (past_proj_buffer is not None):
        return "past_proj_buffer and policy_mode csa are not given together"
    return "mask is given, with policy_mode csa" if policy_mode == "csa" and mask is not None else None


FLOATS = (
    "query",
    "key",
    "query_norm_weight",
    "key_norm_weight",
    "cos_cache",
    "sin_cache",
    "gate",
    "position_bias",
    "head_weights",
)
WEIGHTS = {
    "query_norm_weight": "size",
    "key_norm_weight": "size",
    "cos_cache": "positions width|batch positions width",
    "sin_cache": "positions width|batch positions width",
    "position_bias": "compress_ratio wide",
}
COMMON = (
    one_of(policy_mode=("qsa", "csa")),
    at_least(compress_ratio=1),
    dtypes(position_ids="int64"),
    holds(_hold_policy),
    holds(_hold_inputs),
)

sparse_attention_indexer.requires(
    shapes(
        query="batch length hidden",
        key="batch length _",
        mask="batch _",
        past_key="batch _ size",
        gate="batch length wide",
        head_weights="batch length heads",
        position_ids="batch length",
        past_sequence_length="|1",
        past_proj_buffer="2 batch _ wide",
        **WEIGHTS,
    ),
    floats(*FLOATS, "past_key", "past_proj_buffer"),
    same_dtype(*FLOATS, "past_key", "past_proj_buffer"),
    dtypes(mask="int64"),
    integers("past_sequence_length"),
    *COMMON,
    holds(_hold_mask),
)
