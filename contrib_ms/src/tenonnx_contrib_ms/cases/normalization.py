"""Cases of normalization with a residual connection."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.normalization import (
    embed_layer_normalization,
    group_norm,
    skip_group_norm,
    skip_layer_normalization,
    skip_simplified_layer_normalization,
)
from tenonnx_testing import call, cases, shapes, tensors

FLOATS = ["float32", "float64", "float16", "bfloat16"]


def residual(draw):
    """Draw two tensors whose sum varies along the last axis, and parameters of that length."""
    shape = draw(shapes(2, 3, 2, 4))
    x = draw(tensors(FLOATS, shape=shape, min_value=-1, max_value=1))
    x = x + (4 * np.arange(shape[-1])).astype(x.dtype)
    shared = [shape[1:], (1, *shape[1:])] if len(shape) == 3 else []
    skip = draw(tensors(x.dtype.name, shape=draw(st.sampled_from([shape, *shared])), min_value=-1, max_value=1))
    gamma, beta, bias = (draw(tensors(x.dtype.name, shape=shape[-1:], min_value=-1, max_value=1)) for _ in range(3))
    return x, skip, gamma, beta, bias if draw(st.booleans()) else None, draw(st.sampled_from([1e-5, 1e-2]))


@cases(skip_layer_normalization)
def skip_layer_normalization_cases(draw):
    x, skip, gamma, beta, bias, epsilon = residual(draw)
    return call(x, skip, gamma, beta if draw(st.booleans()) else None, bias, epsilon=epsilon)


@cases(skip_simplified_layer_normalization)
def skip_simplified_layer_normalization_cases(draw):
    x, skip, gamma, _, bias, epsilon = residual(draw)
    return call(x, skip, gamma, bias, epsilon=epsilon)


def grouped(draw):
    """Draw images in one of two layouts, two parameters per channel, and attributes."""
    batch, groups, size, height, width = (draw(st.integers(1, 2)) for _ in range(5))
    channels, last = groups * size, draw(st.integers(0, 1))
    shape = (batch, height + 1, width, channels) if last else (batch, channels, height + 1, width)
    dtype = draw(st.sampled_from(["float32", "float16"]))
    x = draw(tensors(dtype, shape=shape, distinct=True))
    other = draw(st.sampled_from(["float32", dtype]))
    parameters = [draw(tensors(other, shape=(channels,), min_value=-1, max_value=1)) for _ in range(2)]
    attributes = {"activation": draw(st.integers(0, 1)), "channels_last": last, "groups": groups, "epsilon": 1e-2}
    return x, parameters, attributes


@cases(group_norm)
def group_norm_cases(draw):
    x, parameters, attributes = grouped(draw)
    return call(x, *parameters, **attributes)


@cases(skip_group_norm)
def skip_group_norm_cases(draw):
    x, parameters, attributes = grouped(draw)
    channels = parameters[0].size
    single = (x.shape[0], 1, 1, channels) if attributes["channels_last"] else (x.shape[0], channels, 1, 1)
    skip = draw(tensors(x.dtype, shape=draw(st.sampled_from([x.shape, single, (x.shape[0], channels)]))))
    bias = draw(st.none() | tensors(x.dtype, shape=(channels,)))
    return call(x, *parameters, skip, bias, **attributes)


@cases(embed_layer_normalization, gradient=["word_embedding", "position_embedding", "segment_embedding", "gamma"])
def embed_layer_normalization_cases(draw):
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    size, dtype = draw(st.integers(2, 4)), draw(st.sampled_from(["float32", "float16"]))
    words, positions, segments = (draw(tensors(dtype, shape=(rows, size), distinct=True)) for rows in (5, 4, 2))
    gamma, beta = (draw(tensors(dtype, shape=(size,))) for _ in range(2))
    ids = [draw(tensors("int32", shape=(batch, length), min_value=0, max_value=top)) for top in (4, 1, 1)]
    places = draw(
        st.none() | tensors("int32", shape=(draw(st.sampled_from([1, batch])), length), min_value=0, max_value=3)
    )
    if draw(st.booleans()):
        ids[1] = segments = None
    mask = draw(st.sampled_from([None, ids[2]]))
    attributes = {"epsilon": draw(st.sampled_from([1e-5, 1e-2])), "mask_index_type": int(mask is not None)}
    return call(ids[0], ids[1], words, positions, segments, gamma, beta, mask, places, **attributes)
