"""``tenonnx convert --layout``: the folders that servers take."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import REFUSED, main
from tenonnx_score.layouts.interface import interface_of
from tenonnx_score.layouts.triton import config


def test_a_folder_of_triton(matrix, tmp_path, capsys):
    net = tmp_path / "repository" / "net"
    assert main(["convert", matrix, "-o", str(net), "--layout", "triton"]) == 0
    assert (net / "config.pbtxt").read_text() == (
        'name: "net"\n'
        'backend: "onnxruntime"\n'
        "max_batch_size: 64\n"
        'input {\n  name: "x"\n  data_type: TYPE_FP32\n  dims: [ 4 ]\n}\n'
        'output {\n  name: "p"\n  data_type: TYPE_FP32\n  dims: [ 3 ]\n}\n'
        'output {\n  name: "label"\n  data_type: TYPE_INT64\n  dims: [ 1 ]\n  reshape: { shape: [ ] }\n}\n'
        "dynamic_batching { }\n"
    )
    rows = np.ones((2, 4), np.float32)
    assert np.array_equal(
        tx.load(net / "1" / "model.onnx").run({"x": rows})["p"], tx.load(matrix).run({"x": rows})["p"]
    )


def test_what_is_not_batched_and_names_beyond_ascii():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input('x"\u00e9', "float16", (2, "width"))
    graph.output("y", ops.identity(x))
    text = config("net", interface_of(graph))
    assert "max_batch_size: 0\n" in text
    assert "dynamic_batching" not in text
    assert 'name: "x\\042\\303\\251"' in text
    assert "data_type: TYPE_FP16\n  dims: [ 2, -1 ]" in text


def test_a_folder_of_kserve(matrix, tmp_path):
    assert main(["convert", matrix, "-o", str(tmp_path / "net"), "--layout", "kserve"]) == 0
    service = (tmp_path / "net" / "inference-service.yaml").read_text()
    assert "kind: InferenceService" in service
    assert '      storageUri: "pvc://net/models"\n' in service
    assert (tmp_path / "net" / "models" / "net" / "1" / "model.onnx").exists()
    assert (tmp_path / "net" / "models" / "net" / "config.pbtxt").exists()


@pytest.mark.parametrize(
    ("output", "layout", "said"),
    [
        ("net", "heroku", "layout must name a server"),
        ("net.onnx", "triton", "the model is written to a folder"),
        ("Net_1", "kserve", "must be called as Kubernetes calls things"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(output, layout, said, matrix, tmp_path, capsys):
    assert main(["convert", matrix, "-o", str(tmp_path / output), "--layout", layout]) == REFUSED
    assert said in capsys.readouterr().err
    assert not (tmp_path / output).exists()


def test_what_a_server_cannot_describe_is_refused_by_name():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.sequence_construct(graph.input("x", "float32", ("rows",))))
    with pytest.raises(tx.NotRepresentable, match='output "y" must be a tensor'):
        interface_of(graph)
