"""Audio decoding by libsndfile, and segmentation of waves."""

from __future__ import annotations

import io

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, TensorType, TypeMismatch, constant, dtypes, holds, limits, op, primitive, shapes
from tenonnx_extensions.checks import DOMAIN, module, single
from tenonnx_extensions.numeric import stft_norm
from tenonnx_standard.checking import numpy_rule

#: Formats by the input ``format``; for "default", the first bytes of a file determine it.
_FORMATS = {"wav": "WAV", "mp3": "MP3", "flac": "FLAC"}

#: The order of the low-pass filter before downsampling, and the shape of the interpolation's Kaiser window.
_ORDER, _BETA = 4, 6.0


@primitive("AudioDecoder", domain=DOMAIN)
def audio_decoder(audio_stream, format=None, *, downsampling_rate=-1, stereo_to_mono=0):
    """Decode a WAV, FLAC or MP3 file, given as bytes, to samples float32[1, size] from -1 to 1.

    Channels are interleaved, or averaged with ``stereo_to_mono``. ``format`` is "default", "wav", "mp3" or "flac".
    Files with a sample rate above ``downsampling_rate`` are low-pass filtered and resampled. Raises ``TypeMismatch``
    for invalid bytes, and for a lower sample rate.
    """


def check_stream(*, audio_stream, format):
    """Reason why the bytes have more than one row, or None."""
    shape = audio_stream.tensor.shape
    if shape is None or len(shape) == 1 or (len(shape) == 2 and shape[0] in (1, None)):
        return None
    return f"audio_stream is not a vector or one row: {audio_stream.type}"


audio_decoder.requires(dtypes(audio_stream="uint8", format="string"), holds(check_stream))


@audio_decoder.type
def audio_decoder_type(audio_stream, format=None, *, downsampling_rate, stereo_to_mono):
    return TensorType(DType.float32, (1, None))


@numpy_rule(audio_decoder)
def audio_decoder_numpy(audio_stream, format=None, *, downsampling_rate, stereo_to_mono):
    data = audio_stream.tobytes()
    kind = "default" if format is None else single(audio_decoder, "format", format)
    if kind == "default":
        kind = _kind(data)
    if kind not in _FORMATS:
        raise TypeMismatch(f"{audio_decoder.title}: unknown format of audio", given=kind, available=", ".join(_FORMATS))
    samples, rate = _decoded(data, _FORMATS[kind])
    if stereo_to_mono and samples.shape[1] > 1:
        if samples.shape[1] > 2:
            raise TypeMismatch(f"{audio_decoder.title}: audio is not mono or stereo", given=f"{samples.shape[1]}")
        samples = samples.sum(axis=1, keepdims=True, dtype=np.float32) / np.float32(2)
    wave = samples.reshape(-1)
    if downsampling_rate not in (-1, rate):
        if not 0 < downsampling_rate < rate:
            raise TypeMismatch(
                f"{audio_decoder.title}: downsampling_rate lies above the rate of the audio",
                given=f"{downsampling_rate} above {rate}",
            )
        wave = downsampled(wave, rate, downsampling_rate)
    return wave[None]


def _kind(data):
    """The format by the first bytes, which for MP3 are a frame header."""
    if data[:4] == b"fLaC":
        return "flac"
    if data[:4] == b"RIFF":
        return "wav"
    is_frame = len(data) > 1 and data[0] == 0xFF and data[1] >= 0xE0
    return "mp3" if is_frame else f"bytes that begin with {data[:4]!r}"


def _decoded(data, kind):
    """Samples, float32[frames, channels], and their rate. Raises ``TypeMismatch`` for an unreadable file."""
    library = module("soundfile", "audio")
    try:
        with library.SoundFile(io.BytesIO(data)) as file:
            if not file.format.startswith(kind):
                raise TypeMismatch(f"{audio_decoder.title}: the bytes are not of the format", given=file.format)
            limits.sized((max(file.frames, 0), file.channels, 4), "the samples")
            return file.read(dtype="float32", always_2d=True), file.samplerate
    except library.SoundFileError as error:
        raise TypeMismatch(f"{audio_decoder.title}: cannot decode the bytes", given=str(error)) from error


# ----- downsampling ---------------------------------------------------------------------------------------------------


def downsampled(wave, rate, target):
    """A wave at a lower rate, float32: a Butterworth filter, then interpolation by a Kaiser-windowed sinc."""
    if not len(wave):
        return wave
    filtered = _low_pass(wave, 0.5 * target / rate)
    factor = np.float32(target) / np.float32(rate)
    size = int(np.ceil(np.float32(len(wave)) * factor))
    places = np.arange(size).astype(np.float32) / factor
    around = int(np.ceil(_BETA / (2.0 * float(factor))))
    limits.sized((size, 2 * around + 1, 40), "the interpolation of audio")
    whole = places.astype(np.int64)
    first, last = np.maximum(whole - around, 0), np.minimum(whole + around, len(wave) - 1)
    taps = first[:, None] + np.arange(2 * around + 1)
    position = 2.0 * (taps - first[:, None]) / np.maximum(last - first, 1)[:, None] - 1.0
    window = np.i0(_BETA * np.sqrt(np.maximum(1 - position * position, 0))) / np.i0(_BETA)
    distance = np.abs(taps.astype(np.float32) - places[:, None]).astype(np.float64)
    weights = np.where(taps <= last[:, None], window * np.sinc(distance), 0.0)
    values = filtered[np.minimum(taps, len(wave) - 1)].astype(np.float64)
    return (values * weights).sum(axis=1).astype(np.float32)


