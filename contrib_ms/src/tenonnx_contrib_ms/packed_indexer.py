"""Which keys sparse attention reads, of sequences that lie one behind the other and keep states of a fixed size."""

from __future__ import annotations

from typing import Any, NamedTuple

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    at_least,
    constant,
    floats,
    holds,
    integers,
    op,
    same_dtype,
    shapes,
)
from tenonnx_contrib_ms.indexers import COMMON, FLOATS, WEIGHTS
from tenonnx_contrib_ms.sparse_selection import Scoring, best, compressed, rows_at, tokens_of_blocks
from tenonnx_standard.checking import dim_of


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
    csa = policy_mode == "csa"
    scoring = Scoring(
        (query_norm_weight, key_norm_weight), (cos_cache, sin_cache), epsilon, scale, head_weight_scale, trailing=csa
    )
    size = dim_of(key_norm_weight, 0)
    if key is None:
        key, query = query[:, -size:], query[:, :-size]
    sums, past, lengths = (
        ops.cast(x, to=DType.int64) for x in (cumulative_sequence_lengths, past_sequence_lengths, past_state_lengths)
    )
    batch = _Batch.of(sums, dim_of(query, 0))
    buffers = [(past_kv_buffer, key), (past_gate_buffer, gate)] if csa else [(past_kv_buffer, key)]
    states = _States.of(batch, buffers, lengths, compress_ratio, csa)
    pooled = states.compressed(position_bias, size) if csa else states.means(size)
    new = scoring.keys(pooled, states.positions(dim_of(cos_cache, cos_cache.ndim - 2)))
    new = ops.cast(new, to=past_key_state.dtype)
    fits = states.entries + states.count <= state_capacity
    state = states.with_keys(past_key_state, new, fits, state_capacity)
    kept = [states.rest(buffer, x, fits) for (buffer, _), x in zip(buffers, states.tokens, strict=True)]
    after = states.lengths(lengths, fits)

    at = ops.unsqueeze(past, [1]) + ops.reshape(ops.range_(0, batch.longest, 1), [1, -1])
    positions = batch.padded(ops.unsqueeze(position_ids, [1]))[:, :, 0] if csa else at
    weights = None if head_weights is None else batch.padded(head_weights)
    scores = scoring.scores(batch.padded(query), positions, ops.cast(state, to=DType.float32), weights)
    if csa:
        found, used = best(scores, ops.minimum((positions + 1) / compress_ratio, after[:, :1]), index_topk)
    else:
        found, used = tokens_of_blocks(scores, at + 1, compress_ratio, token_budget)
    counts = ops.reduce_sum(ops.cast(used, to=DType.int32), [2])
    found = ops.cast(ops.where(used, found, -1), to=DType.int32)
    update = None
    if state_update_capacity and _outputs == 7:
        wanted = ops.minimum(ops.cast(ops.unsqueeze(state_update_capture_count, [1]), to=DType.int64), batch.counts)
        if state_update_active is not None:
            wanted = ops.where(ops.equal(state_update_active, 0), 0, wanted)
        update = _transitions(states.tokens[0], new, states.waiting, wanted, state_update_capacity, compress_ratio)
    outputs = batch.packed(found), batch.packed(counts)[:, 0], state, kept[0], kept[1] if csa else None
    return (*outputs, ops.cast(after, to=DType.int32), update)[:_outputs]


class _Batch(NamedTuple):
    """Sequences of (batch, 1) ``counts`` tokens one behind the other, and the places of these in (batch, longest)."""

    counts: Value
    longest: Value
    places: Value

    @classmethod
    def of(cls, sums: Value, tokens: Any) -> _Batch:
        counts = sums[1:] - sums[:-1]
        token = ops.range_(0, tokens, 1)
        sequence = ops.reduce_sum(ops.cast(ops.unsqueeze(token, [1]) >= sums[1:], to=DType.int64), [1], keepdims=0)
        places = ops.concat(
            ops.unsqueeze(sequence, [1]), ops.unsqueeze(token - ops.gather(sums, sequence), [1]), axis=1
        )
        return cls(ops.unsqueeze(counts, [1]), ops.reduce_max(counts, [0], keepdims=0), places)

    def padded(self, x: Value) -> Value:
        """(tokens, size) as (batch, longest, size), with zeros behind the shorter ones."""
        zeros = ops.expand(constant(0, x.dtype), [dim_of(self.counts, 0), self.longest, dim_of(x, 1)])
        return ops.scatter_nd(zeros, self.places, x)

    def packed(self, x: Value) -> Value:
        """(batch, longest, size) as (tokens, size)."""
        return ops.gather_nd(x, self.places)


