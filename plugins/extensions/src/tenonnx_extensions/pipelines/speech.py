"""Feature extractors of speech as graphs, from the files that transformers writes.

Source: transformers 5.24, ``WhisperFeatureExtractor`` and ``Wav2Vec2FeatureExtractor``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, InvalidModel, NotRepresentable, Value, constant
from tenonnx_extensions.audio import audio_decoder
from tenonnx_extensions.checks import DOMAIN
from tenonnx_extensions.pipelines.files import settings as read_settings
from tenonnx_extensions.pipelines.image_processor import FILE

Settings = dict[str, Any]

#: Keys that say nothing about numbers of one channel whose rows have the same length.
_WITHOUT_EFFECT = {
    "feature_extractor_type",
    "mel_filters",
    "nb_max_frames",
    "n_samples",
    "padding_side",
    "processor_class",
    "return_attention_mask",
    "return_tensors",
    "transformers_version",
}

_WHISPER = {
    "chunk_length": 30,
    "dither": 0.0,
    "feature_size": 80,
    "hop_length": 160,
    "n_fft": 400,
    "padding_value": 0.0,
    "sampling_rate": 16000,
}
_WAVE = {"do_normalize": True, "feature_size": 1, "padding_value": 0.0, "sampling_rate": 16000}

#: The highest frequency of a filter of Whisper, in Hz, and the least power.
_HIGHEST, _FLOOR = 8000.0, 1e-10


def feature_extractor(path: str | os.PathLike[str], *, model: Graph | None = None, encoded: bool = False) -> Graph:
    """The graph of a feature extractor of speech, in ``ai.onnx``.

    ``path`` is a ``preprocessor_config.json`` of Whisper or of wav2vec 2.0 and its kin, or a folder with one.

    The input ``audio`` is float32[batch, samples], one channel at the sampling rate of the extractor. The output of
    Whisper is ``input_features``, float32[batch, mels, frames], of audio that is cut or padded to one chunk; that of
    wav2vec 2.0 is ``input_values``, float32[batch, samples]. With ``encoded``, the input is ``audio_file``,
    uint8[size], the bytes of one WAV, FLAC or MP3 file, which AudioDecoder of onnxruntime-extensions decodes; its
    sampling rate must be at least that of the extractor. With ``model``, the output has the name and the type of the
    model's input that it is for.

    Raises ``InvalidModel`` for a file that cannot be read, ``NotRepresentable`` for an extractor or a setting that has
    no graph, and ``InvalidCall`` where ``model`` has no input for the features.
    """
    file = Path(path)
    config = read_settings(file / FILE if file.is_dir() else file)
    name, compute, settings = _described(config)
    graph = Graph("feature_extractor", opsets={"ai.onnx": 17} | ({DOMAIN: 1} if encoded else {}))
    given = graph.input(
        *(("audio_file", "uint8", ("size",)) if encoded else ("audio", "float32", ("batch", "samples")))
    )
    with graph.building():
        rate = settings["sampling_rate"]
        wave = audio_decoder(given, downsampling_rate=rate, stereo_to_mono=1) if encoded else given
        features = compute(wave, settings)
        if model is not None:
            name, features = _for_model(model, name, features)
        graph.output(name, features)
    return graph


def _described(config: Mapping[str, Any]) -> tuple[str, Callable[[Value, Settings], Value], Settings]:
    """The output's name, the function of the wave, and the settings of a configuration."""
    kinds: dict[str, tuple[str, Callable[[Value, Settings], Value], Settings]] = {
        "WhisperFeatureExtractor": ("input_features", log_mel, _WHISPER),
        "Wav2Vec2FeatureExtractor": ("input_values", samples, _WAVE),
    }
    kind = config.get("feature_extractor_type")
    if kind not in kinds:
        raise NotRepresentable(
            "unsupported feature extractor of speech", given=f"{kind!r}"[:200], available=", ".join(kinds)
        )
    name, compute, defaults = kinds[kind]
    settings = dict(defaults)
    for key, value in config.items():
        if key in settings:
            settings[key] = settings[key] if value is None else value
        elif key not in _WITHOUT_EFFECT and value not in (None, False):
            raise _unsupported(key, value, ", ".join(settings))
    for key, value in settings.items():
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if isinstance(defaults[key], float | bool):
            if not isinstance(value, int | float):
                raise InvalidModel(f"wrong value of {key} in the configuration", given=f"{value!r}"[:200])
        elif not is_whole or value > 1 << 20:
            raise InvalidModel(
                f"wrong value of {key} in the configuration",
                given=f"{value!r}"[:200],
                available="positive whole numbers up to 1,048,576",
            )
    if settings.get("dither"):
        raise _unsupported("dither", settings["dither"], "0.0")
    if kind != "WhisperFeatureExtractor" and settings["feature_size"] != 1:
        raise _unsupported("feature_size", settings["feature_size"], "1")
    return name, compute, settings


