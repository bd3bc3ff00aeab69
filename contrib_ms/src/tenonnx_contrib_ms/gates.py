"""Gates: activations of one input that let another through, and mixtures of several streams."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, dims, divides, floats, one_of, op, same_dtype, shapes


def _wide(x: Value) -> Value:
    """``x`` in float32, unless it is wider."""
    return ops.cast(x, to=DType.float32) if x.dtype.bits < 32 else x


def _normalized(x: Value, epsilon: float) -> Value:
    """``x`` divided by the root of the mean of its squares along the last axis."""
    return x / ops.sqrt(ops.reduce_mean(x * x, [-1]) + epsilon)


# ----- gates ----------------------------------------------------------------------------------------------------------


@op("GatedAdd", domain="com.microsoft")
def gated_add(X, Y, gate):
    """``X + Y * gate``, with one number of ``gate`` for each row."""
    return X + Y * gate


gated_add.requires(shapes(X="... n", Y="... n", gate="... 1"), floats("X"), same_dtype("X", "Y", "gate"))


@op("GatedRMSNorm", domain="com.microsoft")
def gated_rms_norm(X, scale, gate, *, activation="silu", epsilon=1e-5):
    """Each run of as many elements as ``scale`` has normalised and scaled, times the activated ``gate``."""
    x = ops.reshape(_wide(X), [*dims(X)[:-1], -1, dims(scale)[0]])
    y = ops.reshape(_normalized(x, epsilon) * _wide(scale), ops.shape(X))
    z = _wide(gate)
    return ops.cast(y * (ops.sigmoid(z) if activation == "sigmoid" else ops.swish(z)), to=X.dtype)


gated_rms_norm.requires(
    shapes(X="... n", scale="c", gate="... n"),
    floats("X"),
    same_dtype("X", "scale", "gate"),
    divides("c", "n"),
    one_of(activation=("silu", "swish", "sigmoid")),
)


@op("ScaledSiLU", domain="com.microsoft")
def scaled_silu(X, scale=None, *, alpha=1.0):
    """SiLU of ``X`` times ``scale``, or ``alpha`` where that is not given."""
    x = _wide(X)
    factor = constant(alpha, x.dtype) if scale is None else ops.reshape(ops.cast(scale, to=x.dtype), [])
    z = ops.cast(x * factor, to=X.dtype)
    return z * ops.cast(ops.sigmoid(_wide(z)), to=X.dtype)


scaled_silu.requires(floats("X", "scale"))


@op("EngramGate", domain="com.microsoft")
def engram_gate(
    key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale=None, *, epsilon=1e-5, _outputs=None
):
    """``value`` for each stream, times a gate by how alike key and query are; and that normalised and scaled.

    The gate is the sigmoid of the root of their product, with its sign.
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


engram_gate.requires(
    shapes(
        key="b s m h", query="b s m h", value="b s h", key_norm_scale="m h", query_norm_scale="m h",
        conv_norm_scale="m h",
    ),
    floats("key"),
    same_dtype("key", "query", "value", "key_norm_scale", "query_norm_scale", "conv_norm_scale"),
)  # fmt: skip


# ----- streams --------------------------------------------------------------------------------------------------------


def _grouped(x: Value, branches: int) -> Value:
    """``x`` in float32 with an axis of branches before the last one, which it has already without ``branches``."""
    wide = _wide(x)
    return ops.reshape(wide, [*dims(x)[:-1], branches, -1]) if branches else wide


@op("BranchwiseRMSNorm", domain="com.microsoft")
def branchwise_rms_norm(X, scale=None, *, epsilon=1e-5, num_branches=0):
    """Each branch divided by the root of the mean of its squares, and scaled."""
    y = _normalized(_grouped(X, num_branches), epsilon)
    if scale is not None:
        factor = _wide(scale)
        if scale.ndim == 1:
            factor = ops.reshape(factor, [-1, dims(y)[-1]])
        y = y * factor
    return ops.cast(ops.reshape(y, ops.shape(X)), to=X.dtype)


@op("HyperConnectionPreMix", domain="com.microsoft")
def hyper_connection_pre_mix(streams, pre_mix, *, num_branches=0, reduction_scale=1.0):
    """The weighted sum of the streams, times ``reduction_scale``."""
    x = _grouped(streams, num_branches)
    y = ops.reduce_sum(x * _weights(pre_mix, x, num_branches), [-2], keepdims=0)
    return ops.cast(y * reduction_scale, to=streams.dtype)


@op("HyperConnectionPostMix", domain="com.microsoft")
def hyper_connection_post_mix(streams, block_output, post_mix, stream_mix=None, *, num_branches=0):
    """The streams mixed by ``stream_mix``, plus ``block_output`` times the weights of each stream."""
    x = _grouped(streams, num_branches)
    if stream_mix is not None:
        x = ops.transpose(_wide(stream_mix), perm=_last_two_swapped(stream_mix.ndim)) @ x
    y = x + _weights(post_mix, x, num_branches) * ops.unsqueeze(_wide(block_output), [-2])
    return ops.cast(ops.reshape(y, ops.shape(streams)), to=streams.dtype)


def _weights(given: Value, streams: Value, branches: int) -> Value:
    """Weights of streams or of their elements, as broadcasts to ``streams``."""
    wide = _wide(given)
    if given.ndim == streams.ndim:
        return wide
    return ops.reshape(wide, [*dims(streams)[:-1], -1])  # one for each stream, or those of all streams in a row


def _last_two_swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]
