"""Programs of ``torch.export`` as sources."""

import onnx
import pytest
import torch
from torch import nn
from torch.export import Dim, export

import tenonnx as tx
import tenonnx_torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, *, more):
        both = (x > 0) + (x < -1)
        return {"y": self.layer(x) * more["scale"], "any": both.any(1)}


@pytest.fixture(scope="module")
def program():
    shapes = {"x": {0: Dim("batch")}, "more": {"scale": None}}
    return export(Net(), (torch.randn(4, 3),), {"more": {"scale": torch.ones(2)}}, dynamic_shapes=shapes)


def test_a_program_is_a_source(program, tmp_path):
    before = [str(node.target) for node in program.graph.nodes]
    graph = tx.load(program)
    assert [value.name for value in graph.inputs] == ["x", "more_scale"]
    assert [value.name for value in graph.outputs] == ["y", "any"]
    assert {value.name for value in graph.variables} == {"layer.weight", "layer.bias"}
    assert not isinstance(graph.inputs[0].shape[0], int)
    path = tmp_path / "m.onnx"
    done = tenonnx_torch.export(program, None, path, opset_version=13, dims={"x": {0: "batch"}})
    assert done.passed
    assert {where.run for where in done.verification.outputs} == {"batch=1", "batch=4", "batch=9"}
    assert onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [str(node.target) for node in program.graph.nodes] == before


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_a_program_of_core_operations_is_a_source():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.AvgPool2d(2), nn.LayerNorm(3)).eval()
    core = export(module, (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: Dim("batch")},)).run_decompositions()
    assert any(str(node.target) == "aten.native_layer_norm.default" for node in core.graph.nodes)
    graph = tx.load(core, torch.randn(3, 3, 8, 8))
    assert "1.weight" in {value.name for value in graph.variables}


def test_incomplete_programs_are_refused(program, tmp_path):
    with pytest.raises(tx.InvalidCall, match='axis 1 of input "x" is not one that the program leaves free'):
        tx.load(program, dims={"x": {1: "width"}})
    with pytest.raises(tx.InvalidCall, match=r"is neither a torch\.nn\.Module nor a torch\.export"):
        tenonnx_torch.export(torch.ones(2), torch.ones(2), tmp_path / "m.onnx")
    bare = export(nn.Linear(3, 2), (torch.randn(4, 3),))
    bare.example_inputs = None
    with pytest.raises(tx.InvalidCall, match="a program holds no examples"):
        tx.load(bare)


class Steps(nn.Module):
    """A layer, and a loop that scripting preserves."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        for turn in range(3):
            x = torch.tanh(self.layer(x)) + float(turn)
        return x


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("made", ["scripted", "traced"])
def test_modules_of_torch_jit_are_read_by_their_examples(made, tmp_path):
    module, x = Steps().eval(), torch.randn(4, 3)
    old = torch.jit.script(module) if made == "scripted" else torch.jit.trace(module, x)
    assert tenonnx_torch.export(old, (x,), tmp_path / "m.onnx", opset_version=13).passed
    graph = tx.load(tmp_path / "m.onnx")
    (result,) = graph.run({graph.inputs[0].name: x.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(result), module(x).detach())
    assert {"layer.weight", "layer.bias"} <= {value.name for value in tx.load(old, x).variables}
    with pytest.raises(tx.InvalidCall, match="without examples"):
        tx.load(old)
    if made == "scripted":  # a traced one has fixed sizes
        more, freed = torch.randn(7, 3), tx.load(old, x)
        (result,) = freed.run({freed.inputs[0].name: more.numpy()}).values()
        torch.testing.assert_close(torch.from_numpy(result), module(more).detach())


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_module_that_becomes_no_program_is_refused():
    class Growing(nn.Module):
        def forward(self, x):
            while bool(x.sum() < 10):
                x = torch.cat([x, x + 1])
            return x

    with pytest.raises(tx.NotRepresentable, match=r"torch\.export cannot read"):
        tx.load(torch.jit.script(Growing()), torch.ones(2))
