"""Gated activations, SwiGLU, and hyper-connections of residual streams."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Value,
    at_least,
    constant,
    differ,
    dims,
    divides,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
    together,
)
from tenonnx_standard.gated_activation import clamped_swiglu


def _wide(x: Value) -> Value:
    """``x`` in at least float32."""
    return ops.cast(x, to=DType.float32) if x.dtype.bits < 32 else x


def _normalized(x: Value, epsilon: float) -> Value:
    """``x`` divided by its root mean square along the last axis."""
    return x / ops.sqrt(ops.reduce_mean(x * x, [-1]) + epsilon)


# ----- gates ----------------------------------------------------------------------------------------------------------


@op("GatedAdd", domain="com.microsoft")
def gated_add(X, Y, gate, gate_weight=None):
    """``X + Y * gate``, with one gate per row, or a gate that is the sigmoid of a product with ``gate_weight``.

    The product and the sigmoid are rounded to the dtype.
    """
    if gate_weight is not None:
        gate = ops.cast(_wide(gate) @ _wide(gate_weight), to=X.dtype)
        gate = ops.cast(ops.sigmoid(_wide(gate)), to=X.dtype)
    return X + Y * gate


gated_add.traits(on_request=True)


gated_add.requires(
    shapes(X="... n", Y="... n", gate="... k", gate_weight="k 1"),
    floats("X"),
    same_dtype("X", "Y", "gate", "gate_weight"),
    holds(
        lambda gate_weight, k: (
            "gate does not have one number for each row, without gate_weight"
            if gate_weight is None and differ(k, 1)
            else None
        )
    ),
)


@op("GatedRMSNorm", domain="com.microsoft")
def gated_rms_norm(X, scale, gate, *, activation="silu", epsilon=1e-5):
    """Normalize groups of as many elements as ``scale`` has, scale them, and multiply by the activated ``gate``."""
    x = ops.reshape(_wide(X), [*dims(X)[:-1], -1, dims(scale)[0]])
    y = ops.reshape(_normalized(x, epsilon) * _wide(scale), ops.shape(X))
    z = _wide(gate)
    return ops.cast(y * (ops.sigmoid(z) if activation == "sigmoid" else ops.swish(z)), to=X.dtype)


gated_rms_norm.traits(on_request=True)


gated_rms_norm.requires(
    shapes(X="... n", scale="c", gate="... n"),
    floats("X"),
    same_dtype("X", "scale", "gate"),
    divides("c", "n"),
    one_of(activation=("silu", "swish", "sigmoid")),
)


@op("ScaledSiLU", domain="com.microsoft")
def scaled_silu(X, scale=None, *, alpha=1.0):
    """SiLU of ``X`` times ``scale``, or times ``alpha`` without ``scale``."""
    x = _wide(X)
    factor = constant(alpha, x.dtype) if scale is None else ops.reshape(ops.cast(scale, to=x.dtype), [])
    z = ops.cast(x * factor, to=X.dtype)
    return z * ops.cast(ops.sigmoid(_wide(z)), to=X.dtype)


scaled_silu.traits(on_request=True)


scaled_silu.requires(floats("X", "scale"))


@op("EngramGate", domain="com.microsoft")
def engram_gate(
    key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale=None, *, epsilon=1e-5, _outputs=None
):
    """``value`` of each stream times a gate by similarity of key and query; and that normalized and scaled.

    The gate is the sigmoid of the signed square root of their scaled product.
    """
    k, q = (
        _normalized(_wide(x), epsilon) * _wide(scale) for x, scale in ((key, key_norm_scale), (query, query_norm_scale))
    )
    size = dims(key)[-1]
    root = ops.sqrt(ops.cast(size, to=k.dtype)) if isinstance(size, Value) else size**0.5
    dot = ops.reduce_sum(k * q, [-1]) / root
    gate = ops.sigmoid(ops.sign(dot) * ops.sqrt(ops.maximum(ops.absolute(dot), 1e-6)))
    y = gate * ops.unsqueeze(_wide(value), [2])
    if conv_norm_scale is None:
        return ops.cast(y, to=key.dtype), None
    return tuple(ops.cast(each, to=key.dtype) for each in (y, _normalized(y, epsilon) * _wide(conv_norm_scale)))


engram_gate.traits(on_request=True)


engram_gate.requires(
    shapes(
        key="b s m h",
        query="b s m h",
        value="b s h",
        key_norm_scale="m h",
        query_norm_scale="m h",
        conv_norm_scale="m h",
    ),
    floats("key"),
    same_dtype("key", "query", "value", "key_norm_scale", "query_norm_scale", "conv_norm_scale"),
)


@op("SwiGLU", domain="com.microsoft")
def swiglu(gate, up=None, *, activation_alpha=1.0, activation_beta=0.0, limit=0.0, round_activation=0):
    """SwiGLU of ``gate`` and ``up``, or of the halves of ``gate``, in float32, clipped by a positive ``limit``.

    ``round_activation`` also rounds the activated ``gate``.
    """
    x, y = (gate, up) if up is not None else ops.split(gate, axis=-1, num_outputs=2)
    found = clamped_swiglu(
        _wide(x),
        _wide(y),
        alpha=activation_alpha,
        beta=activation_beta,
        limit=limit if limit > 0 else None,
        rounded=gate.dtype if round_activation else None,
    )
    return ops.cast(found, to=gate.dtype)


swiglu.traits(on_request=True)


swiglu.requires(
    shapes(gate="... n", up="... n"),
    floats("gate"),
    same_dtype("gate", "up"),
    holds(
        lambda up, n: "last axis of gate is odd, without up" if up is None and isinstance(n, int) and n % 2 else None
    ),
)


@op("RouterGateUpProj", domain="com.microsoft")
def router_gate_up_proj(
    X, W, *, activation="swiglu", activation_alpha=1.0, activation_beta=0.0, limit=0.0, router_size: int
):
    """The first ``router_size`` columns of ``X @ W``, and SwiGLU of the halves of the other columns."""
    y = ops.cast(_wide(X) @ _wide(W), to=X.dtype)
    options = {"activation_alpha": activation_alpha, "activation_beta": activation_beta, "limit": limit}
    return y[..., :router_size], swiglu(y[..., router_size:], **options)


router_gate_up_proj.traits(on_request=True)


router_gate_up_proj.requires(
    shapes(X="... k", W="k n"),
    floats("X"),
    same_dtype("X", "W"),
    one_of(activation=("swiglu",)),
    at_least(router_size=0),
    holds(
        lambda router_size, n: (
            "W does not have router_size columns and two for each activated one"
            if isinstance(n, int) and (n < router_size or (n - router_size) % 2)
            else None
        )
    ),
)


# ----- streams --------------------------------------------------------------------------------------------------------


def _grouped(x: Value, branches: int) -> Value:
    """``x`` in float32 with a branch axis before the last one; without ``branches``, it has that axis already."""
    wide = _wide(x)
    return ops.reshape(wide, [*dims(x)[:-1], branches, -1]) if branches else wide


@op("BranchwiseRMSNorm", domain="com.microsoft")
def branchwise_rms_norm(X, scale=None, *, epsilon=1e-5, num_branches=0):
    """Divide each branch by its root mean square, and scale it."""
    y = _normalized(_grouped(X, num_branches), epsilon)
    if scale is not None:
        factor = _wide(scale)
        if scale.ndim == 1:
            factor = ops.reshape(factor, [-1, dims(y)[-1]])
        y = y * factor
    return ops.cast(ops.reshape(y, ops.shape(X)), to=X.dtype)


branchwise_rms_norm.traits(on_request=True)


@op("HyperConnectionPreMix", domain="com.microsoft")
def hyper_connection_pre_mix(streams, pre_mix, *, num_branches=0, reduction_scale=1.0):
    """The weighted sum of the streams, times ``reduction_scale``."""
    x = _grouped(streams, num_branches)
    y = ops.reduce_sum(x * _weights(pre_mix, x, num_branches), [-2], keepdims=0)
    return ops.cast(y * reduction_scale, to=streams.dtype)


hyper_connection_pre_mix.traits(on_request=True)


@op("HyperConnectionPostMix", domain="com.microsoft")
def hyper_connection_post_mix(streams, block_output, post_mix, stream_mix=None, *, num_branches=0):
    """The streams mixed by the matrix ``stream_mix``, plus ``block_output`` times the weights of each stream."""
    x = _grouped(streams, num_branches)
    if stream_mix is not None:
        x = ops.transpose(_wide(stream_mix), perm=_last_two_swapped(stream_mix.ndim)) @ x
    y = x + _weights(post_mix, x, num_branches) * ops.unsqueeze(_wide(block_output), [-2])
    return ops.cast(ops.reshape(y, ops.shape(streams)), to=streams.dtype)


hyper_connection_post_mix.traits(on_request=True)


@op("HyperConnectionLowRankMix", domain="com.microsoft")
def hyper_connection_low_rank_mix(
    streams,
    norm_scale,
    down_weight,
    up_weight,
    inject_weight,
    prev_block_output=None,
    prev_post_gate=None,
    *,
    epsilon=1e-5,
    gate_div=1.0,
    gate_mul=1.0,
    num_branches: int,
    reduction_scale=1.0,
    silu_alpha=1.0,
):
    """The gated sum of the normalized streams (low-rank gates), a gate per stream for the next call, and the streams.

    First, ``prev_block_output`` times ``prev_post_gate`` is added to the streams. Each step is rounded to the dtype.
    """

    def rounded(x: Value) -> Value:
        return _wide(ops.cast(x, to=streams.dtype))

    x = _grouped(streams, num_branches)
    if prev_block_output is not None:
        x = rounded(x + ops.unsqueeze(_wide(prev_post_gate), [-1]) * ops.unsqueeze(_wide(prev_block_output), [-2]))
    scale = ops.reshape(_wide(norm_scale), [num_branches, -1])
    normal = rounded(_normalized(x, epsilon) * scale)
    flat = ops.reshape(normal, ops.shape(streams))
    inner = rounded(rounded(flat @ _wide(down_weight)) * silu_alpha)
    hidden = rounded(inner * rounded(ops.sigmoid(inner)))
    gates = _grouped(rounded(ops.sigmoid(rounded(hidden @ _wide(up_weight)))), num_branches)
    mixed = ops.reduce_sum(normal * gates, [-2], keepdims=0) * reduction_scale
    injected = rounded(ops.sigmoid(rounded(rounded(flat @ _wide(inject_weight)) / gate_div))) * gate_mul
    outputs = mixed, injected, ops.reshape(x, ops.shape(streams))
    return tuple(ops.cast(each, to=streams.dtype) for each in outputs)


hyper_connection_low_rank_mix.traits(on_request=True)


hyper_connection_low_rank_mix.requires(
    shapes(
        streams="... n",
        norm_scale="n",
        down_weight="n r",
        up_weight="r n",
        inject_weight="n num_branches",
        prev_block_output="... h",
        prev_post_gate="... num_branches",
    ),
    floats("streams"),
    divides("num_branches", "n"),
    together("prev_block_output", "prev_post_gate"),
    same_dtype(
        "streams", "norm_scale", "down_weight", "up_weight", "inject_weight", "prev_block_output", "prev_post_gate"
    ),
    holds(lambda gate_div: "gate_div is 0" if not gate_div else None),
)


def _weights(given: Value, streams: Value, branches: int) -> Value:
    """Weights of streams or of their elements, reshaped to broadcast to ``streams``."""
    wide = _wide(given)
    if given.ndim == streams.ndim:
        return wide
    return ops.reshape(wide, [*dims(streams)[:-1], -1])  # one per stream, or those of all streams in a row


def _last_two_swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]
