"""Memory mapping and streaming of weights."""

import dataclasses
import json

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from configurations import make

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_transformers
from tenonnx_transformers import mapped_weights, writing
from tenonnx_transformers.data_files import split_data
from tenonnx_transformers.decoders import decoder_part, decoder_states
from tenonnx_transformers.layouts import LAYOUTS
from tenonnx_transformers.sources import quiet, source_of


@pytest.fixture
def large(tmp_path):
    """A folder of a decoder in bfloat16, in several files."""
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=1,
        num_attention_heads=4,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / "model", max_shard_size="2MB")
    return tmp_path / "model"


def weights_of(model):
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def test_weights_become_float32_in_files(large, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_weights, "LARGE", 0)
    monkeypatch.setattr(mapped_weights, "_PIECE", 1000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    result = weights_of(source_of(large, scratch=scratch).model)
    expected = weights_of(source_of(large).model)
    assert len(list(scratch.glob("*.safetensors"))) > 1
    assert result.keys() == expected.keys()
    for name, array in result.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, expected[name])


def test_small_weights_are_converted_in_memory(large, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source_of(large, scratch=scratch)
    assert not list(scratch.iterdir())


def test_a_broken_file_of_weights_is_refused(large, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_weights, "LARGE", 0)
    next(large.glob("*.safetensors")).write_bytes(b"\0" * 100)
    with pytest.raises(tx.InvalidModel, match="is not a safetensors file"):
        tenonnx_transformers.export(large, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_graph_has_views_of_the_weights(large):
    model = source_of(large).model
    with quiet(), writing.plain_attention(model):
        graph = decoder_part(model, decoder_states(model)).graph()
    weights = weights_of(model)
    big = [value for value in graph.variables if value.data.nbytes >= 1 << 20]
    assert len(big) == 9  # embeddings, the last product, four of attention, three of the gated layers
    for value in big:
        assert np.shares_memory(value.data.array(), weights[value.name]), value.name


def test_a_fused_decoder_is_written_once(tmp_path, monkeypatch):
    written = []
    write = writing._write_graph
    monkeypatch.setattr(writing, "_write_graph", lambda *given: (written.append(given[1]), write(*given)))
    report = tenonnx_transformers.export(make("llama"), tmp_path / "out", layout="genai", verify=False)
    assert [path.name for path in written] == list(report.graphs)


def test_data_are_divided_into_files_of_a_maximum_size(tmp_path):
    largest = 200_000
    graph = tx.Graph()
    x = graph.input("x", "float32", ("n", 100))
    arrays = [np.random.default_rng(seed).standard_normal((100, 100), np.float32) for seed in range(12)]
    arrays.append(np.ones((100, 600), np.float32))  # larger than a file
    for place, array in enumerate(arrays):
        x = ops.matmul(x, graph.variable(f"w{place}", array))
    graph.output("y", x)
    path = tmp_path / "model.onnx"
    tx.export(graph, path, external_data_threshold=1024)
    split_data(path, largest)
    files = sorted(tmp_path.glob("model.onnx.data*"))
    assert len(files) == 4
    assert [file.name for file in files if file.stat().st_size > largest] == ["model.onnx.data_3"]
    read = tx.load(path)
    for place, array in enumerate(arrays):
        np.testing.assert_array_equal(read[f"w{place}"].data.array(), array)
    onnxruntime.InferenceSession(str(path))


@pytest.mark.parametrize(("shard", "count"), [(None, 1), (100_000, 2)])
def test_transformers_js_finds_data_files_by_its_config(shard, count, tmp_path):
    graph = tx.Graph()
    x = graph.input("x", "float32", ("n", 140))
    for place in range(2):
        x = ops.matmul(x, graph.variable(f"w{place}", np.eye(140, dtype="f")))
    graph.output("y", x)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "config.json").write_text("{}")
    layout = dataclasses.replace(LAYOUTS["transformers.js"], embedded=1000)
    settings = writing.Settings(layout, {}, verify=False, atol=None, rtol=None, progress=print, max_shard=shard)
    for name in ("model.onnx", "model_fp16.onnx"):
        writing._write_graph(graph, tmp_path / "onnx" / name, settings)
    layout.finish(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())["transformers.js_config"]
    assert config == {"use_external_data_format": {"model.onnx": count, "model_fp16.onnx": count}}
    names = {f"model.onnx_data{'' if number == 0 else f'_{number}'}" for number in range(count)}
    assert {path.name for path in (tmp_path / "onnx").glob("model.onnx?*")} == names
    onnxruntime.InferenceSession(str(tmp_path / "onnx" / "model.onnx"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_weights_above_the_size_of_a_layout_go_to_their_own_file(name, tmp_path):
    graph = tx.Graph()
    graph.output("y", ops.matmul(graph.input("x", "float32", ("n", 100)), graph.variable("w", np.ones((100, 9), "f"))))
    for embedded in (3600, 3599):
        layout = dataclasses.replace(LAYOUTS[name], embedded=embedded)
        path = tmp_path / f"{embedded}.onnx"
        writing._write_graph(
            graph, path, writing.Settings(layout, {}, verify=False, atol=None, rtol=None, progress=print)
        )
        assert path.with_name(f"{path.name}{layout.data_suffix}").exists() == (embedded < 3600)


def test_transformers_js_gets_one_file_up_to_what_protobuf_allows():
    """Its loader takes data files only where a configuration names them."""
    assert LAYOUTS["transformers.js"].embedded == 1_500_000_000 > LAYOUTS["genai"].embedded


@pytest.mark.parametrize("size", [0, -1, True, "2GB"])
def test_a_maximum_size_that_is_no_number_of_bytes_is_refused(size, tmp_path):
    with pytest.raises(tx.InvalidCall, match="is not a positive number of bytes"):
        tenonnx_transformers.export(tmp_path, tmp_path / "out", max_shard=size)
