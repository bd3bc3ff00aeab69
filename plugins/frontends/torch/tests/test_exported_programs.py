"""Graphs as modules that PyTorch exports, compiles and traces, with symbolic dynamic dims."""

import copy
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_torch
from tenonnx.errors import NotRepresentable
from tenonnx.extend import constant
from tenonnx_cli import main

EXAMPLES = Path(__file__).parents[4] / "examples"

CNN = EXAMPLES / "digits_cnn/digits-cnn.onnx"


def exported(network, *examples, strict=False):
    """The module of a program with a dynamic batch size."""
    batch = torch.export.Dim("batch")
    dims = {"inputs": tuple({0: batch} for _ in examples)}
    return torch.export.export(network, examples, dynamic_shapes=dims, strict=strict)


def images(count):
    return torch.from_numpy(np.random.default_rng(count).random((count, 1, 8, 8), np.float32))


@pytest.fixture(scope="module")
def cnn():
    return tenonnx_torch.module(tx.load(CNN))


@pytest.mark.parametrize("strict", [False, True])
def test_a_module_is_exported_with_its_batch_and_its_names(cnn, strict):
    program = exported(cnn, images(3), strict=strict)
    assert set(program.state_dict) == set(cnn.state_dict())
    assert torch.allclose(program.module()(images(5)), cnn(images(5)), atol=1e-5)
    assert not any("item" in str(node.target) for node in program.graph.nodes)


def test_a_module_is_compiled_without_breaks_and_trained(cnn):
    network = copy.deepcopy(cnn)
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    for count in (2, 4):
        assert torch.allclose(compiled(images(count)), cnn(images(count)), atol=1e-5)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    compiled(images(4)).square().mean().backward()
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    assert all(not torch.equal(p, before[name]) for name, p in network.named_parameters())
    assert all(torch.equal(p, before[name]) for name, p in cnn.named_parameters())


def test_a_module_is_traced_by_torch_jit(cnn):
    with warnings.catch_warnings(action="ignore"):
        traced = torch.jit.trace(cnn, (images(3),))
    assert torch.allclose(traced(images(5)), cnn(images(5)), atol=1e-5)


# ----- files ----------------------------------------------------------------------------------------------------------


def test_a_model_is_written_and_read_by_torch(tmp_path, capsys):
    path = tmp_path / "digits.pt2"
    assert main(["convert", str(CNN), "-o", str(path)]) == 0
    assert "in torch" in capsys.readouterr().out
    program = torch.export.load(path)
    assert program.graph_signature.user_inputs == ("images",)
    expected = tx.load(CNN).run({"images": images(1).numpy()}, backend="numpy")
    np.testing.assert_allclose(program.module()(images(1)).detach(), expected["scores"], rtol=1e-4, atol=1e-4)


def built(make, *shape, dtype="float32"):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", make(graph.input("x", dtype, shape)))
    return graph


def size(x):
    return ops.squeeze(ops.shape(x, start=0, end=1))


