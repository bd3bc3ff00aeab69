"""Commands: text, JSON and exit codes."""

import json

import numpy as np
import onnx
import pytest
import tiny

from tenonnx.extend import op
from tenonnx_cli.ops import _outputs


def test_inspect_shows_types_ops_and_who_provides_them(tenonnx, model):
    result = tenonnx("inspect", model, "--nodes", "--variables")
    assert result.code == 0
    assert result.err == ""
    for text in (
        'graph "chain"',
        "tiny 4",
        "a chain of ops",
        "license",
        "float32[n, 3]",
        "Double",
        "this program",
        "Affine: float32[n, 3]",
        "12 bytes",
    ):
        assert text in result.out
    data = tenonnx("inspect", model, "--json").json
    assert data["opsets"] == {"tiny": 4}
    assert data["inputs"] == [{"name": "x", "type": "float32[n, 3]", "dtype": "float32", "shape": ["n", 3]}]
    assert data["metadata"] == {"license": "none"}
    assert {op["op"]: op["known"] for op in data["ops"]}["tiny::Double"] is True
    assert data["nodes"][0]["outputs"][0]["shape"] == ["n", 3]


def test_inspect_accepts_shapes(tenonnx, model):
    data = tenonnx("inspect", model, "--json", "--input-shapes", "x:7,3").json
    assert data["outputs"][0]["shape"] == [7, 3]


def test_unknown_ops_are_inspected_checked_and_planned(tenonnx, unknown):
    result = tenonnx("inspect", unknown)
    assert result.code == 0
    assert "acme::Double" in result.out
    assert "no known package provides it" in result.out
    assert "not checked" in tenonnx("check", unknown).out
    planned = tenonnx("plan", unknown, "--domains", "ai.onnx", "--json")
    assert planned.code == 1
    assert [node["action"] for node in planned.json["nodes"]] == ["refused"] * 4
    assert tenonnx("plan", unknown).code == 0


def test_unknown_ops_convert_where_they_stay(tenonnx, unknown, tmp_path):
    result = tenonnx("convert", unknown, "-o", "same.onnx")
    assert result.code == 0
    assert "4 -> 4 nodes" in result.out
    assert "not verified: " in result.err
    assert onnx.load("same.onnx") == onnx.load(unknown)
    refused = tenonnx("convert", unknown, "-o", "plain.onnx", "--domains", "ai.onnx")
    assert refused.code == 2
    assert "4 nodes cannot be expressed in the target" in refused.err
    # the requested verification was impossible
    assert tenonnx("convert", unknown, "-o", "plain.onnx", "--verify").code == 1
    assert not (tmp_path / "plain.onnx").exists()


def test_check_lists_everything(tenonnx, model):
    assert tenonnx("check", model).out == f"{model}: valid\n"
    proto = onnx.load(model)
    proto.graph.node[0].attribute.append(onnx.helper.make_attribute("wrong", 1))
    onnx.save(proto, model)
    result = tenonnx("check", model, "--json")
    assert result.code == 1
    assert result.json["valid"] is False
    assert "wrong" in result.json["problems"][0]["problem"]


def test_check_names_both_judges(tenonnx, model):
    proto = onnx.load(model)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5
    proto.graph.node.insert(0, proto.graph.node.pop())
    onnx.save(proto, model)
    result = tenonnx("check", model)
    assert result.code == 1
    assert "onnx.checker: " in result.out
    assert "inference: " in result.out
    assert "2 problems" in result.out


def test_run_generates_inputs_with_a_note(tenonnx, model):
    result = tenonnx("run", model)
    assert result.code == 0
    assert "random inputs from seed 0: x" in result.err
    assert result.out.startswith("y: float32[2, 3]")
    assert tenonnx("run", model, "--seed", 1).out != result.out


@pytest.mark.parametrize("how", ["npy", "npz", "archive"])
def test_run_reads_and_writes_arrays(tenonnx, model, tmp_path, how):
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 10
    np.save("x.npy", x)
    np.savez("all.npz", x=x, labels=np.zeros(2))
    given = {"npy": ["--input", "x=x.npy"], "npz": ["--input", "x=all.npz"], "archive": ["--inputs", "all.npz"]}[how]
    result = tenonnx("run", model, *given, "-o", "y.npz", "--backend", "numpy")
    assert result.code == 0
    assert ("labels left out" in result.err) == (how == "archive")
    with np.load("y.npz") as written:
        np.testing.assert_allclose(written["y"], np.exp(0.5 * x + 0.25), rtol=1e-6)
    assert tenonnx("run", model, *given, "-o", "y.npy").code == 0
    assert np.load("y.npy").shape == (2, 3)
    data = tenonnx("run", model, *given, "--json").json
    assert data["backend"] == "numpy"
    assert data["outputs"]["y"]["shape"] == [2, 3]
    assert data["outputs"]["y"]["values"][0][0] == pytest.approx(np.exp(0.25))


def test_run_writes_what_json_does_not_have(tenonnx, model):
    np.save("x.npy", np.full((1, 3), 1e4, np.float32))
    assert tenonnx("run", model, "--input", "x=x.npy", "--json").json["outputs"]["y"]["values"] == [["inf"] * 3]
    np.save("x.npy", np.zeros((1000, 3), np.float32))
    assert tenonnx("run", model, "--input", "x=x.npy", "--json").json["outputs"]["y"]["values"] is None