def _unsupported(key: str, value: Any, available: str) -> NotRepresentable:
    return NotRepresentable(
        f"unsupported setting of the feature extractor: {key}", given=f"{value!r}"[:200], available=available
    )


def _for_model(model: Graph, name: str, features: Value) -> tuple[str, Value]:
    """The name and the features in the type of the model's input that has the name, or of its only floats."""
    inputs = {value.name: value for value in model.inputs}
    if name not in inputs:
        floats = [each for each, value in inputs.items() if value.dtype is not None and value.dtype.is_float]
        if len(floats) != 1:
            raise InvalidCall(
                "the model has no input for the features",
                given=", ".join(f"{each}: {value.type}" for each, value in inputs.items()),
                available=name,
                do="rename its input: tenonnx rename",
            )
        name = floats[0]
    dtype = inputs[name].dtype
    return name, features if dtype in (None, DType.float32) else ops.cast(features, to=dtype)


# ----- features -------------------------------------------------------------------------------------------------------


def samples(wave: Value, settings: Settings) -> Value:
    """The wave itself, float32[batch, samples], with mean 0 and variance 1 where the settings normalize."""
    if not settings["do_normalize"]:
        return ops.identity(wave)
    centered = wave - ops.reduce_mean(wave, [1])
    variance = ops.reduce_mean(centered * centered, [1])
    return centered / ops.sqrt(variance + np.float32(1e-7))


def log_mel(wave: Value, settings: Settings) -> Value:
    """The logarithmic mel spectrogram of Whisper, float32[batch, mels, frames].

    ``wave`` is float32[batch, samples]. Source: Radford et al., "Robust Speech Recognition via Large-Scale Weak
    Supervision", section 2.2.
    """
    size, hop, rate = settings["n_fft"], settings["hop_length"], settings["sampling_rate"]
    length = settings["chunk_length"] * rate
    chunk = _cut_or_padded(wave, length, float(settings["padding_value"]))
    around = constant(np.array([0, size // 2, 0, size // 2]))
    signal = ops.unsqueeze(ops.pad(chunk, around, mode="reflect"), [1])
    bins = size // 2 + 1
    spectrum = ops.conv(signal, constant(_fourier(size)), strides=[hop])
    frames = constant(np.array([length // hop]))
    real, imaginary = (
        ops.slice_(spectrum, [k * bins, 0], ops.concat(constant(np.array([(k + 1) * bins])), frames, axis=0), [1, 2])
        for k in (0, 1)
    )
    power = real * real + imaginary * imaginary
    mels = ops.matmul(constant(mel_filters(settings["feature_size"], bins, rate)), power)
    decades = ops.log(ops.maximum(mels, constant(np.float32(_FLOOR)))) * np.float32(1 / np.log(10))
    loudest = ops.reduce_max(decades, [1, 2])
    return (ops.maximum(decades, loudest - np.float32(8)) + np.float32(4)) * np.float32(0.25)


def _cut_or_padded(wave: Value, length: int, padding: float) -> Value:
    """The first ``length`` samples, with ``padding`` after a shorter wave."""
    cut = ops.slice_(wave, [0], [length], [1])
    missing = ops.sub(constant(np.array([length])), ops.shape(cut)[1:2])
    zero = constant(np.zeros(3, np.int64))
    return ops.pad(cut, ops.concat(zero, missing, axis=0), constant(np.float32(padding)))


def _fourier(size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Kernels of a convolution that computes a Fourier transform under a Hann window: real parts, then imaginary."""
    place, frequency = np.arange(size), np.arange(size // 2 + 1)[:, None]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * place / size)
    angle = 2 * np.pi * (frequency * place % size) / size
    return np.concatenate([np.cos(angle), -np.sin(angle)])[:, None].astype(np.float32) * window.astype(np.float32)


def mel_filters(count: int, bins: int, rate: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Triangular filters on the mel scale of Slaney's Auditory Toolbox (1998), float32[count, bins], of equal area."""
    edges = _hertz(np.linspace(0.0, _mel(_HIGHEST), count + 2))
    frequencies = np.linspace(0, rate // 2, bins)
    widths = np.diff(edges)[:, None]
    slopes = edges[:, None] - frequencies
    rising, falling = -slopes[:-2] / widths[:-1], slopes[2:] / widths[1:]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return (triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)


#: The mel scale is linear up to 1,000 Hz, which are 15 mels, and logarithmic above.
_LINEAR, _KNEE, _STEP = 3 / 200, 15.0, 27 / np.log(6.4)


def _mel(hertz: float) -> float:
    return _LINEAR * hertz if hertz < 1000 else float(_KNEE + _STEP * np.log(hertz / 1000))


def _hertz(mels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(mels < _KNEE, mels / _LINEAR, 1000 * np.exp((np.maximum(mels, _KNEE) - _KNEE) / _STEP))
