"""Target files given by path, and lists of ops on the command line."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import InvalidCall, NotRepresentable
from tenonnx_cli import main
from tenonnx_targets.files import load_target, runtimes

ROOT = Path(__file__).parents[1]

GOOD = """
opsets = { "ai.onnx" = 17 }
static_shapes = true
max_rank = 3

[[ops]]
names = ["Relu", "Sub", "Add"]
dtypes = ["float32"]

[[ops]]
names = ["Reshape"]
constant = ["shape"]

[[ops]]
names = ["Softmax"]
attributes = { axis = [-1] }
ranks = [2]
until = 17

[[ops]]
names = ["MaxPool"]
outputs = 1
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    return file


@pytest.fixture
def model(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    with graph.building():
        graph.output("y", ops.clip(graph.input("x", "float32", (2, 3)), 0.0, 6.0))
    tx.export(graph, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def kinds(path):
    return [node.op_type for node in onnx.load(path).graph.node if node.op_type != "Constant"]


def test_a_file_is_a_target(path, model, tmp_path):
    target = tx.Target.load(path)
    assert (target.name, target.max_rank, target.static_shapes) == ("mine", 3, True)
    moved = tx.retarget(tx.load(model), target=target)
    assert [node.op_type for node in moved.nodes] == ["Relu", "Sub", "Relu", "Sub"]
    assert main(["convert", str(model), "-o", str(tmp_path / "moved.onnx"), "--target", str(path)]) == 0
    assert kinds(tmp_path / "moved.onnx") == ["Relu", "Sub", "Relu", "Sub"]


def test_a_json_file_is_equivalent(model, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"ops": ["Min", "Max"]}))
    moved = tx.retarget(tx.load(model), target=str(file))
    assert [node.op_type for node in moved.nodes] == ["Max", "Min"]


@pytest.mark.parametrize(
    ("function", "shape", "reason"),
    [
        (lambda x: ops.softmax(x, axis=0), (2, 3), "does not take axis=0"),
        (lambda x: ops.softmax(x), (2, 3, 4), "does not take rank 3"),
        (lambda x: ops.relu(x), (2, 3, 4, 5), "has tensors of up to 3 dims"),
        (lambda x: ops.max_pool(x, kernel_shape=[2], _outputs=2)[0], (1, 2, 3), "does not take 2 outputs"),
        (lambda x: ops.relu(x), ("n", 3), "takes only static shapes"),
        (lambda x: ops.reshape(x, ops.shape(x)), ("n", "m"), "does not take a computed shape"),
    ],
)
def test_limits_of_ops_hold(path, function, shape, reason):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    with graph.building():
        graph.output("y", function(graph.input("x", "float32", shape)))
    with pytest.raises(NotRepresentable) as caught:
        tx.retarget(graph, target=str(path))
    assert reason in caught.value.given


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("max_rank = 3", 'max_rank = "3"', 4, '"max_rank" of target mine is not of type int'),
        ("static_shapes", "static_shape", 3, '"static_shape" of target mine is not one of'),
        ('["float32"]', '["float33"]', 8, "'float33', which ONNX does not define"),
        ("ranks = [2]", 'ranks = ["2"]', 17, "are not whole numbers"),
        ("axis = [-1]", "axis = -1", 16, "is not a list of values"),
        ("until = 17", "until = ", 18, "Invalid value"),
        ("outputs = 1", "outputs = 0", 22, "is not a whole number from 1 on"),
    ],
)
def test_the_wrong_line_is_named(path, capfd, old, new, line, reason):
    path.write_text(GOOD.replace(old, new))
    assert main(["targets", str(path)]) != 0
    output = capfd.readouterr().err
    assert f"mine.toml, line {line}" in output
    assert reason in output


def test_a_file_is_shown(path, capfd):
    assert main(["targets", str(path)]) == 0
    shown = capfd.readouterr().out
    for text in ("Add, MaxPool, Relu, Reshape, Softmax, Sub", "up to 17", "static shapes", "most dims"):
        assert text in shown