def test_plan_and_convert_say_what_becomes_of_nodes(tenonnx, model, tmp_path):
    planned = tenonnx("plan", model, "--opset", "tiny=3")
    assert planned.code == 0
    assert "3 nodes kept, 1 node rewritten, 0 refused" in planned.out
    assert "tiny::Affine@4" in planned.out
    assert "with fixed shapes" not in planned.out
    assert tenonnx("plan", model, "--opset", "tiny=3", "--json").json["constant_if_shapes_were_fixed"] == []
    result = tenonnx("convert", model, "-o", "old.onnx", "--opset", "tiny=3", "-v")
    assert result.code == 0
    assert "expanded into" in result.out
    assert "with this meaning exists from version 4, the target has 3" in result.out
    assert "largest difference " in result.out
    assert onnx.load(tmp_path / "old.onnx").opset_import[0].version == 3
    again = tenonnx("convert", model, "-o", "old.onnx", "--opset", "tiny=3", "--json").json
    assert again["verification"]["equal"] is True
    assert again["verification"]["outputs"][0]["name"] == "y"
    assert {node["action"] for node in again["nodes"]} == {"kept", "expanded"}


def test_convert_writes_our_own_format_and_reads_it(tenonnx, model):
    assert tenonnx("convert", model, "-o", "m.safetensors").code == 0
    assert tenonnx("convert", "m.safetensors", "-o", "back.onnx", "--no-verify").code == 0
    assert onnx.load("back.onnx") == onnx.load(model)
    assert tenonnx("check", "m.safetensors").code == 0


def test_convert_puts_tensors_outside(tenonnx, model, tmp_path):
    assert tenonnx("convert", model, "-o", "m.onnx", "--external-data-threshold", 4).code == 0
    assert (tmp_path / "m.onnx.data").stat().st_size == 12
    assert tenonnx("convert", "m.onnx", "-o", "m.onnx").code == 0


def test_convert_writes_nothing_when_the_numbers_differ(tenonnx, model, tmp_path, monkeypatch):
    def forgets_shift(x, b, *, scale, shift):
        return tiny.shift_first(x, scale=scale)

    ((older, _),) = tiny.affine.lowerings
    monkeypatch.setitem(vars(tiny.affine), "lowerings", ((older, forgets_shift),))
    before = sorted(tmp_path.iterdir())
    result = tenonnx("convert", model, "-o", "old.onnx", "--opset", "tiny=3")
    assert result.code == 1
    assert result.out == ""
    assert "VerificationFailed" in result.err
    assert "the first node that diverges" in result.err
    assert sorted(tmp_path.iterdir()) == before
    assert tenonnx("convert", model, "-o", "old.onnx", "--opset", "tiny=3", "--atol", 100, "--rtol", 100).code == 0


def test_convert_verifies_with_the_inputs_that_are_given(tenonnx, model):
    np.save("wrong.npy", np.zeros((2, 4), np.float32))
    result = tenonnx("convert", model, "-o", "m.onnx", "--input", "x=wrong.npy")
    assert result.code == 2
    assert "InvalidFeed" in result.err
    assert tenonnx("convert", model, "-o", "m.onnx", "--input-shapes", "x:5,3", "--seed", 3, "--verify").code == 0


def test_ops_lists_meanings(tenonnx):
    result = tenonnx("ops")
    assert result.code == 0
    assert "tiny::Affine" in result.out
    assert "1 to 3" in result.out
    data = tenonnx("ops", "tiny::Affine", "--json").json
    assert [row["function"] for row in data] == ["affine", "shift_first"]
    assert data[0]["attributes"] == {"scale": 2.0, "shift": 0.0}
    shown = tenonnx("ops", "Affine", "--domain", "tiny").out
    assert "since version 4; before, the shift was applied first" in shown
    assert "scale=2.0" in shown
    missing = tenonnx("ops", "tiny::Afine")
    assert missing.code == 2
    assert "Affine" in missing.err
    assert tenonnx("ops", "--domain", "nowhere").code == 2


@op("Halves", domain="com.example")
def halves(X):
    def inner(X):
        return X, X, X

    state = X / 2.0
    return state, state, inner(X)[0]


def test_outputs_have_names_of_their_own():
    assert _outputs(halves) == ["state", "output1", "output2"]


def test_plugins_lists_what_is_left_out(tenonnx):
    result = tenonnx("plugins", "--json")
    assert result.code == 0
    assert {row["status"] for row in result.json} <= {"left out", "loaded"}
    assert tenonnx("plugins").code == 0


@pytest.mark.parametrize("command", ["inspect", "check", "run", "plan"])
def test_stdout_has_nothing_but_json(tenonnx, model, command):
    result = tenonnx(command, model, "--json")
    assert isinstance(json.loads(result.out), dict)


def test_long_metadata_and_large_outputs_are_cut(tenonnx, model):
    proto = onnx.load(model)
    proto.metadata_props.add(key="notes", value="word " * 500)
    onnx.save(proto, model)
    result = tenonnx("inspect", model)
    assert max(map(len, result.out.splitlines())) < 200
    assert "word..." in result.out or "word ..." in result.out
    result = tenonnx("run", model, "--input-shapes", "x:30,3")
    assert len(result.out.splitlines()) < 12
    assert "-o FILE writes everything" in result.out
