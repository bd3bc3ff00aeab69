"""Probes of small consumers: correct, wrong, rejecting, crashing and hanging ones."""

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import InvalidCall, NotRepresentable
from tenonnx_cli import main
from tenonnx_run.runner import CommandRunner, FunctionRunner
from tenonnx_run.worker import CallFailed, NoAnswer, ProcessCrashed
from tenonnx_testing.cases import collected, load
from tenonnx_testing.models import Trial
from tenonnx_testing.probing import probe as probing
from tenonnx_testing.probing.journal import Journal
from tenonnx_testing.probing.probe import ProbeRequest, measure
from tenonnx_testing.probing.sequences import with_tensors
from tenonnx_testing.probing.summary import entries, failures
from tenonnx_testing.probing.trials import probes

RUNNER = """
import os, time
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

def right(path, feeds):
    return ReferenceEvaluator(path).run(None, feeds)

def odd(path, feeds):
    (node,) = onnx.load(path).graph.node
    array = next(iter(feeds.values()))
    if node.op_type == "Neg":
        os.abort()
    if node.op_type == "Sign" and array.dtype == np.int64:
        raise NotImplementedError("no int64")
    if node.op_type == "Floor":
        return {node.output[0]: array + 1}
    return dict(zip(node.output, right(path, feeds)))

def sleep(path, feeds):
    time.sleep(600)

def broken(path, feeds):
    raise RuntimeError("no device")
"""


@pytest.fixture
def runner(tmp_path):
    file = tmp_path / "my_runner.py"
    file.write_text(RUNNER)
    return file


def probe(tmp_path, runner, *options):
    target = tmp_path / "mine.toml"
    return target, main(["targets", "probe", "--runner", str(runner), "-o", str(target), *options])


def test_outcomes_are_distinguished(tmp_path, runner, capfd):
    options = ("--ops", "Neg,Sign,Floor,Relu", "--examples", "3", "--json")
    target, code = probe(tmp_path, f"{runner}:odd", *options)
    assert code == 0
    printed = json.loads(capfd.readouterr().out)
    assert not {"ai.onnx::Neg", "ai.onnx::Floor"} & {*printed["ops"]}
    outcomes = {(each["op"].removeprefix("ai.onnx::"), each["outcome"]) for each in printed["failures"]}
    assert outcomes >= {("Neg", "crashed"), ("Floor", "wrong"), ("Sign", "refused")}
    measured = tx.Target.load(target)
    assert measured.opsets["ai.onnx"] >= 21
    for sign in measured.ops["ai.onnx", "Sign"]:
        assert "int64" not in {dtype.name for dtype in sign.dtypes}
        assert "float32" in {dtype.name for dtype in sign.dtypes}
    assert ("ai.onnx", "Relu") in measured.ops
    assert not target.with_name("mine.toml.partial").exists()


def test_a_measured_target_is_converted_to(tmp_path, runner):
    target, _ = probe(tmp_path, f"{runner}:odd", "--ops", "Floor,Neg,Relu,Sub", "--examples", "4")
    graph = tx.Graph(opsets={"ai.onnx": 17})
    with graph.building():
        graph.output("y", -graph.input("x", "float32", (2,)))
    moved = tx.retarget(graph, target=str(target))
    assert [node.op_type for node in moved.nodes] == ["Sub"]
    lost = tx.Graph(opsets={"ai.onnx": 17})
    with lost.building():
        lost.output("y", ops.floor(lost.input("x", "float32", (2,))))
    with pytest.raises(NotRepresentable) as caught:
        tx.retarget(lost, target=str(target))
    assert "measured: wrong" in caught.value.given


def test_json_and_toml_have_the_same_contents(tmp_path, runner):
    options = ("--runner", f"{runner}:odd", "--ops", "Sign,Relu,ReduceSum", "--examples", "3", "--name", "odd")
    assert main(["targets", "probe", "-o", str(tmp_path / "mine.json"), *options]) == 0
    assert main(["targets", "probe", "-o", str(tmp_path / "mine.toml"), *options]) == 0
    read, also = (tx.Target.load(tmp_path / f"mine{suffix}#odd") for suffix in (".json", ".toml"))
    assert read.failures
    assert replace(read, source="") == replace(also, source="")


