"""LinearAttention, with a state instead of a cache, and CausalConvWithState."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    Dim,
    DType,
    TensorType,
    Value,
    constant,
    differ,
    dims,
    divides,
    holds,
    one_of,
    shapes,
    subgraph,
)
from tenonnx.extend import op as define
from tenonnx_standard.activation import sigmoid
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.control_flow import scan
from tenonnx_standard.convolution import conv
from tenonnx_standard.joining import concat
from tenonnx_standard.math import exp, reciprocal, sqrt
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import expand, identity, reshape, shape, squeeze, transpose
from tenonnx_standard.slicing import gather

Array = np.ndarray[Any, Any]

#: Update rules in which the state decays, and those that subtract the value predicted by the state.
DECAYING, CORRECTING = ("gated", "gated_delta"), ("delta", "gated_delta")


def _wide(x: Value) -> DType:
    return DType.float64 if x.dtype is DType.float64 else DType.float32


# ----- LinearAttention ------------------------------------------------------------------------------------------------


@define("LinearAttention", since=27)
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
    update_rule="gated_delta",
):
    """Attention by a state matrix that maps keys to values, updated at every position (Yang et al., arXiv:2412.06464).

    The state decays by ``exp(decay)``, adds the outer product of key and value, and is multiplied by the query. Delta
    rules add the value minus the state's prediction for the key, times ``beta``. Computed in float32.
    """
    batch, length, width = dims(query)
    state, steps = _steps(query, key, value, past_state, decay, beta, kv_num_heads, q_num_heads)

    def step(state: Value, q: Value, k: Value, v: Value, *gates: Value) -> tuple[Value, Value]:
        state = _updated(state, k, v, decay is not None, beta is not None, gates)
        return state, q @ state

    state, found = _scanned(step, state, steps)
    output = transpose(found * _read_scale(scale, width // q_num_heads, found.dtype), perm=[1, 0, 2, 3, 4])
    output = reshape(output, [batch, length, dims(value)[2] // kv_num_heads * q_num_heads])
    return cast(output, to=query.dtype), cast(state, to=(query if past_state is None else past_state).dtype)


def _steps(
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None,
    decay: Value | None,
    beta: Value | None,
    kv_num_heads: int,
    q_num_heads: int,
) -> tuple[Value, list[Value]]:
    """The initial state, and the inputs by step: query, key, value, decay factor, and beta."""
    dtype = _wide(query)
    batch, length, width = dims(query)
    key_size, value_size = width // q_num_heads, dims(value)[2] // kv_num_heads
    steps = [
        _by_step(query, dtype, [batch, length, kv_num_heads, q_num_heads // kv_num_heads, key_size]),
        _by_step(key, dtype, [batch, length, kv_num_heads, 1, key_size]),
        _by_step(value, dtype, [batch, length, kv_num_heads, 1, value_size]),
    ]
    if decay is not None:
        steps.append(exp(_by_step(decay, dtype, [batch, length, kv_num_heads, -1, 1])))
    if beta is not None:
        steps.append(_by_step(beta, dtype, [batch, length, -1, 1, 1]))
    if past_state is None:
        return expand(constant(0.0, dtype), [batch, kv_num_heads, key_size, value_size]), steps
    return cast(past_state, to=dtype), steps


def _updated(state: Value, k: Value, v: Value, decays: bool, corrects: bool, gates: Sequence[Value]) -> Value:
    if decays:
        state = state * gates[0]
    if corrects:
        v = (v - k @ state) * gates[-1]
    return state + _swapped(k) @ v


def _scanned(step: Callable[..., Any], state: Value, steps: Sequence[Value], *, backward: bool = False) -> Any:
    """The last state, and the outputs of each step."""
    formals = [("state", state.type), *((f"x{k}", TensorType(x.dtype, x.shape[1:])) for k, x in enumerate(steps))]
    body = subgraph(step, formals, name="step")
    directions: dict[str, list[int]] = {}
    if backward:
        directions["scan_input_directions"] = [1] * len(steps)
        directions["scan_output_directions"] = [1] * (len(body.outputs) - 1)
    return scan(state, *steps, body=body, num_scan_inputs=len(steps), **directions)


def _swapped(x: Value) -> Value:
    return transpose(x, perm=[0, 1, 3, 2])


def _by_step(x: Value, dtype: DType, sizes: list[Any]) -> Value:
    """``x`` in ``dtype``, with heads split and the sequence axis first."""
    return transpose(cast(reshape(x, sizes), to=dtype), perm=[1, 0, 2, 3, 4])


def _read_scale(scale: float, size: Any, dtype: DType) -> Any:
    if scale:
        return scale
    return reciprocal(sqrt(cast(size, to=dtype))) if isinstance(size, Value) else (size or 1) ** -0.5


@linear_attention.vjp
def linear_attention_vjp(
    g,
    y,
    query,
    key,
    value,
    past_state,
    decay,
    beta,
    *,
    chunk_size,
    kv_num_heads,
    q_num_heads,
    scale,
    update_rule,
):
    decays, corrects = decay is not None, beta is not None
    first, steps = _steps(query, key, value, past_state, decay, beta, kv_num_heads, q_num_heads)
    dtype = first.dtype
    _, states = _scanned(
        lambda state, k, v, *gates: (_updated(state, k, v, decays, corrects, gates), identity(state)), first, steps[1:]
    )
    batch, length, width = dims(query)
    factor = _read_scale(scale, width // q_num_heads, dtype)
    sizes = [batch, length, kv_num_heads, q_num_heads // kv_num_heads, dims(value)[2] // kv_num_heads]
    reads = ops.zeros_like(steps[0] @ states) if g[0] is None else _by_step(g[0], dtype, sizes) * factor

    def step(g_state: Value, g_read: Value, before: Value, q: Value, k: Value, v: Value, *gates: Value) -> list[Value]:
        state = before * gates[0] if decays else before
        missing = v - k @ state if corrects else v
        written = missing * gates[-1] if corrects else v
        g_q = g_read @ _swapped(state + _swapped(k) @ written)
        g_state = g_state + _swapped(q) @ g_read
        g_v = k @ g_state
        g_k, g_gates = written @ _swapped(g_state), []
        if corrects:
            g_gates = [ops.sum_to(reduce_sum(missing * g_v, [3]), gates[-1])]
            g_v = g_v * gates[-1]
            g_k = g_k - g_v @ _swapped(state)
            g_state = g_state - _swapped(k) @ g_v
        if decays:
            g_gates = [ops.sum_to(reduce_sum(before * g_state, [3]), gates[0]), *g_gates]
            g_state = g_state * gates[0]
        return [g_state, g_q, g_k, g_v, *g_gates]

    last = ops.zeros_like(first) if g[1] is None else cast(g[1], to=dtype)
    g_first, *found = _scanned(step, last, [reads, states, *steps], backward=True)
    if decays:
        found[3] = found[3] * steps[3]
    given = [x for x in (query, key, value, decay, beta) if x is not None]
    gradients = [
        cast(reshape(transpose(found_one, perm=[1, 0, 2, 3, 4]), shape(x)), to=x.dtype)
        for found_one, x in zip(found, given, strict=True)
    ]
    g_query, g_key, g_value, *gates = gradients
    g_past = None if past_state is None else cast(g_first, to=past_state.dtype)
    return g_query, g_key, g_value, g_past, gates[0] if decays else None, gates[-1] if corrects else None


@linear_attention.numpy
def linear_attention_numpy(
    query, key, value, past_state, decay, beta, *, chunk_size, kv_num_heads, q_num_heads, scale, update_rule
):
    batch, length, width = query.shape
    dtype = np.float64 if query.dtype == np.float64 else np.float32
    size, groups = width // q_num_heads, q_num_heads // kv_num_heads
    q, k, v = (
        x.reshape(batch, length, kv_num_heads, rows, width).transpose(1, 0, 2, 3, 4).astype(dtype)
        for x, rows, width in ((query, groups, size), (key, 1, size), (value, 1, value.shape[2] // kv_num_heads))
    )
    if decay is not None:
        decay = np.exp(decay.reshape(batch, length, kv_num_heads, decay.shape[2] // kv_num_heads, 1).astype(dtype))
    if beta is not None:
        beta = beta.reshape(batch, length, beta.shape[2], 1, 1).astype(dtype)
    if past_state is None:
        state = np.zeros((batch, kv_num_heads, size, v.shape[-1]), dtype)
    else:
        state = past_state.astype(dtype)
    found = np.empty((batch, length, kv_num_heads, groups, v.shape[-1]), dtype)
    columns = k.swapaxes(-1, -2)
    for t in range(length):
        written = v[t]
        if decay is not None:
            state *= decay[:, t]
        if beta is not None:
            written = (written - np.matmul(k[t], state)) * beta[:, t]
        state += columns[t] * written
        found[:, t] = np.matmul(q[t], state)
    found *= dtype(scale or (size or 1) ** -0.5)
    output = found.reshape(batch, length, q_num_heads * v.shape[-1]).astype(query.dtype)
    return output, state.astype((query if past_state is None else past_state).dtype)


def _gates_fit(update_rule: str, decay: Value | None, beta: Value | None) -> str | None:
    for name, given, wanted in (("decay", decay, update_rule in DECAYING), ("beta", beta, update_rule in CORRECTING)):
        if (given is not None) != wanted:
            return f'{name} is {"missing" if wanted else "given"}, with update_rule "{update_rule}"'
    return None


linear_attention.requires(
    shapes(
        query="batch length query_width",
        key="batch length key_width",
        value="batch length value_width",
        past_state="batch kv_num_heads _ _",
        decay="batch length decay_width",
        beta="batch length _",
    ),
    one_of(update_rule=("linear", "gated", "delta", "gated_delta")),
    holds(_gates_fit),
    divides("kv_num_heads", "q_num_heads"),
    divides("q_num_heads", "query_width"),
    *(divides("kv_num_heads", width) for width in ("key_width", "value_width", "decay_width")),
)


# ----- CausalConvWithState --------------------------------------------------------------------------------------------


@define("CausalConvWithState", since=27)
def causal_conv_with_state(input, weight, bias=None, past_state=None, *, activation="none"):
    """Causal depthwise convolution of ``input [batch, channels, length]`` over current and past positions.

    ``past_state [batch, channels, kernel - 1]`` has the positions before the input (zeros by default). The second
    output is the ``past_state`` of the next call.
    """
    batch, channels, length = dims(input)
    size = dims(weight)[2]
    before = past_state
    if before is None:
        before = expand(constant(0.0, input.dtype), [batch, channels, size - 1])
    padded = concat(before, input, axis=2)
    if isinstance(channels, int) and isinstance(size, int):
        y = conv(padded, weight, bias, group=channels)
    else:
        y = _convolved(padded, weight, length, size)
        y = y if bias is None else y + reshape(bias, [-1, 1])
    if activation != "none":
        wide = cast(y, to=_wide(y))
        y = cast(wide * sigmoid(wide), to=input.dtype)
    return y, padded[:, :, length:]


def _state_fits(past: Dim, size: Dim) -> str | None:
    short = isinstance(size, int) and differ(past, size - 1)
    return "past_state does not have one position less than the kernel" if short else None


causal_conv_with_state.requires(
    shapes(input="batch channels length", weight="channels 1 size", past_state="_ _ past"),
    one_of(activation=("none", "silu", "swish")),
    holds(_state_fits),
)


def _convolved(padded: Value, weight: Value, length: Any, size: Any) -> Value:
    """The convolution as one product per channel: windows of ``padded`` times the kernel."""
    windows = gather(padded, reshape(range_(0, length, 1), [-1, 1]) + range_(0, size, 1), axis=2)
    return squeeze(windows @ transpose(weight, perm=[0, 2, 1]), [3])


@causal_conv_with_state.numpy
def causal_conv_with_state_numpy(input, weight, bias, past_state, *, activation):
    batch, channels, length = input.shape
    size = weight.shape[2]
    dtype = np.float64 if input.dtype == np.float64 else np.float32
    before = np.zeros((batch, channels, size - 1), input.dtype) if past_state is None else past_state
    padded = np.concatenate([before, input], axis=2)
    x, taps = padded.astype(dtype, copy=False), weight.astype(dtype, copy=False)
    y = x[:, :, :length] * taps[:, :, 0]
    for offset in range(1, size):
        y += x[:, :, offset : offset + length] * taps[:, :, offset]
    if bias is not None:
        y += bias.astype(dtype, copy=False)[:, None]
    if activation != "none":
        y = y.astype(input.dtype, copy=False).astype(dtype, copy=False)
        y = y / (1 + np.exp(-y))
    return y.astype(input.dtype, copy=False), padded[:, :, length:]
