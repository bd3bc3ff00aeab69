"""Speech feature extractors compared with Fourier transforms in float64, and unsupported configurations."""

import io
import json

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli.program import program
from tenonnx_extensions.pipelines.speech import mel_filters

RATE = 16000
WHISPER = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "chunk_length": 1,
    "feature_size": 20,
    "hop_length": 160,
    "n_fft": 400,
    "padding_side": "right",
    "padding_value": 0.0,
    "sampling_rate": RATE,
}
WAVE = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "feature_size": 1, "sampling_rate": RATE}


def saved(folder, config):
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return folder


def sound(count, rows=2):
    """Tones of rising loudness."""
    place = np.arange(count) / RATE
    tones = [np.sin(2 * np.pi * frequency * place) * place for frequency in (440, 3000)]
    noise = np.random.default_rng(count).standard_normal((rows, count)) * 1e-3
    return (np.stack(tones[:rows]) + noise).astype(np.float32)


def spectrogram(wave, filters):
    """The log-mel spectrogram, with a Fourier transform per frame."""
    chunk = np.zeros((len(wave), RATE))
    chunk[:, : wave.shape[1]] = wave[:, :RATE]
    padded = np.pad(chunk, ((0, 0), (200, 200)), mode="reflect")
    window = np.hanning(401)[:-1]
    frames = np.stack([padded[:, k * 160 : k * 160 + 400] * window for k in range(100)], 1)
    power = np.abs(np.fft.rfft(frames)) ** 2
    decades = np.log10(np.maximum(power @ filters.T.astype(np.float64), 1e-10)).swapaxes(1, 2)
    return (np.maximum(decades, decades.max((1, 2), keepdims=True) - 8) + 4) / 4


@pytest.mark.parametrize("count", [300, RATE, RATE + 5000])
def test_mels_of_short_and_long_audio(tmp_path, count):
    graph = tx.feature_extractor(saved(tmp_path, WHISPER))
    wave = sound(count)
    result = graph.run({"audio": wave})["input_features"]
    assert (result.shape, result.dtype) == ((2, 20, 100), np.float32)
    np.testing.assert_allclose(result, spectrogram(wave, mel_filters(20, 201, RATE)), atol=1e-4)
    assert {node.domain for node in graph.nodes} == {"ai.onnx"}


def test_filters_are_triangles_of_equal_area():
    filters = mel_filters(80, 201, RATE)
    assert filters.shape == (80, 201)
    wide = filters[40:]
    np.testing.assert_allclose(wide.sum(axis=1) * RATE / 400, 1, rtol=0.1)
    peaks = filters.argmax(axis=1)
    assert (np.diff(peaks) >= 0).all()
    assert 185 < peaks[-1] < 200


def test_waves_are_normalized_unless_the_file_says_otherwise(tmp_path):
    wave = sound(900) + np.float32(3)
    result = tx.feature_extractor(saved(tmp_path, WAVE)).run({"audio": wave})["input_values"]
    np.testing.assert_allclose(result.mean(axis=1), 0, atol=1e-4)
    np.testing.assert_allclose(result.std(axis=1), 1, atol=1e-3)
    same = tx.feature_extractor(saved(tmp_path, WAVE | {"do_normalize": False})).run({"audio": wave})["input_values"]
    np.testing.assert_array_equal(same, wave)


@pytest.fixture
def classifier(tmp_path):
    """The path of a model whose input for waves has an unusual name."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("speech", "float32", ("batch", "samples"))
    loud = ops.reduce_mean(ops.absolute(x), [1])
    graph.output("logits", ops.concat(loud, -loud, axis=1))
    graph.save(tmp_path / "m.onnx")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "loud", "1": "quiet"}}))
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_classification_from_an_audio_file_to_a_label(tmp_path, classifier, kind):
    saved(tmp_path, WAVE)
    (tmp_path / "vocab.txt").write_text("[UNK]\n")  # the folder may also contain a tokenizer
    whole = tmp_path / "whole.onnx"
    arguments = ["compose", str(tmp_path), str(classifier), "-o", str(whole), "--encoded", "--decode", "classification"]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 0, done.output
    stream = io.BytesIO()
    soundfile.write(stream, sound(4000, 1)[0], RATE, format=kind)
    result = tx.load(whole).run({"audio_file": np.frombuffer(stream.getvalue(), np.uint8)})
    assert result["labels"].tolist() == [["loud", "quiet"]]


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (WHISPER | {"feature_extractor_type": "ClapFeatureExtractor"}, tx.NotRepresentable, "unsupported feature"),
        ({"sampling_rate": RATE}, tx.NotRepresentable, "unsupported feature extractor"),
        (WHISPER | {"dither": 0.1}, tx.NotRepresentable, "dither"),
        (WHISPER | {"fbank": "kaldi"}, tx.NotRepresentable, "fbank"),
        (WAVE | {"feature_size": 2}, tx.NotRepresentable, "feature_size"),
        (WHISPER | {"n_fft": 0}, tx.InvalidModel, "wrong value of n_fft"),
        (WHISPER | {"n_fft": "400"}, tx.InvalidModel, "wrong value of n_fft"),
        (WHISPER | {"chunk_length": 10**9}, tx.InvalidModel, "wrong value of chunk_length"),
        (WHISPER | {"padding_value": "0"}, tx.InvalidModel, "wrong value of padding_value"),
    ],
)
def test_configurations_without_a_graph_are_refused_by_the_key(tmp_path, config, error, message):
    with pytest.raises(error, match=message):
        tx.feature_extractor(saved(tmp_path, config))


def test_a_model_without_an_input_for_features_is_refused(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.identity(graph.input("x", "int64", ("n",))))
    with pytest.raises(tx.InvalidCall, match="no input for the features"):
        tx.feature_extractor(saved(tmp_path, WAVE), model=graph)
    with pytest.raises(tx.InvalidModel, match="cannot read"):
        tx.feature_extractor(tmp_path / "nothing.json")
