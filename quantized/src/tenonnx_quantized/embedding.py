"""QEmbedLayerNormalization."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import REQUIRED, DType, constant, dims, dtypes, op, same_dtype, shapes, together
from tenonnx_quantized.qlinear import dequantized

_EIGHT_BITS = "int8 uint8"


@op("QEmbedLayerNormalization", domain="com.microsoft")
def qembed_layer_normalization(
    input_ids,
    segment_ids=None,
    word_embedding_quant=REQUIRED,
    position_embedding_quant=REQUIRED,
    segment_embedding=None,
    gamma_quant=REQUIRED,
    beta_quant=REQUIRED,
    mask=None,
    word_embedding_scale=REQUIRED,
    position_embedding_scale=REQUIRED,
    segment_embedding_scale=None,
    gamma_scale=REQUIRED,
    beta_scale=REQUIRED,
    word_embedding_zero_point=REQUIRED,
    position_embedding_zero_point=REQUIRED,
    segment_embedding_zero_point=None,
    gamma_zero_point=REQUIRED,
    beta_zero_point=REQUIRED,
    *,
    epsilon=1e-12,
):
    """LayerNormalization of the sum of quantized word, position and segment embeddings.

    The second output is the number of unmasked words of each sequence: 0 without a mask.
    """
    batch, sequence = dims(input_ids)
    words = ops.gather(word_embedding_quant, input_ids)
    total = dequantized(words, word_embedding_scale, word_embedding_zero_point)
    places = position_embedding_quant[:sequence]
    total = total + dequantized(places, position_embedding_scale, position_embedding_zero_point)
    if segment_ids is not None:
        segments = ops.gather(segment_embedding, segment_ids)
        total = total + dequantized(segments, segment_embedding_scale, segment_embedding_zero_point)
    gamma = dequantized(gamma_quant, gamma_scale, gamma_zero_point)
    beta = dequantized(beta_quant, beta_scale, beta_zero_point)
    y = ops.layer_normalization(total, gamma, beta, epsilon=epsilon)[0]
    zero = constant(np.zeros(1), DType.int32)
    return y, ops.expand(zero, [batch]) if mask is None else ops.reduce_sum(mask, [1], keepdims=0)


qembed_layer_normalization.requires(
    together("segment_ids", "segment_embedding", "segment_embedding_scale", "segment_embedding_zero_point"),
    shapes(
        input_ids="batch length",
        segment_ids="batch length",
        mask="batch length",
        word_embedding_quant="_ hidden",
        position_embedding_quant="_ hidden",
        segment_embedding="_ hidden",
        gamma_quant="hidden",
        beta_quant="hidden",
    ),
    dtypes(
        input_ids="int32",
        segment_ids="int32",
        mask="int32",
        word_embedding_quant=_EIGHT_BITS,
        word_embedding_scale="float32",
    ),
    same_dtype(
        "word_embedding_quant",
        "position_embedding_quant",
        "segment_embedding",
        "gamma_quant",
        "beta_quant",
        "word_embedding_zero_point",
        "position_embedding_zero_point",
        "segment_embedding_zero_point",
        "gamma_zero_point",
        "beta_zero_point",
    ),
    same_dtype("word_embedding_scale", "position_embedding_scale", "segment_embedding_scale"),
    same_dtype("word_embedding_scale", "gamma_scale", "beta_scale"),
)
