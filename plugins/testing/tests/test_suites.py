"""Test suites of backends and front ends, on correct and defective ones."""

import json

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_testing import Example, backend_conformance, backends, call, frontend_conformance
from tenonnx_testing.cases import Case
from tenonnx_testing.run import Failure

GRAPH = tx.Graph(opsets={"ai.onnx": 17})
GRAPH.output("y", ops.relu(GRAPH.input("x", "float32", (2,))))
CASE = Case(ops.add, lambda draw: call(np.float32([1, 2]), np.float32([3, 4])))


def test_a_correct_backend_passes():
    backends._run_case(CASE, "numpy", 1)


def test_a_wrong_backend_is_found(monkeypatch):
    def one_more(graph, backend, *, strict):
        program = compiled(graph, backend, strict=strict)
        return lambda feeds: {name: array + 1 for name, array in program(feeds).items()}

    compiled = tx.Graph.compile
    monkeypatch.setattr(tx.Graph, "compile", one_more)
    with pytest.raises(Failure, match="Add@7 differs from numpy: output 0"):
        backends._run_case(CASE, "numpy", 1)


def test_rejected_models_are_skipped_with_the_message(monkeypatch):
    def refuse(*arguments, **options):
        raise tx.UnsupportedOp("no kernel for Add")

    monkeypatch.setattr(tx.Graph, "compile", refuse)
    with pytest.raises(pytest.skip.Exception, match="not taken: no kernel for Add"):
        backends._run_case(CASE, "numpy", 1)


class OnnxCase:
    """A test case with the attributes of those in the onnx package."""

    def __init__(self, given):
        text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
        self.name, self.model, self.rtol, self.atol = "test_neg", onnx.parser.parse_model(text), 1e-3, 1e-7
        self.data_sets = [([np.float32([1, 2])], [np.float32(given)])]


def test_a_stored_output_is_compared():
    backends._run_onnx(OnnxCase([-1, -2]), "numpy", 1)
    with pytest.raises(Failure, match="test_neg differs on numpy: output 0"):
        backends._run_onnx(OnnxCase([-1, 2]), "numpy", 1)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("promise", backends.PROMISES)
def test_our_backends_fulfill_the_contract(promise, backend):
    backends.PROMISES[promise](backend, 1)


class Careless:
    """A program that does not check feeds, returns the same array in every call, and has no state."""

    def __init__(self):
        self.state, self.held = {}, np.zeros(2, np.float32)

    def __call__(self, feeds):
        self.held[...] = feeds["x"] + feeds["total"]
        return {"sum": self.held}


class Sharing:
    """A program whose results share memory with its feeds, constants and state."""

    def __init__(self, graph, **options):
        self.graph, self.state = graph, {}
        self.constant = np.float32([3, 4])

    def __call__(self, feeds):
        if self.graph.name == "passing":
            return {"x_again": feeds["x"] if self.shares_feeds else feeds["x"].copy(), "w_again": self.constant}
        total = np.add(feeds["x"], {**self.state, **feeds}["total"])
        self.state["total"] = total
        return {"sum": total}


@pytest.mark.parametrize(
    ("promise", "shares_feeds", "says"),
    [
        ("arrays of its own", True, "returned the array of a feed"),
        ("arrays of its own", False, "returned its own constant for writing"),
        ("state", False, "does not keep the sum of two calls"),
    ],
)
def test_results_that_a_program_shares_are_found(promise, shares_feeds, says, monkeypatch):
    monkeypatch.setattr(tx.Graph, "compile", lambda graph, *_, **options: Sharing(graph))
    monkeypatch.setattr(Sharing, "shares_feeds", shares_feeds, raising=False)
    with pytest.raises(Failure, match=says):
        backends.PROMISES[promise]("sharing", 1)


BROKEN = {
    "arrays of its own": "changed an output that it had returned: the first call",
    "feeds": "raised no InvalidFeed where a feed is missing, and raised KeyError",
    "defaults": "fails on an input with a default .*; it was not fed, .*, but KeyError: 'total'",
    "state": "neither keeps state nor raises UnsupportedOp, and raised KeyError",
}


@pytest.mark.parametrize(("promise", "says"), BROKEN.items(), ids=BROKEN)
def test_a_program_that_violates_the_contract_is_found(promise, says, monkeypatch):
    monkeypatch.setattr(tx.Graph, "compile", lambda *arguments, **options: Careless())
    with pytest.raises(Failure, match=says):
        backends.PROMISES[promise]("careless", 1)


