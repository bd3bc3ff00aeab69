"""Coverage of the runs of a verification: branches, loop trip counts, and sizes of dims."""

import json

import numpy as np
import onnx
import pytest
from onnx import parser

import tenonnx as tx
from tenonnx_convert.verifying import coverage
from tenonnx_convert.verifying.regions import RegionCoverage, inputs_that_decide, regions_of
from tenonnx_convert.verifying.verification import Verification

HEAD = '<ir_version: 8, opset_import: ["": 17]> '

#: a branch for each value of an input
SWITCH = """g (float[n, 4] x, bool use_cache) => (float[n, 4] y) {
    y = If (use_cache) <
        then_branch = one () => (float[n, 4] t) { t = %s (x) },
        else_branch = two () => (float[n, 4] e) { e = %s (x) }>
}"""

#: a branch that random inputs seldom reach
COMPUTED = """g (float[n, 4] x) => (float[n, 4] y) {
    total = ReduceSum <keepdims = 0> (x)
    limit = Constant <value = float {1000.0}> ()
    large = Greater (total, limit)
    twice = Add (x, x)
    y = If (large) <
        then_branch = one () => (float[n, 4] %s) { %s = %s (twice) },
        else_branch = two () => (float[n, 4] e) { e = Relu (x) }>
}"""

#: a branch within a branch
NESTED = """g (float[n, 4] x, bool p, bool q) => (float[n, 4] y) {
    y = If (p) <
        then_branch = one () => (float[n, 4] t) {
            z = Neg (x)
            t = If (q) <
                then_branch = three () => (float[n, 4] a) { a = %s (z) },
                else_branch = four () => (float[n, 4] b) { b = %s (z) }>
        },
        else_branch = two () => (float[n, 4] e) { e = Relu (x) }>
}"""

#: a loop that adds a number from its third iteration on
LOOP = """g (float[n, 4] x, int64 count) => (float[n, 4] y) {
    true = Constant <value = bool {1}> ()
    y = Loop (count, true, x) <body = body (int64 i, bool going, float[n, 4] v) => (bool on, float[n, 4] w) {
        on = Identity (going)
        one = Constant <value = int64 {1}> ()
        late = Greater (i, one)
        share = Cast <to = 1> (late)
        step = Constant <value = float {%s}> ()
        more = Mul (share, step)
        w = Add (v, more)
    }>
}"""

#: a branch for batch size one
ONE_ROW = """g (float[n, 4] x) => (float[n, 4] y) {
    rows = Shape <start = 0, end = 1> (x)
    one = Constant <value = int64[1] {%s}> ()
    alone = Equal (rows, one)
    y = If (alone) <
        then_branch = one_row () => (float[n, 4] t) { t = Neg (x) },
        else_branch = others () => (float[n, 4] e) { e = Relu (x) }>
}"""

SCAN = """g (float[n, 4] x) => (float[4] total, float[n, 4] sums) {
    zero = Constant <value = float[4] {0, 0, 0, 0}> ()
    total, sums = Scan <num_scan_inputs = 1, body = body (float[4] s, float[4] v) => (float[4] t, float[4] o) {
        t = Add (s, v)
        o = Identity (t)
    }> (zero, x)
}"""


def model(text, *words):
    return tx.load(parser.parse_model(HEAD + text % words))


def ran(found):
    return [run.feeds for run in found.runs]


def covered(found):
    return [each for run in found.runs for each in run.covers]


def test_every_branch_of_a_boolean_input_runs():
    result = tx.verify(model(SWITCH, "Neg", "Relu"), model(SWITCH, "Neg", "Relu"))
    assert result.verified
    assert "use_cache=True" in ran(result)
    assert {each.partition(" of ")[0] for each in covered(result)} >= {"then_branch", "else_branch"}
    assert result.never_ran == {}


@pytest.mark.parametrize("words", [("Abs", "Relu"), ("Neg", "Abs")])
def test_a_branch_that_differs_is_found_whichever_it_is(words):
    result = tx.verify(model(SWITCH, "Neg", "Relu"), model(SWITCH, *words))
    assert not result.equal
    assert not tx.verify(model(SWITCH, *words), model(SWITCH, "Neg", "Relu")).equal


def test_one_run_is_enough_where_that_is_asked_for():
    result = tx.verify(model(SWITCH, "Neg", "Relu"), model(SWITCH, "Abs", "Relu"), cover=False)
    assert result.equal
    assert result.runs == []