def test_one_of_several_is_named(tmp_path):
    file = tmp_path / "two.toml"
    file.write_text('[targets.a]\nops = ["Relu"]\n[targets.b]\nops = ["Clip"]\n')
    assert tx.Target.load(f"{file}#b").name == "b"
    with pytest.raises(InvalidCall, match="has several targets"):
        tx.Target.load(file)
    with pytest.raises(InvalidCall, match='has no target "c"'):
        tx.Target.load(f"{file}#c")
    with pytest.raises(InvalidCall, match="cannot read"):
        tx.Target.load(tmp_path / "none.toml")


def test_ops_on_the_command_line(model, tmp_path):
    moved = str(tmp_path / "moved.onnx")
    assert main(["convert", str(model), "-o", moved, "--ops", "Mul,Add,Sub,Relu"]) == 0
    assert kinds(moved) == ["Relu", "Sub", "Relu", "Sub"]
    x = np.array([[-1, 7, 1e30], [np.inf, -np.inf, np.nan]], np.float32)
    expected = np.array([[0, 6, 6], [6, 0, np.nan]], np.float32)
    np.testing.assert_array_equal(tx.load(moved).run({"x": x}, backend="numpy")["y"], expected)
    assert main(["convert", str(model), "-o", moved, "--without", "Clip,Max"]) == 0
    assert not {"Clip", "Max"} & set(kinds(moved))


def test_finite_lowerings_are_asked_for(tmp_path, capfd):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    with graph.building():
        pair = [graph.input(name, "float32", (2, 3)) for name in "ab"]
        graph.output("y", ops.maximum(*pair))
    source, moved = str(tmp_path / "max.onnx"), str(tmp_path / "moved.onnx")
    tx.export(graph, source)
    assert main(["plan", source, "--ops", "Relu,Add,Sub"]) == 1
    assert main(["plan", source, "--ops", "Relu,Add,Sub", "--assume-finite"]) == 0
    assert main(["convert", source, "-o", moved, "--ops", "Relu,Add,Sub", "--assume-finite"]) == 0
    assert kinds(moved) == ["Sub", "Relu", "Add"]
    capfd.readouterr()
    assert main(["plan", source, "--target", "tensorrt-10", "--ops", "NoSuchOp"]) != 0
    assert "does not have the op NoSuchOp" in capfd.readouterr().err


def test_disabled_packages_can_be_enabled_again(model, monkeypatch):
    target = tx.Target.of_ops(["Relu", "Add", "Mul", "Sub"])
    monkeypatch.setenv("TENONNX_PLUGINS", "tenonnx-run,tenonnx-targets")
    with pytest.raises(tx.NotRepresentable):
        tx.retarget(tx.load(model), target=target)
    monkeypatch.delenv("TENONNX_PLUGINS")
    assert tx.retarget(tx.load(model), target=target).nodes


@pytest.fixture
def affine(tmp_path):
    """A model with 400 bytes of parameters as external data and a dynamic batch dim."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    weights = graph.variable("w", np.arange(100, dtype=np.float32).reshape(10, 10))
    graph.output("y", ops.matmul(graph.input("x", "float32", ("n", 10)), weights))
    tx.export(graph, tmp_path / "affine.onnx", external_data_threshold=1)
    return str(tmp_path / "affine.onnx")


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("batch = 2", "takes a batch of 2 alone"),
        ("file_size = 399", "the model is larger than mine takes"),
        ("file_size = 410", "the model is larger than mine takes"),
    ],
)
def test_limits_of_files_hold(affine, tmp_path, capfd, limit, reason):
    (tmp_path / "mine.toml").write_text(limit)
    arguments = ["--target", str(tmp_path / "mine.toml")]
    assert main(["convert", affine, "-o", str(tmp_path / "moved.onnx"), *arguments]) != 0
    assert reason in capfd.readouterr().err
    assert not (tmp_path / "moved.onnx").exists()
    if "410" not in limit:
        assert main(["plan", affine, *arguments]) == 1
        assert reason in capfd.readouterr().out


def test_a_batch_is_fixed_as_the_message_suggests(affine, tmp_path):
    (tmp_path / "mine.toml").write_text("batch = 2\nfile_size = 1000")
    moved = str(tmp_path / "moved.onnx")
    arguments = ["--target", str(tmp_path / "mine.toml"), "--fix-shapes", "x:2,10"]
    assert main(["convert", affine, "-o", moved, *arguments]) == 0
    assert tx.load(moved).inputs[0].shape == (2, 10)


def test_a_target_without_external_data_gets_one_file(affine, tmp_path, capfd):
    (tmp_path / "mine.toml").write_text("external_data = false")
    moved = tmp_path / "only" / "moved.onnx"
    moved.parent.mkdir()
    arguments = ["--target", str(tmp_path / "mine.toml")]
    assert main(["convert", affine, "-o", str(moved), *arguments]) == 0
    assert [file.name for file in moved.parent.iterdir()] == ["moved.onnx"]
    assert main(["convert", affine, "-o", str(moved), *arguments, "--external-data-threshold", "1"]) != 0
    assert "takes no external data" in capfd.readouterr().err


def test_measured_failures_are_reported(model, tmp_path, capfd):
    (tmp_path / "mine.toml").write_text('ops = ["Add"]\nfailures = [{ op = "ai.onnx::Clip", outcome = "wrong" }]')
    assert main(["plan", str(model), "--target", str(tmp_path / "mine.toml")]) == 1
    assert "Clip is not on the list of ops (measured: wrong)" in capfd.readouterr().out
    (tmp_path / "mine.toml").write_text('failures = ["Clip"]')
    assert main(["targets", str(tmp_path / "mine.toml")]) != 0
    assert "are not tables of op and outcome" in capfd.readouterr().err


RUNNERS = """
import os
from onnx.reference import ReferenceEvaluator

