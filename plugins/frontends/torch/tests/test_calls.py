"""Arguments of modules, names of inputs, outputs and dims, and export reports."""

import json

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import tenonnx as tx
import tenonnx_torch


class Net(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.body, self.head = nn.Conv2d(channels, 4, 3, padding=1), nn.Linear(4, 2)

    def forward(self, image):
        return self.head(self.body(image).relu().mean((2, 3)))


class Two(nn.Module):
    def forward(self, x, y):
        return x + 1, y * 2


class Detector(nn.Module):
    """Returns detections in non-standard order, as a list with one dict for each image."""

    def forward(self, image):
        return [{"scores": image.amax((1, 2, 3)), "labels": image.sum((1, 2, 3)) > 0, "boxes": image.mean((2, 3))}]


def dims_of(path):
    return [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in onnx.load(path).graph.input]


AXES = {"image": {0: "batch", 2: "height"}}


@pytest.mark.parametrize("named", ["dims", "dynamic_axes"])
@pytest.mark.parametrize(
    "axes",
    [
        {"photo": {0: "batch", 2: "height"}},
        {"image": {0: "batch", 2: "height"}},
        {"photo": {0: "batch", 2: "height"}, "scores": {0: "batch"}},
        {"photo": {"0": "batch", "2": "height"}},
        {"photo": ["batch", None, "height", None]},
        '{"photo": {"0": "batch", "-2": "height"}, "scores": {"0": "batch"}}',
    ],
)
def test_axes_that_vary_have_the_final_names(axes, named, tmp_path):
    path, names = tmp_path / "m.onnx", {"input_names": ["photo"], "output_names": ["scores"]}
    done = tenonnx_torch.export(Net(), torch.randn(2, 3, 8, 8), path, opset_version=13, **{named: axes}, **names)
    assert dims_of(path) == [["batch", 3, "height", 8]]
    assert any("height=17" in output.run for output in done.verification.outputs)


def test_axes_come_from_a_file_and_without_names(tmp_path):
    (tmp_path / "dims.json").write_text(json.dumps({"image": [0, 3]}))
    graph = tx.load(Net(), torch.randn(2, 3, 8, 8), dynamic_axes=tmp_path / "dims.json")
    assert str(graph.inputs[0].type) == "float32[image_dim_0, 3, 8, image_dim_3]"


@pytest.mark.parametrize(
    ("call", "types"),
    [
        ({"input_shape": (1, 3, 8, 6)}, ["float32[1, 3, 8, 6]"]),
        ({"input_shape": ["batch", 3, 8, 6]}, ["float32[batch, 3, 8, 6]"]),
        ({"input_shape": [(1, 3, 8, 6)], "dims": {0: {3: "width"}}}, ["float32[1, 3, 8, width]"]),
        ({"input_shape": {"image": (1, 3, 8, 6)}}, ["float32[1, 3, 8, 6]"]),
        ({"height": 8, "width": 6}, ["float32[1, 3, 8, 6]"]),
        ({"height": 8, "width": 6, "dynamic_batch": True}, ["float32[batch, 3, 8, 6]"]),
    ],
)
def test_shapes_are_accepted_instead_of_tensors(call, types):
    assert [str(value.type) for value in tx.load(Net(), **call).inputs] == types


def test_shapes_have_the_type_and_channels_of_the_module(tmp_path):
    assert str(tx.load(Net(1).double(), height=5, width=4).inputs[0].type) == "float64[1, 1, 5, 4]"
    two = tx.load(Two(), input_shape=[("n", 2), (3,)])
    assert [str(value.type) for value in two.inputs] == ["float32[n, 2]", "float32[3]"]
    done = tenonnx_torch.export(Two(), tmp_path / "m.onnx", input_shape={"y": (2,), "x": (3,)})
    assert done.passed
    assert dims_of(tmp_path / "m.onnx") == [[3], [2]]


def test_deploy_is_opset_17_any_batch_and_simplified(tmp_path):
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Identity(), nn.ReLU()).eval()
    path = tmp_path / "m.onnx"
    done = tenonnx_torch.export(module, torch.randn(2, 3), path, preset="deploy")
    model = onnx.load(path)
    assert {o.domain: o.version for o in model.opset_import} == {"": 17}
    assert [node.op_type for node in model.graph.node] == ["Gemm", "Relu"]
    assert dims_of(path) == [["batch", 3]]
    assert done.passed
    tenonnx_torch.export(module, torch.randn(2, 3), path, preset="deploy", opset_version=13, dynamic_batch=False)
    assert dims_of(path) == [[2, 3]]
    assert {o.domain: o.version for o in onnx.load(path).opset_import} == {"": 13}


