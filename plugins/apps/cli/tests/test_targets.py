"""Targets by name on the command line: list, plans, conversions, and an invalid file."""

import sys

import onnx
import pytest

from tenonnx.registry import discovery
from tenonnx.registry.discovery import Plugin

TOY = """
[targets.toy-2]
title = "A toy"
source = "its manual"
opsets = { tiny = 3 }
ir_version = 8
dtypes = ["float32"]

[[targets.toy-2.ops]]
domain = "tiny"
dtypes = ["float32"]
names = ["Mul", "Add", "Exp"]
"""


@pytest.fixture
def toy(tenonnx, tmp_path, monkeypatch):
    """The command line with a plugin that has a valid and an invalid target file."""
    folder = tmp_path / "plugins" / "tenonnx_toy_files"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "toy.toml").write_text(TOY)
    (folder / "wrong.toml").write_text("[targets.wrong]\nopset = 3\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, folder.name, raising=False)
    shipped = Plugin("tenonnx", "tenonnx_targets", "tenonnx.targets", "tenonnx-targets", "0.1.0")
    made = [shipped, Plugin("toy", folder.name, "tenonnx.targets", "dist-toy", "1.0")]
    genuine = discovery._installed
    monkeypatch.setattr(
        discovery,
        "_installed",
        lambda group: genuine(group) if group == "tenonnx.extensions" else made if group == "tenonnx.targets" else [],
    )
    monkeypatch.setenv("TENONNX_PLUGINS", "dist-toy,tenonnx-targets")
    return tenonnx


def test_targets_are_listed_and_shown(toy):
    result = toy("targets")
    assert result.code == 0
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "toy-2 - up to 8 3 dist-toy 1.0" in lines
    assert "onnxruntime-1.20 7 to 21 up to 10 - tenonnx-targets 0.1.0" in lines
    assert "target file wrong.toml of dist-toy 1.0 is ignored" in result.err
    assert "lists unknown ops" not in result.err
    shown = toy("targets", "toy-2")
    assert shown.code == 0
    for text in ("toy-2: A toy", "tiny::Add, tiny::Exp, tiny::Mul", "its manual", "up to 3", "float32"):
        assert text in shown.out
    (data,) = toy("targets", "toy-2", "--json").json
    assert (data["opsets"], data["ir_version"]) == ({"tiny": 3}, 8)


def test_an_op_of_a_target_that_nobody_knows_is_named(toy, tmp_path):
    (tmp_path / "plugins" / "tenonnx_toy_files" / "toy.toml").write_text(TOY.replace('"Exp"', '"Exq"'))
    assert "toy-2 of dist-toy 1.0 lists unknown ops: tiny::Exq" in toy("targets").err


def test_a_plan_for_a_target_begins_with_a_summary(toy, model):
    result = toy("plan", model, "--target", "toy-2")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:2] == [
        f"possible: {model} to toy-2: tiny 3; IR 4",
        "2 nodes kept, 2 nodes rewritten, 0 refused",
    ]
    assert lines[2].split() == ["op", "kept", "expanded"]
    data = toy("plan", model, "--target", "toy-2", "--json").json
    assert data["possible"] is True
    assert data["target"] == "toy-2"
    assert data["summary"]["actions"] == {"kept": 2, "expanded": 2}
    assert {"op": "tiny::Exp@4", "kept": 1, "expanded": 0} in data["summary"]["ops"]


def test_a_plan_names_all_obstacles(toy, model):
    proto = onnx.load(model)
    proto.graph.node.append(onnx.helper.make_node("Round", ["y"], ["z"], "last", domain="tiny"))
    proto.graph.node.append(onnx.helper.make_node("Nobody", ["z"], ["u"], "stranger", domain="acme"))
    proto.opset_import.add(domain="acme", version=1)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("words", onnx.TensorProto.STRING, [2]))
    onnx.save(proto, model)
    result = toy("plan", model, "--target", "toy-2")
    assert result.code == 1
    assert "not possible: 3 obstacles" in result.out
    data = toy("plan", model, "--target", "toy-2", "--json").json
    refused = {entry["node"]: entry for entry in data["nodes"] if entry["action"] == "refused"}
    assert set(refused) == {"last", "stranger", "words"}
    assert all(entry["reason"] and entry["do"] for entry in refused.values())
    assert data["summary"]["ops"][0]["refused"] == 1
    for entry in refused.values():
        assert entry["reason"] in result.out
        assert f"do: {entry['do']}" in result.out


def test_convert_agrees_with_the_plan(toy, model, tmp_path):
    result = toy("convert", model, "-o", "toy.onnx", "--target", "toy-2", "--json")
    assert result.code == 0
    written = onnx.load(tmp_path / "toy.onnx")
    assert written.ir_version <= 8
    assert [node.op_type for node in written.graph.node] == ["Add", "Mul", "Mul", "Add", "Exp"]
    assert result.json["verification"]["equal"] is True


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--target", "toy-3"), "toy-2"),
        (("--target", "wrong"), "wrong.toml"),
        (("--target", "toy-2", "--opset", "tiny=4"), "tiny up to 3"),
        (("--opset", "nowhere=4"), 'no domain "nowhere"'),
    ],
)
def test_an_unknown_target_is_refused(toy, model, arguments, text):
    result = toy("plan", model, *arguments)
    assert (result.code, result.out) == (2, "")
    assert text in result.err
    assert "available" in result.err


def test_internal_ops_are_not_listed(tenonnx):
    from tenonnx.extend import op
    from tenonnx.registry.registry import default_registry
    from tenonnx.transforms.target import INTERNAL_DOMAIN

    @op("Inner", domain=INTERNAL_DOMAIN)
    def inner(x):
        return x

    default_registry().add(inner)
    assert "Inner" not in tenonnx("ops").out
    refused = tenonnx("ops", "--domain", INTERNAL_DOMAIN)
    assert refused.code == 2
    assert INTERNAL_DOMAIN not in refused.err.partition("available")[2]


def test_feeds_that_do_not_fit_are_refused_before_others_are_announced(tenonnx, tmp_path):
    import numpy as np
    import tiny

    from tenonnx.formats.onnx.writer import to_model
    from tenonnx.graph.graph import Graph

    graph = Graph(opsets={"tiny": 4})
    graph.output("y", tiny.add(graph.input("a", "float32", (2,)), graph.input("b", "float32", (2,))))
    onnx.save(to_model(graph), tmp_path / "two.onnx")
    np.save("a.npy", np.zeros((2, 2), np.float32))
    result = tenonnx("run", "two.onnx", "--input", "a=a.npy")
    assert result.code == 2
    assert "random inputs" not in result.err