def right(path, feeds):
    return ReferenceEvaluator(path).run(None, feeds)

def wrong(path, feeds):
    return [each + 1 for each in right(path, feeds)]

def refusing(path, feeds):
    raise NotImplementedError("no kernel")

def crashing(path, feeds):
    os.abort()
"""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("right", ""),
        ("wrong", "differ"),
        ("refusing", "does not run in"),
        ("crashing", "does not run in"),
        ("none", "cannot import the runner"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--no-verify",)])
def test_a_file_is_verified_in_a_runner(model, tmp_path, capfd, name, reason, options):
    (tmp_path / "runners.py").write_text(RUNNERS)
    moved = tmp_path / "moved.onnx"
    arguments = ["--ops", "Max,Min", "--verify-with", f"{tmp_path}/runners.py:{name}", *options]
    code = main(["convert", str(model), "-o", str(moved), *arguments])
    output = capfd.readouterr().err
    assert (code == 0, moved.exists()) == ((True, True) if not reason else (False, False)), output
    assert (reason or "note: in ") in output
    assert [file.name for file in tmp_path.iterdir() if "moved" in file.name] == ([] if reason else ["moved.onnx"])


PROGRAM = """
import sys
import numpy as np
from onnx.reference import ReferenceEvaluator

model, inputs, outputs = sys.argv[1:]
reference = ReferenceEvaluator(model)
found = reference.run(None, dict(np.load(inputs)))
np.savez(outputs, **{name: each + OFF for name, each in zip(reference.output_names, found)})
"""


@pytest.mark.parametrize(("off", "code"), [(0, 0), (1, 1)])
def test_a_file_is_verified_in_another_interpreter_and_in_a_program(model, tmp_path, capfd, off, code):
    (tmp_path / "runners.py").write_text(RUNNERS)
    (tmp_path / "program.py").write_text(PROGRAM.replace("OFF", str(off)))
    function = f"{tmp_path}/runners.py:{'wrong' if off else 'right'}"
    program = f"'{sys.executable}' '{tmp_path}/program.py' {{model}} {{inputs}} {{outputs}}"
    for runner in (f"{sys.executable} {function}", program):
        line = ["convert", str(model), "-o", str(tmp_path / "moved.onnx"), "--overwrite", "--verify-with", runner]
        assert main(line) == code
        assert ("differ" if off else f"note: in {runner} ") in capfd.readouterr().err
    assert (tmp_path / "moved.onnx").exists() is not off


@pytest.mark.parametrize(
    ("runner", "reason"),
    [
        ("none {model}", "lacks {inputs}, {outputs}"),
        ("no-such-program {model} {inputs} {outputs}", "no such program"),
        ("no-such-python m:f", "cannot import the runner"),
        ("module", "not of the form MODULE:FUNCTION"),
    ],
)
def test_invalid_runners(model, tmp_path, capfd, runner, reason):
    assert main(["convert", str(model), "-o", str(tmp_path / "m.onnx"), "--verify-with", runner]) == 2
    assert reason in capfd.readouterr().err


def test_a_plan_lists_remedies_and_their_costs(tmp_path, model, capfd):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    with graph.building():
        x = graph.input("x", "float32", (2, 3))
        graph.output("y", ops.maximum(x, ops.neg(x)))
        graph.output("z", ops.erf(x))
    source = str(tmp_path / "both.onnx")
    tx.export(graph, source)
    listed = ["--ops", "Relu,Add,Sub,Mul,Div,Exp"]
    assert main(["plan", source, *listed]) == 1
    output = capfd.readouterr().out
    assert "--assume-finite would leave 1 obstacle" in output
    assert "possible with --approximate" in output
    assert main(["plan", source, *listed, "--assume-finite", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["would_help"] == {"approximate": 0}
    assert main(["plan", str(model), "--ops", "Relu,Sub", "--json"]) == 0
    plan = json.loads(capfd.readouterr().out)
    assert (plan["before"]["nodes"], plan["after"]["nodes"], plan["would_help"]) == (1, 4, {})
    assert plan["after"]["ops"] == {"Relu": 2, "Sub": 2}


SPANS = """
opsets = { "ai.onnx" = 21 }