def test_an_interrupted_probe_resumes(tmp_path, runner, monkeypatch):
    options = ("--ops", "Relu,Sqrt", "--examples", "2")
    whole, _ = probe(tmp_path, f"{runner}:right", *options)
    text = whole.read_text()
    real, asked = probing._results, []

    def interrupted(runner, case, *arguments):
        asked.append(case.op.name)
        if len(asked) == 2:
            raise InvalidCall("interrupted")
        return real(runner, case, *arguments)

    monkeypatch.setattr(probing, "_results", interrupted)
    assert probe(tmp_path, f"{runner}:right", *options)[1] != 0
    with (tmp_path / "mine.toml.partial").open("a") as file:
        file.write('{"case": "torn')
    assert probe(tmp_path, f"{runner}:right", *options)[1] == 0
    assert asked[0] not in asked[2:]
    assert whole.read_text() == text


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"traits": 5}',
        b'{"case": "Relu", "results": [{}]}',
        b'{"case": "Relu", "results": [{"op": 5}]}',
        b'{"case": "Relu", "results": 1e999}',
        b'{"case": []}',
    ],
    ids=range(8),
)
def test_invalid_lines_of_a_journal_are_ignored(tmp_path, line):
    path = tmp_path / "journal"
    Journal(path, {"seed": 0}).set_traits({"opset": 5, "ir_version": 8, "static_shapes": False, "external_data": True})
    with path.open("ab") as file:
        file.write(line + b"\n")
    held = Journal(path, {"seed": 0})
    assert (held.traits["opset"], held.results) == (5, {})


def test_a_journal_is_a_regular_file(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "journal").symlink_to(tmp_path / "precious")
    with pytest.raises(InvalidCall, match="not a regular file"):
        Journal(tmp_path / "journal", {})
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("my_runner.py:broken", "does not compute a model of one Relu"),
        ("my_runner.py:none", "cannot import the runner"),
        ("none.py:run", "cannot import the runner"),
        ("run", "not of the form MODULE:FUNCTION"),
    ],
)
def test_unusable_runners_are_reported(tmp_path, runner, capfd, name, reason):
    assert probe(tmp_path, name if ":" not in name else f"{tmp_path}/{name}", "--ops", "Relu")[1] == 2
    assert reason in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-o", "mine.toml"], "not exactly one of --runner and --command"),
        (["-o", "mine.txt", "--runner", "a:b"], "neither *.toml nor *.json"),
        (["-o", "mine.toml", "--runner", "a:b", "--command", "c"], "not exactly one of --runner and --command"),
        (["-o", "mine.toml", "--command", "tool {model}"], "lacks {inputs}, {outputs}"),
        (["-o", "mine.toml", "--command", "no-such-tool {model} {inputs} {outputs}"], "no such program"),
        (["-o", "none/mine.toml", "--runner", "a:b"], "no such folder"),
    ],
)
def test_invalid_options_are_rejected(tmp_path, monkeypatch, capfd, options, reason):
    monkeypatch.chdir(tmp_path)
    assert main(["targets", "probe", *options]) == 2
    assert reason in capfd.readouterr().err


def test_an_interpreter_of_another_environment_runs_the_runner(tmp_path, capfd):
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "numpy.pth").write_text(str(Path(np.__file__).parents[1]))
    (site / "consumer.py").write_text("import sys\nprefix = sys.prefix")
    file = tmp_path / "my_runner.py"
    file.write_text("def run(path, feeds):\n import consumer\n return [consumer.prefix]")
    runner = FunctionRunner(f"{file}:run", python=str(home / "bin/python"))
    assert runner("model.onnx", {}, ["y"]) == [str(home)]
    runner.close()
    by_module = FunctionRunner("tenonnx_testing.runners:reference", python=str(home / "bin/python"))
    by_module.start()  # the environment has no tenonnx_testing
    by_module.close()
    target = str(tmp_path / "mine.toml")
    assert main(["targets", "probe", "--runner", "a:b", "--python", f"{home}/bin/none", "-o", target]) == 2
    assert "no such Python interpreter" in capfd.readouterr().err
    line = "tool {model} {inputs} {outputs}"
    assert main(["targets", "probe", "--command", line, "--python", "python", "-o", target]) == 2
    assert "--python was given without --runner" in capfd.readouterr().err