def test_an_export_prints_as_one_line(tmp_path):
    path, module = tmp_path / "m.onnx", nn.Linear(500, 1000)
    done = tenonnx_torch.export(module, torch.randn(2, 500), path, opset_version=17)
    assert done.passed is True
    assert 0 <= done.max_difference < 1e-4
    assert done.size_mb == pytest.approx(path.stat().st_size / 1e6)
    assert "\n" not in str(done)
    assert f"m.onnx: ai.onnx 17, {done.size_mb:.3g} MB, passed, largest difference {done.max_difference:.3g}" in str(
        done
    )
    assert json.loads(json.dumps(done.to_dict()))["passed"] is True
    apart = tenonnx_torch.export(module, torch.randn(2, 500), path, external_data_threshold=1000, verify=False)
    assert (apart.passed, apart.max_difference) == (None, None)
    assert path.stat().st_size < 1e5
    assert apart.size_mb > 2
    assert "not compared" in str(apart)


def test_a_tolerance_of_the_caller_decides(tmp_path, monkeypatch):
    module, x = nn.Linear(3, 2), torch.ones(1, 3)
    graph = tx.load(module, x)
    graph.assign({"bias": module.bias.detach().numpy() + np.float32(1e-2)})
    monkeypatch.setattr("tenonnx_torch.exporting.graph_of", lambda *arguments: (graph, arguments[1]))
    path = tmp_path / "m.onnx"
    for limits in ({}, {"atol": 1e-3, "rtol": 0}, {"verify": 1e-3}):
        with pytest.raises(tx.VerificationFailed):
            tenonnx_torch.export(module, x, path, **limits)
        assert not path.exists()
    done = tenonnx_torch.export(module, x, path, atol=0.1)
    assert done.max_difference == pytest.approx(1e-2, rel=1e-2)
    assert tenonnx_torch.export(module, x, path, verify=0.1).passed


def test_a_number_for_verify_is_the_largest_difference(tmp_path):
    module, x, path = nn.Linear(200, 2), torch.full((1, 200), 50.0), tmp_path / "m.onnx"
    with pytest.raises(tx.VerificationFailed, match=r"may differ by 1e-12 \+ 0 \*"):
        tenonnx_torch.export(_Shifted(module), x, path, verify=1e-12)
    assert tenonnx_torch.export(_Shifted(module), x, path, verify=1e-12, rtol=1e-3).passed
    assert tenonnx_torch.export(_Shifted(module), x, path, atol=1e-12).passed  # only rounding errors remain


