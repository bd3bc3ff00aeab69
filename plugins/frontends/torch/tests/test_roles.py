"""Roles of a module's variables, through transforms and files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tenonnx as tx
import tenonnx_torch
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx.extend.formats import Role


class Reader(torch.nn.Module):
    """Normalization constants, positions, a rotation, a frozen layer, and an embedding with a padding row."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3, 0.4]))
        self.register_buffer("std", torch.tensor([1.1, 1.2, 1.3, 1.4]))
        self.register_buffer("inv_freq", torch.tensor([1.0, 0.1]), persistent=False)
        self.register_buffer("positions", torch.randn(5, 4))
        self.embedding = torch.nn.Embedding(6, 4, padding_idx=0)
        self.frozen = torch.nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.head = torch.nn.Linear(4, 3)
        self.temperature = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, ids, x):
        angles = torch.arange(5)[:, None].float() @ self.inv_freq[None, :]
        turned = torch.cat([angles.cos(), angles.sin()], -1)
        tokens = (self.embedding(ids) + self.positions) * turned
        return self.head(self.frozen(tokens.mean(1) + (x - self.mean) / self.std).relu()) * self.temperature


BATCH, CLASSES = 8, 3
TRAINED = {"embedding.weight", "head.weight", "head.bias", "temperature"}


def made():
    torch.manual_seed(0)
    module = Reader()
    random = np.random.default_rng(0)
    ids = random.integers(0, 6, (BATCH, 5))
    x, labels = random.normal(size=(BATCH, 4)).astype(np.float32), random.integers(0, CLASSES, BATCH)
    dims = {"ids": {0: "batch"}, "x": {0: "batch"}}
    graph = tx.load(module, torch.tensor(ids), torch.tensor(x), dims=dims)
    return module, graph, ids, x, labels


def contents(graph):
    return {value.name: value.data.array().copy() for value in graph.variables}


def trained_by_pytorch(module, ids, x, labels, steps=3):
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(torch.tensor(ids), torch.tensor(x)), torch.tensor(labels)).backward()
        optimizer.step()
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict(keep_vars=True).items()}


@pytest.mark.parametrize("by", ["graph", "onnx", "native"])
def test_fit_trains_what_pytorch_does(by, tmp_path):
    module, graph, ids, x, labels = made()
    if by == "onnx":
        tx.export(graph, tmp_path / "net.onnx", opset_version=17)
        graph = tx.load(tmp_path / "net.onnx")
    elif by == "native":
        graph.save(tmp_path / "net.safetensors")
        graph = tx.load(tmp_path / "net.safetensors")
    before = contents(graph)
    history = tt.fit(
        graph,
        {"ids": ids, "x": x, "labels": labels},
        loss="softmax_cross_entropy",
        optimizer=tt.Adam(0.01),
        epochs=3,
        batch_size=BATCH,
        backend="numpy",
    )
    expected, after = trained_by_pytorch(module, ids, x, labels), contents(graph)
    for name, array in after.items():
        if name in TRAINED:
            np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=2e-6, err_msg=name)
            assert (array != before[name]).any()
        else:
            np.testing.assert_array_equal(array, before[name], err_msg=name)
    np.testing.assert_array_equal(after["embedding.weight"][0], 0)
    assert any(note.startswith("trains 4 of ") for note in history.notes)
    assert any("being frozen" in note and "frozen.weight" in note for note in history.notes)
    assert any("being buffers" in note and "mean" in note for note in history.notes)


def test_a_module_of_the_graph_has_the_same_parameters():
    module, graph, ids, x, labels = made()
    network = tenonnx_torch.module(graph)
    free = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert free == TRAINED
    assert {name for name, _ in network.named_parameters()} - free == {"frozen.weight", "frozen.bias"}
    assert {"mean", "std", "positions"} <= {name for name, _ in network.named_buffers()}
    before = contents(graph)
    ours, theirs = (trained_by_pytorch(each, ids, x, labels) for each in (network, module))
    for name in TRAINED:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=2e-6, err_msg=name)
    after = contents(network.write_back())
    for name in before.keys() - TRAINED:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    np.testing.assert_array_equal(after["embedding.weight"][0], 0)
    assert {value.name for value in graph.variables if value.role == Role("buffer")} >= {"mean", "positions"}
    unfrozen = tenonnx_torch.module(graph, trainable=["frozen.*", "mean"])
    assert unfrozen.get_parameter("mean").requires_grad
    assert unfrozen.get_parameter("frozen.weight").requires_grad
    with pytest.raises(InvalidCall, match="matches no variable"):
        tenonnx_torch.module(graph, trainable="nothing")


def test_adapters_are_not_added_to_buffers():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.randn(4, 4))
            self.layer = torch.nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return self.layer(x @ self.table)

    graph = tx.load(Mixed(), torch.randn(2, 4))
    adapted = tt.lora(graph, ["*"], rank=2)
    assert [v.name for v in adapted.variables if ".lora_A." in v.name] == ["layer.lora_A.default.weight"]
    assert [v.name for v in tt.lora(graph, ["table"], rank=2).variables if ".lora_A." in v.name] == [
        "table.lora_A.default.weight"
    ]


def test_a_frozen_module_is_marked_as_frozen():
    module = torch.nn.Linear(2, 2).requires_grad_(False)
    graph = tx.load(module, torch.randn(2, 2))
    with pytest.raises(InvalidCall, match="no variable to train") as caught:
        tt.fit(graph, (np.ones((2, 2), "f4"), np.ones((2, 2), "f4")), loss="mean_squared_error")
    assert "2 frozen" in caught.value.given
    tt.fit(graph, (np.ones((2, 2), "f4"), np.ones((2, 2), "f4")), loss="mean_squared_error", trainable="*")


