"""Ops on packed sequences: n-gram hashes, and a causal convolution with state."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    at_least,
    constant,
    differ,
    dims,
    dtypes,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
    together,
)
from tenonnx_contrib_ms.hashing import fill_of, hashes_of, shifted_ids
from tenonnx_contrib_ms.packed_sequences import PackedSequences, holds_bounds, holds_captures


@op("VarlenNGramHashMapping", domain="com.microsoft")
def varlen_ngram_hash_mapping(
    input_ids,
    multipliers,
    vocab_sizes,
    cumulative_sequence_length,
    past_ids=None,
    head_offsets=None,
    eos_token_id=None,
    segment_ids=None,
    past_segment_ids=None,
    capture_count=None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos=0,
    state_update_capacity=0,
):
    """NGramHashMapping per sequence; also its last tokens with their segments, and those after each captured token."""
    reach = max_ngram_size - 1
    packed = PackedSequences(cumulative_sequence_length, dims(input_ids)[0])
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
    shapes(
        input_ids="t",
        vocab_sizes="v",
        head_offsets="v",
        segment_ids="t",
        past_ids="b n",
        past_segment_ids="b n",
        capture_count="b",
        multipliers="m",
        cumulative_sequence_length="c",
    ),
    dtypes(input_ids="int32 int64", segment_ids="int32", cumulative_sequence_length="int32", capture_count="int32"),
    same_dtype("input_ids", "multipliers", "vocab_sizes", "past_ids", "head_offsets", "eos_token_id"),
    at_least(max_ngram_size=2, n_head_per_ngram=1, state_update_capacity=0),
    holds(lambda state_update_capacity, capture_count: holds_captures(state_update_capacity, capture_count)),
    holds(lambda cumulative_sequence_length: holds_bounds("cumulative_sequence_length", cumulative_sequence_length)),
)


# ----- the convolution ------------------------------------------------------------------------------------------------


@op("VarlenCausalConvWithState", domain="com.microsoft")
def varlen_causal_conv_with_state(
    input,
    weight,
    cumulative_sequence_length,
    bias=None,
    initial_state=REQUIRED,
    capture_count=None,
    kernel_delta=None,
    previous_mask=None,
    *,
    activation="none",
    delta_offset=0,
    dilation=1,
    group_size=1,
    state_update_capacity=0,
):
    """CausalConvWithState per sequence; also the final states, and the captured elements.

    ``kernel_delta`` (tokens, taps, groups) is added to the weights of two taps per token: from ``delta_offset`` on for
    the token itself, then for the previous token, whose product is multiplied by ``previous_mask``. Every step is
    rounded to the dtype.
    """
    size = dims(weight)[2]
    packed = PackedSequences(cumulative_sequence_length, dims(input)[0])
    before = ops.transpose(initial_state, perm=[0, 2, 1])
    wide = DType.float64 if input.dtype is DType.float64 else DType.float32
    taps = ops.transpose(ops.squeeze(weight, [1]), perm=[1, 0])
    if kernel_delta is not None:
        groups = ops.range_(0, dims(input)[1], 1) / group_size
        now, ago = (
            tap + ops.gather(kernel_delta[:, delta_offset + place], groups, axis=1)
            for place, tap in enumerate((taps[1], taps[0]))
        )
        y = input * now + packed.back(input, before, 1) * ago * previous_mask
    else:
        steps = (size - 1 - ops.range_(0, size, 1)) * dilation
        read = ops.cast(packed.back(input, before, steps), to=wide)
        y = ops.reduce_sum(read * ops.cast(taps, to=wide), [1], keepdims=0)
        if bias is not None:
            y = y + ops.cast(bias, to=wide)
        y = ops.cast(y if activation == "none" else ops.swish(y), to=input.dtype)
    final = ops.transpose(packed.state_at(input, before, packed.ends), perm=[0, 2, 1])
    if not state_update_capacity:
        return y, final, None
    taken = [
        ops.where(ops.unsqueeze(stored, [1]), ops.gather(input, ops.minimum(end, dims(input)[0]) - 1), 0.0)
        for end, stored in packed.captured(capture_count, state_update_capacity)
    ]
    return y, final, ops.concat(*(ops.unsqueeze(x, [1]) for x in taken), axis=1)


varlen_causal_conv_with_state.traits(on_request=True)


varlen_causal_conv_with_state.requires(
    shapes(
        input="t c",
        weight="c 1 k",
        cumulative_sequence_length="n",
        bias="c",
        initial_state="b c r",
        capture_count="b",
        kernel_delta="t taps groups",
        previous_mask="t 1",
    ),
    floats("input"),
    same_dtype("input", "weight", "bias", "initial_state", "kernel_delta", "previous_mask"),
    dtypes(cumulative_sequence_length="int32", capture_count="int32"),
    at_least(dilation=1, state_update_capacity=0, delta_offset=0, group_size=1),
    together("kernel_delta", "previous_mask"),
    holds(
        lambda kernel_delta, bias, activation, dilation, k: (
            "kernel_delta is given, with a bias, an activation, dilation above 1, or other than two taps"
            if kernel_delta is not None and (bias is not None or activation != "none" or dilation != 1 or differ(k, 2))
            else None
        )
    ),
    holds(
        lambda delta_offset, group_size, c, taps, groups: (
            "kernel_delta lacks two taps from delta_offset on, or a group for each group_size channels"
            if (isinstance(taps, int) and delta_offset + 2 > taps)
            or (isinstance(groups, int) and isinstance(c, int) and groups * group_size != c)
            else None
        )
    ),
    one_of(activation=("none", "silu", "swish")),
    holds(lambda state_update_capacity, capture_count: holds_captures(state_update_capacity, capture_count)),
    holds(lambda cumulative_sequence_length: holds_bounds("cumulative_sequence_length", cumulative_sequence_length)),
)
