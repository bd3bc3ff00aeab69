"""Ops on sequences of many lengths that lie one behind the other along the first axis.

``cumulative_sequence_length`` holds where each begins, and at last where the last one ends.
"""

from __future__ import annotations

from typing import Any

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
    one_of,
    op,
    same_dtype,
    shapes,
    subgraph,
    together,
)  # fmt: skip
from tenonnx_contrib_ms.hashing import fill_of, hashes_of, shifted_ids


class _Packed:
    """Where the elements of packed sequences are: the sequence of each and its place there, and every first element."""

    def __init__(self, bounds: Value, total: Any) -> None:
        self.total = total
        self.bounds = ops.cast(bounds, to=DType.int64)
        self.places = ops.range_(0, total, 1)
        begun = ops.cast(ops.reshape(self.places, [-1, 1]) >= self.bounds[1:], to=DType.int64)
        self.sequence = ops.reduce_sum(begun, [1], keepdims=0)
        self.starts, self.ends = self.bounds[:-1], self.bounds[1:]
        self.local = self.places - ops.gather(self.starts, self.sequence)

    def back(self, x: Value, before: Value, steps: Any) -> Value:
        """What is so many steps before each element, of ``before`` (sequence, place, ...) where that is not in ``x``.

        ``steps`` is a number, or a vector for a further axis.
        """
        reach, places, local, sequence = dims(before)[1], self.places, self.local, self.sequence
        if isinstance(steps, Value):
            places, local, sequence = (ops.unsqueeze(each, [1]) for each in (places, local, sequence))
            sequence = ops.expand(sequence, ops.shape(places - steps))
        own = ops.gather(x, ops.maximum(places - steps, 0))
        past = ops.gather_nd(before, _pairs(sequence, ops.clip(local - steps + reach, 0, reach - 1)))
        return ops.where(_as_rank(local >= steps, own.ndim), own, past)

    def state_at(self, x: Value, before: Value, ends: Value) -> Value:
        """For each sequence the last elements before the place ``ends`` of all, as many as ``before`` has."""
        reach = dims(before)[1]
        steps = ops.reshape(ends, [-1, 1]) - reach + ops.range_(0, reach, 1)
        starts = ops.reshape(self.starts, [-1, 1])
        own = ops.gather(x, ops.clip(steps, 0, self.total - 1))
        past_place = ops.clip(steps - starts + reach, 0, reach - 1)
        rows = ops.expand(ops.reshape(ops.range_(0, dims(before)[0], 1), [-1, 1]), ops.shape(past_place))
        past = ops.gather_nd(before, _pairs(rows, past_place))
        return ops.where(_as_rank(steps >= starts, own.ndim), own, past)

    def captured(self, count: Value, capacity: int) -> list[tuple[Value, Value]]:
        """For each of so many first elements: the place after it in each sequence, and whether it is captured."""
        lengths = self.ends - self.starts
        limit = ops.minimum(ops.cast(count, to=DType.int64), lengths)
        return [(self.starts + (slot + 1), limit > slot) for slot in range(capacity)]


def _pairs(a: Value, b: Value) -> Value:
    return ops.concat(ops.unsqueeze(a, [-1]), ops.unsqueeze(b, [-1]), axis=-1)


def _as_rank(condition: Value, rank: int) -> Value:
    return ops.unsqueeze(condition, list(range(condition.ndim, rank))) if rank > condition.ndim else condition


# ----- runs of tokens -------------------------------------------------------------------------------------------------


