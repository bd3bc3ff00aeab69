"""Normalization fused with a residual connection."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    TypeMismatch,
    Value,
    broadcasts_to,
    constant,
    dims,
    floats,
    holds,
    integers,
    op,
    same_dtype,
    shapes,
)
from tenonnx_contrib_ms.layouts import channels_first, channels_last_again

#: The default of ``epsilon`` as the float32 attribute.
_EPSILON = 1e-12


def _total(input: Value, skip: Value, bias: Value | None) -> Value:
    return input + skip if bias is None else input + skip + bias


def _stash(x: Value) -> int:
    """The dtype of statistics."""
    return int(DType.float64 if x.dtype is DType.float64 else DType.float32)


def _wide_total(*summands: Value | None) -> Value:
    """The sum in the dtype of the statistics, not rounded to the dtype of the data."""
    return _total(*(None if each is None else ops.cast(each, to=_stash(each)) for each in summands))


def _inverse_root_mean_square(x: Value, epsilon: float) -> Value:
    """The inverse root mean square of each row."""
    return ops.reciprocal(ops.sqrt(ops.reduce_mean(x * x, [-1]) + epsilon))


@op("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(input, skip, gamma, beta=None, bias=None, *, epsilon=_EPSILON):
    """LayerNormalization over the last axis of ``input + skip + bias``; that sum is the fourth output.

    The second and third output are the mean and the inverse standard deviation of each row.
    """
    total = _total(input, skip, bias)
    y = ops.layer_normalization(total, gamma, beta, epsilon=epsilon, stash_type=_stash(total))[0]
    wide = _wide_total(input, skip, bias)
    mean = ops.reduce_mean(wide, [-1])
    return y, mean, _inverse_root_mean_square(wide - mean, epsilon), total


@op("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_simplified_layer_normalization(input, skip, gamma, bias=None, *, epsilon=_EPSILON):
    """RMSNormalization over the last axis of ``input + skip + bias``; that sum is the fourth output.

    The second output, the unused mean, is 0; the third is the inverse root mean square of each row.
    """
    total = _total(input, skip, bias)
    y = ops.rms_normalization(total, gamma, epsilon=epsilon, stash_type=_stash(total))
    inverse = _inverse_root_mean_square(_wide_total(input, skip, bias), epsilon)
    return y, ops.zeros_like(inverse), inverse, total


#: A summand has the shape of the input, or is the same for every sequence of a batch.
_SUMMANDS = {
    "input": "length hidden | batch length hidden",
    "skip": "length hidden | batch length hidden | 1 length hidden",
}

skip_layer_normalization.requires(
    shapes(**_SUMMANDS, gamma="hidden", beta="hidden", bias="hidden"),
    floats("input"),
    same_dtype("input", "skip", "gamma", "beta", "bias"),
    broadcasts_to("input", "skip"),
)
skip_simplified_layer_normalization.requires(
    shapes(**_SUMMANDS, gamma="hidden", bias="hidden"),
    floats("input"),
    same_dtype("input", "skip", "gamma", "bias"),
    broadcasts_to("input", "skip"),
)


# ----- groups of channels ---------------------------------------------------------------------------------------------


@op("GroupNorm", domain="com.microsoft")
def group_norm(X, gamma, beta, *, activation: int, channels_last=1, epsilon=1e-5, groups: int):
    """Normalize each group of channels, then scale and shift, in float32; ``activation`` 1 is SiLU."""
    if activation not in (0, 1):
        raise TypeMismatch(
            f"{group_norm.title}: activation is neither 0 (none) nor 1 (SiLU)", given=f"activation={activation}"
        )
    x = ops.cast(channels_first(X) if channels_last else X, to=_stash(X))
    y = ops.group_normalization(
        x, ops.cast(gamma, to=x.dtype), ops.cast(beta, to=x.dtype), epsilon=epsilon, num_groups=groups
    )
    y = ops.cast(ops.swish(y) if activation else y, to=X.dtype)
    return channels_last_again(y) if channels_last else y


group_norm.traits(on_request=True)


@op("SkipGroupNorm", domain="com.microsoft")
def skip_group_norm(X, gamma, beta, skip, bias=None, *, activation: int, channels_last=1, epsilon=1e-5, groups: int):
    """GroupNorm of ``X + skip + bias``, and that sum; ``skip`` may have one number per channel of an image."""
    if skip.ndim == 2:
        batch, channels = dims(skip)
        skip = ops.reshape(skip, [batch, 1, 1, channels] if channels_last else [batch, channels, 1, 1])
    total = X + skip
    if bias is not None:
        total = total + (bias if channels_last else ops.reshape(bias, [-1, 1, 1]))
    options = {"activation": activation, "channels_last": channels_last, "epsilon": epsilon, "groups": groups}
    return group_norm(total, gamma, beta, **options), total


skip_group_norm.traits(on_request=True)


# ----- embeddings -----------------------------------------------------------------------------------------------------


@op("EmbedLayerNormalization", domain="com.microsoft")
def embed_layer_normalization(
    input_ids,
    segment_ids=None,
    word_embedding=REQUIRED,
    position_embedding=REQUIRED,
    segment_embedding=None,
    gamma=REQUIRED,
    beta=REQUIRED,
    mask=None,
    position_ids=None,
    *,
    epsilon=_EPSILON,
    mask_index_type: int | None = None,
):
    """LayerNormalization of the sum of word, position and segment embeddings.

    Without ``segment_ids``, all words belong to the first segment. The second output counts the ones in each row of
    ``mask``, the third is the sum.
    """
    batch, length = dims(input_ids)
    total = ops.gather(word_embedding, input_ids)
    if position_ids is None:
        total = total + position_embedding[:length]
    else:
        total = total + ops.gather(position_embedding, position_ids)
    if segment_embedding is not None:
        total = total + (segment_embedding[0] if segment_ids is None else ops.gather(segment_embedding, segment_ids))
    y = ops.layer_normalization(total, gamma, beta, epsilon=epsilon, stash_type=_stash(total))[0]
    if mask is None:
        counted = ops.expand(constant(0, DType.int32), [batch])
    else:
        counted = ops.reduce_sum(ops.cast(ops.equal(mask, 1), to=DType.int32), [1], keepdims=0)
    return y, counted, total


def _hold_segments(segment_ids: Value | None, segment_embedding: Value | None) -> str | None:
    return (
        "segment_ids is given without segment_embedding"
        if segment_ids is not None and segment_embedding is None
        else None
    )


embed_layer_normalization.requires(
    shapes(
        input_ids="batch length",
        segment_ids="batch length",
        mask="batch length",
        position_ids="batch length | 1 length",
        word_embedding="words hidden",
        position_embedding="positions hidden",
        segment_embedding="segments hidden",
        gamma="hidden",
        beta="hidden",
    ),
    floats("word_embedding"),
    same_dtype("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta"),
    integers("input_ids"),
    same_dtype("input_ids", "segment_ids", "mask", "position_ids"),
    holds(_hold_segments),
)
