"""Failing third-party rules, hooks, front ends, estimators and cases; other packages keep working."""

import json
import textwrap
from pathlib import Path

import onnx
import pytest

RELU = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }'

#: A program that converts a file, and prints the result and the warnings.
CONVERTS = """
import hashlib, json, warnings
import tenonnx as tx

warned = []
with warnings.catch_warnings():
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, category, *_: warned.append(f"{category.__name__}: {message}")
    graph = tx.load("m.onnx")
    tx.export(graph, "made.onnx", opset_version=13)
    y = graph.run({"x": [[-1.0, 0, 2], [3, -4, 5]]}, "numpy")["y"]
print(json.dumps({"ops": [node.op_type for node in graph.nodes], "y": y.tolist(), "warned": warned}))
"""

RULES = "from tenonnx.extend.rules import import_rule\nimport os, sys\n"
ENDS = "raise SystemExit(0)"

#: By defect: the entry-point group, the module, and the message; the rules are for ops that no model has.
AT_IMPORT = {
    "rules that exit": ("tenonnx.rules", ENDS, "SystemExit: 0"),
    "rules that are none": ("tenonnx.rules", "rules = {'Mystery': 3}", "is not import rules, or a module"),
    "rules of no pattern": ("tenonnx.rules", RULES + "import_rule()(print)", "names no nodes"),
    "rules that lack a module": ("tenonnx.rules", "import no_such_module", "No module named"),
    "rules of a newer api": ("tenonnx.rules", "api = 99", "a newer API of tenonnx than 1"),
    "rules without Python": ("tenonnx.rules", "def broken(:", "SyntaxError"),
    "a hook that exits": ("tenonnx.hooks", ENDS, None),
    "a front end that exits": ("tenonnx.frontends", ENDS, None),
    "forms of PyTorch that exit": ("tenonnx.torch_ops", ENDS, None),
    "rules of TensorFlow that exit": ("tenonnx.tensorflow_ops", ENDS, None),
    "rules of estimators that exit": ("tenonnx.estimators", ENDS, None),
    "cases that exit": ("tenonnx.conformance", ENDS, None),
}


@pytest.fixture
def model(tmp_path):
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.mark.parametrize(("group", "text", "message"), AT_IMPORT.values(), ids=AT_IMPORT)
def test_a_package_that_fails_at_import_is_named_when_it_is_used(installed, python, model, group, text, message):
    installed("aaa-stranger", group, "odd", text)
    done = python(installed.path, CONVERTS)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["ops"], result["y"]) == (["Relu"], [[0.0, 0, 2], [3, 0, 5]])
    assert Path(installed.path, "made.onnx").exists()
    warned = "\n".join(result["warned"])
    assert (message or "") in warned
    assert ("aaa-stranger" in warned) is (message is not None)
    listed = python(installed.path, "tenonnx", "plugins", "--check")
    assert listed.returncode == 1
    assert "aaa-stranger 1.0" in listed.stderr


#: By defect: body of a rule for Relu, and the message.
AT_WORK = {
    "exits": (ENDS, "SystemExit: 0"),
    "divides by zero": ("1 / 0", "ZeroDivisionError"),
    "gives a number": ("return 3", "returned something other than values, or None to go on"),
    "gives a value too many": ("return x, x", "did not return 1 value"),
    "gives another type": ("import tenonnx_standard as ops; return ops.cast(x, to='int64')", "a value of another type"),
    "sets what it was given": ("node.version = 6", "changed the node"),
    "takes its input away": ("node.inputs = []", "changed the node"),
    "empties the graph": ("node.graph.nodes.clear()", ""),
}


@pytest.mark.parametrize(("does", "message"), AT_WORK.values(), ids=AT_WORK)
def test_a_failing_rule_is_named_and_nothing_is_written(installed, python, model, does, message):
    installed("aaa-stranger", "tenonnx.rules", "odd", f"{RULES}@import_rule('Relu')\ndef odd(node, x):\n    {does}\n")
    done = python(installed.path, "tenonnx", "convert", model, "-o", "made.onnx")
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "aaa-stranger 1.0" in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path(installed.path, "made.onnx").exists()
    spared = python(installed.path, "tenonnx", "convert", model, "-o", "made.onnx", TENONNX_PLUGINS="-aaa-stranger")
    assert spared.returncode == 0, spared.stderr


#: By defect: body of a front end for "*.odd", and the message.
READS = {
    "exits": (ENDS, "SystemExit: 0"),
    "gives nothing": ("return None", "returned no graph"),
    "gives a message": ("import onnx; return onnx.ModelProto()", "returned no graph"),
    "divides by zero": ("1 / 0", "ZeroDivisionError"),
    "runs out of memory": ("raise MemoryError", "MemoryError"),
    "never stops calling": ("return read(source, registry=registry)", "RecursionError"),
    "takes no path": ("raise InvalidCall('a path must be short')", "a path must be short"),
}