def test_an_unreached_branch_runs_separately():
    same = tx.verify(model(COMPUTED, "t", "t", "Neg"), model(COMPUTED, "other", "other", "Neg"))
    assert same.verified
    (run,) = [run for run in same.runs if run.feeds.endswith("by itself")]
    assert run.feeds.startswith("then_branch of")
    assert run.covers == (run.feeds.removesuffix(" by itself"),)
    assert run.grade == "bit for bit"
    result = tx.verify(model(COMPUTED, "t", "t", "Neg"), model(COMPUTED, "t", "t", "Abs"))
    assert not result.equal
    assert "by itself: t (numpy)" in result.problems[0]
    with pytest.raises(tx.VerificationFailed, match="by itself"):
        result.raise_if_failed()


def test_a_branch_within_a_branch_is_reached_by_two_inputs():
    result = tx.verify(model(NESTED, "Sin", "Cos"), model(NESTED, "Sin", "Cos"))
    assert result.verified
    assert len([each for each in covered(result) if "_branch of" in each]) == 4
    for words in (("Cos", "Cos"), ("Sin", "Sin")):
        assert not tx.verify(model(NESTED, "Sin", "Cos"), model(NESTED, *words)).equal


def test_given_inputs_are_not_changed_and_branches_run_separately():
    feeds = {"x": np.ones((2, 4), np.float32), "p": np.array(False), "q": np.array(False)}
    result = tx.verify(model(NESTED, "Sin", "Cos"), model(NESTED, "Sin", "Cos"), feeds=feeds)
    assert result.verified
    assert result.runs[0].feeds == "the inputs given"
    assert all(each.endswith("by itself") for each in ran(result)[1:])
    assert not tx.verify(model(NESTED, "Sin", "Cos"), model(NESTED, "Tan", "Cos"), feeds=feeds).equal


def test_a_loop_runs_with_no_one_and_several_trips():
    result = tx.verify(model(LOOP, "1.0"), model(LOOP, "1.0"))
    trips = [each.rpartition(" with ")[2] for each in covered(result) if each.startswith("body")]
    assert sorted(trips) == ["0 trips", "1 trip", "3 trips"]
    result = tx.verify(model(LOOP, "1.0"), model(LOOP, "2.0"))  # differs from the third trip on
    assert not result.equal
    assert {output.run for output in result.outputs} == {"count=3"}
    assert "(numpy, count=3)" in result.summary()


def test_a_scan_follows_the_sizes_of_its_dim():
    result = tx.verify(model(SCAN), model(SCAN), backends=["numpy"])
    trips = [each.rpartition(" with ")[2] for each in covered(result) if each.startswith("body")]
    assert trips == ["2 trips", "1 trip", "3 trips", "0 trips"]
    assert ran(result)[1:] == ["n=1", "n=3", "n=0"]


def test_each_dim_has_further_sizes_one_at_a_time():
    text = "g (float[a, b] x, float[b] y) => (float[a, b] z) { z = Add (x, y) }"
    result = tx.verify(model(text), model(text))
    sizes = result.runs[0].covers
    assert [each.partition("=")[0] for each in sizes] == ["a", "b"]
    assert ran(result)[1:] == ["a=1", "b=1", "a=3", "b=4"]
    assert [run.covers for run in result.runs[1:]] == [("a=1",), ("b=1",), ("a=3",), ("b=4",)]


def test_a_difference_at_a_single_size_is_found():
    result = tx.verify(model(ONE_ROW, 1), model(ONE_ROW, 0))
    assert not result.equal
    assert {output.run for output in result.outputs if not output.equal} == {"n=1"}
    assert not result.verified


def test_a_size_that_the_original_refuses_is_replaced():
    text = """g (float[n, 4] x) => (float[m, 2, 4] y) {
        pairs = Constant <value = int64[3] {-1, 2, 4}> ()
        y = Reshape (x, pairs)
    }"""
    result = tx.verify(model(text), model(text))
    assert result.verified
    assert ran(result)[1:] == ["n=4", "n=6"]
    assert not any("n had" in note for note in result.notes)


def test_ten_runs_are_enough_and_the_rest_is_named():
    dims = [f"d{k}" for k in range(7)]
    inputs = ", ".join(f"float[{dim}] {dim}_" for dim in dims)
    outputs = ", ".join(f"float[{dim}] {dim}_y" for dim in dims)
    text = f"g ({inputs}) => ({outputs}) {{ {' '.join(f'{dim}_y = Neg ({dim}_)' for dim in dims)} }}"
    result = tx.verify(model(text), model(text))
    assert len(result.runs) == 10
    (note, *_) = [note for note in result.notes if note.startswith("d6 had the sizes")]
    assert coverage._NO_RUNS_LEFT in note
    assert result.verified


