"""Exports without nodes for shapes, types, literals and sequences."""

import numpy as np
import pytest
import torch
from modules import CASES, architectures  # noqa: F401  (they register cases)
from torch import nn

import tenonnx as tx
import tenonnx_torch
import tenonnx_training as tt


def kinds(graph):
    return [node.op_type for node in graph.nodes]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


def test_a_convolution_without_bias_has_none(tmp_path):
    module, x = Residual().eval(), torch.randn(2, 3, 5, 5)
    graph = tx.load(module, x, dims={"x": {0: "batch"}})
    assert kinds(graph) == ["Conv", "BatchNormalization", "Relu"]
    assert len(graph.nodes[0].inputs) == 2
    by_name = {v.name: np.asarray(v.data.array()) for v in graph.variables}
    expected = {name: t.detach().numpy() for name, t in module.state_dict().items() if t.ndim}
    assert by_name.keys() == expected.keys()
    assert all(np.array_equal(by_name[name], array) for name, array in expected.items())
    for opset in (13, 17, 21):
        done = tenonnx_torch.export(module, x, tmp_path / "m.onnx", opset_version=opset, simplify=True)
        assert done.verification.equal
        assert kinds(tx.load(tmp_path / "m.onnx")) == ["Conv", "Relu"]


@pytest.mark.parametrize("module", [nn.LSTM(3, 4), nn.GRU(3, 4, bidirectional=True), nn.RNN(3, 4)])
def test_a_state_of_zeros_is_none(module):
    graph = tx.load(module, torch.randn(5, 2, 3), dims={0: {0: "steps", 1: "batch"}})
    layer = next(node for node in graph.nodes if node.op_type in ("LSTM", "GRU", "RNN"))
    assert all(value is None for value in layer.inputs[4:])
    assert {name for name, _ in module.named_parameters()} <= {value.name for value in graph.variables}


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=-1)
        q, k, v = (t.view(batch, steps, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, steps, width)).mean(1)


def split(x, *sizes):
    return torch.cat([part * (k + 1) for k, part in enumerate(x.split(list(sizes), dim=1))], dim=1)


class Parts(nn.Module):
    def __init__(self, cut):
        super().__init__()
        self.linear, self.cut = nn.Linear(6, 6), cut

    def forward(self, x):
        return torch.stack([part.sum(-1) * (k + 1) for k, part in enumerate(self.cut(self.linear(x)))], dim=-1)


CUTS = {
    "split into equal parts": lambda x: x.split(2, dim=-1),
    "split with a shorter last": lambda x: x.split(4, dim=-1),
    "split by sizes": lambda x: x.split([1, 3, 2], dim=-1),
    "chunk": lambda x: x.chunk(3, dim=-1),
    "unbind": lambda x: x.view(-1, 3, 2).unbind(1),
    "tensor_split": lambda x: x.tensor_split(3, dim=-1),
}


@pytest.mark.parametrize("name", CUTS)
def test_parts_are_tensors_and_have_gradients(name):
    module, x = Parts(CUTS[name]), torch.randn(4, 6, requires_grad=True)
    graph = tx.load(module, x, dims={0: {0: "batch"}})
    assert not [kind for kind in kinds(graph) if "Sequence" in kind]
    slope = tx.grad(graph, of="output", wrt=["x", "linear.weight"], seeds={"output": "g"})
    y = module(x)
    g = torch.randn_like(y)
    y.backward(g)
    result = slope.run({"x": x.detach().numpy(), "g": g.numpy()})
    assert np.allclose(result["x/grad"], x.grad, atol=1e-5)
    assert np.allclose(result["linear.weight/grad"], module.linear.weight.grad, atol=1e-5)


def test_attention_by_one_product_is_trained_as_pytorch_trains_it():
    torch.manual_seed(0)
    module, x, labels = Attention(), torch.randn(6, 5, 8), torch.randint(0, 8, (6,))
    graph = tx.load(module, x, dims={0: {0: "batch"}})
    assert kinds(graph).count("Split") == 1
    tt.fit(
        graph,
        (x.numpy(), labels.numpy()),
        loss="softmax_cross_entropy",
        optimizer=tt.SGD(0.1),
        epochs=3,
        batch_size=6,
        shuffle=False,
    )
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), labels).backward()
        optimizer.step()
    trained = {value.name: value.data.array() for value in graph.variables}
    assert all(np.allclose(trained[name], p.detach(), atol=1e-5) for name, p in module.named_parameters())
    tx.retarget(graph, target="tensorrt-10")  # which does not support sequences


# ----- default options ------------------------------------------------------------------------------------------------


