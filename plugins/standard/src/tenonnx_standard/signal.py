"""Signal processing: windows, Fourier transforms and mel weights.

Complex numbers are pairs (real, imaginary) along the last axis, which has length 1 for real numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenonnx.extend import (
    Dim,
    DType,
    Index,
    Op,
    TensorType,
    TypeMismatch,
    Value,
    constant,
    dims,
    elements,
    limits,
    op,
    shapes,
    static,
    symbolic,
)
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import axis_within, check_shape, counted, dim_of, numpy_rule, same_dtypes
from tenonnx_standard.computed_axes import along
from tenonnx_standard.constants import range_
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import equal, greater_or_equal, less, where
from tenonnx_standard.math import exp, floor, log, maximum, mod
from tenonnx_standard.padding import pad
from tenonnx_standard.reduction import widened
from tenonnx_standard.shapes import reshape, squeeze, transpose, unsqueeze
from tenonnx_standard.slicing import gather
from tenonnx_standard.trigonometry import cos, sin

Array = np.ndarray[Any, Any]


def _numbers(limit: Any) -> Value:
    """0, 1, 2, ..., ``limit`` - 1."""
    return counted(limit, "a signal") if isinstance(limit, int) else range_(0, limit, 1)


def _scalar(value: Value) -> Any:
    """An integer: an int if known, else an int64 value."""
    contents = static(value)
    return cast(reshape(value, []), to=DType.int64) if contents is None else int(contents.reshape(()))


def _integer(op: Op, name: str, value: Value | None) -> Dim:
    """An integer as a dim; None if absent or unknown."""
    if value is None:
        return None
    check_shape(op, name, value, [])
    if not value.dtype.is_integer:
        raise TypeMismatch(f"{op.title}: {name} is not an integer", given=repr(value))
    contents = elements(value)
    return contents[0] if contents else None


# ----- windows --------------------------------------------------------------------------------------------------------


#: The specification requires scalars; onnxruntime accepts one element of any rank.
ONE = "|1|1 1"


def _window(op: Op, *coefficients: float) -> None:
    """Register the rules of a window: the sum of ``coefficients[k] * cos(2 pi k n / size)``."""

    op.requires(shapes(size=ONE))

    @numpy_rule(op)
    @np.errstate(all="ignore")
    def made_numpy(size, *, periodic, output_datatype):
        (count,) = limits.sized([size.reshape(())], op.title)
        angle = np.arange(count) * np.divide(2 * math.pi, np.float64(count if periodic else count - 1))
        window = np.full(count, coefficients[0])
        for k, coefficient in enumerate(coefficients[1:], 1):
            window = window + np.cos(angle * k) * coefficient
        return window.astype(DType(output_datatype).numpy)


def _cosines(size: Value, periodic: int, output_datatype: int, *coefficients: float) -> Value:
    count = _scalar(size)
    length = count if periodic else count - 1
    if isinstance(length, Value):
        step = 2 * math.pi / cast(length, to=DType.float64)
    else:
        step = constant(np.asarray(2 * math.pi / length if length else math.inf))
    angle = cast(_numbers(count), to=DType.float64) * step
    window = cos(angle) * coefficients[1] + coefficients[0]
    if len(coefficients) > 2:
        window = window + cos(angle * 2.0) * coefficients[2]
    return cast(window, to=output_datatype)


HANN, HAMMING, BLACKMAN = (0.5, -0.5), (25 / 46, -21 / 46), (0.42, -0.5, 0.08)


@op("HannWindow", since=17)
def hann_window(size, *, periodic=1, output_datatype=1):
    """The Hann window, a raised cosine; symmetric without ``periodic`` (Harris 1978)."""
    return _cosines(size, periodic, output_datatype, *HANN)


@op("HammingWindow", since=17)
def hamming_window(size, *, periodic=1, output_datatype=1):
    """The Hamming window, a raised cosine on a pedestal that cancels the first side lobe (Harris 1978)."""
    return _cosines(size, periodic, output_datatype, *HAMMING)


@op("BlackmanWindow", since=17)
def blackman_window(size, *, periodic=1, output_datatype=1):
    """The Blackman window, a constant plus two cosines (Harris 1978)."""
    return _cosines(size, periodic, output_datatype, *BLACKMAN)


_window(hann_window, *HANN)
_window(hamming_window, *HAMMING)
_window(blackman_window, *BLACKMAN)


# ----- mel weights ----------------------------------------------------------------------------------------------------

#: A frequency of ``f`` hertz is ``2595 log10(1 + f / 700)`` mel.
_BREAK, _MELS = 700.0, 2595.0 / math.log(10)


@op("MelWeightMatrix", since=17)
def mel_weight_matrix(num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, *, output_datatype=1):
    """For each bin of a one-sided spectrum, its weights in triangular bands evenly spaced on the mel scale."""
    bands, size = _scalar(num_mel_bins), _scalar(dft_length)
    rate = cast(reshape(sample_rate, []), to=DType.float64)
    low, high = (
        log(cast(reshape(edge, []), to=DType.float64) / _BREAK + 1.0) * _MELS
        for edge in (lower_edge_hertz, upper_edge_hertz)
    )
    edges = bands + 2
    step = (high - low) / (cast(edges, to=DType.float64) if isinstance(edges, Value) else float(edges))
    hertz = (exp((cast(_numbers(edges), to=DType.float64) * step + low) / _MELS) - 1.0) * _BREAK
    scale = size + 1
    places = floor(hertz * (cast(scale, to=DType.float64) if isinstance(scale, Value) else float(scale)) / rate)
    left, center, right = places[:-2], places[1:-1], places[2:]
    bin_ = unsqueeze(cast(_numbers(size // 2 + 1), to=DType.float64), [1])
    one = constant(np.ones(1))
    rising = where(greater_or_equal(bin_, left), (bin_ - left) / maximum(center - left, one), 0.0)
    falling = where(less(bin_, right), (right - bin_) / maximum(right - center, one), 0.0)
    weights = where(equal(bin_, center), 1.0, where(less(bin_, center), rising, falling))
    return cast(weights, to=output_datatype)


mel_weight_matrix.requires(
    shapes(num_mel_bins=ONE, dft_length=ONE, sample_rate=ONE, lower_edge_hertz=ONE, upper_edge_hertz=ONE)
)


# ----- Fourier transforms ---------------------------------------------------------------------------------------------


@op("DFT", since=17)
def dft(input, dft_length: Index = None, axis: Index = None, *, inverse=0, onesided=0):
    """The discrete Fourier transform along ``axis`` of the first ``dft_length`` elements, padded with zeros.

    With ``onesided``, the result is half of the spectrum; the inverse takes half and returns a real signal.
    """
    if axis is not None and static(axis) is None:
        options = {"inverse": inverse, "onesided": onesided}
        return along(input, axis, lambda view, place: dft(view, dft_length, place, **options), kept=1)
    place = _axis(dft, input, axis)
    size = _transform_length(dim_of(input, place), dft_length, inverse, onesided)
    taken = size // 2 + 1 if inverse and onesided else size
    given = size // 2 + 1 if onesided and not inverse else size
    narrow = input.dtype
    x = cast(input, to=DType.float32) if narrow.bits < 32 else input
    perm = [*(k for k in range(x.ndim - 1) if k != place), x.ndim - 1, place]
    x = transpose(x, perm=perm)
    x = pad(x, [0, taken - dim_of(x, -1)], axes=[-1])
    real = x[..., 0, :]
    imaginary = None if input.shape[-1] == 1 else _second(x)

    turns = mod(unsqueeze(_numbers(taken), [1]) * unsqueeze(_numbers(given), [0]), size)
    angle = cast(turns, to=DType.float64) * (2 * math.pi) / _as_float(size)
    turned = [cast(wave(angle), to=x.dtype) for wave in (cos, sin)]
    if inverse:
        counts = _as_float(size)
        weights: Any = constant(np.asarray(1.0)) / counts
        if onesided:
            place_of = _numbers(taken)
            alone = equal(mod(place_of * 2, size), 0)
            weights = unsqueeze(where(alone, 1.0, constant(np.asarray(2.0))) / counts, [1])
        turned = [each * cast(weights, to=x.dtype) for each in turned]
    cosine, sine = turned
    if not inverse:
        sine = -sine
    parts = [real @ cosine if imaginary is None else real @ cosine - imaginary @ sine]
    if not (inverse and onesided):
        parts.append(real @ sine if imaginary is None else real @ sine + imaginary @ cosine)
    y = concat(*(unsqueeze(part, [-1]) for part in parts), axis=-1)
    back = list(range(y.ndim - 2))
    back.insert(place, y.ndim - 2)
    y = transpose(y, perm=[*back, y.ndim - 1])
    return y if narrow is y.dtype else cast(y, to=narrow)


def _second(x: Value) -> Value:
    """The imaginary parts along the next-to-last axis, which are 0 for real numbers."""
    if x.shape[-2] == 2:
        return x[..., 1, :]
    return squeeze(pad(x, [0, 1], axes=[-2])[..., 1:2, :], [-2])


def _as_float(size: Any) -> Value:
    return cast(size, to=DType.float64) if isinstance(size, Value) else constant(np.asarray(float(size)))


def _axis(op: Op, input: Value, axis: Value | None) -> int:
    contents = None if axis is None else static(axis)
    return _signal_axis(op, -2 if contents is None else int(contents.reshape(())), input.ndim)


def _signal_axis(op: Op, axis: int, rank: int) -> int:
    place = axis_within(op, axis, rank)
    if place == rank - 1:
        raise TypeMismatch(
            f"{op.title}: axis is the last one, which holds the complex numbers", given=f"axis {axis} of {rank}"
        )
    return place


def _transform_length(whole: Any, dft_length: Value | None, inverse: int, onesided: int) -> Any:
    if dft_length is not None:
        return _scalar(dft_length)
    return (whole - 1) * 2 if inverse and onesided else whole


def _complex(op: Op, x: Value) -> None:
    if not x.dtype.is_float:
        raise TypeMismatch(f"{op.title}: the input holds no floats", given=repr(x), do="cast it")
    shape = x.tensor.shape
    if shape is not None and (len(shape) < 2 or (isinstance(shape[-1], int) and shape[-1] not in (1, 2))):
        raise TypeMismatch(f"{op.title}: last axis has neither 1 nor 2 numbers", given=repr(x))


@dft.type
def dft_type(input, dft_length, axis, *, inverse, onesided):
    _complex(dft, input)
    wanted = (2 if inverse else 1) if onesided else None
    if input.rank is not None:
        check_shape(dft, "input", input, [*(None,) * (input.ndim - 1), wanted])
    size = _integer(dft, "dft_length", dft_length)
    _integer(dft, "axis", axis)
    if input.tensor.shape is None:
        return input.tensor
    contents = None if axis is None else static(axis)
    if axis is not None and contents is None:
        return input.tensor.with_shape(((None,) * (input.ndim - 1)) + ((1 if inverse and onesided else 2),))
    place = _axis(dft, input, axis)
    whole = input.shape[place]
    if dft_length is None:
        size = symbolic.multiply(symbolic.add(whole, -1), 2) if inverse and onesided else whole
    sides = list(input.shape)
    sides[place] = symbolic.add(symbolic.floor_div(size, 2), 1) if onesided and not inverse else size
    sides[-1] = 1 if inverse and onesided else 2
    return input.tensor.with_shape(tuple(sides))


dft.traits(declared=True)  # from opset 20 on, onnxruntime infers a one-sided spectrum to be as long as its signal


@numpy_rule(dft)
def dft_numpy(x, dft_length, axis, *, inverse, onesided):
    place = _signal_axis(dft, -2 if axis is None else int(axis.reshape(())), x.ndim)
    size = x.shape[place] if dft_length is None else int(dft_length.reshape(()))
    if dft_length is None and inverse and onesided:
        size = 2 * (size - 1)
    if size < 1:
        raise TypeMismatch(f"{dft.title}: dft_length is less than 1", given=f"dft_length {size}")
    return _transformed(x, size, place, inverse, onesided)


def _transformed(x: Array, size: int, place: int, inverse: int, onesided: int) -> Array:
    limits.check_elements((*x.shape[:place], size, *x.shape[place + 1 :]), dft.title)
    if not x.shape[place]:  # numpy's transforms of empty arrays return uninitialized memory
        x = np.zeros((*x.shape[:place], 1, *x.shape[place + 1 :]), x.dtype)
    wide = widened(x)
    signal = wide[..., 0] if x.shape[-1] == 1 else _paired(wide)
    if inverse and onesided:
        return np.fft.irfft(signal, size, place)[..., None].astype(x.dtype, copy=False)
    if onesided and x.shape[-1] == 1:
        spectrum = np.fft.rfft(signal, size, place)
    else:
        spectrum = (np.fft.ifft if inverse else np.fft.fft)(signal, size, place)
        if onesided:
            spectrum = spectrum[(*(slice(None),) * place, slice(size // 2 + 1))]
    return np.ascontiguousarray(spectrum).view(wide.dtype).reshape(*spectrum.shape, 2).astype(x.dtype, copy=False)


def _paired(x: Array) -> Array:
    """Complex numbers from pairs along the last axis."""
    kind = np.complex64 if x.dtype == np.float32 else np.complex128
    return np.ascontiguousarray(x).view(kind)[..., 0]


@dft.until(20)
def dft_along(input, dft_length: Index = None, *, axis=1, inverse=0, onesided=0):
    """The discrete Fourier transform along an axis given by an attribute."""
    return dft(input, dft_length, axis, inverse=inverse, onesided=onesided)


@dft.lower(to=dft_along)
def dft_to_dft_along(input, dft_length, axis, *, inverse, onesided):
    known = -2 if axis is None else static(axis)
    if known is None:
        return None
    return dft_along(input, dft_length, axis=int(np.reshape(known, ())), inverse=inverse, onesided=onesided)


@op("STFT", since=17)
def stft(signal, frame_step: Index, window=None, frame_length: Index = None, *, onesided=1):
    """The Fourier transforms of windowed frames of the signal, which start ``frame_step`` apart."""
    whole = dims(signal)[1]
    length = _frame_length(whole, window, frame_length)
    step = _scalar(frame_step)
    starts = _numbers((whole - length) // step + 1) * step
    frames = gather(signal, unsqueeze(starts, [1]) + _numbers(length), axis=1)
    if window is not None:
        frames = frames * unsqueeze(window, [1])
    return dft(frames, axis=2, onesided=onesided)


def _frame_length(whole: Any, window: Value | None, frame_length: Value | None) -> Any:
    if frame_length is not None:
        return _scalar(frame_length)
    return whole if window is None else dim_of(window, 0)


@stft.type
def stft_type(signal, frame_step, window, frame_length, *, onesided):
    _complex(stft, signal)
    dtype = same_dtypes(stft, signal, window)
    step, length = _integer(stft, "frame_step", frame_step), _integer(stft, "frame_length", frame_length)
    if signal.rank is None:
        return TensorType(dtype, (None, None, None, 2))
    if signal.rank != 3:
        raise TypeMismatch(f"{stft.title}: rank of the signal is not 3 (batch, time, complex)", given=repr(signal))
    if window is not None and window.rank not in (None, 1):
        raise TypeMismatch(f"{stft.title}: the window is not a list", given=repr(window))
    if frame_length is None:
        length = signal.shape[1] if window is None else window.shape[0] if window.rank is not None else None
    batch, whole, _ = signal.shape
    if isinstance(step, int) and step < 1:
        raise TypeMismatch(f"{stft.title}: frame_step is not positive", given=str(step))
    count = None
    if step is not None and whole is not None and length is not None:
        count = symbolic.add(symbolic.floor_div(symbolic.add(whole, symbolic.multiply(length, -1)), step), 1)
    if length is None and window is not None and window.rank is not None and window.shape[0] != 1:
        length = window.shape[0]  # the frame length is otherwise unknown
    bins = symbolic.add(symbolic.floor_div(length, 2), 1) if onesided else length
    return TensorType(dtype, (batch, count, bins, 2))


@numpy_rule(stft)
def stft_numpy(signal, frame_step, window, frame_length, *, onesided):
    step = int(frame_step.reshape(()))
    whole = signal.shape[1] if window is None else window.shape[0]
    length = whole if frame_length is None else int(frame_length.reshape(()))
    if length > signal.shape[1]:
        given = f"frames of {length} in {signal.shape[1]} samples"
        raise TypeMismatch(f"{stft.title}: a frame is longer than the signal", given=given)
    frames = np.lib.stride_tricks.sliding_window_view(signal, length, 1)[:, ::step].swapaxes(2, 3)
    if window is not None:
        frames = frames * window[:, None]
    return _transformed(frames, length, 2, 0, onesided)
