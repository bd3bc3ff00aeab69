"""Which keys sparse attention reads: of each query the best blocks of keys, or the best compressed keys."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    at_least,
    constant,
    dims,
    dtypes,
    floats,
    holds,
    integers,
    limits,
    one_of,
    op,
    same_dtype,
    shapes,
)
from tenonnx_standard.checking import dim_of


@op("SparseAttentionIndexer", domain="com.microsoft")
def sparse_attention_indexer(
    query, key=None, query_norm_weight=REQUIRED, key_norm_weight=REQUIRED, cos_cache=REQUIRED, sin_cache=REQUIRED,
    mask=None, past_key=REQUIRED, gate=None, position_bias=None, head_weights=None, position_ids=None,
    past_sequence_length=None, past_proj_buffer=None, *,
    compress_ratio: int, epsilon=1e-6, head_weight_scale: float | None = None, index_topk: int | None = None,
    policy_mode: str, scale: float | None = None, token_budget: int | None = None, _outputs=None,
):  # fmt: skip
    """The keys that each query may read, best ones first, with -1 behind them; and the keys so far.

    With ``policy_mode`` qsa, the visible keys are cut into blocks of ``compress_ratio``, of which the mean is compared
    with the query; the tokens of the best blocks are followed by those of the incomplete last block. With csa a block
    becomes one key by a softmax of gates over it and the one before, and the best of these keys are given; what belongs
    to no block yet is kept in ``past_proj_buffer``.
    """
    policy = Policy(compress_ratio, epsilon, scale, (cos_cache, sin_cache), policy_mode == "csa")
    length, past = dim_of(query, 1), dim_of(past_key, 1)
    begun = past if past_sequence_length is None else ops.reshape(ops.cast(past_sequence_length, to=DType.int64), [])
    if policy_mode == "qsa":
        if key is None:
            key, query = query[:, :, -dim_of(past_key, 2) :], query[:, :, : -dim_of(past_key, 2)]
        present = _appended(past_key, key, begun, past_sequence_length is not None)
        total = dim_of(present, 1)
        tokens = ops.range_(0, total, 1)
        shown = ops.expand(constant(1, DType.int64), [dim_of(query, 0), total])
        if mask is not None:
            shown = ops.cast(ops.not_(ops.equal(mask, 0)), to=DType.int64)
            shown = ops.pad(shown, [0, 0, 0, ops.reshape(total - dim_of(mask, 1), [])])
        upto = ops.cumsum(shown, 1)
        places = ops.where(ops.equal(shown, 0), total, upto - 1)
        nowhere = ops.expand(constant(0, DType.int64), [dim_of(query, 0), total + 1])
        order = ops.scatter_elements(nowhere, places, ops.expand(tokens, ops.shape(places)), axis=1)[:, :total]
        blocks = total // compress_ratio
        pooled = _rows(present, order[:, : blocks * compress_ratio])
        pooled = ops.reshape(pooled, [0, blocks, compress_ratio, dim_of(present, 2)])
        mean = ops.reduce_mean(ops.cast(pooled, to=DType.float32), [2], keepdims=0)
        firsts = ops.reshape(order[:, : blocks * compress_ratio], [0, blocks, compress_ratio])[:, :, 0]
        rows = begun + ops.reshape(ops.range_(0, length, 1), [1, -1])
        rows = ops.expand(rows, [dim_of(query, 0), 1])
        seen = ops.gather_elements(upto, rows, axis=1)
        scores = policy.scores(query, query_norm_weight, rows, policy.keys(mean, key_norm_weight, firsts))
        ranks, used = _of_blocks(scores, seen, compress_ratio, token_budget)
        every = ops.expand(ops.unsqueeze(order, [1]), [1, length, 1])
        found = ops.gather_elements(every, ops.where(used, ranks, 0), axis=2)
        return (ops.cast(ops.where(used, found, -1), to=DType.int32), present, None)[:_outputs]

    size = dim_of(key_norm_weight, 0)
    held = dim_of(past_proj_buffer, 2)
    window = compress_ratio * _least(held // compress_ratio, 1)
    count = (held - window + length) // compress_ratio
    both = ops.concat(past_proj_buffer, ops.concat(ops.unsqueeze(key, [0]), ops.unsqueeze(gate, [0]), axis=0), axis=2)
    starts = ops.expand(ops.reshape(window, [1, 1]), [dim_of(query, 0), 1])
    pooled = _compressed(both[0], both[1], position_bias, starts, count, compress_ratio, size)
    firsts = (begun + ops.reshape(ops.range_(0, count, 1), [1, -1])) * compress_ratio
    firsts = ops.expand(firsts, [dim_of(query, 0), 1])
    new = ops.cast(policy.keys(pooled, key_norm_weight, firsts), to=past_key.dtype)
    present = _appended(past_key, new, begun, past_sequence_length is not None)
    scores = policy.scores(query, query_norm_weight, position_ids, ops.cast(present, to=DType.float32), head_weights,
                           head_weight_scale)  # fmt: skip
    found, _ = _best(scores, (position_ids + 1) // compress_ratio, index_topk)
    begin = _most(window + (count - 1) * compress_ratio, 0)
    return (ops.cast(found, to=DType.int32), present, both[:, :, begin:])[:_outputs]


@op("PackedSparseAttentionIndexer", domain="com.microsoft")
def packed_sparse_attention_indexer(
    query, key=None, query_norm_weight=REQUIRED, key_norm_weight=REQUIRED, cos_cache=REQUIRED, sin_cache=REQUIRED,
    cumulative_sequence_lengths=REQUIRED, past_sequence_lengths=REQUIRED, gate=None, position_bias=None,
    head_weights=None, position_ids=None, past_key_state=REQUIRED, past_kv_buffer=REQUIRED, past_gate_buffer=None,
    past_state_lengths=REQUIRED, state_update_capture_count=None, state_update_active=None, *,
    compress_ratio: int, epsilon=1e-6, head_weight_scale: float | None = None, index_topk: int | None = None,
    policy_mode: str, scale: float | None = None, state_capacity: int, state_update_capacity=0,
    token_budget: int | None = None, _outputs=None,
):  # fmt: skip
    """SparseAttentionIndexer of tokens one behind the other, with states of a fixed size for each sequence.

    ``past_state_lengths`` (batch, 2) says how many compressed keys and how many tokens of no block yet there are. A
    step that would need more than ``state_capacity`` leaves the states of its sequence as they are. What lies behind
    the tokens of a buffer is 0.
    """
    ratio, csa = compress_ratio, policy_mode == "csa"
    policy = Policy(ratio, epsilon, scale, (cos_cache, sin_cache), csa)
    size = dim_of(key_norm_weight, 0)
    if key is None:
        key, query = query[:, -size:], query[:, :-size]
    sums, past, lengths = (
        ops.cast(x, to=DType.int64) for x in (cumulative_sequence_lengths, past_sequence_lengths, past_state_lengths)
    )
    pack = Packed.of(sums, dim_of(query, 0))
    entries, waiting = lengths[:, :1], lengths[:, 1:]
    wide = [(past_kv_buffer, key)] + ([(past_gate_buffer, gate)] if csa else [])
    behind = dim_of(past_kv_buffer, 1)
    tokens = ops.reshape(ops.range_(0, pack.longest + behind, 1), [1, -1])
    places = ops.where(ops.less(tokens, waiting), tokens, ops.minimum(tokens - waiting, pack.longest - 1) + behind)
    joined = [_rows(ops.concat(buffer, pack.apart(new), axis=1), places) for buffer, new in wide]

    window = ops.minimum(waiting / ratio, 1) * ratio
    count = (waiting - window + pack.counts) / ratio
    most = ops.reshape((pack.longest + behind) / ratio, [])
    if csa:
        pooled = _compressed(joined[0], joined[1], position_bias, window, most, ratio, size)
    else:
        rows = ops.reshape(joined[0][:, : most * ratio], [0, most, ratio, size])
        pooled = ops.reduce_mean(ops.cast(rows, to=DType.float32), [2], keepdims=0)
    number = ops.reshape(ops.range_(0, most, 1), [1, -1])
    firsts = ops.minimum((entries + number) * ratio, dim_of(cos_cache, cos_cache.ndim - 2) - 1)
    new = ops.cast(policy.keys(pooled, key_norm_weight, firsts), to=past_key_state.dtype)
    fits = entries + count <= state_capacity
    slots = ops.where(ops.less(number, count) & fits, entries + number, state_capacity)
    longer = ops.pad(past_key_state, [0, 0, 0, 0, 1, 0])
    state = ops.scatter_elements(longer, ops.expand(ops.unsqueeze(slots, [2]), [1, 1, size]), new, axis=1)
    state = state[:, :state_capacity]

    begin = ops.maximum(window + (count - 1) * ratio, 0) if csa else count * ratio
    left = waiting + pack.counts - begin
    kept = ops.reshape(ops.range_(0, behind, 1), [1, -1])
    from_ = ops.minimum(begin + kept, dim_of(joined[0], 1) - 1)
    buffers = []
    for (buffer, _), x in zip(wide, joined, strict=True):
        rest = ops.where(ops.unsqueeze(ops.less(kept, left), [2]), _rows(x, from_), constant(0.0, buffer.dtype))
        buffers.append(ops.where(ops.unsqueeze(fits, [2]), rest, buffer))
    after = ops.where(fits, ops.concat(entries + count, left, axis=1), lengths)

    steps = ops.reshape(ops.range_(0, pack.longest, 1), [1, -1])
    at = ops.unsqueeze(past, [1]) + steps
    positions = pack.apart(ops.unsqueeze(position_ids, [1]))[:, :, 0] if csa else at
    held = ops.cast(state, to=DType.float32)
    weights = None if head_weights is None else pack.apart(head_weights)
    scores = policy.scores(pack.apart(query), query_norm_weight, positions, held, weights, head_weight_scale)
    seen = ops.minimum((positions + 1) / ratio, after[:, :1])
    if csa:
        found, used = _best(scores, seen, index_topk)
    else:
        found, used = _of_blocks(scores, at + 1, ratio, token_budget)
    counts = ops.reduce_sum(ops.cast(used, to=DType.int32), [2])
    found = ops.cast(ops.where(used, found, -1), to=DType.int32)
    update = None
    if state_update_capacity and _outputs == 7:
        wanted = ops.minimum(ops.cast(ops.unsqueeze(state_update_capture_count, [1]), to=DType.int64), pack.counts)
        if state_update_active is not None:
            wanted = ops.where(ops.equal(state_update_active, 0), 0, wanted)
        update = _transitions(joined[0], new, waiting, wanted, state_update_capacity, ratio)
    gates = buffers[1] if csa else None
    outputs = pack.together(found), pack.together(counts)[:, 0], state, buffers[0], gates
    return (*outputs, ops.cast(after, to=DType.int32), update)[:_outputs]


class Packed(NamedTuple):
    """Tokens one behind the other, and where they are in (batch, longest)."""

    counts: Value
    longest: Value
    places: Value

    @classmethod
    def of(cls, sums: Value, tokens: Any) -> Packed:
        counts = sums[1:] - sums[:-1]
        token = ops.range_(0, tokens, 1)
        sequence = ops.reduce_sum(ops.cast(ops.unsqueeze(token, [1]) >= sums[1:], to=DType.int64), [1], keepdims=0)
        places = ops.concat(
            ops.unsqueeze(sequence, [1]), ops.unsqueeze(token - ops.gather(sums, sequence), [1]), axis=1
        )
        return cls(ops.unsqueeze(counts, [1]), ops.reduce_max(counts, [0], keepdims=0), places)

    def apart(self, x: Value) -> Value:
        """(tokens, size) as (batch, longest, size), with zeros behind the shorter ones."""
        zeros = ops.expand(constant(0, x.dtype), [dim_of(self.counts, 0), self.longest, dim_of(x, 1)])
        return ops.scatter_nd(zeros, self.places, x)

    def together(self, x: Value) -> Value:
        return ops.gather_nd(x, self.places)


class Policy(NamedTuple):
    """How queries and keys are normalised, turned and compared, all in float32."""

    ratio: int
    epsilon: float
    scale: float | None
    tables: tuple[Value, Value]
    trailing: bool

    def keys(self, x: Value, weight: Value, positions: Value) -> Value:
        """(batch, n, size) keys."""
        return ops.squeeze(self._turned(ops.unsqueeze(self._normed(x, weight), [2]), positions), [2])

    def scores(
        self, query: Value, weight: Value, positions: Value, keys: Value, weights: Value | None = None,
        factor: float | None = None,
    ) -> Value:  # fmt: skip
        """What (batch, length, heads * size) queries think of (batch, n, size) keys."""
        size = dim_of(keys, 2)
        q = ops.reshape(ops.cast(query, to=DType.float32), [0, dim_of(query, 1), -1, size])
        q = self._turned(self._normed(q, weight), positions)
        each = ops.relu(ops.matmul(q, ops.unsqueeze(ops.transpose(keys, perm=[0, 2, 1]), [1])))
        each = each * (self.scale or _root(size))
        if weights is not None:
            each = each * ops.unsqueeze(ops.cast(weights, to=DType.float32) * (factor or _root(dim_of(q, 2))), [3])
        return ops.reduce_sum(each, [2], keepdims=0)

    def _normed(self, x: Value, weight: Value) -> Value:
        x = ops.cast(x, to=DType.float32)
        return ops.rms_normalization(x, ops.cast(weight, to=DType.float32), epsilon=self.epsilon)

    def _turned(self, x: Value, positions: Value) -> Value:
        """(batch, n, heads, size) turned by the halves of its first channels, or by the pairs of its last ones."""
        cos, sin = (ops.unsqueeze(ops.cast(_at(t, positions), to=DType.float32), [2]) for t in self.tables)
        width = dim_of(cos, 3)
        if self.trailing:
            pairs = ops.reshape(x[:, :, :, -2 * width :], [0, 0, dim_of(x, 2), width, 2])
            first, second = pairs[:, :, :, :, 0], pairs[:, :, :, :, 1]
            turned = [ops.unsqueeze(y, [4]) for y in (first * cos - second * sin, first * sin + second * cos)]
            turned = ops.reshape(ops.concat(*turned, axis=4), [0, 0, dim_of(x, 2), 2 * width])
            return ops.concat(x[:, :, :, : -2 * width], turned, axis=3)
        part, half = x[:, :, :, :width], width // 2
        swapped = ops.concat(-part[:, :, :, half:], part[:, :, :, :half], axis=3)
        return ops.concat(part * cos + swapped * sin, x[:, :, :, width:], axis=3)


def _at(table: Value, positions: Value) -> Value:
    return ops.gather(table, positions) if table.ndim == 2 else _rows(table, positions)


def _root(size: Any) -> Any:
    if isinstance(size, int):
        return 1 / math.sqrt(size)
    return ops.reciprocal(ops.sqrt(ops.cast(size, to=DType.float32)))


def _rows(x: Value, places: Value) -> Value:
    """The rows of (batch, length, size) at ``places`` (batch, n)."""
    batch, length, size = dims(x)
    first = ops.reshape(ops.range_(0, batch, 1), [-1, 1]) * length
    return ops.gather(ops.reshape(x, [-1, size]), places + first)


def _appended(past: Value, new: Value, begun: Any, in_place: bool) -> Value:
    if not in_place:
        return ops.concat(past, new, axis=1)
    places = begun + ops.reshape(ops.range_(0, dim_of(new, 1), 1), [1, -1, 1])
    return ops.scatter_elements(past, ops.expand(places, ops.shape(new)), new, axis=1)


def _compressed(keys: Value, gates: Value, bias: Value, starts: Value, count: Any, ratio: int, size: Any) -> Value:
    """(batch, count, size): blocks of (batch, length, 2 * size) from ``starts`` (batch, 1) on, and those before them,
    of which the first halves of the channels count, weighted by a softmax of their gates."""
    length = dim_of(keys, 1)
    places = starts + ops.reshape(ops.range_(0, count * ratio, 1), [1, -1])
    parts = []
    for x, empty in ((keys, 0.0), (gates, -np.inf)):
        before = ops.reshape(
            _rows(x, ops.minimum(ops.maximum(places - ratio, 0), length - 1)), [0, count, ratio, 2 * size]
        )
        block = ops.reshape(_rows(x, ops.minimum(places, length - 1)), [0, count, ratio, 2 * size])
        before, block = (ops.cast(y, to=DType.float32) for y in (before, block))
        if x is gates:
            before, block = (y + ops.cast(bias, to=DType.float32) for y in (before, block))
        there = ops.reshape(places >= ratio, [0, count, ratio, 1])
        before = ops.where(there, before[:, :, :, :size], empty)
        parts.append(ops.concat(before, block[:, :, :, size:], axis=2))
    values, logits = parts
    top = ops.reduce_max(logits, [2])
    finite = ops.less(ops.absolute(top), np.inf)
    weights = ops.softmax(ops.where(finite, logits, 0.0), axis=2)
    return ops.reduce_sum(ops.where(finite, weights * values, 0.0), [2], keepdims=0)


def _best(scores: Value, seen: Value, count: int) -> tuple[Value, Value]:
    """The best ``count`` of the first ``seen`` (batch, length) scores, -1 behind them, and which are there."""
    number = dim_of(scores, 2)
    visible = ops.less(ops.range_(0, number, 1), ops.unsqueeze(seen, [2]))
    scores = ops.where(visible, scores, constant(-np.inf, DType.float32))
    longer = ops.pad(scores, [0, 0, 0, 0, 0, _most(count - number, 0)], constant(-np.inf, DType.float32))
    found = ops.top_k(longer, [count])[1]
    there = ops.less(ops.range_(0, count, 1), ops.unsqueeze(ops.minimum(seen, number), [2]))
    return ops.where(there, found, -1), there


def _of_blocks(scores: Value, seen: Value, ratio: int, budget: int) -> tuple[Value, Value]:
    """The ranks of the tokens of the best blocks among the ``seen`` ones, and of those behind the last whole block."""
    best, there = _best(scores, seen / ratio, budget // ratio)
    blocks = ops.unsqueeze(ops.reduce_sum(ops.cast(there, to=DType.int64), [2], keepdims=0), [2]) * ratio
    seen = ops.unsqueeze(seen, [2])
    column = ops.range_(0, budget + ratio - 1, 1)
    limits.check_elements([budget], "what an indexer selects")
    block = ops.gather(best, constant(np.minimum(np.arange(budget + ratio - 1) // ratio, budget // ratio - 1)), axis=2)
    ranks = ops.where(ops.less(column, blocks), block * ratio + column % ratio, seen / ratio * ratio + column - blocks)
    return ranks, ops.less(column, blocks + seen % ratio)


def _transitions(keys: Value, blocks: Value, waiting: Value, wanted: Value, capacity: int, ratio: int) -> Value:
    """What the first tokens leave behind: their key, or the block that they complete."""
    step = ops.reshape(ops.range_(0, capacity, 1), [1, -1])
    behind = waiting + step + 1
    own = _rows(keys, ops.minimum(behind, dim_of(keys, 1)) - 1)
    whole = _rows(blocks, ops.minimum(ops.maximum(behind / ratio - 1, 0), dim_of(blocks, 1) - 1))
    update = ops.where(ops.unsqueeze(ops.equal(behind % ratio, 0), [2]), whole, own)
    return ops.where(ops.unsqueeze(ops.less(step, wanted), [2]), update, constant(0.0, keys.dtype))


def _least(a: Any, b: int) -> Any:
    return ops.minimum(a, b) if isinstance(a, Value) else min(a, b)


def _most(a: Any, b: int) -> Any:
    return ops.maximum(a, b) if isinstance(a, Value) else max(a, b)


# ----- what must hold -------------------------------------------------------------------------------------------------


def _hold_policy(
    policy_mode: str, token_budget: int | None, index_topk: int | None, compress_ratio: int, head_weight_scale: Any
) -> str | None:
    if policy_mode == "qsa":
        if index_topk is not None or head_weight_scale is not None:
            return "index_topk and head_weight_scale belong to policy_mode csa"
        if token_budget is None or token_budget < 1 or token_budget % compress_ratio:
            return "token_budget must be a multiple of compress_ratio with policy_mode qsa"
        return None
    if token_budget is not None or index_topk is None or index_topk < 1:
        return "index_topk must be at least 1 with policy_mode csa, and there is no token_budget"
    return None


def _hold_inputs(
    policy_mode: str, key: Any, gate: Any, position_bias: Any, head_weights: Any, position_ids: Any
) -> str | None:
    others = gate, position_bias, head_weights, position_ids
    if policy_mode == "qsa":
        missing = any(x is not None for x in others)
        return "gate, position_bias, head_weights and position_ids belong to policy_mode csa" if missing else None
    if any(x is None for x in (key, *others)):
        return "policy_mode csa needs key, gate, position_bias, head_weights and position_ids"
    return None


def _hold_mask(policy_mode: str, mask: Any, past_proj_buffer: Any) -> str | None:
    if (policy_mode == "csa") != (past_proj_buffer is not None):
        return "past_proj_buffer belongs to policy_mode csa"
    return "mask belongs to policy_mode qsa" if policy_mode == "csa" and mask is not None else None


def _hold_state(
    policy_mode: str, past_gate_buffer: Any, state_update_capacity: int, state_update_capture_count: Any
) -> str | None:
    if (policy_mode == "csa") != (past_gate_buffer is not None):
        return "past_gate_buffer belongs to policy_mode csa"
    if not 0 <= state_update_capacity <= 8 or (state_update_capacity and policy_mode == "csa"):
        return "state_update_capacity must be from 0 to 8, and 0 with policy_mode csa"
    if state_update_capacity and state_update_capture_count is None:
        return "state_update_capacity needs state_update_capture_count"
    return None


_FLOATS = (
    "query", "key", "query_norm_weight", "key_norm_weight", "cos_cache", "sin_cache", "gate", "position_bias",
    "head_weights",
)  # fmt: skip
_WEIGHTS = {
    "query_norm_weight": "size", "key_norm_weight": "size", "cos_cache": "positions width|batch positions width",
    "sin_cache": "positions width|batch positions width", "position_bias": "compress_ratio wide",
}  # fmt: skip
_COMMON = (
    one_of(policy_mode=("qsa", "csa")),
    at_least(compress_ratio=1),
    dtypes(position_ids="int64"),
    holds(_hold_policy),
    holds(_hold_inputs),
)

sparse_attention_indexer.requires(
    shapes(
        query="batch length hidden", key="batch length _", mask="batch _", past_key="batch _ size",
        gate="batch length wide", head_weights="batch length heads", position_ids="batch length",
        past_sequence_length="|1", past_proj_buffer="2 batch _ wide", **_WEIGHTS,
    ),
    floats(*_FLOATS, "past_key", "past_proj_buffer"),
    same_dtype(*_FLOATS, "past_key", "past_proj_buffer"),
    dtypes(mask="int64"),
    integers("past_sequence_length"),
    *_COMMON,
    holds(_hold_mask),
)  # fmt: skip
packed_sparse_attention_indexer.requires(
    shapes(
        query="tokens hidden", key="tokens _", cumulative_sequence_lengths="_", past_sequence_lengths="batch",
        gate="tokens wide", head_weights="tokens heads", position_ids="tokens",
        past_key_state="batch state_capacity size", past_kv_buffer="batch waiting _",
        past_gate_buffer="batch waiting wide", past_state_lengths="batch 2", state_update_capture_count="batch",
        state_update_active="1", **_WEIGHTS,
    ),
    floats(*_FLOATS, "past_key_state", "past_kv_buffer", "past_gate_buffer"),
    same_dtype(*_FLOATS, "past_key_state", "past_kv_buffer", "past_gate_buffer"),
    integers(
        "cumulative_sequence_lengths", "past_sequence_lengths", "past_state_lengths", "state_update_capture_count",
        "state_update_active",
    ),
    at_least(state_capacity=1),
    *_COMMON,
    holds(_hold_state),
)  # fmt: skip