TOOL = """
import os, sys
import numpy as np
model, inputs, outputs = sys.argv[1:]
held = open(model, "rb").read()
if b"Neg" in held:
    os.abort()
if b"Relu" not in held or b"ThresholdedRelu" in held:
    sys.exit("no such kernel")
np.savez(outputs, y=np.maximum(np.load(inputs)["x"], 0))
"""


@pytest.fixture
def line(tmp_path):
    (tmp_path / "tool.py").write_text(TOOL)
    return f"{sys.executable} {tmp_path / 'tool.py'} {{model}} {{inputs}} {{outputs}}"


def test_a_program_is_a_runner(tmp_path, line):
    runner, model, x = CommandRunner(line), tmp_path / "model.onnx", np.array([-1.0, 2.0])
    runner.start()
    model.write_bytes(b"Relu")
    assert runner(model, {"x": x}, ["y"])[0].tolist() == [0, 2]
    with pytest.raises(CallFailed, match="failed") as caught:
        runner(model, {"x": x}, ["y", "z"])
    assert "not y, z" in caught.value.given
    model.write_bytes(b"Floor")
    with pytest.raises(CallFailed) as caught:
        runner(model, {"x": x}, ["y"])
    assert "no such kernel" in caught.value.given
    model.write_bytes(b"Neg")
    with pytest.raises(ProcessCrashed):
        runner(model, {"x": x}, ["y"])


def test_an_unknown_op_is_named(tmp_path, line, capfd):
    options = ["-o", str(tmp_path / "mine.toml"), "--ops", "NoSuchOp"]
    assert main(["targets", "probe", "--command", line, *options]) == 2
    assert "no op to probe" in capfd.readouterr().err


def test_hanging_calls_are_stopped(tmp_path, runner):
    sleeping = FunctionRunner(f"{runner}:sleep", seconds=0.2)
    sleeping.start()
    with pytest.raises(NoAnswer):
        sleeping("model.onnx", {}, ["y"])
    sleeping.close()


class Late:
    """A runner that hangs on every op but Relu."""

    name = "late"
    calls = 0

    def __call__(self, path, feeds, names):
        if onnx.load(path).graph.node[0].op_type == "Relu":
            return [np.maximum(next(iter(feeds.values())), 0)]
        self.calls += 1
        raise NoAnswer("late did not answer within 1 s")


def test_a_hanging_op_is_skipped(tmp_path):
    late = Late()
    result = measure(late, ProbeRequest("Late", "late", ops=["Abs"], examples=6), tmp_path / "journal")
    assert (late.calls, dict(result.outcomes), dict(result.ops)) == (4, {"hung": 3}, {})
    (tmp_path / "late.toml").write_text(result.text)
    target = tx.Target.load(tmp_path / "late.toml")
    assert (target.ops, target.external_data, target.static_shapes) == ({}, False, False)


def test_runners_name_outputs(tmp_path):
    file = tmp_path / "r.py"
    file.write_text(textwrap.dedent("def run(path, feeds): return {'b': 1.0, 'a': feeds['x']}"))
    runner = FunctionRunner(f"{file}:run")
    assert [float(each) for each in runner("m.onnx", {"x": 2.0}, ["a", "b"])] == [2.0, 1.0]
    with pytest.raises(CallFailed):
        runner("m.onnx", {"x": 2.0}, ["c"])
    runner.close()
    with pytest.raises(InvalidCall, match="cannot read the command"):
        CommandRunner("tool '{model} {inputs} {outputs}")


