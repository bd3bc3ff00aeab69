"""Verification: outputs one by one, precision grades, and the deadline."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
from models import EXAMPLES
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.registry import discovery
from tenonnx.registry.discovery import Plugin
from tenonnx.transforms.decompose import inline_functions
from tenonnx.transforms.prune import prune
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_cli import main
from tenonnx_convert.verifying.precision import grade_of, same_bits
from tenonnx_optimize.common_subexpressions import merge_common_subexpressions
from tenonnx_run.compare import Tolerances

DIGITS, INT8 = EXAMPLES / "digits/digits.onnx", EXAMPLES / "digits/digits-int8.onnx"
BOTH = (None, ["numpy"], ["onnxruntime"])


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def command(*arguments, code=0):
        capfd.readouterr()
        result = main([str(argument) for argument in arguments])
        output = capfd.readouterr()
        assert result == code, output.out + output.err
        return output

    return command


def linear(weight, *, drawn=False):
    """``x @ weight``, optionally with a second, random output."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="last")]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])]
    if drawn:
        nodes.append(helper.make_node("RandomNormalLike", ["x"], ["noise"]))
        outputs.append(helper.make_tensor_value_info("noise", TensorProto.FLOAT, ["n", 4]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    weights = [numpy_helper.from_array(np.asarray(weight, np.float32), "w")]
    graph = helper.make_graph(nodes, "linear", [x], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WEIGHT = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def endless(*, constant=False):
    """A Loop of 2**62 rounds whose condition never becomes false."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "one"], ["u"]),
            helper.make_node("IsNaN", ["u"], ["ends"]),
            helper.make_node("Not", ["ends"], ["goes_on"]),
            helper.make_node("Squeeze", ["goes_on"], ["d"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [1])],
        [info("d", TensorProto.BOOL, []), info("u", TensorProto.FLOAT, [1])],
    )
    arrays = {"rounds": np.array(2**62), "yes": np.array(True), "one": np.ones(1, "f"), "zero": np.zeros(1, "f")}
    nodes = [
        helper.make_node("Loop", ["rounds", "yes", "zero" if constant else "x"], ["l"], body=body),
        helper.make_node("Add", ["l", "x"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "endless",
        [info("x", TensorProto.FLOAT, [1])],
        [info("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# ----- comparison with the source -------------------------------------------------------------------------------------


@pytest.fixture
def transform(monkeypatch, tmp_path):
    """A function that installs a transform ``sneaky``, which multiplies the last weight."""

    def install(mark=""):
        module = f"sneaky_{len(mark)}"
        text = f"""
            from tenonnx.extend.transforms import changing, copy_graph
            from tenonnx.graph.constants import ArrayConstant

            {mark}
            def sneaky(graph):
                '''Do no harm.'''
                copy = copy_graph(graph)
                weight = copy.variables[-1]
                weight.data = ArrayConstant(weight.data.array() * weight.data.array().dtype.type(1.01))
                return copy
        """
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(tmp_path)
        plugin = Plugin("sneaky", f"{module}:sneaky", "tenonnx.transforms", "aaa-sneaky", "1.0")
        everything = (*discovery._everything(), plugin)
        monkeypatch.setattr(discovery, "_everything", lambda: everything)

    return install


def test_a_transform_is_compared_with_the_source_file(run, transform, tmp_path):
    transform()
    onnx.save(linear(WEIGHT), "m.onnx")
    output = run("convert", "m.onnx", "-o", "out.onnx", "--sneaky", code=1)
    assert "y (numpy)" in output.err
    assert not (tmp_path / "out.onnx").exists()


def test_a_transform_that_is_meant_to_change_numbers_shows_both_differences(run, transform):
    transform('@changing("numbers")')
    onnx.save(linear(WEIGHT), "m.onnx")
    output = run("convert", "m.onnx", "-o", "out.onnx", "--sneaky").out
    assert "against m.onnx as --sneaky left it in numpy and onnxruntime" in output
    assert "from m.onnx as it was read, which --sneaky changes: largest difference: y (" in output
    result = json.loads(run("convert", "m.onnx", "-o", "out.onnx", "--sneaky", "--json").out)
    assert result["verification"]["equal"]
    assert result["verification"]["compared_with"] == "m.onnx as --sneaky left it"
    assert not result["from_source"]["equal"]
    assert max(each["absolute"] for each in result["from_source"]["outputs"]) > 1e-3


@pytest.mark.parametrize("what", ["numbers", "interface"])
def test_changes_of_numbers_by_a_transform_are_marked(what):
    from tenonnx.extend.transforms import changing
    from tenonnx.transforms.decorators import marks_of

    assert marks_of(changing(what)(lambda graph: graph)).changes == what
    assert marks_of(tx.simplify).changes is None
    with pytest.raises(ValueError, match='"numbers" nor "interface"'):
        changing("numerals")


def test_our_own_transforms_say_what_they_change(run):
    output = run("convert", INT8, "-o", "floats.onnx", "--dequantize").out
    assert f"against {INT8} as --dequantize left it" in output
    assert f"from {INT8} as it was read" in output
    assert f"against {DIGITS} in numpy and onnxruntime" in run("convert", DIGITS, "-o", "simple.onnx", "--simplify").out
    iris = EXAMPLES / "iris/iris.onnx"
    output = run("convert", iris, "-o", "iris.onnx", "--no-zipmap").out
    assert "as --no-zipmap left it" in output
    assert "a sequence" in output


# ----- each output ----------------------------------------------------------------------------------------------------


def test_each_output_is_verified_or_has_a_reason(run):
    onnx.save(linear(WEIGHT, drawn=True), "m.onnx")
    output = run("convert", "m.onnx", "-o", "same.onnx").out
    assert "verified 1 of 2 outputs bit for bit against" in output
    assert "not verified: noise: drawn at random" in output
    states = json.loads(run("convert", "m.onnx", "-o", "same.onnx", "--json").out)["verification"]["states"]
    assert [(each["name"], each["state"], each["grade"]) for each in states] == [
        ("y", "verified", "bit for bit"),
        ("noise", "not verified", None),
    ]


def test_a_model_with_only_random_outputs_is_not_verified(run):
    model = linear(WEIGHT, drawn=True)
    del model.graph.output[0]
    onnx.save(model, "m.onnx")
    output = run("convert", "m.onnx", "-o", "same.onnx").out
    assert "verified" not in output.replace("not verified", "")
    run("verify", "m.onnx", "same.onnx", code=1)


# ----- grades ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "grade"),
    [
        (1.0, "bit for bit"),
        (np.nextafter(np.float32(1), np.float32(2)), "within rounding"),
        (1.00002, "within tolerance"),
    ],
)
def test_grades_distinguish_rounding_from_other_differences(factor, grade):
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)}
    one, other = tx.load(linear(WEIGHT)), tx.load(linear(WEIGHT * np.float32(factor)))
    assert tx.verify(one, other, feeds=feeds, backends=["numpy"], atol=1e-3, rtol=1e-3).grade == grade
    assert tx.verify(one, other, feeds=feeds, exact=True).equal == (factor == 1.0)


def test_a_slightly_scaled_last_layer_is_never_within_rounding():
    one, other = tx.load(linear(WEIGHT)), tx.load(linear(WEIGHT * np.float32(1.0001)))
    result = tx.verify(one, other)
    assert result.grade in ("", "within tolerance")
    assert not tx.verify(one, other, exact=True).equal


def test_bitwise_equality_of_zeros_strings_and_lists():
    assert not same_bits(np.float32([0.0]), np.float32([-0.0]))
    assert same_bits(np.float32([np.nan]), np.float32([np.nan]))
    assert not same_bits(np.int32([1]), np.int64([1]))
    assert same_bits([np.array(["a"], object), {1: 2.0}], [np.array(["a"], object), {1: 2.0}])
    assert not same_bits([np.ones(1)], [np.ones(1), np.ones(1)])
    assert same_bits(None, None)
    assert not same_bits(None, np.ones(1))
    assert grade_of({"a": [np.float32(1)]}, {"a": [np.float32(1)]}, Tolerances()) == "bit for bit"
    assert grade_of([np.float32([-0.0]), None], [np.float32([0.0]), None], Tolerances()) == "within rounding"


def test_exact_leaves_no_room_for_a_tolerance():
    graph = tx.load(linear(WEIGHT))
    with pytest.raises(tx.InvalidCall, match="a tolerance was given for a bitwise comparison"):
        tx.verify(graph, graph, exact=True, atol=1.0)


#: Transforms that move, remove or merge nodes without changing the order of computations.
NO_ROUNDING = {
    "copy": copy_graph,
    "prune": prune,
    "merge": merge_common_subexpressions,
    "inline": inline_functions,
    "fold": tx.fold,
    "dims": lambda graph: tx.free_dims(graph, {}),
}


@pytest.mark.parametrize("transform", NO_ROUNDING)
@pytest.mark.parametrize("name", ["digits/digits", "decoder/decoder", "bert/bert", "exports/vit-dynamo"])
def test_transforms_that_do_not_round_are_exact(name, transform, tmp_path):
    graph = tx.load(EXAMPLES / f"{name}.onnx")
    tx.export(NO_ROUNDING[transform](graph), tmp_path / "m.onnx", tidy=True)
    result = tx.verify(graph, tmp_path / "m.onnx", backends=["numpy"], exact=True)
    assert result.raise_if_failed().grade == "bit for bit"


# ----- the command ----------------------------------------------------------------------------------------------------


def test_verify_compares_two_models(run):
    onnx.save(linear(WEIGHT), "a.onnx")
    onnx.save(linear(WEIGHT), "b.onnx")
    onnx.save(linear(WEIGHT * np.float32(1.1)), "c.onnx")
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    output = run("verify", "a.onnx", "b.onnx").out
    assert "b.onnx: verified bit for bit against a.onnx in numpy and onnxruntime, on random inputs" in output
    assert "on the inputs given" in run("verify", "a.onnx", "b.onnx", "--inputs", "x.npz", "--exact").out
    output = run("verify", "a.onnx", "c.onnx", code=1).out
    assert "c.onnx differs from a.onnx" in output
    assert "different: y" in output
    assert 'the first node that diverges: node "last"' in output
    run("verify", "a.onnx", "c.onnx", "--rtol", "0.2", "--atol", "0.2")
    run("verify", "a.onnx", "nowhere.onnx", code=2)
    run("verify", "a.onnx", "b.onnx", "--exact", "--atol", "1", code=2)
    run("verify", "a.onnx", "b.onnx", "--backend", "nowhere", code=2)


def nan_in_the_middle():
    """A model on which onnxruntime deviates from the specification: it loses NaN in pooling."""
    text = "g (float[1, 1, 3] x) => (float[1, 1, 1] y) { y = MaxPool <kernel_shape = [3]> (x) }"
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text), "pool.onnx")
    np.savez("nan.npz", x=np.float32([[[1, np.nan, 2]]]))
    np.savez("one.npz", x=np.float32([[[1, 3, 2]]]))


@pytest.mark.parametrize("files", [["pool.onnx"], ["pool.onnx", "pool.onnx"], ["pool.onnx", "./pool.onnx"]])
def test_one_model_is_compared_between_backends(run, files):
    nan_in_the_middle()
    output = run("verify", *files, "--inputs", "nan.npz", code=1).out
    assert "pool.onnx differs between backends" in output
    assert "different: y: onnxruntime: float32[1, 1, 1] at [0, 0, 0]: 2.0 instead of nan" in output
    output = run("verify", *files, "--inputs", "one.npz").out
    assert "against pool.onnx in numpy, run in onnxruntime, on the inputs given" in output
    output = run("verify", *files, "--inputs", "one.npz", "--backend", "numpy", code=1).out
    assert "not verified: y: computed on numpy alone" in output


@pytest.mark.parametrize("command", [["run"], ["bench", "--seconds", "0.01"], ["verify"], ["compare"], ["convert"]])
@pytest.mark.parametrize("held", [{"X": np.ones((1, 1, 3), np.float32)}, {}], ids=["other names", "nothing"])
def test_files_without_any_input_of_the_model_are_refused(run, command, held):
    nan_in_the_middle()
    np.savez("wrong.npz", **held)
    models = ["pool.onnx"] * (2 if command[0] == "compare" else 1)
    output = ["-o", "out.onnx"] if command[0] == "convert" else []
    said = run(*command, *models, *output, "--inputs", "wrong.npz", code=2)
    assert '"wrong.npz" holds no input of the model' in said.err
    assert "x: float32[1, 1, 3]" in said.err
    assert said.out == ""


def test_verify_has_json(run):
    onnx.save(linear(WEIGHT), "a.onnx")
    onnx.save(linear(WEIGHT * np.float32(1.1)), "c.onnx")
    result = json.loads(run("verify", "a.onnx", "a.onnx", "--json").out)
    assert (result["passed"], result["verified"]) == (True, True)
    assert result["grade"] in ("bit for bit", "within rounding")
    result = json.loads(run("verify", "a.onnx", "c.onnx", "--json", "--backend", "numpy", code=1).out)
    assert (result["passed"], result["grade"]) == (False, None)
    assert [each["state"] for each in result["states"]] == ["different"]
    assert {each["backend"] for each in result["outputs"]} == {"numpy"}


def test_convert_can_require_bitwise_equality(run, tmp_path):
    run("convert", DIGITS, "-o", "same.onnx", "--exact")
    assert onnx.load("same.onnx") == onnx.load(DIGITS)
    bert = EXAMPLES / "bert/bert.onnx"
    output = run("convert", bert, "-o", "plain.onnx", "--domains", "ai.onnx", "--exact", code=1)
    assert "may not differ" in output.err
    assert not (tmp_path / "plain.onnx").exists()


# ----- the deadline ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--simplify"], ["--opset", "11"], ["--tidy", "--verify"]])
@pytest.mark.parametrize("constant", [False, True])
def test_a_conversion_meets_its_deadline(run, tmp_path, options, constant):
    onnx.save(endless(constant=constant), "endless.onnx")
    output = run("convert", "endless.onnx", "-o", "out.onnx", "--timeout", "0.5", *options, code=1)
    assert "not verified: not finished within 0.5 s" in output.err
    assert "--timeout" in output.err
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("backends", BOTH)
def test_a_verification_meets_its_deadline(backends):
    graph = tx.load(endless())
    with tx.limits.within(0.5), pytest.raises(tx.OutOfTime, match="deadline"):
        tx.verify(graph, graph, backends=backends, feeds={"x": np.ones(1, np.float32)})


@pytest.mark.parametrize("command", ["verify", "compare"])
def test_comparing_commands_meet_their_deadline(run, command):
    onnx.save(endless(), "endless.onnx")
    assert "not verified" in run(command, "endless.onnx", "endless.onnx", "--timeout", "0.5", code=1).err


def test_newlines_in_names_do_not_break_lines(run):
    forged = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    forged.graph.output[0].name = forged.graph.node[0].output[0] = "y\nnumbers: different"
    onnx.save(forged, "forged.onnx")
    output = run("compare", "forged.onnx", "forged.onnx", code=0).out
    assert sum(line.startswith("numbers:") for line in output.splitlines()) == 1


@pytest.mark.parametrize("command", ["run", "bench"])
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_running_commands_meet_their_deadline(run, command, backend):
    onnx.save(endless(), "endless.onnx")
    output = run(command, "endless.onnx", "--backend", backend, "--timeout", "0.5", code=2)
    assert "OutOfTime: not finished within 0.5 s" in output.err
    assert "--timeout" in output.err
    assert output.out == ""


def test_native_code_that_ignores_the_deadline_is_ended():
    """Native code, here a thread that never returns, ends with the process."""
    script = """
import threading
from tenonnx import tools
from tenonnx_cli import deadline
deadline.GRACE = 0.1
with deadline.within(0.1, {late}): threading.Event().wait()
"""
    for late, code, told in [
        ("deadline.not_finished", 2, "OutOfTime: not finished within 0.1 s"),
        ("tools.not_verified", 1, "VerificationFailed: not verified"),
    ]:
        command = [sys.executable, "-c", script.format(late=late)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (code, "")
        assert told in done.stderr


def test_a_timeout_is_a_positive_number(run):
    onnx.save(linear(WEIGHT), "a.onnx")
    run("run", "a.onnx", "--timeout", "0", code=2)
    run("convert", "a.onnx", "-o", "b.onnx", "--timeout", "0", code=2)
    run("convert", "a.onnx", "-o", "b.onnx", "--timeout", "soon", code=2)


def test_folding_meets_the_deadline():
    from tenonnx.op.evaluate import evaluate_graph

    with tx.limits.within(1e-9), pytest.raises(tx.OutOfTime):
        evaluate_graph(tx.load(linear(WEIGHT)), [np.ones((2, 4), np.float32)])


# ----- outputs without numbers ----------------------------------------------------------------------------------------

#: Functions that depend on a factor, but output no finite number for inputs near zero.
SILENT = {
    "empty": '"" : 17]> g (float[n, 4] x) => (float[m, 4] y) <float f = {%s}, float high = {1000}, int64[1] axes = {1}>'
    "{ a = Mul (x, f) b = ReduceSum <keepdims = 0> (a, axes) c = Greater (b, high) y = Compress <axis = 0> (a, c) }",
    "NaN": '"" : 17]> g (float[n, 4] x) => (float[n, 4] y) <float f = {%s}, float low = {-1000}>'
    "{ a = Add (x, low) b = Sqrt (a) y = Mul (b, f) }",
    "lists of nothing": '"" : 17]> g (float[n, 4] x) => (seq(float[m, 4]) y) <float f = {%s}, float high = {1000}, '
    "int64[1] axes = {1}> { a = Mul (x, f) b = ReduceSum <keepdims = 0> (a, axes) c = Greater (b, high) "
    "d = Compress <axis = 0> (a, c) y = SequenceConstruct (d, d) }",
}


@pytest.mark.parametrize("kind", SILENT)
def test_nothing_is_verified_without_compared_numbers(run, kind):
    one, other = (onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{SILENT[kind] % f}") for f in ("1", "2"))
    result = tx.verify(tx.load(one), tx.load(other))
    assert (result.equal, result.verified, result.verdict) == (True, False, "not verified")
    assert [(state.name, state.state) for state in result.states] == [("y", "not verified")]
    assert "no number to compare" in result.unverified["y"]
    assert result.default_session == []
    onnx.save(one, "one.onnx")
    onnx.save(other, "other.onnx")
    assert "not verified: y: these inputs give no number" in run("verify", "one.onnx", "other.onnx", code=1).out
    assert (
        "not verified: y" in (output := run("convert", "one.onnx", "-o", "out.onnx", "--opset", "18")).out + output.err
    )
    telling = {"x": np.full((2, 4), 2000, np.float32)}
    assert not tx.verify(tx.load(one), tx.load(other), feeds=telling).equal
    assert tx.verify(tx.load(one), tx.load("out.onnx"), feeds=telling).verified


def test_an_output_that_never_has_a_number_is_verified():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (0, 4))
    graph.output("y", -x)
    graph.output("z", ops.reduce_mean(x, [0]))
    assert tx.verify(graph, graph).verified


def test_an_output_without_numbers_may_still_differ():
    one, other = tx.Graph(opsets={"ai.onnx": 17}), tx.Graph(opsets={"ai.onnx": 17})
    for graph, width in ((one, 4), (other, 2)):
        graph.output("y", graph.input("x", "float32", ("n", 4))[:, :width])
    result = tx.verify(one, other, feeds={"x": np.zeros((0, 4), np.float32)})
    assert [(state.name, state.state) for state in result.states] == [("y", "different")]