def test_regions_that_never_ran_prevent_verification():
    """The branch squeezes an axis that only given inputs could have with size one."""
    text = """g (float[n, 4] x) => (float[?, ?] y) {
        total = ReduceSum <keepdims = 0> (x)
        limit = Constant <value = float {1000.0}> ()
        large = Greater (total, limit)
        axis = Constant <value = int64[1] {1}> ()
        y = If (large) <
            then_branch = one () => (float[?, ?] t) { s = Squeeze (x, axis) t = Unsqueeze (s, axis) },
            else_branch = two () => (float[?, ?] e) { e = Relu (x) }>
    }"""
    result = tx.verify(model(text), model(text))
    assert result.equal
    assert not result.verified
    ((title, why),) = result.never_ran.items()
    assert title.startswith("then_branch of")
    assert "by itself it does not run" in why
    assert result.verdict == "equal, bit for bit, but not every branch ran"
    assert f"{title}: never ran" in result.summary()


def test_branches_that_constants_rule_out_are_not_missed():
    text = SWITCH.replace(", bool use_cache", "").replace("y = If", "use_cache = Constant <value = bool {1}> () y = If")
    result = tx.verify(model(text, "Neg", "Relu"), model(text, "Neg", "Abs"))
    assert result.verified
    assert result.never_ran == {}


def test_regions_tell_the_inputs_that_decide():
    graph = model(NESTED, "Sin", "Cos")
    outer, *_, inner, _ = sorted(regions_of(graph), key=lambda region: len(region.path))
    assert {value.name for value in inputs_that_decide(graph, outer)} == {"p"}
    assert {value.name for value in inputs_that_decide(graph, inner)} == {"q"}
    seen = RegionCoverage(graph)
    _, covers = seen.observe({"x": np.ones((1, 4), np.float32), "p": np.array(True), "q": np.array(True)})
    assert len(covers) == 2
    assert len(seen.never_entered()) == 2


def test_branches_of_functions_run_too():
    text = """g (float[n, 4] x, bool p) => (float[n, 4] y) { y = my.choose (x, p) }
        <domain: "my", opset_import: ["": 17]> choose (a, c) => (b) {
            b = If (c) <then_branch = one () => (float[n, 4] t) { t = %s (a) },
                        else_branch = two () => (float[n, 4] e) { e = Relu (a) }>
        }"""
    head = HEAD.replace('["": 17]', '["": 17, "my": 1]')
    same, other = (tx.load(parser.parse_model(head + text % word)) for word in ("Neg", "Abs"))
    assert tx.verify(same, same).verified
    assert not tx.verify(same, other).equal


def test_the_command_names_the_runs(tmp_path):
    from tenonnx_cli import main

    onnx.save(parser.parse_model(HEAD + SWITCH % ("Neg", "Relu")), tmp_path / "a.onnx")
    onnx.save(parser.parse_model(HEAD + SWITCH % ("Neg", "Relu")), tmp_path / "same.onnx")
    onnx.save(parser.parse_model(HEAD + SWITCH % ("Abs", "Relu")), tmp_path / "b.onnx")
    assert main(["verify", str(tmp_path / "a.onnx"), str(tmp_path / "same.onnx")]) == 0
    assert main(["verify", str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")]) == 1


def test_the_report_has_the_runs():
    result = tx.verify(model(SWITCH, "Neg", "Relu"), model(SWITCH, "Neg", "Relu"))
    report = json.loads(json.dumps(result.to_dict()))
    assert report["runs"][0]["feeds"] == "random inputs (seed 0)"
    assert report["never_ran"] == {}
    assert isinstance(result, Verification)


def test_the_work_is_proportional_to_the_regions(monkeypatch):
    """A file of 60 KB may hold 500 branches inside each other."""
    result = RegionCoverage(model(NESTED, "Sin", "Cos"))
    calls = []
    kind, decided = type(result.regions[0]), type(result.regions[0]).is_decided.fget
    monkeypatch.setattr(kind, "is_decided", property(lambda region: calls.append(region) or decided(region)))
    result.regions = result.regions * 50
    result.never_entered()
    assert len(calls) <= len(result.regions)