@pytest.mark.parametrize(("does", "message"), READS.values(), ids=READS)
def test_a_failing_front_end_is_named_and_nothing_is_written(installed, python, does, message):
    text = f"from tenonnx.extend import InvalidCall\ndef read(source, *examples, registry=None):\n    {does}\n"
    installed("aaa-stranger", "tenonnx.frontends", "odd", text)
    Path(installed.path, "m.odd").write_bytes(b"odd")
    done = python(installed.path, "tenonnx", "convert", "m.odd", "-o", "made.onnx")
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path(installed.path, "made.onnx").exists()


#: By defect: body of a hook, and the message.
HOOKS = {
    "gives bytes": ("return model.SerializeToString()", "neither a ModelProto nor None"),
    "empties the model": ("model.Clear()", "left a model"),
    "takes the outputs": ("del model.graph.output[:]", "left a model without its outputs"),
    "makes a circle": ("model.graph.node[0].input[0] = 'y'", "left a model that cannot be read"),
    "refers outside": (
        "t = model.graph.initializer.add(name='w', data_type=1, dims=[4], data_location=1)\n"
        "    t.external_data.add(key='location', value='/etc/passwd')",
        "left a model that cannot be read",
    ),
}


@pytest.mark.parametrize(("does", "message"), HOOKS.values(), ids=HOOKS)
def test_a_hook_that_spoils_the_model_is_named_and_nothing_is_written(installed, python, model, does, message):
    installed("aaa-stranger", "tenonnx.hooks", "odd", f"def post_process(model):\n    {does}\n")
    done = python(installed.path, "tenonnx", "convert", model, "-o", "made.onnx", "--hook", "odd")
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "the hook odd of aaa-stranger 1.0" in done.stderr
    assert not Path(installed.path, "made.onnx").exists()


def test_a_hook_that_changes_numbers_is_found(installed, python, model):
    installed("aaa-stranger", "tenonnx.hooks", "odd", "def post_process(model): model.graph.node[0].op_type = 'Neg'")
    done = python(installed.path, "tenonnx", "convert", model, "-o", "made.onnx", "--hook", "odd")
    assert done.returncode == 1
    assert "outputs of the model differ" in done.stderr
    assert not Path(installed.path, "made.onnx").exists()


ESTIMATOR = """
import numpy as np
import tenonnx as tx
from sklearn.linear_model import LinearRegression

X = np.arange(12.0).reshape(6, 2)
model = LinearRegression().fit(X, X @ [2.0, 3.0] + 1)
graph = tx.load(model, X[:2])
print(graph.run({graph.inputs[0].name: np.float32([[1, 1]])}, "numpy")["variable"].ravel().round(3).tolist())
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        (
            "from tenonnx_sklearn import converts\n"
            "converts('sklearn.LinearRegression')(lambda model, X: {'predict': X})",
            "a package registers a second rule for an operator\n               given      sklearn.LinearRegression\n",
        ),
    ],
)
def test_rules_for_estimators_do_not_affect_other_conversions(installed, python, text, message):
    installed("aaa-stranger", "tenonnx.estimators", "sklearn", text)
    done = python(installed.path, textwrap.dedent(ESTIMATOR))
    assert done.stdout == "[6.5]\n", done.stderr
    assert message in done.stderr
    assert "aaa-stranger 1.0" in done.stderr
    quiet = python(installed.path, textwrap.dedent(ESTIMATOR), TENONNX_PLUGINS="-aaa-stranger")
    assert (quiet.stdout, quiet.stderr) == ("[6.5]\n", "")


def test_a_rule_of_an_estimator_that_ends_the_program_is_named(installed, python):
    text = """
        from tenonnx_sklearn import converts

        @converts("acme_estimators.Doubled")
        def doubled(model, X):
            raise SystemExit(0)
    """
    installed("aaa-stranger", "tenonnx.estimators", "acme_estimators", text)
    Path(installed.path, "acme_estimators.py").write_text(
        "from sklearn.linear_model import LinearRegression\nclass Doubled(LinearRegression): pass\n"
    )
    text = textwrap.dedent(ESTIMATOR).replace(
        "sklearn.linear_model import LinearRegression", "acme_estimators import *"
    )
    done = python(installed.path, text.replace("LinearRegression()", "Doubled()"))
    assert done.returncode == 1
    assert "aaa-stranger 1.0 has a rule for acme_estimators.Doubled that failed" in done.stderr


#: Third-party conformance cases, and the messages of the kit.
CASES = {
    "exit": (ENDS, "SystemExit: 0"),
    "are none": ("from tenonnx.extend.testing import cases\ncases('Relu')(3)", ""),
}


@pytest.mark.parametrize(("text", "message"), CASES.values(), ids=CASES)
def test_cases_that_fail_are_named_by_the_kit(installed, python, text, message):
    installed("aaa-stranger", "tenonnx.conformance", "odd", text)
    done = python(installed.path, "tenonnx", "plugins", "test", "aaa-stranger")
    assert done.returncode in (1, 2), done.stdout
    assert message in done.stderr + done.stdout
    assert "aaa-stranger" in done.stderr + done.stdout