SYMBOLIC = {
    "reshape to what is left": lambda x: ops.reshape(x, np.array([0, -1])),
    "reshape by sizes": lambda x: ops.reshape(
        x, ops.concat(ops.shape(x, start=0, end=1), ops.shape(x, start=1, end=2) * ops.shape(x, start=2), axis=0)
    ),
    "half of a size": lambda x: ops.expand(ops.reduce_sum(x), ops.shape(x, start=0, end=1) / np.array([2]) + 1),
    "size as numbers": lambda x: ops.cast(ops.shape(x), to=1),
    "number of elements": lambda x: ops.size(x),
    "range of a size": lambda x: ops.range_(np.int64(0), size(x), np.int64(1)),
    "range backwards": lambda x: ops.range_(size(x), np.int64(-4), np.int64(-2)),
    "range of older exporters": lambda x: ops.non_zero(ops.expand(np.int64(1), ops.shape(x, start=0, end=1))),
    "zeros of a shape": lambda x: ops.constant_of_shape(ops.shape(x)),
    "the last two": lambda x: ops.slice_(x, np.array([-2]), np.array([2**63 - 1]), np.array([0])),
    "flipped": lambda x: ops.slice_(x, np.array([-1]), np.array([-(2**63)]), np.array([0]), np.array([-1])),
    "divided by the size": lambda x: x / ops.cast(size(x), to=1),
    "larger of two sizes": lambda x: ops.maximum(ops.shape(x), np.array([2, 2, 2], np.int64)),
    "flat": lambda x: ops.flatten(ops.transpose(x, perm=[1, 0, 2])),
    "index of the largest": lambda x: ops.argmax(x, axis=0),
    "padded to a double": lambda x: ops.pad(
        x, ops.concat(np.zeros(3, np.int64), ops.shape(x, start=0, end=1), np.zeros(2, np.int64), axis=0)
    ),
    "a row of each": lambda x: ops.gather_nd(x, ops.argmax(ops.reduce_max(x, [2], keepdims=0), axis=1), batch_dims=1),
    "upper triangle": lambda x: ops.trilu(x, size(x)),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_sizes_stay_symbolic(name, tmp_path):
    graph = built(SYMBOLIC[name], "n", 3, 4)
    tx.convert(graph, tmp_path / "m.pt2", verify=False)
    module = torch.export.load(tmp_path / "m.pt2").module()
    for count in (1, 2, 5):
        x = np.random.default_rng(count).random((count, 3, 4), np.float32)
        expected = graph.run({"x": x}, backend="numpy")["y"]
        result = module(torch.from_numpy(x)).numpy()
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_relations_of_dims_are_reported(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x, y = (graph.input(name, "float32", (dim, 2)) for name, dim in (("x", "n"), ("y", "m")))
    graph.output("z", x + ops.slice_(y, np.array([1]), np.array([2**63 - 1]), np.array([0])))
    report = tx.convert(graph, tmp_path / "m.pt2")
    assert report.verification.equal
    assert any("it needs" in note and "n" in note and "m" in note for note in report.notes)


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (built(lambda x: ops.expand(np.float32(1), ops.cast(x, to=7)), 2), "depend on the contents"),
        (built(lambda x: ops.identity(x), "n", dtype="string"), "no tensors of these types"),
    ],
    ids=["a size by contents", "text"],
)
def test_unsupported_graphs_are_refused(graph, said, tmp_path):
    with pytest.raises(NotRepresentable, match=said):
        tx.convert(graph, tmp_path / "m.pt2", verify=False)
    assert list(tmp_path.iterdir()) == []


def test_an_example_of_another_type_is_refused(cnn):
    with pytest.raises(Exception, match='input "images" has another type'):
        exported(cnn, torch.zeros(3, 1, 9, 9))


@pytest.mark.parametrize(
    ("factors", "how"),
    [
        ([1, 1, 2, 2.5], {"mode": "linear"}),
        ([1, 1, 0.5, 3], {"mode": "linear"}),
        ([1, 1, 2, 3], {"mode": "nearest"}),
        ([1, 1, 2, 3], {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ],
)
def test_images_of_any_batch_are_resized_by_factors(factors, how, tmp_path):
    made = tx.Graph(opsets={"ai.onnx": 18})
    scales = made.variable("scales", np.float32(factors))
    made.output("y", ops.resize(made.input("x", "float32", ("n", 2, 6, 4)), None, scales, **how))
    assert tx.convert(made, tmp_path / "m.pt2").verification.equal
    program = torch.export.load(tmp_path / "m.pt2")
    x = np.random.default_rng(0).random((3, 2, 6, 4), np.float32)
    expected = made.run({"x": x}, backend="numpy")["y"]
    np.testing.assert_allclose(program.module()(torch.from_numpy(x)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("lengths", "mode"),
    [
        ([9, 7], "linear"),
        ([3, 8], "linear"),
        ([6, 4], "linear"),
        ([12, 4], "nearest"),
        ([9, 7], "nearest"),
        ([9, 7], "cubic"),
    ],
)
def test_images_of_any_batch_are_resized_to_sizes_after_the_batch(lengths, mode, tmp_path):
    made = tx.Graph(opsets={"ai.onnx": 19})
    x = made.input("x", "float32", ("n", 2, 6, 4))
    with made.building():
        sizes = ops.concat(ops.shape(x, start=0, end=2), constant(np.asarray(lengths)), axis=0)
        made.output("y", ops.resize(x, None, None, sizes, mode=mode))
    assert tx.convert(made, tmp_path / "m.pt2").verification.equal
    given = np.random.default_rng(0).random((3, 2, 6, 4), np.float32)
    result = torch.export.load(tmp_path / "m.pt2").module()(torch.from_numpy(given))
    np.testing.assert_allclose(result, made.run({"x": given}, backend="numpy")["y"], rtol=1e-5, atol=1e-5)
