"""Files of ``torch.export`` are read without executing their code; other files need trust."""

import os
import warnings
import zipfile
from pathlib import Path

import hostile_programs
import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, export

import tenonnx as tx
from tenonnx.tools import load_and_verifier
from tenonnx_frontends import UnverifiedWarning
from tenonnx_torch.pt2 import program_process


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 4)
        self.register_buffer("b", torch.arange(4.0))
        self.c = torch.ones(4)

    def forward(self, x, n, *, more):
        y = self.l(x) * self.b + self.c
        return {"y": y.reshape(x.shape[0] * 2, 2), "k": [more["s"] * n, torch.cat([x, x])]}


def saved(module, arguments, path, keywords=None, shapes=None):
    with warnings.catch_warnings(action="ignore"):
        program = export(module.eval(), arguments, keywords, dynamic_shapes=shapes)
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    torch.manual_seed(0)
    shapes = {"x": {0: Dim("batch", max=100)}, "n": None, "more": {"s": None}}
    path = tmp_path_factory.mktemp("honest") / "m.pt2"
    return saved(Net(), (torch.randn(4, 3), torch.ones(2)), path, {"more": {"s": torch.ones(2)}}, shapes)


def test_a_file_is_read_and_verified(honest):
    graph = tx.load(honest)
    assert [value.name for value in graph.inputs] == ["x", "n", "more_s"]
    assert [value.name for value in graph.outputs] == ["y", "k_0", "k_1"]
    assert {"l.weight", "l.bias", "b"} <= {value.name for value in graph.variables}
    assert not isinstance(graph.inputs[0].shape[0], int)
    x, s = torch.randn(7, 3), torch.tensor([2.0, 3.0])
    expected = torch.export.load(honest).module()(x, s, more={"s": s})
    result = graph.run({"x": x.numpy(), "n": s.numpy(), "more_s": s.numpy()})
    np.testing.assert_allclose(result["y"], expected["y"].detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result["k_1"], expected["k"][1].numpy())
    assert (
        tx.load(honest, trust=True).run({"x": x.numpy(), "n": s.numpy(), "more_s": s.numpy()}).keys() == result.keys()
    )


class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))


