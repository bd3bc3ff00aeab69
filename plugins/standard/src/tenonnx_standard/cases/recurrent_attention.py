"""Cases of LinearAttention and of CausalConvWithState."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_standard.recurrent_attention import CORRECTING, DECAYING, causal_conv_with_state, linear_attention
from tenonnx_testing import Gap, call, cases, tensors


@cases(linear_attention)
def linear_attention_cases(draw):
    dtype = draw(st.sampled_from(["float32", "float16"]))
    rule = draw(st.sampled_from(["linear", "gated", "delta", "gated_delta"]))
    groups, repeats, batch, length = (draw(st.integers(1, 2)) for _ in range(4))
    size, value_size = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def drawn(*shape, least=-1, kind=dtype):
        return draw(tensors(kind, shape=shape, min_value=least, max_value=1 if least else 0))

    q = drawn(batch, length, groups * repeats * size)
    k, v = drawn(batch, length, groups * size), drawn(batch, length, groups * value_size)
    state = decay = beta = None
    if draw(st.booleans()):
        state = drawn(batch, groups, size, value_size, kind=draw(st.sampled_from([dtype, "float32"])))
    if rule in DECAYING:
        decay = drawn(batch, length, groups * draw(st.sampled_from([1, size])))
    if rule in CORRECTING:
        beta = drawn(batch, length, draw(st.sampled_from([1, groups])))
    attributes = {"q_num_heads": groups * repeats, "kv_num_heads": groups, "update_rule": rule}
    return call(q, k, v, state, decay, beta, scale=draw(st.sampled_from([0.0, 0.5])), **attributes)


def holds_zero(call):
    return any(bool((v == 0).any()) for v in call.inputs if v is not None)


@cases(
    causal_conv_with_state,
    gaps=[Gap("special values", "the body's product adds up from 0, and 0 + -0 is 0", when=holds_zero)],
)
def causal_conv_with_state_cases(draw):
    dtype = draw(st.sampled_from(["float32", "float16"]))
    batch, channels, length, size = (draw(st.integers(1, 4)) for _ in range(4))
    x, weight = draw(tensors(dtype, shape=(batch, channels, length))), draw(tensors(dtype, shape=(channels, 1, size)))
    bias = draw(tensors(dtype, shape=(channels,))) if draw(st.booleans()) else None
    state = draw(tensors(dtype, shape=(batch, channels, size - 1))) if draw(st.booleans()) else None
    return call(x, weight, bias, state, activation=draw(st.sampled_from(["none", "silu", "swish"])))
