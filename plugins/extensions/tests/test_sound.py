"""Audio files, segments, boxes and sentences: further calls, and refused inputs."""

import io

import numpy as np
import pytest
import soundfile

import tenonnx as tx
from tenonnx_extensions import sentences
from tenonnx_extensions.audio import audio_decoder, merge_signal_segments
from tenonnx_extensions.cases.library import kernel
from tenonnx_extensions.cases.sound import automata, of_wave
from tenonnx_extensions.drawing import draw_bounding_boxes

DRAWN = np.random.default_rng(0)
WAVE = np.sin(np.arange(3000) / 20) / 2


def encoded(file_format, subtype=None):
    stream = io.BytesIO()
    soundfile.write(stream, WAVE, 16000, format=file_format, subtype=subtype)
    return np.frombuffer(stream.getvalue(), np.uint8)


@pytest.mark.parametrize(("file_format", "subtype"), [("FLAC", "PCM_24"), ("WAV", "PCM_32"), ("WAV", "FLOAT")])
def test_samples_equal_those_of_the_library(file_format, subtype):
    data = encoded(file_format, subtype)
    np.testing.assert_array_equal(audio_decoder(data), kernel("AudioDecoder")(data))


def test_samples_of_mp3():
    result = audio_decoder(encoded("MP3"))
    assert result.shape == (1, 3000)
    np.testing.assert_allclose(result[0, 100:-100], WAVE[100:-100], atol=0.05)


@pytest.mark.parametrize(
    ("feeds", "options", "message"),
    [
        ((np.uint8([1, 2, 3]),), {}, "unknown format of audio"),
        ((np.zeros(0, np.uint8),), {}, "unknown format of audio"),
        ((np.frombuffer(b"RIFFabcd", np.uint8),), {}, "cannot decode the bytes"),
        ((of_wave(np.zeros(9, np.int16), 8000), np.array(["ogg"], object)), {}, "unknown format of audio"),
        ((of_wave(np.zeros(9, np.int16), 8000), np.array(["flac"], object)), {}, "not of the format"),
        ((of_wave(np.zeros(9, np.int16), 8000),), {"downsampling_rate": 16000}, "above the rate"),
        ((of_wave(np.zeros(9, np.int16), 8000, 3),), {"stereo_to_mono": 1}, "not mono or stereo"),
    ],
)
def test_invalid_audio_bytes_are_refused(feeds, options, message):
    with pytest.raises(tx.TypeMismatch, match=message):
        audio_decoder(*feeds, **options)


def test_a_file_without_samples():
    result = audio_decoder(of_wave(np.zeros(0, np.int16), 16000), downsampling_rate=8000)
    assert (result.dtype, result.shape) == (np.float32, (1, 0))


def test_segments_are_merged_in_the_given_order():
    given = np.array([[50, 60], [0, 10], [70, 65], [71, 80]])
    expected = kernel("MergeSignalSegments")(given, np.int64([5]))
    np.testing.assert_array_equal(merge_signal_segments(given, np.int64([5])), expected)


def test_boxes_of_more_classes_than_colors():
    image = DRAWN.integers(0, 256, (40, 50, 3)).astype(np.uint8)
    boxes = np.column_stack([DRAWN.uniform(0, 40, (30, 4)), DRAWN.random(30), np.arange(30)]).astype(np.float32)
    of_library = kernel("DrawBoundingBoxes", domain="com.microsoft.extensions")
    np.testing.assert_array_equal(draw_bounding_boxes(image, boxes), of_library(image, boxes))
    with pytest.raises(tx.TypeMismatch, match="thickness is not positive"):
        draw_bounding_boxes(image, boxes, thickness=0)


def test_modules_of_the_current_folder_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "blingfire.py").write_text("import pathlib\npathlib.Path('marker').touch()\n")
    monkeypatch.chdir(tmp_path)
    text = np.array(["One. Two, in another folder."], object)
    sentences.bling_fire_sentence_breaker(text, model=automata())
    assert not (tmp_path / "marker").exists()


def test_an_invalid_model_does_not_end_the_process(monkeypatch):
    text = np.array(["Hello there."], object)
    with pytest.raises(tx.TypeMismatch, match="cannot be read by Bling Fire"):
        sentences.bling_fire_sentence_breaker(text, model=b"abc")
    with pytest.raises(tx.TypeMismatch, match="does not have one element"):
        sentences.bling_fire_sentence_breaker(text[:0], model=automata())
    monkeypatch.setattr(sentences, "_TIMEOUT", 1e-3)
    with pytest.raises(tx.TypeMismatch, match="takes too long"):
        sentences.bling_fire_sentence_breaker(text, model=b"abcd")