class Mixed(nn.Module):
    """Layers whose programs have several results, functions of sizes, dtypes, and parameters that share memory."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        x, (h, _) = self.lstm(self.embedding(ids))
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        values, places = torch.topk(self.head(x), 3)
        return values, places, h, x.unfold(1, 2, 1).mean(-1).half()


@pytest.mark.parametrize(
    ("module", "argument", "shapes"),
    [
        (Branch(), torch.randn(3), None),
        (Mixed(), torch.randint(0, 11, (2, 6)), ({0: Dim("batch")},)),
        (nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.MaxPool2d(2), nn.GELU()), torch.randn(1, 3, 9, 9), None),
        (nn.TransformerEncoderLayer(8, 2, batch_first=True), torch.randn(2, 5, 8), ({0: Dim("batch")}, None, None)),
    ],
    ids=["branch", "mixed", "convolution", "transformer"],
)
def test_usual_layers_are_read(module, argument, shapes, tmp_path):
    if isinstance(shapes, tuple):
        shapes = shapes[:1]
    path = saved(module, (argument,), tmp_path / "m.pt2", None, shapes)
    graph = tx.load(path)
    (name,) = (value.name for value in graph.inputs)
    expected = torch.export.load(path).module()(argument)
    for result, each in zip(
        graph.run({name: argument.numpy()}).values(),
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    ):
        np.testing.assert_allclose(result, each.detach().numpy(), rtol=1e-3, atol=1e-4)


def test_examples_may_be_given(honest):
    arguments, keywords = (torch.randn(5, 3), torch.ones(2)), {"more": {"s": torch.ones(2)}}
    assert len(tx.load(honest, *arguments, keywords=keywords).inputs) == 3


NAMES = list(hostile_programs.hostile(os.devnull))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_files_are_refused(name, honest, tmp_path):
    marker = tmp_path / "marker"
    path = hostile_programs.edited(honest, tmp_path / "m.pt2", hostile_programs.hostile(marker)[name])
    with pytest.raises((tx.InvalidModel, tx.InvalidCall, tx.LimitExceeded)):
        tx.load(path)
    assert not marker.exists()


@pytest.mark.parametrize("name", list(hostile_programs.harmless(os.devnull)))  # type: ignore[arg-type]
def test_unneeded_entries_are_ignored(name, honest, tmp_path):
    marker = tmp_path / "marker"
    path = hostile_programs.edited(honest, tmp_path / "m.pt2", hostile_programs.harmless(marker)[name])
    assert len(tx.load(path).outputs) == 3
    assert not marker.exists()


def test_a_refusal_names_the_operators_and_the_option(honest, tmp_path):
    edit = hostile_programs.hostile(tmp_path / "marker")["operator maps a file"]
    with pytest.raises(tx.InvalidCall, match=r"(?s)torch\.ops\.aten\.from_file\.default.*--trust"):
        tx.load(hostile_programs.edited(honest, tmp_path / "m.pt2", edit))


def test_invalid_archives_are_refused(honest, tmp_path):
    members = hostile_programs.members_of(honest)
    path = hostile_programs.write(tmp_path / "deflated.pt2", members, zipfile.ZIP_DEFLATED)
    with pytest.raises(tx.InvalidModel, match="compressed"):
        tx.load(path)
    whole = honest.read_bytes()
    entry = whole.rindex(b"PK\1\2")
    path.write_bytes(whole[: entry + 6] + b"\x63\0" + whole[entry + 8 :])  # a version of the format of the future
    with pytest.raises(tx.InvalidModel, match="version"):
        tx.load(path)
    for size in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:size])
        with pytest.raises(tx.InvalidModel):
            tx.load(path)
    pipe = tmp_path / "pipe.pt2"
    os.mkfifo(pipe)
    with pytest.raises(tx.TenonnxError):
        tx.load(pipe)
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as archive:
        archive.writestr("serialized_exported_program.json", b"{}")
        archive.writestr("serialized_state_dict.pt", b"")
    with pytest.raises(tx.InvalidCall, match=r"before 2\.9"):
        tx.load(tmp_path / "old.pt2")


def test_mutants_end_in_our_errors(honest, tmp_path):
    """Randomly changed JSON is either read, or raises one of our own errors."""
    members, random = hostile_programs.members_of(honest), np.random.default_rng(0)
    for _ in range(40):
        data = bytearray(members[hostile_programs.PROGRAM])
        for place in random.integers(0, len(data), 3):
            data[place] = random.choice(list(b'0129{}[]",:ab'))
        path = hostile_programs.write(tmp_path / "m.pt2", {**members, hostile_programs.PROGRAM: bytes(data)})
        try:
            tx.load(path, verify=False)
        except tx.TenonnxError:
            continue


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript_and_pickled_modules_need_trust(tmp_path):
    module, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval(), torch.randn(4, 3)
    torch.jit.script(module).save(tmp_path / "script.pt")
    torch.save(module, tmp_path / "module.pth")
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    for name in ("script.pt", "module.pth"):
        with pytest.raises(tx.InvalidCall, match=r"(?s)was not read.*--trust"):
            tx.load(tmp_path / name, x)
        graph = tx.load(tmp_path / name, x, trust=True)
        (result,) = graph.run({graph.inputs[0].name: x.numpy()}).values()
        np.testing.assert_allclose(result, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert tx.load(tmp_path / "script.pt", input_shape=[2, 3], trust=True).inputs[0].shape[1] == 3
    with pytest.raises(tx.InvalidCall, match="without examples"):
        tx.load(tmp_path / "script.pt", trust=True)
    with pytest.raises(tx.InvalidCall, match="contains no module"):
        tx.load(tmp_path / "weights.pt", x, trust=True)
    (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(tx.InvalidModel, match="cannot read"):
        tx.load(tmp_path / "broken.pt", x, trust=True)


def test_a_file_is_verified_in_a_worker_process(honest, monkeypatch):
    def refuse(*given, **named):
        raise AssertionError("the program was called in this process")

    monkeypatch.setattr("tenonnx_torch.verification.called", refuse)
    graph, verifier = load_and_verifier(honest)
    result = verifier(graph)
    assert result.verified, result.summary()
    assert len(result.runs) > 1


def test_a_file_that_ends_the_process_is_not_verified(honest, tmp_path, monkeypatch):
    crashing = tmp_path / "crashing.py"
    code = "import os, signal\ndef outputs(*given): os.kill(os.getpid(), signal.SIGSEGV)\n"
    crashing.write_text(f"{Path(program_process.__file__).read_text()}\n{code}")
    monkeypatch.setattr("tenonnx_torch.pt2.program_file._FUNCTIONS", crashing)
    output = r"not verified against PyTorch: PyTorch crashed its process \(SIGSEGV\)"
    with pytest.warns(UnverifiedWarning, match=output):
        assert tx.load(honest).nodes
    result = tx.convert(honest, tmp_path / "m.onnx").verification
    assert not result.outputs
    assert set(result.unverified) == {"y", "k_0", "k_1"}
    with pytest.raises(tx.VerificationFailed, match="nothing could be compared"):
        tx.convert(honest, tmp_path / "n.onnx", verify=True)
    assert [each.name for each in tmp_path.glob("*.onnx")] == ["m.onnx"]


class Fails(nn.Module):
    def forward(self, x, places):
        return x[places]


def test_a_program_that_fails_on_its_examples_is_refused(tmp_path):
    path = saved(Fails(), (torch.zeros(0, 2), torch.zeros(1, dtype=torch.int64)), tmp_path / "m.pt2")
    with pytest.raises(tx.InvalidCall, match="the program fails on its examples"):
        tx.load(path)
    assert tx.load(path, verify=False).nodes


class Complex(nn.Module):
    def forward(self, x):
        return torch.complex(x, x), x


def test_complex_results_are_refused_by_what_the_program_declares(tmp_path):
    path = saved(Complex(), (torch.zeros(2),), tmp_path / "m.pt2")
    with pytest.raises(tx.InvalidCall, match="complex numbers"):
        tx.load(path)


def test_a_program_without_the_range_of_a_dim_is_refused(honest, tmp_path):
    def without_ranges(program, members):
        program["range_constraints"] = {}

    path = hostile_programs.edited(honest, tmp_path / "m.pt2", without_ranges)
    with pytest.raises(tx.TenonnxError) as caught:
        tx.load(path, verify=False)
    assert not isinstance(caught.value, tx.PluginError)