[[ops]]
names = ["Concat", "Expand", "Reshape", "Unsqueeze"]
until = 13

[[ops]]
names = ["Add", "Constant", "Gather", "Mul", "Relu", "Sub", "Tanh", "Transpose"]

[[ops]]
names = ["Sigmoid"]
since = 20
"""


@pytest.mark.parametrize(
    ("version", "ops", "found"),
    [
        (17, ["Relu", "Add"], 17),  # the nearest
        (17, ["Reshape"], 13),  # older
        (17, ["Sigmoid"], 20),  # newer
        (17, ["Reshape", "Unsqueeze", "Sigmoid"], 13),  # most of them
        (21, ["Relu", "Gelu"], 13),  # Gelu may become any op, most of which are there
        (13, ["Relu", "Gelu"], 13),
    ],
)
def test_a_target_has_the_version_with_most_of_the_ops(version, ops, found, tmp_path):
    (tmp_path / "mine.toml").write_text(SPANS)
    target = tx.Target.load(tmp_path / "mine.toml")
    assert target.nearest("ai.onnx", version, [("ai.onnx", op) for op in ops]) == found


def test_a_graph_moves_to_the_opset_that_has_its_ops(tmp_path):
    (tmp_path / "mine.toml").write_text(SPANS)
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.unsqueeze(ops.relu(graph.input("x", "float32", ("n", 3))), [0]))
    moved = tx.retarget(graph, target=str(tmp_path / "mine.toml"))
    assert moved.opsets == {"ai.onnx": 13}
    np.testing.assert_array_equal(
        moved.run({next(iter(moved.inputs)).name: np.ones((2, 3), "f")})["y"], np.ones((1, 2, 3), "f")
    )
    with pytest.raises(tx.NotRepresentable, match="Unsqueeze"):
        tx.retarget(graph, 17, target=str(tmp_path / "mine.toml"))


MEASURED = [target for target in runtimes()[0].values() if "tenonnx targets probe" in target.source]


def calls_of(target):
    return int(target.note.partition(" ")[0])


@pytest.mark.parametrize("target", MEASURED, ids=lambda target: target.name)
def test_a_measured_target_is_consistent(target):
    assert re.search(rf"--name {re.escape(target.name)}\b", target.source)
    assert 0 < sum(each["calls"] for each in target.failures) < calls_of(target)
    failed = {(each["op"], dtype) for each in target.failures for dtype in each.get("dtypes", ())}
    for (domain, op), entries in target.ops.items():
        for entry in entries:
            assert entry.dtypes is None or not {(f"{domain}::{op}", dtype.name) for dtype in entry.dtypes} & failed


@pytest.mark.parametrize(("suffix", "text"), [(".toml", "a = " + "[" * 50_000), (".json", "[" * 200_000)])
def test_lists_that_are_nested_too_deep_are_refused(tmp_path, suffix, text):
    path = tmp_path / f"deep{suffix}"
    path.write_text(text)
    with pytest.raises(InvalidCall, match="invalid target file"):
        load_target(str(path))
