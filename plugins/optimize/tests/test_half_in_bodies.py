"""Half precision of graphs with subgraphs and functions: subgraphs have float32 interfaces, and share lowered
weights."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import tenonnx as tx

W = (np.random.default_rng(0).standard_normal((8, 8)) * 0.3).astype(np.float32)
X = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
HEAD = '<ir_version: 8, opset_import: ["": 17, "local": 1]> g (float[n, 8] x, bool c) => (float[k, 8] y)'
BRANCHES = {
    "MatMul": "{0} = MatMul (a, w)",
    "Identity": "{0} = Identity (a)",
    "Add": "{0} = Add (a, b)",
    "Identity of the input": "{0} = Identity (x)",
    "If": """{0} = If (c) <then_branch = i{0} () => (i) {{ i = MatMul (b, w) }},
                          else_branch = j{0} () => (j) {{ j = Neg (a) }}>""",
}
LOOPS = {
    "Loop": """m = Constant <value_int = 2> ()
        y = Loop (m, , a) <body = l (int64 i, bool c0, float[n, 8] s) => (bool c1, float[n, 8] s1)
                           { c1 = Identity (c0) h = MatMul (s, w) s1 = Add (h, b) }>""",
    "Loop that scans": """m = Constant <value_int = 1> ()
        s, z = Loop (m, , a) <body = l (int64 i, bool c0, float[n, 8] s) => (bool c1, float[n, 8] s1, float[n, 8] q)
                           { c1 = Identity (c0) s1 = Add (s, x) q = Add (s1, b) }>
        ax = Constant <value_ints = [0]> () y = Squeeze (z, ax)""",
    "Scan": """ax = Constant <value_ints = [0]> () seq = Unsqueeze (a, ax)
        y, z = Scan <num_scan_inputs = 1, body = s (float[n, 8] s, float[n, 8] q) => (float[n, 8] s1, float[n, 8] q1)
                           { s1 = Add (s, b) q1 = Identity (q) }> (a, seq)""",
}


def model_of(nodes, functions="", w=W, head=HEAD):
    model = onnx.parser.parse_model(f"{head} {{ a = MatMul (x, w) b = Relu (a) {nodes} }} {functions}")
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return model


def lowered(model, dtype="float16", **options):
    result = tx.lower_precision(tx.load(model), dtype, **options).graph
    return tx.retarget(result, opset_version=17).to_proto()


def agrees(model, **options):
    made = lowered(model, **options)
    onnx.checker.check_model(made, full_check=True)
    sessions = [onnxruntime.InferenceSession(m.SerializeToString()) for m in (model, made)]
    for c in (True, False):
        feeds = {"x": X, "c": np.array(c)}
        given = {i.name: feeds[i.name] for i in sessions[0].get_inputs()}
        narrow = {
            i.name: given[i.name].astype("float16") if "16" in i.type else given[i.name]
            for i in sessions[1].get_inputs()
        }
        expected, result = sessions[0].run(None, given)[0], sessions[1].run(None, narrow)[0]
        np.testing.assert_allclose(result, expected, atol=3e-2)
    return made


@pytest.mark.parametrize(("one", "two"), list(itertools.product(BRANCHES, BRANCHES)))
def test_branches_return_one_type(one, two):
    branches = [f"{name} () => ({name}) {{ {BRANCHES[kind].format(name)} }}" for name, kind in (("t", one), ("e", two))]
    agrees(model_of(f"y = If (c) <then_branch = {branches[0]}, else_branch = {branches[1]}>"))


@pytest.mark.parametrize("interface", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_read_values_of_outside(name, interface):
    agrees(model_of(LOOPS[name]), convert_interface=interface)


@pytest.mark.parametrize("name", LOOPS)
def test_bodies_in_bfloat16_are_right(name):
    model = model_of(LOOPS[name])
    graph = tx.lower_precision(tx.load(model), "bfloat16").graph
    feeds = {"x": X, "c": np.array(True)}
    np.testing.assert_allclose(*(g.run(feeds, backend="numpy")["y"] for g in (graph, tx.load(model))), atol=0.2)


def test_a_weight_that_bodies_share_is_there_once():
    inner = "i{0} () => (i) {{ i = MatMul (b, w) }}"
    branch = (
        "{0} () => ({0}) {{ h = MatMul (a, w) k = If (c) <then_branch = {1}, else_branch = {2}> {0} = Add (h, k) }}"
    )
    one, two = (branch.format(n, inner.format(n + "1"), inner.format(n + "2")) for n in ("t", "e"))
    made = agrees(model_of(f"y = If (c) <then_branch = {one}, else_branch = {two}>"))
    held = [t for t in made.graph.initializer if len(t.dims) == 2]
    assert [(t.name, t.data_type) for t in held] == [("w", onnx.TensorProto.FLOAT16)]
    assert made.SerializeToString().count(held[0].raw_data) == 1


def test_functions_are_lowered():
    function = '<domain: "local", opset_import: ["": 17]> F (p, q) => (r) { s = MatMul (p, q) r = Tanh (s) }'
    made = agrees(model_of("y = local.F (b, w)", function))
    assert not made.functions
    assert {t.data_type for t in made.graph.initializer} == {onnx.TensorProto.FLOAT16}


@pytest.mark.parametrize("number", [1e-8, -1e-8, 0.0, 1e9])
def test_a_scalar_outside_the_range(number):
    """Also for a tensor without axes, with a float16 interface."""
    model = model_of("y = Mul (b, e)")
    model.graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), "e"))
    made = lowered(model, convert_interface=True)
    held = next(numpy_helper.to_array(t) for t in made.graph.initializer if t.name == "e")
    assert held.shape == ()
    assert np.isfinite(held)
    assert np.sign(held) == np.sign(number)
