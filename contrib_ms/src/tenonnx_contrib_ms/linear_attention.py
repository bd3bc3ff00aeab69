"""Linear attention with a state instead of a cache, its gates, and the preceding short convolution."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Value,
    at_least,
    constant,
    dims,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
)


@op("LinearAttention", domain="com.microsoft")
def linear_attention(
    query,
    key,
    value,
    past_state=None,
    decay=None,
    beta=None,
    *,
    chunk_size=64,
    kv_num_heads: int,
    q_num_heads: int,
    scale=0.0,
    state_window=0,
    update_rule="gated_delta",
):
    """LinearAttention of ai.onnx in which several key heads may share a query head.

    With ``state_window`` states have a first axis with the states after the last positions; the last one is read.
    """
    heads, before = max(q_num_heads, kv_num_heads), past_state
    if q_num_heads < kv_num_heads:
        query = _repeated(query, q_num_heads, kv_num_heads // q_num_heads)
    if before is None and state_window:
        sizes = [dims(key)[2] // kv_num_heads, dims(value)[2] // kv_num_heads]
        before = ops.expand(constant(0.0, query.dtype), [dims(query)[0], kv_num_heads, *sizes])
    elif state_window:
        before = past_state[-1]

    inputs, gates = [query, key, value], [decay, beta]
    attributes = {"chunk_size": chunk_size, "kv_num_heads": kv_num_heads, "q_num_heads": heads, "scale": scale}

    def attend(state: Value | None, start: Any = None, stop: Any = None) -> tuple[Value, Value]:
        whole = start is None and stop is None
        given, beside = ([x if x is None or whole else x[:, start:stop] for x in part] for part in (inputs, gates))
        return ops.linear_attention(*given, state, *beside, update_rule=update_rule, **attributes)

    if not state_window:
        return attend(before)
    length, ahead = dims(query)[1], 0
    if not isinstance(length, int):  # the length may be less than the window: leading zeros keep the state
        ahead = state_window
        inputs, gates = ([x if x is None else ops.pad(x, [ahead, 0], axes=[1]) for x in p] for p in (inputs, gates))
    return _windowed(attend, before, length, state_window, ahead)


linear_attention.requires(
    shapes(
        query="batch length _",
        key="batch length _",
        value="batch length _",
        decay="batch length _",
        beta="batch length _",
    )
)


def _repeated(x: Value, heads: int, times: int) -> Value:
    """Repeat each head of the last axis ``times`` times, adjacent to each other."""
    batch, length, width = dims(x)
    reshaped = ops.reshape(x, [batch, length, heads, 1, width // heads])
    return ops.reshape(ops.expand(reshaped, [batch, length, heads, times, width // heads]), [batch, length, -1])


def _windowed(attend: Any, state: Value, length: Any, window: int, ahead: int) -> tuple[Value, Value]:
    """Outputs of attention, and the states after each of the last ``window`` positions, with leading zero padding."""
    outputs, states = [], []
    first = length - window + ahead
    if not isinstance(first, int) or first > 0:
        output, state = attend(state, 0, first)
        outputs.append(output)
    for place in range(-window, 0):
        position = length + place
        if isinstance(position, int) and position < 0:
            states.append(ops.zeros_like(state))
            continue
        output, state = attend(state, position + ahead, position + ahead + 1)
        outputs.append(output)
        states.append(state if isinstance(position, int) else ops.where(position >= 0, state, 0.0))
    return ops.concat(*outputs, axis=1)[:, ahead:], ops.concat(*(ops.unsqueeze(s, [0]) for s in states), axis=0)


def _not_negative(number: Any) -> Any:
    return max(number, 0) if isinstance(number, int) else ops.maximum(number, 0)


@op("LinearAttentionGate", domain="com.microsoft")
def linear_attention_gate(a, dt_bias, decay_scale, b=None, *, _outputs=None):
    """``decay_scale * softplus(a + dt_bias)``, and the sigmoid of ``b``, in the dtype of ``dt_bias``."""
    decay = ops.softplus(ops.cast(a, to=dt_bias.dtype) + dt_bias) * decay_scale
    beta = None if b is None else ops.cast(ops.sigmoid(ops.cast(b, to=dt_bias.dtype)), to=b.dtype)
    return ops.cast(decay, to=a.dtype), beta


linear_attention_gate.requires(
    shapes(a="b t h", dt_bias="h", decay_scale="h", b="b t h"),
    floats("a"),
    same_dtype("a", "b"),
    floats("dt_bias"),
    same_dtype("dt_bias", "decay_scale"),
)


# ----- the convolution ------------------------------------------------------------------------------------------------


@op("CausalConvWithState", domain="com.microsoft")
def causal_conv_with_state(
    input,
    weight,
    bias=None,
    past_state=None,
    *,
    activation="none",
    channels_last=0,
    dilation=1,
    input_channel_offset=0,
    input_channels=0,
    ndim=1,
    state_channels_last=-1,
    state_length=0,
    state_update_capacity=0,
    state_window=0,
    _outputs=None,
):
    """Convolve each channel with its own kernel over current and past positions, with ``dilation``.

    Positions are along the last axis; with ``ndim`` 2 or 3 there are axes before it, on which the kernel is centered.
    onnxruntime's kernel supports one axis only; by its documentation the others keep their size.

    The state is the input before the first position (else zeros). With ``state_window`` it has a first axis with the
    states after the last positions; the last one is read. With ``channels_last`` all axes after the second are
    channels; ``input_channels`` of them are used, from ``input_channel_offset`` on. ``state_length`` and
    ``state_channels_last`` override the length and layout of the state. The third output has the first
    ``state_update_capacity`` positions, padded with zeros.
    """
    if input_channels:
        input = input[..., input_channel_offset : input_channel_offset + input_channels]
    turned = channels_last if state_channels_last < 0 else state_channels_last
    x, before = input, past_state
    if before is not None and state_window:
        before = before[-1]
    channels = dims(weight)[0]
    if channels_last:
        x = ops.transpose(ops.reshape(input, [*dims(input)[:2], channels]), perm=[0, 2, 1])
    if before is not None and turned:
        before = ops.transpose(ops.reshape(before, [*dims(before)[:2], channels]), perm=[0, 2, 1])
    *around, length = dims(x)
    batch = around[0]
    everything = (slice(None),) * (ndim + 1)
    reach = (dims(weight)[ndim + 1] - 1) * dilation
    kept = state_length or reach
    if before is None:
        before = ops.expand(constant(0.0, x.dtype), [*around, kept])
    padded = ops.concat(before, x, axis=ndim + 1)
    near = padded[(*everything, slice(kept - reach, None))] if state_length else padded
    y = _convolved(near, weight, bias, length, dilation)
    if activation != "none":
        wide = ops.cast(y, to=DType.float32) if y.dtype.bits < 32 else y
        y = ops.cast(ops.swish(wide), to=input.dtype)

    def placed(value: Value, last: int) -> Value:
        if not last:
            return value
        sides = dims(input)[2:] if channels_last else [channels]
        return ops.reshape(ops.transpose(value, perm=[0, 2, 1]), [batch, dims(value)[2], *sides])

    update = None
    if state_update_capacity and _outputs == 3:
        rows = ops.pad(ops.transpose(x, perm=[0, 2, 1]), [0, 0, 0, 0, state_update_capacity, 0])
        update = rows[:, :state_update_capacity]
    if not state_window:
        return placed(y, channels_last), placed(padded[(*everything, slice(length, None))], turned), update
    states = []
    for place in range(-state_window, 0):
        start = _not_negative(length + place + 1)
        state = padded[(*everything, slice(start, start + kept))]
        known = isinstance(length, int)
        is_inside = length + place >= 0
        state = (state if is_inside else ops.zeros_like(state)) if known else ops.where(is_inside, state, 0.0)
        states.append(ops.unsqueeze(placed(state, turned), [0]))
    return placed(y, channels_last), ops.concat(*states, axis=0), update


def _convolved(padded: Value, weight: Value, bias: Value | None, length: Any, dilation: int) -> Value:
    channels, _, *sizes = dims(weight)
    sides = [size // 2 for size in sizes[:-1]] + [0]
    steps = [1] * (len(sizes) - 1) + [dilation]
    if all(isinstance(size, int) for size in (channels, *sizes)):
        plain = len(sizes) == 1
        return ops.conv(
            padded,
            weight,
            bias,
            group=channels,
            pads=None if plain else sides * 2,
            dilations=None if plain and dilation == 1 else steps,
        )
    taps = (
        ops.pad(padded, ops.concat([0, 0], *_vectors(sides), [0, 0], *_vectors(sides), axis=0)) if steps[1:] else padded
    )
    lengths = [*dims(padded)[2:-1], length]
    for axis in reversed(range(len(sizes))):
        places = ops.reshape(ops.range_(0, lengths[axis], 1), [-1, 1]) + ops.range_(0, sizes[axis], 1) * steps[axis]
        taps = ops.gather(taps, places, axis=axis + 2)
    factors = ops.reshape(weight, [channels, *(size for pair in sizes for size in (1, pair))])
    y = ops.reduce_sum(taps * factors, [3 + 2 * axis for axis in range(len(sizes))], keepdims=0)
    return y if bias is None else y + ops.reshape(bias, [-1, *[1] * len(sizes)])


def _vectors(sizes: list[Any]) -> list[Any]:
    return [ops.reshape(size, [1]) if isinstance(size, Value) else [size] for size in sizes]


def _hold_axes(ndim: int, channels_last: int, weight: Any, input: Any) -> str | None:
    if channels_last and ndim > 1:
        return "ndim is not 1, with channels_last"
    if weight.rank is not None and weight.rank != ndim + 2:
        return "weight does not have ndim axes after its channels"
    if not channels_last and input.rank is not None and input.rank != ndim + 2:
        return "input does not have ndim axes after its channels"
    if weight.rank is None or ndim == 1:
        return None
    _, _, *sides = weight.shape
    return (
        "a size of weight other than the last is even"
        if any(isinstance(k, int) and k % 2 == 0 for k in sides[:-1])
        else None
    )


def _hold_extensions(
    channels_last: int,
    ndim: int,
    state_window: int,
    input_channel_offset: int,
    input_channels: int,
    state_channels_last: int,
    state_length: int,
    state_update_capacity: int,
    input: Any,
    weight: Any,
    dilation: int,
) -> str | None:
    extended = input_channel_offset or input_channels or state_update_capacity
    if extended and (not channels_last or state_window or (input.rank is not None and input.rank != 3)):
        return "input_channels or state_update_capacity is given, without channels_last, or with state_window"
    if (state_length or state_channels_last >= 0) and (ndim > 1 or state_window):
        return "state_length or state_channels_last is given, with ndim above 1 or with state_window"
    size = weight.shape[-1] if weight.rank else None
    if state_length and isinstance(size, int) and state_length < (size - 1) * dilation:
        return "state_length is shorter than the kernel reaches back"
    width = input.shape[-1] if extended and input.rank else None
    if isinstance(width, int) and input_channel_offset + input_channels > width:
        return "input has fewer than input_channels channels from input_channel_offset on"
    if input_channel_offset and not input_channels:
        return "input_channel_offset is given without input_channels"
    return None


causal_conv_with_state.requires(
    floats("input"),
    same_dtype("input", "weight", "bias", "past_state"),
    at_least(
        dilation=1, state_window=0, input_channel_offset=0, input_channels=0, state_length=0, state_update_capacity=0
    ),
    one_of(state_channels_last=(-1, 0, 1)),
    holds(_hold_extensions),
    one_of(activation=("none", "silu", "swish"), ndim=(1, 2, 3)),
    holds(_hold_axes),
    shapes(weight="c 1 ...", bias="c"),
)