def test_other_violations_of_the_contract_are_found(monkeypatch):
    class Forgetful(Careless):
        def __call__(self, feeds):
            return {"sum": feeds["x"]}

    monkeypatch.setattr(tx.Graph, "compile", lambda *arguments, **options: Forgetful())
    with pytest.raises(Failure, match="returned the array of a feed"):
        backends.PROMISES["arrays of its own"]("forgetful", 1)
    with pytest.raises(Failure, match=r"raised no InvalidFeed where a feed is missing, and took it"):
        backends.PROMISES["feeds"]("forgetful", 1)
    with pytest.raises(Failure, match=r"does not keep the sum of two calls, \[2.0, 4.0\], as state, but \[0.0, 0.0\]"):
        backends.PROMISES["state"]("forgetful", 1)


def test_an_unknown_backend_is_rejected():
    with pytest.raises(tx.InvalidCall, match="the backend is not installed") as caught:
        backend_conformance("abacus")
    assert "numpy" in caught.value.available


@pytest.mark.parametrize("failing", [{"Add@*": ""}, {"NoSuchOp@*": "it is slow"}])
def test_failing_patterns_match_tests_and_have_reasons(failing):
    with pytest.raises(tx.InvalidCall, match="are not given as patterns of test ids with reasons"):
        backend_conformance("numpy", failing=failing)


def test_known_failures_are_expected_to_fail():
    test = backend_conformance("numpy", failing={"Add@*": "it carries"})
    marked = {p.id: p.marks for mark in test.pytestmark for p in mark.args[1] if p.marks}
    assert set(marked) == {"Add@7"}
    assert marked["Add@7"][0].kwargs == {"reason": "it carries", "strict": True}


# ----- front ends -----------------------------------------------------------------------------------------------------


def make(folder):
    """Write an ONNX file and return examples for the suite of a front end."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.relu(graph.input("x", "float32", (2,))))
    tx.export(graph, folder / "m.onnx")
    return {"m": Example(folder / "m.onnx", {"x": np.float32([-1, 1])}, {"y": np.float32([0, 1])})}


def checks(test):
    (mark,) = test.pytestmark
    return list(mark.args[1])


def test_a_correct_front_end_passes_every_check():
    def write(graph, path):
        tx.export(graph, path)

    test = frontend_conformance(make, write=write)
    assert len(checks(test)) == 6
    for name in checks(test):
        test(name)


def other_names(example):
    graph = tx.load(example.source)
    other_names.count += 1
    graph.nodes[0].name = f"relu{other_names.count}"
    return graph


other_names.count = 0


def touched(example):
    example.source.with_suffix(".json").write_text(json.dumps({}))
    return tx.load(example.source)


def mistyped(example):
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x, int64[2] i) => (float[2] y) { y = Add(x, i) }'
    return tx.load(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("check", "changes", "message"),
    [
        ("numbers", {"expected": {"y": np.float32([0, 2])}}, 'output "y"'),
        ("numbers", {"expected": {"z": np.float32([0, 1])}}, "outputs are not z, but y"),
        ("read twice", {"read": other_names}, "gave different nodes"),
        ("read twice", {"read": touched}, "changed a file"),
        ("types", {"read": mistyped}, "the graph is invalid"),
    ],
)
def test_a_wrong_front_end_is_found(check, changes, message):
    def wrong(folder):
        (example,) = make(folder).values()
        kind = type("Wrong", (Example,), {"read": changes.get("read", Example.read)})
        return {"wrong": kind(example.source, example.feeds, changes.get("expected", example.expected))}

    with pytest.raises(pytest.fail.Exception, match=message):
        frontend_conformance(wrong)(check)


def test_a_writer_that_changes_the_model_is_found():
    def write(graph, path):
        other = tx.Graph(opsets={"ai.onnx": 17})
        other.output("y", ops.neg(other.input("x", "float32", (2,))))
        tx.export(other, path)

    with pytest.raises(pytest.fail.Exception, match="m: "):
        frontend_conformance(make, write=write)("its own file")


def test_a_written_file_is_read_with_the_options_of_the_example(monkeypatch):
    read = []
    monkeypatch.setattr(Example, "read", lambda example: read.append((example.source.name, example.options)) or GRAPH)
    written = frontend_conformance(
        lambda folder: {"m": Example(folder / "m.net", {"x": [1, 2]}, {}, options={"a": 1})},
        write=lambda graph, path: None,
    )
    written("its own file")
    assert read == [("m.net", {"a": 1}), ("again.net", {"a": 1})]


def test_a_suite_without_an_example_fails():
    with pytest.raises(pytest.fail.Exception, match="no example given"):
        frontend_conformance(lambda folder: {})("numbers")