class _States(NamedTuple):
    """What each sequence has: ``entries`` compressed keys, and ``tokens`` (batch, length, size) that are to be more.

    Of these ``waiting`` come from its buffer, of which the first ``window`` belong to the block before; ``begin`` is
    where those lie that are left over when ``count`` blocks of ``ratio`` are whole, of at most ``most``.
    """

    tokens: list[Value]
    entries: Value
    waiting: Value
    window: Value
    count: Value
    most: Value
    begin: Value
    left: Value
    ratio: int

    @classmethod
    def of(cls, batch: _Batch, buffers: list[tuple[Value, Value]], lengths: Value, ratio: int, csa: bool) -> _States:
        entries, waiting = lengths[:, :1], lengths[:, 1:]
        behind = dim_of(buffers[0][0], 1)
        token = ops.reshape(ops.range_(0, batch.longest + behind, 1), [1, -1])
        new = ops.minimum(token - waiting, batch.longest - 1) + behind
        places = ops.where(ops.less(token, waiting), token, new)
        tokens = [rows_at(ops.concat(buffer, batch.padded(x), axis=1), places) for buffer, x in buffers]
        window = ops.minimum(waiting / ratio, 1) * ratio
        count = (waiting - window + batch.counts) / ratio
        most = ops.reshape((batch.longest + behind) / ratio, [])
        begin = ops.maximum(window + (count - 1) * ratio, 0) if csa else count * ratio
        return cls(tokens, entries, waiting, window, count, most, begin, waiting + batch.counts - begin, ratio)

    def means(self, size: Any) -> Value:
        """The mean of each block."""
        rows = self.tokens[0][:, : self.most * self.ratio]
        rows = ops.reshape(rows, [0, self.most, self.ratio, size])
        return ops.reduce_mean(ops.cast(rows, to=DType.float32), [2], keepdims=0)

    def compressed(self, bias: Value, size: Any) -> Value:
        """One key of each block, by its gates."""
        return compressed(self.tokens[0], self.tokens[1], bias, self.window, self.most, self.ratio, size)

    @property
    def numbers(self) -> Value:
        return ops.reshape(ops.range_(0, self.most, 1), [1, -1])

    def positions(self, end: Any) -> Value:
        """The position of the first token of each block, below ``end``."""
        return ops.minimum((self.entries + self.numbers) * self.ratio, end - 1)

    def with_keys(self, state: Value, new: Value, fits: Value, capacity: int) -> Value:
        """A state with new keys behind those that it has, where they fit."""
        slots = ops.where(ops.less(self.numbers, self.count) & fits, self.entries + self.numbers, capacity)
        longer = ops.pad(state, [0, 0, 0, 0, 1, 0])
        places = ops.expand(ops.unsqueeze(slots, [2]), [1, 1, dim_of(state, 2)])
        return ops.scatter_elements(longer, places, new, axis=1)[:, :capacity]

    def rest(self, buffer: Value, tokens: Value, fits: Value) -> Value:
        """A buffer with what waits for more tokens, where the step fits."""
        kept = ops.reshape(ops.range_(0, dim_of(buffer, 1), 1), [1, -1])
        places = ops.minimum(self.begin + kept, dim_of(tokens, 1) - 1)
        there = ops.unsqueeze(ops.less(kept, self.left), [2])
        rest = ops.where(there, rows_at(tokens, places), constant(0.0, buffer.dtype))
        return ops.where(ops.unsqueeze(fits, [2]), rest, buffer)

    def lengths(self, before: Value, fits: Value) -> Value:
        """How many keys and tokens there are afterwards."""
        return ops.where(fits, ops.concat(self.entries + self.count, self.left, axis=1), before)


def _transitions(keys: Value, blocks: Value, waiting: Value, wanted: Value, capacity: int, ratio: int) -> Value:
    """What the first tokens leave behind: their key, or the block that they complete."""
    step = ops.reshape(ops.range_(0, capacity, 1), [1, -1])
    behind = waiting + step + 1
    own = rows_at(keys, ops.minimum(behind, dim_of(keys, 1)) - 1)
    whole = rows_at(blocks, ops.minimum(ops.maximum(behind / ratio - 1, 0), dim_of(blocks, 1) - 1))
    update = ops.where(ops.unsqueeze(ops.equal(behind % ratio, 0), [2]), whole, own)
    return ops.where(ops.unsqueeze(ops.less(step, wanted), [2]), update, constant(0.0, keys.dtype))


# ----- what must hold -------------------------------------------------------------------------------------------------


def _hold_state(
    policy_mode: str, past_gate_buffer: Any, state_update_capacity: int, state_update_capture_count: Any
) -> str | None:
    if (policy_mode == "csa") != (past_gate_buffer is not None):
        return "past_gate_buffer must be given if and only if policy_mode is csa"
    if not 0 <= state_update_capacity <= 8 or (state_update_capacity and policy_mode == "csa"):
        return "state_update_capacity must be from 0 to 8, and 0 with policy_mode csa"
    if state_update_capacity and state_update_capture_count is None:
        return "state_update_capacity needs state_update_capture_count"
    return None


packed_sparse_attention_indexer.requires(
    shapes(
        query="tokens hidden", key="tokens _", cumulative_sequence_lengths="_", past_sequence_lengths="batch",
        gate="tokens wide", head_weights="tokens heads", position_ids="tokens",
        past_key_state="batch state_capacity size", past_kv_buffer="batch waiting _",
        past_gate_buffer="batch waiting wide", past_state_lengths="batch 2", state_update_capture_count="batch",
        state_update_active="1", **WEIGHTS,
    ),
    floats(*FLOATS, "past_key_state", "past_kv_buffer", "past_gate_buffer"),
    same_dtype(*FLOATS, "past_key_state", "past_kv_buffer", "past_gate_buffer"),
    integers(
        "cumulative_sequence_lengths", "past_sequence_lengths", "past_state_lengths", "state_update_capture_count",
        "state_update_active",
    ),
    at_least(state_capacity=1),
    *COMMON,
    holds(_hold_state),
)  # fmt: skip