def test_a_row_that_something_else_reads_does_not_stay():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(4, 3, padding_idx=1)

        def forward(self, ids):
            return self.embedding(ids) @ self.embedding.weight.T

    graph = tx.load(Tied(), torch.tensor([[0, 1]]))
    assert graph["embedding.weight"].role == Role("parameter")


def test_frozen_normalization_keeps_its_statistics():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten())
    module[1].requires_grad_(False)
    graph = tx.load(module.eval(), torch.randn(4, 1, 4, 4))
    before = contents(graph)
    x, y = np.random.default_rng(0).normal(size=(4, 1, 4, 4)).astype("f4"), np.zeros((4, 8), "f4")
    tt.fit(graph, (x, y), loss="mean_squared_error", batch_size=4, backend="numpy")
    after = contents(graph)
    changed = {name for name in before if (before[name] != after[name]).any()}
    assert changed == {"0.weight", "0.bias"}


# ----- layout of weights ----------------------------------------------------------------------------------------------


class Attention(torch.nn.Module):
    """Layers without bias, which the exporter writes as Transpose and MatMul; one of them is square."""

    def __init__(self):
        super().__init__()
        self.query = torch.nn.Linear(4, 4, bias=False)
        self.up = torch.nn.Linear(4, 6, bias=False)
        self.down = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.down(self.up(self.query(x)).relu())


def attention():
    torch.manual_seed(0)
    module, x = Attention(), torch.randn(5, 2, 4)
    return module, tx.load(module, x, dims={"x": {0: "batch"}}), x


def moved_by_pytorch(module, x, wanted):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    (module(x) - wanted).square().mean().backward()
    optimizer.step()
    return {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("by", ["graph", "onnx", "native"])
def test_simplified_weights_keep_their_names_and_know_how_they_lie(by, tmp_path):
    module, graph, x = attention()
    simple = tx.simplify(graph)
    assert "Transpose" not in {node.op_type for node in simple.nodes}
    if by == "onnx":
        tx.export(simple, tmp_path / "net.onnx", opset_version=17)
        simple = tx.load(tmp_path / "net.onnx")
    elif by == "native":
        simple.save(tmp_path / "net.safetensors")
        simple = tx.load(tmp_path / "net.safetensors")
    by_name = {value.name: value for value in simple.variables}
    assert by_name.keys() >= {"query.weight", "up.weight"}
    assert by_name["query.weight"].role == Role("parameter", permutation=(1, 0))
    np.testing.assert_array_equal(np.asarray(by_name["up.weight"].data.array()).T, module.up.weight.detach())

    network = tenonnx_torch.module(simple)
    assert {name: tuple(p.shape) for name, p in network.named_parameters()} == {
        name: tuple(p.shape) for name, p in module.named_parameters()
    }
    module.load_state_dict(network.state_dict(), strict=False)
    wanted = torch.randn(5, 2, 3)
    expected = moved_by_pytorch(module, x, wanted)
    ours = moved_by_pytorch(network, x, wanted)
    step = tt.TrainingStep(simple.copy(), "mean_squared_error", tt.SGD(0.1), trainable=["query.*", "up.*", "down.*"])
    step({"x": x.numpy(), "labels": wanted.numpy()})
    for name, array in expected.items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-4, atol=1e-6)
        after = contents(step.write_back())[name]
        lies = {v.name: v.role for v in step.source.variables}[name].permutation
        np.testing.assert_allclose(after if lies is None else after.T, array, rtol=1e-4, atol=1e-6)
    for target in (simple, graph):  # each in its own layout
        network.write_back(target)
        result = target.run({"x": x.numpy()}, backend="numpy")
        np.testing.assert_allclose(next(iter(result.values())), module(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("adapted_from", ["graph", "simplified"])
@pytest.mark.parametrize("merged_into", ["graph", "simplified"])
def test_adapters_of_layers_without_bias_are_merged_as_these_lie(adapted_from, merged_into, tmp_path):
    module, graph, x = attention()
    graphs = {"graph": graph, "simplified": tx.simplify(graph)}
    adapted = tt.lora(graphs[adapted_from], ["query.*", "up.*"], rank=2, alpha=4)
    assert {v.name for v in adapted.variables if ".lora_A." in v.name} == {
        "query.lora_A.default.weight",
        "up.lora_A.default.weight",
    }
    wanted = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    tt.fit(adapted, (x.numpy(), wanted), loss="mean_squared_error", optimizer=tt.Adam(0.05), epochs=3)
    expected = next(iter(adapted.run({"x": x.numpy()}, backend="numpy").values()))
    assert np.abs(expected - module(x).detach().numpy()).max() > 1e-3
    tt.save_adapters(adapted, tmp_path / "adapter.safetensors")
    again = tt.load_adapters(graphs[merged_into], tmp_path / "adapter.safetensors")
    whole = tt.merged(graphs[merged_into], again)
    assert [node.op_type for node in whole.nodes] == [node.op_type for node in graphs[merged_into].nodes]
    result = next(iter(whole.run({"x": x.numpy()}, backend="numpy").values()))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    state = tenonnx_torch.module(whole).state_dict()
    module.load_state_dict(state, strict=False)
    np.testing.assert_allclose(module(x).detach(), expected, rtol=1e-4, atol=1e-5)


def test_tied_weights_stay_tied_when_simplified():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(4, 3)

        def forward(self, ids):
            return self.embedding(ids) @ self.embedding.weight.T

    simple = tx.simplify(tx.load(Tied(), torch.tensor([[0, 1]])))
    assert [value.name for value in simple.variables if value.tensor.dtype.is_float] == ["embedding.weight"]
    assert "Transpose" in {node.op_type for node in simple.nodes}