class _Shifted(nn.Module):
    """Module whose product is rounded differently during export."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        shift = 1.0 if torch.compiler.is_exporting() else 1 + 2**-22
        return self.module(x).abs() * shift + 1


@pytest.mark.parametrize("task", ["classification", "regression", "anomaly", "segmentation"])
def test_tasks_have_one_output(task):
    assert [value.name for value in tx.load(Net(), input_shape=(1, 3, 4, 4), task=task).outputs] == ["output"]


def test_keys_of_a_detector_are_its_names():
    graph = tx.load(Detector(), input_shape=(2, 4, 3, 3), task="detection")
    assert [(v.name, str(v.type)) for v in graph.outputs] == [
        ("scores", "float32[2]"),
        ("labels", "bool[2]"),
        ("boxes", "float32[2, 4]"),
    ]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ({"dims": AXES, "dynamic_axes": AXES}, "both by dims and by dynamic_axes"),
        ({"dims": {"photo": {0: "batch"}}}, "dims name no input that is a tensor, and no output"),
        ({"dims": "{nonsense"}, "dims are neither JSON nor a JSON file"),
        ({"dims": "nowhere.json"}, "dims are neither JSON nor a JSON file"),
        ({"dims": "[1, 2]"}, "dims are neither JSON nor a JSON file"),
        ({"dims": [0]}, "dims are not a mapping of inputs"),
        ({"dims": {"image": "batch"}}, 'dims of input "image" are not a mapping or a list of its axes'),
        ({"dims": {"image": {"first": "batch"}}}, 'dims of input "image" name an axis that it does not have'),
        ({"height": 8}, "only one of the height and the width"),
        ({"height": 8, "width": 8, "input_shape": (1, 3, 8, 8)}, "both input_shape and height and width"),
        ({"input_shape": (1, 3, 8.5, 8)}, "a shape is not made of sizes"),
        ({"input_shape": (1, 3, -8, 8)}, "a shape is not made of sizes"),
        ({"input_shape": 8}, "input_shape is neither a shape such as"),
        ({"input_shape": {"photo": (1, 3, 8, 8)}}, "Net.forward does not take these examples"),
        ({"input_shape": (1, 4, 8, 8)}, "Net failed on its examples"),
        ({"height": 8, "width": 8, "verify": 1}, "verify is neither True, False nor an absolute tolerance"),
        ({"height": 8, "width": 8, "verify": "no"}, "verify is neither True, False nor an absolute tolerance"),
        ({"height": 8, "width": 8, "verify": 1e-3, "atol": 1e-3}, "both by verify and by atol"),
        ({"height": 8, "width": 8, "atol": -1.0}, "atol is not a non-negative number"),
        ({"height": 8, "width": 8, "rtol": float("nan")}, "rtol is not a non-negative number"),
    ],
)
def test_bad_calls_are_reported(call, what):
    with pytest.raises(tx.InvalidCall, match=what):
        tx.load(Net(), **({} if {"height", "input_shape"} & set(call) else {"input_shape": (1, 3, 8, 8)}), **call)


def test_bad_exports_are_reported(tmp_path):
    with pytest.raises(tx.InvalidCall, match="both examples and shapes were given"):
        tx.load(Net(), torch.ones(1, 3, 8, 8), input_shape=(1, 3, 8, 8))
    with pytest.raises(tx.InvalidCall, match="unknown preset"):
        tenonnx_torch.export(Net(), tmp_path / "m.onnx", height=8, width=8, preset="fast")
    with pytest.raises(tx.InvalidCall, match="is not a path"):
        tenonnx_torch.export(Net(), torch.ones(1, 3, 8, 8))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\nclass Rough(nn.Module):\n    def forward(self, x):\n"
        "        return x + (0.01 if not torch.compiler.is_exporting() else 0.0), x * 2\n\n"
        "def make_model():\n    return nn.Linear(4, 2).eval()\n\ndef make_rough():\n    return Rough()\n"
    )
    return path


def convert(capsys, *arguments):
    from tenonnx_cli import main

    code = main(["convert", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_the_command_line_compares_with_the_module(source, tmp_path, capsys):
    path = tmp_path / "net.onnx"
    code, printed = convert(capsys, f"{source}:make_model", "-o", path, "--example", "batch=2,4", "--opset", "13")
    assert code == 0, printed
    assert "verified against PyTorch" in printed
    assert "left out" not in printed  # the metadata that IR 7 lacks are not the user's
    rough = (f"{source}:make_rough", "-o", tmp_path / "rough.onnx", "--example", "2,4")
    code, printed = convert(capsys, *rough)
    assert code == 1
    assert "outputs of the model differ from those of the original on PyTorch" in printed
    assert not (tmp_path / "rough.onnx").exists()
    assert convert(capsys, *rough, "--atol", "0.1")[0] == 0
    assert convert(capsys, *rough, "--no-verify")[0] == 0


def test_the_command_line_names_inputs_outputs_and_dims(source, tmp_path, capsys):
    path, dims = tmp_path / "net.onnx", '{"features": {"0": "batch"}}'
    given = (f"{source}:make_model", "-o", path, "--example", "2,4", "--input-names", "features")
    code, printed = convert(capsys, *given, "--task", "regression", "--dims", dims)
    assert code == 0, printed
    assert dims_of(path) == [["batch", 4]]
    assert [value.name for value in onnx.load(path).graph.output] == ["output"]
    assert convert(capsys, *given, "--output-names", "score", "--dynamic-axes", dims)[0] == 0
    assert [value.name for value in onnx.load(path).graph.output] == ["score"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--task", "telling"], "unknown task"),
        (["--task", "regression", "--output-names", "y"], "both output_names and a task"),
        (["--input-names", "a,b"], "are not 1 different names, one for each of the inputs"),
        (["--output-names", "a,,b"], "is not a list of names"),
        (["--dims", "{"], "dims are neither JSON"),
    ],
)
def test_the_command_line_refuses_bad_names(options, what, source, tmp_path, capsys):
    path = tmp_path / "net.onnx"
    code, printed = convert(capsys, f"{source}:make_model", "-o", path, "--example", "2,4", *options)
    assert code in (1, 2)
    assert what in printed
    assert not path.exists()


def test_task_is_only_for_functions(tmp_path, capsys):
    tenonnx_torch.export(nn.Linear(3, 2), tmp_path / "m.onnx", input_shape=(1, 3))
    code, printed = convert(capsys, tmp_path / "m.onnx", "-o", tmp_path / "n.onnx", "--task", "regression")
    assert code == 2
    assert "--task was given for something other than a function that returns a model" in printed


def test_parameters_stay_unchanged_on_request(tmp_path, capsys):
    source, path = tmp_path / "net.py", tmp_path / "net.onnx"
    source.write_text(
        "from torch import nn\n\ndef make_model():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()\n"
    )
    given = (f"{source}:make_model", "-o", path, "--example", "1,3,8,8")
    for options, expected in (((), False), (("--fold",), False), (("--no-fold",), True)):
        code, printed = convert(capsys, *given, *options)
        assert code == 0, printed
        assert ("BatchNormalization" in {node.op_type for node in onnx.load(path).graph.node}) is expected
        assert ("1.running_mean" in {tensor.name for tensor in onnx.load(path).graph.initializer}) is expected
    code, printed = convert(capsys, path, "-o", tmp_path / "n.onnx", "--no-fold")
    assert code == 2
    assert "--fold was given for something other than a function that returns a model" in printed
