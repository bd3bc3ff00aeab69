"""The sparse attention indexer for packed sequences with fixed-size states."""

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
    limits,
    one_of,
    op,
    same_dtype,
    shapes,
    together,
)
from tenonnx_contrib_ms.indexers import COMMON, FLOATS, WEIGHTS
from tenonnx_contrib_ms.sparse_selection import Scoring, best, compressed, most, rows_at, tokens_of_blocks
from tenonnx_standard.checking import dim_of


@op("PackedSparseAttentionIndexer", domain="com.microsoft")
def packed_sparse_attention_indexer(
    query,
    key=None,
    query_norm_weight=REQUIRED,
    key_norm_weight=REQUIRED,
    cos_cache=REQUIRED,
    sin_cache=REQUIRED,
    cumulative_sequence_lengths=REQUIRED,
    past_sequence_lengths=REQUIRED,
    gate=None,
    position_bias=None,
    head_weights=None,
    position_ids=None,
    past_key_state=REQUIRED,
    past_kv_buffer=REQUIRED,
    past_gate_buffer=None,
    past_state_lengths=REQUIRED,
    state_update_capture_count=None,
    state_update_active=None,
    indexshare_mode=None,
    merged_indices=None,
    merged_counts=None,
    merged_status=None,
    *,
    compress_ratio: int,
    epsilon=1e-6,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    indexshare_state_policy="default",
    max_output_entries=0,
    policy_mode: str,
    scale: float | None = None,
    state_capacity: int,
    state_update_capacity=0,
    token_budget: int | None = None,
    _outputs=None,
):
    """SparseAttentionIndexer of packed tokens, with fixed-size states per sequence.

    ``past_state_lengths`` (batch, 2) has the numbers of compressed keys and of tokens in an incomplete block. A step
    that would exceed ``state_capacity`` keeps the states of its sequence and selects nothing; the ninth output is 2
    then. Buffers are zero after their tokens.

    With ``indexshare_mode`` 1 the ``merged`` selection replaces the one computed here, and the states stay or advance
    according to ``indexshare_state_policy``. Its rows are ``max_output_entries`` wide.
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
    reuses = None if indexshare_mode is None else ops.equal(ops.reshape(indexshare_mode, []), 1)
    holds_state = policy_mode == "qsa" if indexshare_state_policy == "default" else indexshare_state_policy == "hold"
    status = ops.where(fits, 0, 2)
    selects = ops.unsqueeze(fits, [2])
    if reuses is not None and holds_state:
        fits, status = fits & ops.not_(reuses), ops.where(reuses, 0, status)
    state = states.with_keys(past_key_state, new, fits, state_capacity)
    kept = [states.new_buffer(buffer, x, fits) for (buffer, _), x in zip(buffers, states.tokens, strict=True)]
    after = states.lengths(lengths, fits)

    at = ops.unsqueeze(past, [1]) + ops.reshape(ops.range_(0, batch.longest, 1), [1, -1])
    positions = batch.padded(ops.unsqueeze(position_ids, [1]))[:, :, 0] if csa else at
    weights = None if head_weights is None else batch.padded(head_weights)
    scores = scoring.scores(batch.padded(query), positions, ops.cast(state, to=DType.float32), weights)
    if csa:
        found, used = best(scores, ops.minimum((positions + 1) / compress_ratio, after[:, :1]), index_topk)
    else:
        found, used = tokens_of_blocks(scores, at + 1, compress_ratio, token_budget)
    used = used & selects
    counts = batch.packed(ops.reduce_sum(ops.cast(used, to=DType.int32), [2]))[:, 0]
    found = batch.packed(ops.cast(ops.where(used, found, -1), to=DType.int32))
    shared = None
    if max_output_entries:
        width = dim_of(found, 1)
        behind = ops.concat([0, 0, 0], ops.reshape(most(max_output_entries - width, 0), [1]), axis=0)
        found = ops.pad(found, behind, -1)[:, :max_output_entries]
    if reuses is not None:
        found, counts = ops.where(reuses, merged_indices, found), ops.where(reuses, merged_counts, counts)
        shared = ops.where(reuses, merged_status, ops.zeros_like(merged_status))
    update = None
    if state_update_capacity and (_outputs or 0) > 6:
        wanted = ops.minimum(ops.cast(ops.unsqueeze(state_update_capture_count, [1]), to=DType.int64), batch.counts)
        if state_update_active is not None:
            wanted = ops.where(ops.equal(state_update_active, 0), 0, wanted)
        update = _transitions(states.tokens[0], new, states.waiting, wanted, state_update_capacity, compress_ratio)
    outputs = found, counts, state, kept[0], kept[1] if csa else None, ops.cast(after, to=DType.int32), update
    return (*outputs, shared, ops.cast(ops.squeeze(status, [1]), to=DType.int32))[:_outputs]


packed_sparse_attention_indexer.traits(on_request=True)


class _Batch(NamedTuple):
    """Packed sequences with (batch, 1) ``counts`` tokens, and the positions of their tokens in (batch, longest)."""

    counts: Value
    longest: Value
    indices: Value

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
        """(tokens, size) unpacked to (batch, longest, size), padded with zeros."""
        zeros = ops.expand(constant(0, x.dtype), [dim_of(self.counts, 0), self.longest, dim_of(x, 1)])
        return ops.scatter_nd(zeros, self.indices, x)

    def packed(self, x: Value) -> Value:
        """(batch, longest, size) packed to (tokens, size)."""
        return ops.gather_nd(x, self.indices)


class _States(NamedTuple):
    """States of the sequences: ``entries`` compressed keys, and ``tokens`` (batch, length, size) to compress.

    The first ``waiting`` tokens come from the buffer; the first ``window`` of these belong to the previous block.
    ``count`` blocks of ``ratio`` tokens, at most ``max_blocks``, are complete. The ``remaining`` tokens start at
    ``begin``.
    """

    tokens: list[Value]
    entries: Value
    waiting: Value
    window: Value
    count: Value
    max_blocks: Value
    begin: Value
    remaining: Value
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
        rows = self.tokens[0][:, : self.max_blocks * self.ratio]
        rows = ops.reshape(rows, [0, self.max_blocks, self.ratio, size])
        return ops.reduce_mean(ops.cast(rows, to=DType.float32), [2], keepdims=0)

    def compressed(self, bias: Value, size: Any) -> Value:
        """One key per block, weighted by gates."""
        return compressed(self.tokens[0], self.tokens[1], bias, self.window, self.max_blocks, self.ratio, size)

    @property
    def numbers(self) -> Value:
        return ops.reshape(ops.range_(0, self.max_blocks, 1), [1, -1])

    def positions(self, end: Any) -> Value:
        """The position of the first token of each block, below ``end``."""
        return ops.minimum((self.entries + self.numbers) * self.ratio, end - 1)

    def with_keys(self, state: Value, new: Value, fits: Value, capacity: int) -> Value:
        """A state with new keys appended, where they fit."""
        slots = ops.where(ops.less(self.numbers, self.count) & fits, self.entries + self.numbers, capacity)
        longer = ops.pad(state, [0, 0, 0, 0, 1, 0])
        places = ops.expand(ops.unsqueeze(slots, [2]), [1, 1, dim_of(state, 2)])
        return ops.scatter_elements(longer, places, new, axis=1)[:, :capacity]

    def new_buffer(self, buffer: Value, tokens: Value, fits: Value) -> Value:
        """A buffer with the tokens of the incomplete block, where the step fits."""
        kept = ops.reshape(ops.range_(0, dim_of(buffer, 1), 1), [1, -1])
        places = ops.minimum(self.begin + kept, dim_of(tokens, 1) - 1)
        is_left = ops.unsqueeze(ops.less(kept, self.remaining), [2])
        rest = ops.where(is_left, rows_at(tokens, places), constant(0.0, buffer.dtype))
        return ops.where(ops.unsqueeze(fits, [2]), rest, buffer)

    def lengths(self, before: Value, fits: Value) -> Value:
        """Numbers of keys and tokens after the step."""
        return ops.where(fits, ops.concat(self.entries + self.count, self.remaining, axis=1), before)


def _transitions(keys: Value, blocks: Value, waiting: Value, wanted: Value, capacity: int, ratio: int) -> Value:
    """Captured updates of the first tokens: a new key, or a completed block."""
    step = ops.reshape(ops.range_(0, capacity, 1), [1, -1])
    behind = waiting + step + 1
    own = rows_at(keys, ops.minimum(behind, dim_of(keys, 1)) - 1)
    whole = rows_at(blocks, ops.minimum(ops.maximum(behind / ratio - 1, 0), dim_of(blocks, 1) - 1))
    update = ops.where(ops.unsqueeze(ops.equal(behind % ratio, 0), [2]), whole, own)
    return ops.where(ops.unsqueeze(ops.less(step, wanted), [2]), update, constant(0.0, keys.dtype))


# ----- merging selections ---------------------------------------------------------------------------------------------


@op("PackedSparseAttentionIndexerMerge", domain="com.microsoft")
def packed_sparse_attention_indexer_merge(
    base_indices,
    base_counts,
    base_row_indices,
    range_starts=None,
    range_ends=None,
    additional_indices=None,
    additional_counts=None,
    *,
    max_output_entries: int,
    policy_mode: str,
):
    """For each query, a row of ``base_indices`` followed by a range, or by further indices, without duplicates.

    Rows are padded with -1. Also returns their lengths, and a status: 1 for contradictory inputs and 2 for more than
    ``max_output_entries`` indices; both select nothing.
    """
    limits.check_elements([max_output_entries], "the number of selected entries")
    rows = dim_of(base_indices, 0)
    valid = (base_row_indices >= 0) & ops.less(ops.cast(base_row_indices, to=DType.int64), rows)
    row = ops.where(valid, base_row_indices, 0)
    parts = [(ops.gather(base_indices, row), ops.gather(base_counts, row))]
    if policy_mode == "append_range":
        valid = valid & (range_starts >= 0) & (range_ends >= range_starts)
        places = ops.cast(ops.range_(0, max_output_entries + 1, 1), to=DType.int32)  # one more, to detect an overflow
        counted = ops.minimum(range_ends - range_starts, max_output_entries + 1)
        parts.append((ops.unsqueeze(range_starts, [1]) + places, counted))
    else:
        parts.append((additional_indices, additional_counts))
    validity = []
    for indices, counts in parts:
        width = dim_of(indices, 1)
        used = ops.less(ops.range_(0, width, 1), ops.cast(ops.unsqueeze(counts, [1]), to=DType.int64))
        negative = ops.reduce_max(ops.cast(used & ops.less(indices, 0), to=DType.int32), [1], keepdims=0)
        bounded = (counts >= 0) & (ops.cast(counts, to=DType.int64) <= width)
        valid = valid & bounded & ops.equal(negative, 0)
        validity.append(used)
    listed, used = ops.concat(*(part[0] for part in parts), axis=1), ops.concat(*validity, axis=1)
    place = ops.range_(0, dim_of(listed, 1), 1)
    before = ops.less(place, ops.unsqueeze(place, [1]))
    same = ops.equal(ops.unsqueeze(listed, [2]), ops.unsqueeze(listed, [1])) & before & ops.unsqueeze(used, [1])
    first = used & ops.equal(ops.reduce_max(ops.pad(ops.cast(same, to=DType.int32), [0] * 5 + [1]), [2], keepdims=0), 0)
    number = ops.cumsum(ops.cast(first, to=DType.int64), 1)
    total = ops.reduce_sum(ops.cast(first, to=DType.int64), [1])
    fits = ops.unsqueeze(valid, [1]) & (total <= max_output_entries)
    slots = ops.where(first & fits, number - 1, max_output_entries)
    empty = ops.expand(constant(-1, DType.int32), [dim_of(listed, 0), max_output_entries + 1])
    result = ops.scatter_elements(empty, slots, listed, axis=1)[:, :max_output_entries]
    status = ops.where(valid, ops.where(ops.squeeze(fits, [1]), 0, 2), 1)
    counts = ops.squeeze(ops.where(fits, total, 0), [1])
    return result, ops.cast(counts, to=DType.int32), ops.cast(status, to=DType.int32)


packed_sparse_attention_indexer_merge.traits(on_request=True)


_MERGED = (
    "base_indices",
    "base_counts",
    "base_row_indices",
    "range_starts",
    "range_ends",
    "additional_indices",
    "additional_counts",
)

packed_sparse_attention_indexer_merge.requires(
    shapes(
        base_indices="r c",
        base_counts="r",
        base_row_indices="n",
        range_starts="n",
        range_ends="n",
        additional_indices="n a",
        additional_counts="n",
    ),
    dtypes(**dict.fromkeys(_MERGED, "int32")),
    at_least(max_output_entries=1),
    one_of(policy_mode=("append_range", "append_indices")),
    together("range_starts", "range_ends"),
    together("additional_indices", "additional_counts"),
    holds(
        lambda policy_mode, range_starts, additional_indices: (
            "the inputs are not those of policy_mode: range_starts and range_ends for append_range, "
            "additional_indices and additional_counts for append_indices"
            if (policy_mode == "append_range") != (range_starts is not None)
            or (policy_mode == "append_indices") != (additional_indices is not None)
            else None
        )
    ),
)


# ----- requirements ---------------------------------------------------------------------------------------------------


def _hold_state(
    policy_mode: str, past_gate_buffer: Any, state_update_capacity: int, state_update_capture_count: Any
) -> str | None:
    if (policy_mode == "csa") != (past_gate_buffer is not None):
        return "only one of past_gate_buffer and policy_mode csa is given"
    if not 0 <= state_update_capacity <= 8 or (state_update_capacity and policy_mode == "csa"):
        return "state_update_capacity lies outside 0 to 8, or is not 0 with policy_mode csa"
    if state_update_capacity and state_update_capture_count is None:
        return "state_update_capture_count is missing, with state_update_capacity above 0"
    return None


packed_sparse_attention_indexer.requires(
    shapes(
        query="tokens hidden",
        key="tokens _",
        cumulative_sequence_lengths="_",
        past_sequence_lengths="batch",
        gate="tokens wide",
        head_weights="tokens heads",
        position_ids="tokens",
        past_key_state="batch state_capacity size",
        past_kv_buffer="batch waiting _",
        past_gate_buffer="batch waiting wide",
        past_state_lengths="batch 2",
        state_update_capture_count="batch",
        state_update_active="1",
        indexshare_mode="1",
        merged_indices="tokens max_output_entries",
        merged_counts="tokens",
        merged_status="tokens",
        **WEIGHTS,
    ),
    floats(*FLOATS, "past_key_state", "past_kv_buffer", "past_gate_buffer"),
    same_dtype(*FLOATS, "past_kv_buffer", "past_gate_buffer"),
    dtypes(indexshare_mode="int32", merged_indices="int32", merged_counts="int32", merged_status="int32"),
    together("indexshare_mode", "merged_indices", "merged_counts", "merged_status"),
    one_of(indexshare_state_policy=("default", "hold", "advance")),
    at_least(max_output_entries=0),
    holds(
        lambda indexshare_mode, max_output_entries: (
            "indexshare_mode is given without max_output_entries"
            if indexshare_mode is not None and not max_output_entries
            else None
        )
    ),
    integers(
        "cumulative_sequence_lengths",
        "past_sequence_lengths",
        "past_state_lengths",
        "state_update_capture_count",
        "state_update_active",
    ),
    at_least(state_capacity=1),
    *COMMON,
    holds(_hold_state),
)