@op("VarlenNGramHashMapping", domain="com.microsoft")
def varlen_ngram_hash_mapping(
    input_ids, multipliers, vocab_sizes, cumulative_sequence_length, past_ids=None, head_offsets=None,
    eos_token_id=None, segment_ids=None, past_segment_ids=None, capture_count=None, *,
    max_ngram_size: int, n_head_per_ngram: int, pad_id: int, reset_on_eos=0, state_update_capacity=0,
):  # fmt: skip
    """NGramHashMapping of each sequence, its last tokens and their segments, and those after each captured token."""
    reach = max_ngram_size - 1
    packed = _Packed(cumulative_sequence_length, dims(input_ids)[0])
    batch = dims(packed.starts)[0]
    fill = fill_of(input_ids, eos_token_id, pad_id)
    before = ops.expand(fill, [batch, reach]) if past_ids is None else past_ids
    segments = segments_before = None
    if segment_ids is not None:
        segments = segment_ids
        first = ops.unsqueeze(ops.gather(segment_ids, packed.starts), [1])
        segments_before = ops.expand(first, [batch, reach]) if past_segment_ids is None else past_segment_ids
    groups = None if segments is None else lambda steps: packed.back(segments, segments_before, steps)
    end = eos_token_id if reset_on_eos else None
    shifted = shifted_ids(lambda steps: packed.back(input_ids, before, steps), groups, reach, end, fill)
    hashes = hashes_of(shifted, multipliers, vocab_sizes, head_offsets, n_head_per_ngram)
    present = packed.state_at(input_ids, before, packed.ends)
    present_segments = None if segments is None else packed.state_at(segments, segments_before, packed.ends)
    if not state_update_capacity:
        return hashes, present, present_segments, None
    pad = constant(pad_id, input_ids.dtype)
    states = [
        ops.where(ops.unsqueeze(taken, [1]), packed.state_at(input_ids, before, end), pad)
        for end, taken in packed.captured(capture_count, state_update_capacity)
    ]
    return hashes, present, present_segments, ops.concat(*(ops.unsqueeze(s, [1]) for s in states), axis=1)


varlen_ngram_hash_mapping.requires(
    shapes(input_ids="t", vocab_sizes="v", head_offsets="v", segment_ids="t", past_ids="b n", past_segment_ids="b n",
           capture_count="b", multipliers="m", cumulative_sequence_length="c"),
    dtypes(input_ids="int32 int64", segment_ids="int32", cumulative_sequence_length="int32", capture_count="int32"),
    same_dtype("input_ids", "multipliers", "vocab_sizes", "past_ids", "head_offsets", "eos_token_id"),
    at_least(max_ngram_size=2, n_head_per_ngram=1, state_update_capacity=0),
    holds(lambda state_update_capacity, capture_count: _captures(state_update_capacity, capture_count)),
    holds(lambda cumulative_sequence_length: _begins(cumulative_sequence_length)),
)  # fmt: skip


def _begins(bounds: Value | None) -> str | None:
    empty = bounds is not None and bounds.tensor.shape == (0,)
    return "the bounds of sequences must hold at least where the first one begins" if empty else None


def _captures(capacity: int, count: Value | None) -> str | None:
    return None if bool(capacity) == (count is not None) else "capture_count goes with a state_update_capacity"


# ----- the convolution ------------------------------------------------------------------------------------------------


@op("VarlenCausalConvWithState", domain="com.microsoft")
def varlen_causal_conv_with_state(
    input, weight, cumulative_sequence_length, bias=None, initial_state=REQUIRED, capture_count=None, *,
    activation="none", dilation=1, state_update_capacity=0,
):  # fmt: skip
    """CausalConvWithState of each sequence, what each of them ends with, and the captured elements."""
    size = dims(weight)[2]
    packed = _Packed(cumulative_sequence_length, dims(input)[0])
    before = ops.transpose(initial_state, perm=[0, 2, 1])
    wide = DType.float64 if input.dtype is DType.float64 else DType.float32
    steps = (size - 1 - ops.range_(0, size, 1)) * dilation
    read = ops.cast(packed.back(input, before, steps), to=wide)
    taps = ops.cast(ops.transpose(ops.squeeze(weight, [1]), perm=[1, 0]), to=wide)
    y = ops.reduce_sum(read * taps, [1], keepdims=0)
    if bias is not None:
        y = y + ops.cast(bias, to=wide)
    y = ops.cast(y if activation == "none" else ops.swish(y), to=input.dtype)
    final = ops.transpose(packed.state_at(input, before, packed.ends), perm=[0, 2, 1])
    if not state_update_capacity:
        return y, final, None
    taken = [
        ops.where(ops.unsqueeze(there, [1]), ops.gather(input, ops.minimum(end, dims(input)[0]) - 1), 0.0)
        for end, there in packed.captured(capture_count, state_update_capacity)
    ]
    return y, final, ops.concat(*(ops.unsqueeze(x, [1]) for x in taken), axis=1)