def _low_pass(wave, cutoff):
    """A wave after a Butterworth filter; ``cutoff`` is relative to the sample rate."""
    warped = np.tan(np.pi * cutoff)
    front, back = np.ones(1), np.ones(1)
    for pair in range(_ORDER // 2):
        damping = 2 * np.sin(np.pi * (2 * pair + 1) / (2 * _ORDER))
        scale = 1 + damping * warped + warped * warped
        front = np.convolve(front, warped * warped / scale * np.array([1, 2, 1]))
        back = np.convolve(back, np.array([scale, 2 * (warped**2 - 1), 1 - damping * warped + warped**2]) / scale)
    inner = np.convolve(wave.astype(np.float64), front)[: len(wave)].tolist()
    _, one, two, three, four = back.tolist()
    found, a, b, c, d = [], 0.0, 0.0, 0.0, 0.0
    for value in inner:
        a, b, c, d = value - one * a - two * b - three * c - four * d, a, b, c
        found.append(a)
    return np.array(found, np.float32)


# ----- segments -------------------------------------------------------------------------------------------------------


@op("SplitSignalSegments", domain=DOMAIN)
def split_signal_segments(audio, sr, frame_ms, hop_ms, energy_threshold_db):
    """Start and end, in milliseconds, of the loud parts of a wave, int64[count, 2].

    A frame is loud if its energy in decibels exceeds that of the loudest frame plus ``energy_threshold_db``, and the
    median. ``sr`` is the sample rate in Hz.
    """
    thousand = constant(np.int64(1000))
    scalar = constant(np.zeros(0, np.int64))
    rate, frame, hop = (ops.reshape(each, scalar) for each in (sr, frame_ms, hop_ms))
    size, step = ops.div(ops.mul(frame, rate), thousand), ops.div(ops.mul(hop, rate), thousand)
    window = ops.hann_window(size, periodic=1)
    spectrum = stft_norm(audio, size, step, window, size)
    energy = ops.reshape(ops.reduce_sum(spectrum, [1], keepdims=0), [-1])
    decibels = ops.mul(ops.log(ops.add(energy, constant(np.float32(1e-10)))), constant(np.float32(10 / np.log(10))))
    count = ops.shape(decibels)
    ordered, _ = ops.top_k(decibels, count, largest=0)
    middle = ops.gather(ordered, ops.div(count, constant(np.full(1, 2))))
    loudest = ops.reduce_max(decibels, [0])
    threshold = ops.maximum(ops.add(loudest, ops.reshape(energy_threshold_db, [1])), middle)
    is_loud = ops.cast(ops.greater(decibels, threshold), to=DType.int64)
    edge = constant(np.zeros(1, np.int64))
    change = ops.sub(ops.concat(is_loud, edge, axis=0), ops.concat(edge, is_loud, axis=0))
    places = [ops.transpose(ops.non_zero(ops.equal(change, constant(np.int64(sign)))), perm=[1, 0]) for sign in (1, -1)]
    samples = ops.cast(ops.mul(ops.concat(*places, axis=1), step), to=DType.float32)
    seconds = ops.div(samples, ops.cast(rate, to=DType.float32))
    return ops.cast(ops.mul(seconds, constant(np.float32(1000))), to=DType.int64)


_OF_WAVE = dtypes(audio="float32", sr="int64", frame_ms="int64", hop_ms="int64", energy_threshold_db="float32")
split_signal_segments.requires(_OF_WAVE, shapes(audio="1 size"))


@primitive("MergeSignalSegments", domain=DOMAIN)
def merge_signal_segments(segments, merge_gap_ms):
    """Segments, int64[count, 2], merged if one starts at most ``merge_gap_ms`` after the previous end.

    The segments must be sorted by start.
    """


merge_signal_segments.requires(dtypes(segments="int64", merge_gap_ms="int64"), shapes(segments="count 2"))


@merge_signal_segments.type
def merge_signal_segments_type(segments, merge_gap_ms):
    return TensorType(DType.int64, (None, 2))


@numpy_rule(merge_signal_segments)
def merge_signal_segments_numpy(segments, merge_gap_ms):
    gap = single(merge_signal_segments, "merge_gap_ms", merge_gap_ms)
    merged: list[list[int]] = []
    for start, end in segments.tolist():
        if merged and start - merged[-1][1] <= gap:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return np.array(merged, np.int64).reshape(-1, 2)
