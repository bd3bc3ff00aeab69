"""Cases of LinearAttention, LinearAttentionGate and CausalConvWithState."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_contrib_ms.linear_attention import causal_conv_with_state, linear_attention, linear_attention_gate
from tenonnx_testing import call, cases, shapes, tensors


@cases(linear_attention)
def linear_attention_cases(draw):
    batch, length, size, value_size = draw(shapes(4, 4, 1, 3))
    groups, times = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    q_heads, kv_heads = draw(st.sampled_from([(groups, groups * times), (groups * times, groups)]))
    rule = draw(st.sampled_from(["linear", "gated", "delta", "gated_delta"]))
    window = draw(st.sampled_from([0, 0, 1, 3]))

    def drawn(*shape, low=-1.0, high=1.0):
        return draw(tensors("float32", shape=shape, min_value=low, max_value=high))

    widths = (q_heads * size, kv_heads * size, kv_heads * value_size)
    inputs = [drawn(batch, length, width) for width in widths]
    state = (batch, kv_heads, size, value_size)
    past = draw(st.sampled_from([None, drawn(*((window,) if window else ()), *state)]))
    decay = drawn(batch, length, draw(st.sampled_from([kv_heads, kv_heads * size])), high=0.0)
    beta = drawn(batch, length, draw(st.sampled_from([kv_heads, 1])), low=0.0)
    gates = [decay if "gated" in rule else None, beta if "delta" in rule else None]
    attributes = {"q_num_heads": q_heads, "kv_num_heads": kv_heads, "update_rule": rule, "state_window": window}
    attributes |= draw(st.sampled_from([{}, {"chunk_size": 2}]))
    return call(*inputs, past, *gates, scale=draw(st.sampled_from([0.0, 0.5])), **attributes)


@cases(linear_attention_gate)
def linear_attention_gate_cases(draw):
    batch, length, heads = draw(shapes(3, 3))
    dtype = draw(st.sampled_from(["float32", "float16"]))
    a, b = (draw(tensors(dtype, shape=(batch, length, heads))) for _ in range(2))
    bias, scale = (draw(tensors(shape=(heads,))) for _ in range(2))
    return call(a, bias, scale, draw(st.sampled_from([None, b])))


@cases(causal_conv_with_state)
def causal_conv_with_state_cases(draw):
    batch, length, size = draw(shapes(3, 3, 1, 4))
    dilation, window = draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 1, 3]))
    last = draw(st.integers(0, 1))
    channels = draw(shapes(1, 2 if last else 1, 1, 3))
    total = 1
    for side in channels:
        total *= side

    def drawn(*shape):
        return draw(tensors("float32", shape=shape, min_value=-2, max_value=2))

    reach = (size - 1) * dilation
    x = drawn(batch, length, *channels) if last else drawn(batch, *channels, length)
    state = (batch, reach, *channels) if last else (batch, *channels, reach)
    past = draw(st.sampled_from([None, drawn(*((window,) if window else ()), *state)]))
    bias = draw(st.sampled_from([None, drawn(total)]))
    attributes = {"activation": draw(st.sampled_from(["none", "silu", "swish"])), "dilation": dilation}
    return call(x, drawn(total, 1, size), bias, past, channels_last=last, state_window=window, **attributes)


@cases(causal_conv_with_state)
def causal_conv_with_state_cases_2(draw):
    """A subset of the channels, and a state with its own length and layout, which only GPU kernels support."""
    batch, channels, length, size = draw(shapes(4, 4, 1, 3))
    before, behind, dilation = draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.integers(1, 2))
    kept = (size - 1) * dilation + draw(st.integers(1, 2))
    turned = draw(st.sampled_from([-1, 0, 1]))

    def drawn(*shape):
        return draw(tensors("float32", shape=shape, min_value=-2, max_value=2))

    state = (batch, kept, channels) if turned else (batch, channels, kept)
    past = drawn(*state) if draw(st.booleans()) else None
    attributes = {"channels_last": 1, "dilation": dilation, "input_channel_offset": before, "input_channels": channels}
    attributes |= {"state_length": kept, "state_channels_last": turned, "state_update_capacity": 2}
    inputs = drawn(batch, length, before + channels + behind), drawn(channels, 1, size), None, past
    return call(*inputs, **attributes, _outputs=3)


@cases(causal_conv_with_state)
def causal_conv_with_state_cases_3(draw):
    """Two or three spatial axes, for which onnxruntime has no kernel: see tests/test_formulas.py."""
    batch, channels, length, size, *sides = draw(shapes(6, 6, 1, 3))
    dilation, window, ndim = draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 2])), draw(st.integers(2, 3))
    around = batch, channels, *sides[: ndim - 1]
    kernel = [draw(st.sampled_from([1, 3])) for _ in range(ndim - 1)]

    def drawn(*shape):
        return draw(tensors("float32", shape=shape, min_value=-2, max_value=2))

    state = (*((window,) if window else ()), *around, (size - 1) * dilation)
    past = drawn(*state) if draw(st.booleans()) else None
    bias = drawn(channels) if draw(st.booleans()) else None
    attributes = {"activation": draw(st.sampled_from(["none", "silu"])), "dilation": dilation, "state_window": window}
    return call(drawn(*around, length), drawn(channels, 1, *kernel, size), bias, past, ndim=ndim, **attributes)