varlen_causal_conv_with_state.requires(
    shapes(input="t c", weight="c 1 k", cumulative_sequence_length="n", bias="c", initial_state="b c r",
           capture_count="b"),
    floats("input"),
    same_dtype("input", "weight", "bias", "initial_state"),
    dtypes(cumulative_sequence_length="int32", capture_count="int32"),
    at_least(dilation=1, state_update_capacity=0),
    one_of(activation=("none", "silu", "swish")),
    holds(lambda state_update_capacity, capture_count: _captures(state_update_capacity, capture_count)),
    holds(lambda cumulative_sequence_length: _begins(cumulative_sequence_length)),
)  # fmt: skip


# ----- attention with a state -----------------------------------------------------------------------------------------


@op("GatedDeltaNet", domain="com.microsoft")
def gated_delta_net(
    query, key=None, value=None, cu_seqlens=None, decay=None, beta=None, initial_state=None, a_log=None, dt_bias=None,
    capture_count=None, state_update_active=None, *,
    beta_activation="none", chunk_size=64, gate_activation="none", qk_l2_norm=0, scale=0.0, state_update_capacity=0,
    update_rule="gated_delta",
):  # fmt: skip
    """LinearAttention of packed sequences, with its gates, and the norm of queries and keys, in float32.

    Of a single input the parts are taken apart by the shape of the state, whose third axis is that of the values. The
    third output holds the decays, keys and written values of the first elements of each sequence.
    """
    q, k, v = (query, key, value) if key is not None else _apart(query, initial_state)
    heads, width = dims(v)[-2:]
    size, dtype, leading = dims(q)[-1], v.dtype, dims(v)[:-2]
    wide = DType.float64 if dtype is DType.float64 else DType.float32
    q, k, v = (ops.cast(ops.reshape(x, [-1, *dims(x)[-2:]]), to=wide) for x in (q, k, v))
    decay, beta, initial_state, a_log, dt_bias = (
        x if x is None else ops.cast(x, to=wide) for x in (decay, beta, initial_state, a_log, dt_bias)
    )
    if qk_l2_norm:
        q, k = (x / ops.sqrt(ops.reduce_sum(x * x, [-1]) + _TINY) for x in (q, k))
    bounds = cu_seqlens
    if bounds is None:
        batch = dims(initial_state)[0]
        bounds = ops.range_(0, batch + 1, 1) * (dims(v)[0] // batch)
    packed = _Packed(bounds, dims(v)[0])
    sequences = dims(packed.starts)[0]
    decays, corrects = update_rule in ("gated", "gated_delta"), update_rule in ("delta", "gated_delta")
    kept = rate = ops.ones_like(v[:, :, :1])
    if decays and decay is not None:
        if gate_activation == "qwen":
            decay = -ops.exp(a_log) * ops.softplus(decay + dt_bias)
        kept = ops.exp(ops.reshape(decay, [-1, heads, dims(decay)[-1] if decay.ndim > len(leading) + 1 else 1]))
    if corrects and beta is not None:
        rate = ops.reshape(ops.sigmoid(beta) if beta_activation == "sigmoid" else beta, [-1, heads, 1])
    groups = heads // dims(k)[1]
    keys, queries = (ops.reshape(_repeated(x, groups), [-1, heads, size]) for x in (k, q))
    if initial_state is None:
        state = ops.expand(constant(0.0, wide), [sequences, heads, size, width])
    else:
        state = ops.transpose(initial_state, perm=[0, 1, 3, 2])
    places = ops.reshape(ops.range_(0, sequences, 1), [-1, 1, 1, 1])

    def step(state: Value, at: Value, q: Value, k: Value, v: Value, kept: Value, rate: Value) -> tuple[Value, ...]:
        own = ops.gather(state, at) * ops.unsqueeze(kept, [-1])
        if corrects:
            v = (v - ops.squeeze(ops.unsqueeze(k, [1]) @ own, [1])) * rate
        own = own + ops.unsqueeze(k, [2]) @ ops.unsqueeze(v, [1])
        found = ops.squeeze(ops.unsqueeze(q, [1]) @ own, [1])
        return ops.where(ops.equal(places, at), own, state), found, v

    steps = [packed.sequence, queries, keys, v, kept, rate]
    formals = [("state", state.type), *((f"x{n}", x.tensor.with_shape(x.shape[1:])) for n, x in enumerate(steps))]
    state, found, written = ops.scan(state, *steps, body=subgraph(step, formals), num_scan_inputs=len(steps))
    factor = scale or (size**-0.5 if isinstance(size, int) else ops.reciprocal(ops.sqrt(ops.cast(size, to=v.dtype))))
    y = ops.reshape(ops.cast(found * factor, to=dtype), [*leading, heads, width])
    final = ops.transpose(state, perm=[0, 1, 3, 2])
    if not state_update_capacity:
        return y, final, None
    count = capture_count
    if state_update_active is not None:
        count = count * ops.cast(ops.not_(ops.equal(state_update_active, 0)), to=count.dtype)
    parts = []
    for x in (kept, k, written):
        for end, there in packed.captured(count, state_update_capacity):
            row = ops.reshape(ops.gather(x, ops.minimum(end, packed.total) - 1), [sequences, -1])
            parts.append(ops.where(ops.unsqueeze(there, [1]), row, 0.0))
    return y, final, ops.concat(*parts, axis=1)


#: What is added to the sum of squares under the root of a norm.
_TINY = 1e-6


def _apart(packed: Value, state: Value) -> tuple[Value, Value, Value]:
    """Query, key and value of rows that hold all three, with heads apart."""
    _, heads, width, size = dims(state)
    *leading, whole = dims(packed)
    pairs = (whole - heads * width) // (2 * size)
    sizes = [pairs * size, pairs * size, heads * width]
    q, k, v = ops.split(packed, sizes, axis=-1)
    q, k = (ops.reshape(x, [*leading, pairs, size]) for x in (q, k))
    return q, k, ops.reshape(v, [*leading, heads, width])


def _repeated(x: Value, times: Any) -> Value:
    """Each head so many times in a row."""
    length, heads, size = dims(x)
    return ops.expand(ops.unsqueeze(x, [2]), [length, heads, times, size])


gated_delta_net.requires(
    floats("query"),
    same_dtype("query", "key", "value"),
    dtypes(cu_seqlens="int32", capture_count="int32", state_update_active="int32"),
    together("key", "value"),
    one_of(
        update_rule=("linear", "gated", "delta", "gated_delta"), gate_activation=("none", "qwen"),
        beta_activation=("none", "sigmoid"),
    ),
    at_least(state_update_capacity=0),
    holds(lambda state_update_capacity, capture_count: _captures(state_update_capacity, capture_count)),
    holds(lambda cu_seqlens: _begins(cu_seqlens)),
    holds(
        lambda key, cu_seqlens, initial_state: "initial_state must be given with one input or without cu_seqlens"
        if initial_state is None and (key is None or cu_seqlens is None) else None
    ),
    holds(
        lambda gate_activation, a_log, dt_bias: "gate_activation qwen needs a_log and dt_bias"
        if gate_activation == "qwen" and (a_log is None or dt_bias is None) else None
    ),
)  # fmt: skip