class Image(nn.Module):
    """Convolutions without and with bias, a Linear that is transposed, and a bidirectional recurrence."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)
        self.rows = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(10, 2)

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        return self.fc(self.rows(y.flatten(2).transpose(1, 2))[0])


def image():
    torch.manual_seed(0)
    module, x = Image(), torch.randn(2, 3, 7, 7)
    with torch.no_grad():
        module.train()(x)  # statistics other than 0 and 1
    return module.eval(), x


def written(module, x, path, **options):
    assert tenonnx_torch.export(module, x, path, opset_version=17, **options).verification.equal
    return tx.load(path)


def test_by_default_weights_take_in_what_only_takes_nodes(tmp_path):
    module, x = image()
    graph, whole = (written(module, x, tmp_path / "m.onnx", simplify=expected) for expected in (None, False))
    assert not {"BatchNormalization", "Slice"}.intersection(kinds(graph))
    assert "BatchNormalization" in kinds(whole)
    by_name = {value.name: value.role for value in graph.variables}
    assert by_name.keys() >= {
        "conv1.weight",
        "bn1.bias",
        "conv2.weight",
        "conv2.bias",
        "rows.weight_ih_l0",
        "fc.weight",
    }
    assert by_name["fc.weight"].permutation == (1, 0)
    assert by_name["fc.weight"].made_of == ()
    assert set(by_name["conv1.weight"].made_of) >= {"conv1.weight", "bn1.weight"}
    merged = {name for role in by_name.values() if role is not None for name in role.made_of}
    assert {name for name, _ in module.named_parameters()} <= by_name.keys() | merged
    assert {name for name, _ in module.named_parameters()} <= {value.name for value in whole.variables}


def test_a_module_in_training_form_is_left_whole(tmp_path):
    module, x = image()
    graph = written(module.train(), x, tmp_path / "m.onnx")
    assert kinds(graph).count("BatchNormalization") == 2


def test_conversion_of_a_module_does_as_export(tmp_path):
    module, x = image()
    tx.convert(module, tmp_path / "m.onnx", x, opset_version=17)
    assert "BatchNormalization" not in kinds(tx.load(tmp_path / "m.onnx"))
    tx.convert(module, tmp_path / "m.onnx", x, opset_version=17, reading={"simplify": False})
    assert "BatchNormalization" in kinds(tx.load(tmp_path / "m.onnx"))


def test_parameters_that_are_neutral_at_first_stay(tmp_path):
    """Parameters that are initially zeros or ones are kept, since they are trained."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 3)
            self.scale, self.shift = nn.Parameter(torch.ones(3, 1, 5)), nn.Parameter(torch.zeros(5))
            nn.init.zeros_(self.conv.bias)

        def forward(self, x):
            return self.conv(x).relu() * self.scale + self.shift

    graph = written(Scaled().eval(), torch.randn(1, 2, 7, 7), tmp_path / "m.onnx")
    assert {value.name for value in graph.variables} >= {"conv.weight", "conv.bias", "scale", "shift"}


def test_large_weights_are_folded_too(tmp_path):
    module = nn.Sequential(nn.Linear(600, 600, bias=False), nn.LSTM(600, 200)).eval()
    graph = written(module, torch.randn(3, 1, 600), tmp_path / "m.onnx")
    assert not {"Transpose", "Concat"}.intersection(kinds(graph)[:2])
    assert {"0.weight", "1.weight_ih_l0", "1.weight_hh_l0"} <= {value.name for value in graph.variables}


def test_merged_weights_are_not_taken_for_parameters(tmp_path):
    module, x = image()
    whole, merged = (tx.load(module, x, simplify=expected) for expected in (False, None))
    network = tenonnx_torch.module(merged)
    network.write_back()
    with pytest.raises(tx.InvalidCall, match=r'"conv1\.weight" is made of different parameters'):
        network.write_back(whole)
    adapted = tt.lora(merged, "conv1.*", rank=1)
    tt.save_adapters(adapted, tmp_path / "adapters.safetensors")
    tt.load_adapters(merged, tmp_path / "adapters.safetensors")
    tt.merged(merged, adapted)
    with pytest.raises(tx.InvalidCall, match='the weight of "conv1" is computed from parameters other than'):
        tt.load_adapters(whole, tmp_path / "adapters.safetensors")
    with pytest.raises(tx.InvalidCall, match=r'"conv1\.weight" is made of different parameters'):
        tt.merged(whole, adapted)
    y = np.zeros((2, 9, 2), np.float32)
    history = tt.fit(merged, (x.numpy(), y), loss="mean_squared_error", batch_size=2, backend="numpy")
    assert any("exporter folded others" in note and "conv1.weight" in note for note in history.notes)


@pytest.mark.parametrize("shared", [True, False])
def test_a_graph_changes_with_the_module_only_if_weights_are_shared(shared):
    module = torch.nn.Embedding(300, 100)
    graph = tx.load(module, torch.zeros(2, dtype=torch.int64), share_weights=shared)
    before = module.weight.detach().numpy().copy()
    with torch.no_grad():
        module.weight.add_(1)
    np.testing.assert_array_equal(graph["weight"].data.array(), module.weight.detach() if shared else before)


def test_large_weights_in_bfloat16_keep_their_bits():
    module = torch.nn.Embedding(300, 200).to(torch.bfloat16)
    graph = tx.load(module, torch.zeros(2, dtype=torch.int64), verify=False)
    contents = graph["weight"].data.array()
    assert contents.dtype.name == "bfloat16"
    np.testing.assert_array_equal(contents.astype(np.float32), module.weight.detach().float().numpy())