def result(outcome, dtype="float32", first=7, last=12, computed=(), rank=2, fed=(), cured=False, **attributes):
    return {
        "op": "ai.onnx::Toy",
        "first": first,
        "last": last,
        "dtype": dtype,
        "rank": rank,
        "fed": list(fed),
        "with_constants": cured,
        "attributes": attributes,
        "computed": list(computed),
        "outcome": outcome,
        "reason": "so" if outcome != "right" else "",
    }


def entry_of(*results):
    (held,) = entries(results, {"ai.onnx": 21}).values()
    return held


def test_limits_explain_failures():
    right = [result("right", mode="a"), result("right", mode="b"), result("right", "int32", mode="a")]
    (entry,) = entry_of(*right, result("wrong", mode="c"), result("refused", mode="c"))
    assert entry.attributes == (("mode", ("a", "b")),)
    assert (entry.dtypes, entry.ranks, entry.since, entry.until) == (None, None, None, 12)
    (entry,) = entry_of(*right, result("refused", "int8", mode="a"))
    assert (entry.dtypes, entry.attributes) == (("float32", "int32"), ())
    (entry,) = entry_of(*right, *[result("refused", rank=5, mode="a")] * 2)
    assert entry.ranks == (2,)
    (entry,) = entry_of(*right, result("refused", computed=["axes"], mode="a"))
    assert entry.constant == ("axes",)
    (entry,) = entry_of(*right, *[result("wrong", mode="a")] * 3)
    assert entry.dtypes == ("int32",)
    assert not entries([*right[:2], *[result("wrong", mode="a")] * 3], {"ai.onnx": 21})


def test_versions_with_equal_limits_are_merged():
    later = [result("right", "int8", 13, 21), result("right", first=13, last=21)]
    (entry,) = entry_of(result("right"), *later)
    assert (entry.since, entry.until, entry.dtypes) == (None, None, None)
    first, second = entry_of(result("right"), *later, result("refused", "uint8", 13, 21))
    assert (first.until, second.since, second.dtypes) == (12, 13, ("float32", "int8"))
    (failed,) = failures([result("right"), result("wrong", "int8"), result("wrong")])
    assert (failed.failures, failed.calls, failed.dtypes) == (2, 3, ("int8",))


def test_failing_dtypes_of_later_inputs_are_not_limited():
    """Rejected calls of Where in bfloat16 do not limit the ranks."""
    bad = {"others": ["bfloat16"]}
    results = [
        *({**result("right", rank=rank), "others": ["float32"]} for rank in (1, 4)),
        *({**result("refused", rank=rank), **bad} for rank in (2, 3)),
    ]
    (entry,) = entry_of(*results)
    assert (entry.ranks, entry.dtypes) == (None, None)
    assert entry_of(*({**each, "others": []} for each in results))[0].ranks == (1, 4)


def test_ranks_between_successful_ones_are_allowed():
    (entry,) = entry_of(
        *(result("right", rank=rank) for rank in (0, 2, 4)), *[result("refused", rank=rank) for rank in (3, 5)]
    )
    assert entry.ranks == (0, 1, 2, 4)


def test_dtypes_that_fail_with_certain_other_dtypes_are_not_limited():
    """OpenVINO computes a Loop over float64 in float32."""
    good = [{**result("right", "int64"), "others": ["bool", "float32"]} for _ in range(3)]
    bad = [{**result("wrong", "int64"), "others": ["bool", "float64"]} for _ in range(4)]
    (entry,) = entry_of(*good, {**good[0], "others": ["bool", "float64"]}, *bad)
    assert entry.dtypes is None


def test_inexact_dtypes_are_detected_on_first_inputs():
    """OpenVINO computes float64 in float32, so failures of a Loop that carries float64 are not caused by Loop."""
    inexact = [{**result("wrong", "float64"), "op": "ai.onnx::Exp"}] * 2
    carried = [{**result("wrong", "int64"), "others": ["float64"]}] * 5
    found = entries([*inexact, result("right", "int64"), *carried], {"ai.onnx": 21})
    assert [entry.dtypes for entry in found["ai.onnx::Toy"]] == [None]


