"""Ops without CPU kernels in any runtime, compared with numpy formulas based on the documentation of their schemas.

Calls are drawn from the conformance cases.
"""

import itertools
import math as numbers

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_formulas import results, wide

import tenonnx as tx
from tenonnx_contrib_ms import (
    dropout,
    fused_ops,
    gated_delta_net,
    gelu,
    layouts,
    linear_attention,
    math,
    matrix,
    normalization,
    packed_ops,
    tensors,
)
from tenonnx_testing.cases import collected, load

load()


def gelu_of(x):
    return 0.5 * x * (1 + np.vectorize(numbers.erf, otypes=[float])(x / np.sqrt(2)))


def fast_gelu_of(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    None: lambda x, *p: x,
    "Relu": lambda x: np.maximum(x, 0),
    "Silu": lambda x: x * sigmoid(x),
    "Tanh": np.tanh,
    "Sigmoid": sigmoid,
    "LeakyRelu": lambda x, alpha: np.where(x < 0, alpha * x, x),
    "Clip": lambda x, low, high: np.clip(x, low, high),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
}


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def convolved(x, w, b, *, group, strides, dilations, kernel_shape, pads, auto_pad):
    """Channels-last convolution as a sum over the kernel positions."""
    sizes, rank = x.shape[1:-1], len(kernel_shape)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
    if auto_pad.startswith("SAME"):
        counts = [-(-n // s) for n, s in zip(sizes, strides, strict=True)]
        whole = [max(0, (c - 1) * s + e - n) for c, s, e, n in zip(counts, strides, extents, sizes, strict=True)]
        begins = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in whole]
        ends = [t - b for t, b in zip(whole, begins, strict=True)]
    else:
        given_pads = pads if pads and auto_pad == "NOTSET" else [0] * (2 * rank)
        begins, ends = given_pads[:rank], given_pads[rank:]
        axes = zip(sizes, begins, ends, extents, strides, strict=True)
        counts = [(n + a + z - e) // s + 1 for n, a, z, e, s in axes]
    x = np.pad(x, [(0, 0), *zip(begins, ends, strict=True), (0, 0)])
    results, depth = w.shape[0] // group, w.shape[1]
    y = np.zeros((x.shape[0], *counts, w.shape[0]))
    for place in np.ndindex(*kernel_shape):
        axes = zip(place, dilations, strides, counts, strict=True)
        read = x[(slice(None), *(slice(p * d, p * d + (c - 1) * s + 1, s) for p, d, s, c in axes))]
        for g in range(group):
            kernel = w[(slice(g * results, (g + 1) * results), slice(None), *place)]
            y[..., g * results : (g + 1) * results] += read[..., g * depth : (g + 1) * depth] @ kernel.T
    return y if b is None else y + b


def nhwc_fused_conv(x, w, b=None, z=None, *, activation=None, activation_params=None, **window):
    y = convolved(x, w, b, **window)
    return ACTIVATIONS[activation](y if z is None else y + z, *(activation_params or ()))


def group_norm(x, gamma, beta, *, activation, channels_last, epsilon, groups):
    x = x if channels_last else np.moveaxis(x, 1, -1)
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean, variance = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    y = ((parts - mean) / np.sqrt(variance + epsilon)).reshape(x.shape) * gamma + beta
    y = y * sigmoid(y) if activation else y
    return y if channels_last else np.moveaxis(y, -1, 1)


def skip_group_norm(x, gamma, beta, skip, bias=None, *, channels_last, **options):
    last = [np.moveaxis(v, 1, -1) if v.ndim == 4 and not channels_last else v for v in (x, skip)]
    total = last[0] + (last[1][:, None, None] if skip.ndim == 2 else last[1]) + (0 if bias is None else bias)
    y = group_norm(total, gamma, beta, channels_last=1, **options)
    return tuple(v if channels_last else np.moveaxis(v, -1, 1) for v in (y, total))


def matmul_activation(a, b, *, activation, alpha, transA, transB, transBatchA, transBatchB, **parameters):
    a, b = (v.swapaxes(-1, -2) if turned else v for v, turned in ((a, transA), (b, transB)))
    y = alpha * (a @ b)
    p = {key.removeprefix("activation_"): value for key, value in parameters.items()}
    known = {
        "Tanh": lambda: np.tanh(y),
        "Elu": lambda: np.where(y < 0, p["alpha"] * np.expm1(y), y),
        "Softmax": lambda: softmax(y, p["axis"]),
        "ScaledTanh": lambda: p["alpha"] * np.tanh(p["beta"] * y),
    }
    return known[activation]()


def complex_product(a, b, conjugate):
    a, b = (v[..., 0] + 1j * v[..., 1] for v in (a, b))
    y = a * (b.conj() if conjugate else b)
    return np.stack([y.real, y.imag], -1)


def rfft(x, *, normalized, onesided, signal_ndim):
    y = np.fft.rfftn(x, axes=range(-signal_ndim, 0))
    return np.stack([y.real, y.imag], -1)


def irfft(x, *, normalized, onesided, signal_ndim):
    y = x[..., 0] + 1j * x[..., 1]
    sizes = [*y.shape[y.ndim - signal_ndim : -1], 2 * y.shape[-1] - 1]
    return np.fft.irfftn(y, sizes, axes=range(-signal_ndim, 0))


def is_all_finite(*arrays, isinf_only, isnan_only):
    bad = [(not isnan_only) * np.isinf(x).any() + (not isinf_only) * np.isnan(x).any() for x in arrays]
    return np.array(not any(bad))


def bits(data, mask):
    """Bitmask of a dropout without effect: one bit per element."""
    words = np.zeros(-(-data.size // 32), np.uint32)
    for place in range(data.size):
        words[place // 32] |= np.uint32(1 << (place % 32))
    return words


def added(data, bias, residual=None, *_, seed):
    return data + bias + (0 if residual is None else residual)


def conv_with_state(
    x,
    weight,
    bounds,
    bias=None,
    state=None,
    count=None,
    delta=None,
    mask=None,
    *,
    activation,
    delta_offset,
    dilation,
    group_size,
    state_update_capacity,
):
    y, final = np.zeros_like(x), np.zeros_like(state)
    update = np.zeros((len(bounds) - 1, state_update_capacity, x.shape[1]))
    size, reach = weight.shape[2], state.shape[2]
    for n, (start, end) in enumerate(itertools.pairwise(bounds)):
        line = np.concatenate([state[n].T, x[start:end]])
        for t in range(end - start):
            taps = weight[:, 0].T.copy()
            if delta is not None:
                of = delta[start + t].repeat(group_size, axis=1)
                taps = np.stack([(taps[0] + of[delta_offset + 1]) * mask[start + t], taps[1] + of[delta_offset]])
            y[start + t] = sum(line[t + j * dilation] * taps[j] for j in range(size))
        final[n] = line[len(line) - reach :].T
        for slot in range(0 if count is None else min(count[n], state_update_capacity, end - start)):
            update[n, slot] = x[start + slot]
    y = y if bias is None else y + bias
    y = y if activation == "none" else y * sigmoid(y)
    return (y, final, update) if state_update_capacity else (y, final)


def delta_net(
    q,
    k=None,
    v=None,
    bounds=None,
    decay=None,
    beta=None,
    state=None,
    a_log=None,
    dt_bias=None,
    count=None,
    active=None,
    *,
    beta_activation,
    chunk_size,
    gate_activation,
    gate_lower_bound,
    qk_l2_norm,
    scale,
    state_update_capacity,
    update_rule,
):
    """Gated delta rule, one element of one head at a time."""
    batch, heads, width, size = state.shape
    if k is None:
        pairs = (q.shape[-1] - heads * width) // (2 * size)
        parts = np.split(q, [pairs * size, 2 * pairs * size], axis=-1)
        q, k, v = (x.reshape(*x.shape[:-1], -1, s) for x, s in zip(parts, (size, size, width), strict=True))
    shape = v.shape
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
    total, pairs = len(v), k.shape[1]
    bounds = np.arange(batch + 1) * (total // batch) if bounds is None else bounds
    if qk_l2_norm:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-12) for x in (q, k))
    gates = np.zeros((total, heads)) if decay is None else decay.reshape(total, heads)
    if gate_activation in ("qwen", "softplus"):
        gates = -np.exp(a_log) * np.log1p(np.exp(gates + dt_bias))
    elif gate_activation in ("kda", "sigmoid"):
        gates = gate_lower_bound * sigmoid(np.exp(a_log) * (gates + dt_bias))
    rates = np.ones((total, heads)) if beta is None else beta.reshape(total, heads)
    rates = sigmoid(rates) if beta is not None and beta_activation == "sigmoid" else rates
    y, final = np.zeros_like(v), state.copy()
    written = np.zeros_like(v)
    for n in range(batch):
        for h in range(heads):
            s = state[n, h].T.copy()
            for t in range(bounds[n], bounds[n + 1]):
                key = k[t, h * pairs // heads]
                if "gated" in update_rule:
                    s *= np.exp(gates[t, h])
                value = (v[t, h] - s.T @ key) * rates[t, h] if "delta" in update_rule else v[t, h]
                s += np.outer(key, value)
                written[t, h] = value
                y[t, h] = s.T @ q[t, h * pairs // heads] * (scale or size**-0.5)
            final[n, h] = s.T
    if not state_update_capacity:
        return y.reshape(shape), final
    update = [np.zeros((batch, state_update_capacity, x)) for x in (heads, pairs * size, heads * width)]
    kept = np.exp(gates) if "gated" in update_rule else np.ones((total, heads))
    for n in range(batch if active is None or active[0] else 0):
        for slot in range(min(count[n], state_update_capacity, bounds[n + 1] - bounds[n])):
            for part, x in zip(update, (kept, k, written), strict=True):
                part[n, slot] = x[bounds[n] + slot].reshape(-1)
    return y.reshape(shape), final, np.concatenate([x.reshape(batch, -1) for x in update], 1)


FORMULAS = {
    fused_ops.bias_add: lambda x, bias, skip: x + bias + skip,
    fused_ops.bias_softmax: lambda x, bias, *, axis, is_inner_broadcast: softmax(x + bias, axis),
    gelu.bias_split_gelu: lambda x, bias: (
        (x + bias)[..., : x.shape[-1] // 2] * gelu_of((x + bias)[..., x.shape[-1] // 2 :])
    ),
    matrix.fused_matmul_activation: matmul_activation,
    matrix.gemm_fast_gelu: lambda x, w, bias=None: fast_gelu_of(x @ w + (0 if bias is None else bias)),
    normalization.group_norm: group_norm,
    normalization.skip_group_norm: skip_group_norm,
    layouts.nhwc_conv: lambda x, w, b=None, **window: convolved(x, np.moveaxis(w, -1, 1), b, **window),
    layouts.nhwc_fused_conv: nhwc_fused_conv,
    math.complex_mul: lambda a, b: complex_product(a, b, False),
    math.complex_mul_conj: lambda a, b: complex_product(a, b, True),
    math.rfft: rfft,
    math.irfft: irfft,
    math.is_all_finite: is_all_finite,
    tensors.torch_embedding: lambda weight, indices, *_: weight[indices],
    dropout.bias_dropout: lambda *inputs, seed: (added(*inputs, seed=seed), np.ones_like(inputs[0], bool)),
    dropout.bitmask_dropout: lambda x, *_, seed: (x, bits(x, None)),
    dropout.bitmask_bias_dropout: lambda *inputs, seed: (added(*inputs, seed=seed), bits(inputs[0], None)),
    packed_ops.varlen_causal_conv_with_state: conv_with_state,
    gated_delta_net.gated_delta_net: delta_net,
}
CASES = [case for made in FORMULAS for case in collected(made) if case.law is None]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_formula(case):
    @settings(max_examples=25, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def compare(data):
        _, result, expected = results(case, FORMULAS[case.op], data.draw)
        for mine, theirs in zip((v for v in result if v is not None), expected, strict=False):
            rough = mine.dtype.itemsize < 4 and mine.dtype.kind not in "biu"
            np.testing.assert_allclose(wide(mine), theirs, rtol=4e-2 if rough else 2e-4, atol=4e-2 if rough else 2e-4)

    compare()


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("sides", [(4,), (2, 3)])
def test_causal_convolution_with_more_axes(sides, dilation):
    """Causal along the last axis, centered on the others, with zero padding."""
    random = np.random.default_rng(0)
    kernel, length = (*(3 for _ in sides), 2), 5
    x, weight = (random.normal(size=size).astype(np.float32) for size in ((2, 3, *sides, length), (3, 1, *kernel)))
    past, bias = random.normal(size=(2, 3, *sides, dilation)).astype(np.float32), np.float32([0.1, 0.2, 0.3])
    y, state, _ = linear_attention.causal_conv_with_state(x, weight, bias, past, ndim=len(sides) + 1, dilation=dilation)
    whole = np.concatenate([past, x], axis=-1)
    np.testing.assert_array_equal(state, whole[..., length:])
    for place in np.ndindex(y.shape):
        instance, channel, *at, position = place
        total = float(bias[channel])
        for tap in np.ndindex(kernel):
            there = [a + t - 1 for a, t in zip(at, tap[:-1], strict=True)]
            if all(0 <= a < side for a, side in zip(there, sides, strict=True)):
                column = position + tap[-1] * dilation
                total += weight[(channel, 0, *tap)] * whole[(instance, channel, *there, column)]
        np.testing.assert_allclose(y[place], total, rtol=1e-4, atol=1e-5)


def test_invalid_causal_convolutions_are_rejected():
    x, weight = np.zeros((1, 2, 3, 4), np.float32), np.zeros((2, 1, 2, 2), np.float32)
    for options, output in (
        ({"ndim": 2}, "other than the last is even"),
        ({"ndim": 1}, "weight does not have ndim axes"),
        ({"ndim": 2, "channels_last": 1}, "ndim is not 1, with channels_last"),
    ):
        with pytest.raises(tx.TenonnxError, match=output):
            linear_attention.causal_conv_with_state(x, weight, **options)


def test_gated_delta_net_accepts_both_names_of_the_gate_and_small_norms():
    """Small norms follow onnxruntime 1.32, the first with a CPU kernel; version 1.31 has another name for the gate."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((3, 1, 2)).astype(np.float32) for _ in range(3))
    bounds, decay, bias = np.array([0, 3], np.int32), np.full((3, 1), -0.5, np.float32), np.ones(1, np.float32)
    named = [
        gated_delta_net.gated_delta_net(
            q, k, v, bounds, decay, None, None, bias, bias, update_rule="gated", gate_activation=name
        )[0]
        for name in ("qwen", "softplus")
    ]
    assert np.array_equal(*named)
    small = [
        gated_delta_net.gated_delta_net(q, k * f, v, bounds, update_rule="linear", qk_l2_norm=1)[1] for f in (1, 1e-4)
    ]
    np.testing.assert_allclose(*small, rtol=1e-3, atol=1e-5)
