"""Cases of audio, bounding boxes, and sentence breaking."""

from __future__ import annotations

import functools
import io
import wave
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from tenonnx_extensions.audio import audio_decoder, merge_signal_segments, split_signal_segments
from tenonnx_extensions.cases.library import kernel
from tenonnx_extensions.checks import strings
from tenonnx_extensions.drawing import draw_bounding_boxes
from tenonnx_extensions.images import DOMAIN
from tenonnx_extensions.sentences import bling_fire_sentence_breaker
from tenonnx_testing import call, cases


def of_wave(samples, rate, channels=1):
    """The bytes of a WAV file with these int16 samples."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return np.frombuffer(stream.getvalue(), np.uint8)


def generator(draw):
    return np.random.default_rng(draw(st.integers(0, 20)))


@cases(audio_decoder, gradient=False, reference=kernel("AudioDecoder"))
def audio_decoder_cases(draw):
    channels = draw(st.integers(1, 2))
    samples = (generator(draw).normal(size=draw(st.integers(1, 400)) * channels) * 5000).astype(np.int16)
    data = of_wave(samples, draw(st.sampled_from([16000, 22050, 48000])), channels)
    named = [strings([draw(st.sampled_from(["default", "wav"]))])] if draw(st.booleans()) else []
    rate, mono = draw(st.sampled_from([-1, 16000, 11025])), draw(st.integers(0, 1))
    return call(data, *named, downsampling_rate=rate, stereo_to_mono=mono)


@cases(split_signal_segments, gradient=False, reference=kernel("SplitSignalSegments"))
def split_signal_segments_cases(draw):
    drawn = generator(draw)
    loud = np.repeat(drawn.random(8) > 0.5, 300)
    samples = (drawn.normal(size=2400) * (loud + 0.01)).astype(np.float32)[None]
    sizes = [np.int64([n]) for n in (8000, draw(st.sampled_from([8, 16])), 5)]
    return call(samples, *sizes, np.float32([draw(st.sampled_from([-10, -20]))]))


@cases(merge_signal_segments, gradient=False, reference=kernel("MergeSignalSegments"))
def merge_signal_segments_cases(draw):
    pairs = draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=6))
    segments = np.array([(start, start + size) for start, size in sorted(pairs)], np.int64).reshape(-1, 2)
    return call(segments, np.int64([draw(st.integers(0, 9))]))


@cases(
    draw_bounding_boxes,
    gradient=False,
    reference=kernel("DrawBoundingBoxes", domain=DOMAIN),
    undrawn={"num_classes": "it has no effect"},
)
def draw_bounding_boxes_cases(draw):
    drawn = generator(draw)
    height, width, count = draw(st.integers(3, 20)), draw(st.integers(3, 20)), draw(st.integers(0, 13))
    boxes = np.column_stack([drawn.uniform(-5, 25, (count, 4)), drawn.random(count), drawn.integers(0, 12, count)])
    return call(
        drawn.integers(0, 256, (height, width, 3)).astype(np.uint8),
        boxes.astype(np.float32),
        thickness=draw(st.integers(1, 5)),
        mode=draw(st.sampled_from(["XYXY", "XYWH", "CENTER_XYWH"])),
        colour_by_classes=draw(st.integers(0, 1)),
    )


@functools.cache
def automata() -> bytes:
    """A Bling Fire model included in its package: Chinese word breaking."""
    import blingfire

    return Path(blingfire.__file__).with_name("wbd_chuni.bin").read_bytes()


TEXTS = ["", "Hello there. How are you?", "a\nb", "\u4f60\u597d \U0001f600"]


@cases(
    bling_fire_sentence_breaker,
    gradient=False,
    reference=kernel("BlingFireSentenceBreaker"),
    undrawn={"max_sentence": "it has no effect"},
)
def bling_fire_sentence_breaker_cases(draw):
    return call(strings([draw(st.sampled_from(TEXTS))]), model=automata())
