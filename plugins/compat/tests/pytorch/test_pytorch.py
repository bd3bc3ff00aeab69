"""torch.onnx.export and onnx2torch: arguments, results and refusals."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from onnxruntime import InferenceSession

from tenonnx_compat import NotSupported
from tenonnx_compat.onnx2torch import convert
from tenonnx_compat.torch_onnx import ONNXProgram, export


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)

    def forward(self, image, scale=None):
        y = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        return y if scale is None else y * scale


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network().eval()


X = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


def run(path, **feeds):
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {name: tensor.numpy() for name, tensor in feeds.items()})[0]


def test_the_older_exporter(network, tmp_path):
    path = tmp_path / "net.onnx"
    axes = {"x": {0: "n"}, "y": {0: "n"}}
    names = {"input_names": ["x"], "output_names": ["y"]}
    assert export(network, X, str(path), dynamic_axes=axes, dynamo=False, opset_version=13, **names) is None
    model = onnx.load(path)
    assert model.opset_import[0].version == 13
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["x", "y"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    wide = torch.cat([X, X, X])
    np.testing.assert_allclose(run(path, x=wide), network(wide).detach(), atol=1e-5)


def test_a_program(network, tmp_path):
    shapes = {"image": {0: torch.export.Dim("n")}}
    program = export(network, (X,), dynamic_shapes=shapes, verify=True)
    assert isinstance(program, ONNXProgram)
    assert program.model_proto.opset_import[0].version == 18
    torch.testing.assert_close(program(X[:1])[0], network(X[:1]).detach(), atol=1e-5, rtol=1e-4)
    program.save(tmp_path / "net.onnx", external_data=True)
    assert (tmp_path / "net.onnx.data").exists()
    program.optimize()
    with pytest.raises(NotSupported, match="include_initializers"):
        program.save(tmp_path / "net.onnx", include_initializers=False)


def test_keywords_and_lists_of_axes(network, tmp_path):
    path = tmp_path / "net.onnx"
    scale = torch.full((4,), 2.0)
    export(network, (X,), path, kwargs={"scale": scale}, input_names=["x", "scale"], dynamic_axes={"x": [0]})
    assert onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "x_dynamic_axes_1"
    np.testing.assert_allclose(run(path, x=X, scale=scale), network(X, scale).detach(), atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"custom_translation_table": {1: 2}}, {"export_params": False}, {"report": True}, {"profile": True}],
)
def test_unsupported_options_are_refused(network, tmp_path, options):
    with pytest.raises(NotSupported, match=f"does not support {next(iter(options))}"):
        export(network, (X,), tmp_path / "net.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_a_model_as_a_module(network, tmp_path):
    export(network, (X,), tmp_path / "net.onnx", optimize=False)
    for source in (tmp_path / "net.onnx", onnx.load(tmp_path / "net.onnx")):
        module = convert(source)
        torch.testing.assert_close(module(X), network(X), atol=1e-5, rtol=1e-4)
    module(X).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    with pytest.raises(NotSupported, match="attach_onnx_mapping"):
        convert(tmp_path / "net.onnx", attach_onnx_mapping=True)


SCRIPT = """
import torch, onnx2torch
net = torch.nn.Linear(2, 3)
torch.onnx.export(net, (torch.ones(1, 2),), "net.onnx", input_names=["x"])
module = onnx2torch.convert("net.onnx")
assert type(module).__module__ == "tenonnx_torch.network"
torch.testing.assert_close(module(torch.ones(1, 2)), net(torch.ones(1, 2)))
"""


def test_a_script_runs_unchanged(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "tenonnx_compat", "run", "script.py"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert process.returncode == 0, process.stderr
    assert "script.py:4: CompatWarning: torch.onnx.export" in process.stderr
    assert onnx.load(tmp_path / "net.onnx").opset_import[0].version == 18
