"""Cases of signal ops: windows, Fourier transforms and mel weights."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import DType
from tenonnx_standard.signal import (
    blackman_window,
    dft,
    dft_along,
    hamming_window,
    hann_window,
    mel_weight_matrix,
    stft,
)
from tenonnx_testing import Gap, call, cases, tensors

FLOATS = ["float32", "float64"]


def gaps(reason, when):
    return [Gap(check, reason, when) for check in ("onnxruntime", "export")]


ROUNDED = gaps(
    "its coefficients have the precision of float32",
    lambda call: call.attributes["output_datatype"] == DType.float64,
)
NARROW = gaps(
    "its inverse has the precision of float32",
    lambda call: call.attributes["inverse"] and call.inputs[0].dtype == np.float64 and call.version >= 17,
)

SHORTENED = gaps(
    "its one-sided inverse takes other entries than the first where dft_length cuts the axis short",
    lambda call: call.attributes["inverse"] and call.attributes["onesided"] and call.inputs[1] is not None,
)


def number(draw, value):
    return np.asarray(value, draw(st.sampled_from([np.int32, np.int64])))


def windowed(draw):
    periodic = draw(st.integers(0, 1))
    output = draw(st.sampled_from([DType.float32, DType.float64, DType.float16]))
    size = number(draw, draw(st.integers(2 - periodic, 12))).reshape(draw(st.sampled_from([(), (1,)])))
    return call(size, periodic=periodic, output_datatype=int(output))


cases(hann_window, gradient=False)(windowed)
cases(hamming_window, gradient=False, gaps=ROUNDED)(windowed)
cases(blackman_window, gradient=False, gaps=ROUNDED)(windowed)


@cases(mel_weight_matrix, gradient=False)
def mel_weight_matrix_cases(draw):
    sizes = draw(st.integers(1, 8)), draw(st.sampled_from([16, 33, 64])), draw(st.sampled_from([8000, 16000]))
    low = draw(st.floats(0, 500, width=32))
    high = low + draw(st.floats(500, 3000, width=32))
    kind = draw(st.sampled_from([np.int32, np.int64]))
    shape = draw(st.sampled_from([(), (1,)]))
    given = *(np.asarray(size, kind) for size in sizes), *(np.asarray(edge, np.float32) for edge in (low, high))
    return call(*(each.reshape(shape) for each in given))


def transform(draw):
    """Draw a signal, one of its axes, a length or None, and attributes of a Fourier transform."""
    kind = draw(st.sampled_from(["real", "complex", "onesided", "inverse", "onesided inverse"]))
    inverse, onesided = int("inverse" in kind), int("onesided" in kind)
    last = 1 if kind in ("real", "onesided") else 2
    sides = draw(st.lists(st.integers(2, 5), min_size=2, max_size=3))
    x = draw(tensors(FLOATS, shape=(*sides, last)))
    axis = draw(st.sampled_from([k for k in range(-len(sides) - 1, len(sides)) if k != -1]))
    length = draw(st.sampled_from([None, number(draw, draw(st.integers(2, 6)))]))
    return x, length, axis, {"inverse": inverse, "onesided": onesided}


@cases(
    dft,
    gaps=[
        *NARROW,
        *SHORTENED,
        Gap("special values", "a NaN reaches all that a product sums, and in the rule what a transform combines"),
    ],
)
def dft_cases(draw):
    x, length, axis, attributes = transform(draw)
    return call(x, length, draw(st.sampled_from([None, np.asarray(axis, np.int64)])), **attributes)


@cases(dft_along, gaps=[*NARROW, *SHORTENED])
def dft_along_cases(draw):
    x, length, axis, attributes = transform(draw)
    return call(x, length, axis=axis, **attributes)


@cases(stft)
def stft_cases(draw):
    x = draw(tensors(FLOATS, shape=(draw(st.integers(1, 2)), draw(st.integers(6, 12)), 1)))
    size = draw(st.integers(2, 6))
    window = draw(st.sampled_from([None, draw(tensors(x.dtype.name, shape=(size,)))]))
    kind = draw(st.sampled_from([np.int32, np.int64]))
    length = np.asarray(size, kind) if window is None or draw(st.booleans()) else None
    return call(x, np.asarray(draw(st.integers(1, 4)), kind), window, length, onesided=draw(st.integers(0, 1)))
