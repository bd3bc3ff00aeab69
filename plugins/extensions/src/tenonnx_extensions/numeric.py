"""Matrices, segments and spectra."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import constant, dtypes, holds, op, primitive, shapes
from tenonnx_extensions.checks import DOMAIN
from tenonnx_standard.checking import numpy_rule


@primitive("Inverse", domain=DOMAIN)
def inverse(X):
    """The inverse of a float32 matrix; infinities if it is singular."""


inverse.requires(dtypes(X="float32"), shapes(X="size size"))


@inverse.type
def inverse_type(X):
    return X.tensor


@numpy_rule(inverse)
def inverse_numpy(X):
    try:
        return np.linalg.inv(X.astype(np.float64)).astype(np.float32)
    except np.linalg.LinAlgError:
        return np.full_like(X, np.inf)


@inverse.vjp
def inverse_vjp(g, y, X):
    turned = ops.transpose(y, perm=[1, 0])
    return (ops.neg(ops.matmul(ops.matmul(turned, g), turned)),)


@op("StftNorm", domain=DOMAIN)
def stft_norm(pcm_wave, n_fft, hop_length, window, frame_length, *, onesided=1):
    """The power spectrum of a wave, float32[1, size], as float32[1, bins, frames].

    Frames of ``frame_length`` samples, equal to ``n_fft``, start every ``hop_length`` samples. The wave is padded with
    zeros by half a frame on both sides. With ``onesided``, bins end at half of the sample rate.
    """
    zero = np.zeros(1, np.int64)
    size, step, count = (ops.reshape(each, [1]) for each in (frame_length, hop_length, n_fft))
    half = ops.div(count, constant(np.full(1, 2)))
    padded = ops.pad(pcm_wave, ops.concat(constant(zero), half, constant(zero), half, axis=0))
    scalar = constant(np.zeros(0, np.int64))
    spectrum = ops.stft(
        ops.unsqueeze(padded, [2]), ops.reshape(step, scalar), window, ops.reshape(size, scalar), onesided=onesided
    )
    return ops.transpose(ops.reduce_sum(ops.mul(spectrum, spectrum), [3], keepdims=0), perm=[0, 2, 1])


stft_norm.requires(
    dtypes(pcm_wave="float32", n_fft="int64", hop_length="int64", window="float32", frame_length="int64"),
    shapes(pcm_wave="one size", window="frame"),
)


@op("NegPos", domain=DOMAIN)
def neg_pos(X):
    """The negative and the positive part of ``X``, each with 0 elsewhere."""
    zero = ops.cast_like(constant(np.float32(0)), X)
    is_positive = ops.greater(X, zero)
    negatives = ops.where(is_positive, zero, X)
    positives = ops.where(is_positive, X, zero)
    return negatives, positives


neg_pos.requires(dtypes(X="float32 float64"))


@op("SegmentSum", domain=DOMAIN)
def segment_sum(data, segment_ids):
    """Sums of the rows of each segment; ``segment_ids`` are sorted."""
    size = ops.add(ops.slice_(segment_ids, [-1], [2**62], [0]), constant(np.ones(1, np.int64)))
    shape = ops.concat(size, ops.slice_(ops.shape(data), [1], [2**62], [0]), axis=0)
    zeros = ops.expand(ops.cast_like(constant(np.float32(0)), data), shape)
    return ops.scatter_nd(zeros, ops.unsqueeze(segment_ids, [1]), data, reduction="add")


segment_sum.requires(dtypes(data="float32 float64", segment_ids="int64"), shapes(data="rows ...", segment_ids="rows"))


@op("SegmentExtraction", domain=DOMAIN)
def segment_extraction(input):
    """Start and end of each run of equal non-zero integers, and the integers."""
    flat = ops.reshape(input, [-1])
    edge = constant(np.zeros(1, np.int64))
    before, after = (
        ops.concat(edge, ops.slice_(flat, [0], [-1], [0]), axis=0),
        ops.concat(ops.slice_(flat, [1], [2**62], [0]), edge, axis=0),
    )
    nonzero = ops.not_(ops.equal(flat, constant(np.int64(0))))
    starts = ops.and_(nonzero, ops.not_(ops.equal(flat, before)))
    ends = ops.and_(nonzero, ops.not_(ops.equal(flat, after)))
    first, last = ops.transpose(ops.non_zero(starts), perm=[1, 0]), ops.transpose(ops.non_zero(ends), perm=[1, 0])
    position = ops.concat(first, ops.add(last, constant(np.int64(1))), axis=1)
    value = ops.compress(flat, starts, axis=0)
    return position, value


def check_row(*, input):
    """Reason why the input has more than one row, or None."""
    shape = input.tensor.shape
    if shape is None or len(shape) == 1 or (len(shape) == 2 and shape[0] in (1, None)):
        return None
    return f"input is not a vector or one row: {input.type}"


segment_extraction.requires(dtypes(input="int64"), holds(check_row))