def test_a_single_failure_of_a_type_that_succeeds_at_other_versions_is_no_limit():
    later = [result("right", first=13, last=21)] * 2
    earlier = [result("right", "float16"), result("refused")]
    (entry,) = entry_of(*earlier, *later)
    assert entry.dtypes is None
    first, second = entry_of(*earlier, result("refused"), *later)
    assert ("float32" in first.dtypes, second.dtypes) == (False, None)


def test_inputs_that_have_to_be_constants_are_a_limit():
    cured = [result("refused", dtype, fed=["W", "B"], cured=True) for dtype in ("float32", "float64")]
    (entry,) = entry_of(*cured)
    assert (entry.constant, entry.dtypes) == (("B", "W"), None)
    (entry,) = entry_of(*cured, result("right", fed=["B"]), result("right"))
    assert entry.constant == ("W",)
    right = [result("right", fed=["W", "B"])] * 3
    (entry,) = entry_of(*right, *cured)  # these calls do not need constants
    assert entry.constant == ()


def test_further_outputs_that_fail_are_a_limit():
    """The statistics of BatchNormalization below version 14 are wrong in onnxruntime, the result is right."""
    right = [{**result("right", dtype), "outputs": 1} for dtype in ("float32", "float64", "float32")]
    wrong = [{**result("wrong", dtype), "outputs": 5} for dtype in ("float32", "float64")]
    (entry,) = entry_of(*right, *wrong)
    assert (entry.outputs, entry.dtypes, entry.ranks) == (1, None, None)
    (entry,) = entry_of(*right * 3, {**right[0], "outputs": 6}, *wrong)
    assert entry.outputs is None
    (entry,) = entry_of(*({**each, "attributes": {"mode": each["outputs"]}} for each in (*right, *wrong)))
    assert (entry.outputs, entry.attributes) == (None, (("mode", (1,)),))


def test_common_element_types_are_left_out_only_where_they_failed():
    others = [result("right", "int8"), result("refused", "complex64")]

    def dtypes(op, *results):
        (held,) = entries([{**each, "op": f"ai.onnx::{op}"} for each in results], {"ai.onnx": 21}).values()
        return held[0].dtypes

    assert dtypes("Concat", *others) == ("bool", "float32", "float64", "int32", "int64", "int8")
    assert dtypes("Concat", *others, result("wrong")) == ("bool", "float64", "int32", "int64", "int8")
    assert dtypes("Concat", *others, result("wrong"), result("refused", "int64")) == (
        "bool",
        "float64",
        "int32",
        "int8",
    )
    assert dtypes("And", *others) == ("bool", "int8")
    assert dtypes("Conv", *others) == ("float32", "float64", "int8")


SEQUENCE_OPS = ["SplitToSequence", "SequenceInsert", "SequenceEmpty", "SequenceLength", "ConcatFromSequence"]


@pytest.mark.parametrize("name", SEQUENCE_OPS)
def test_sequences_stay_within_the_model(name):
    """Consumers such as onnxruntime-web have sequences, but not as inputs and outputs of a model."""
    load()
    (case,) = [case for case in collected() if (case.op.domain, case.op.name) == ("ai.onnx", name)]
    count = 0
    for probe in probes(case, {"ai.onnx": 21}, 6):
        graph = probe.trial.model.graph
        assert all(value.type.HasField("tensor_type") for value in (*graph.input, *graph.output))
        session = onnxruntime.InferenceSession(probe.trial.model.SerializeToString())
        for result, expected in zip(session.run(None, dict(probe.trial.feeds)), probe.trial.expected, strict=True):
            np.testing.assert_array_equal(result, expected)
        count += 1
    assert count


def test_optional_inputs_cannot_be_fed_as_tensors():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2]))
    value, output = helper.make_value_info("x", kind), helper.make_tensor_value_info("y", onnx.TensorProto.BOOL, [])
    graph = helper.make_graph([helper.make_node("OptionalHasElement", ["x"], ["y"])], "g", [value], [output])
    assert with_tensors(Trial(helper.make_model(graph), {"x": None}, (np.array(False),))) is None
