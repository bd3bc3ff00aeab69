"""Transforms do not change their source, and threads can share a graph."""

import contextlib
import io
import threading

import numpy as np
import onnx
import pytest
from models import SAMPLES, example, feeds, suite_files

import tenonnx as tx
from tenonnx.op.op import Op
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_convert.apply_rules import apply_rules
from tenonnx_convert.convert import plan
from tenonnx_convert.options import ExportConfig
from tenonnx_optimize.common_subexpressions import merge_common_subexpressions
from tenonnx_quantized.forms.qdq import to_qdq
from tenonnx_quantized.forms.qoperator import to_qoperator
from tenonnx_training import TrainingStep

LIGHT = [path for path in suite_files() if path.parent.name == "light"]
SMALL = [*(path for path in suite_files() if path not in LIGHT), *(example(name) for name in SAMPLES)]


def contents(graph):
    """Everything of a graph that a transform could change; shared objects are compared by identity."""
    values = list(graph.values())
    fields = {name: value for name, value in vars(graph).items() if name != "_names"}  # a cache
    fields |= {name: list(value) for name, value in fields.items() if isinstance(value, list)}
    fields |= {name: dict(value) for name, value in fields.items() if isinstance(value, dict)}
    return [
        fields,
        [(v, v.name, v.type, id(v.data), id(v.symbolic_contents), v.producer, v.graph, id(v.outer)) for v in values],
        [
            (n, n.op, n.version, n.inputs, n.outputs, n.captures, n.name, id(n.attributes), list(n.attributes.values()))
            for n in graph.nodes
        ],
        [contents(subgraph) for node in graph.nodes for subgraph in node.subgraphs],
        [contents(function.body) for function in graph.functions.values() if hasattr(function, "body")],
    ]


def floats(values):
    return [v.name for v in values if isinstance(v.type, tx.TensorType) and v.type.dtype.is_float]


def differentiated(graph):
    typed = graph.copy().infer()
    expected = floats((*typed.inputs, *typed.variables))
    return tx.grad(graph, floats(typed.outputs)[:1], expected[:3], seeds={floats(typed.outputs)[0]: "cotangent"})


def keep_primitives(call):
    return isinstance(call.op, Op) and call.op.primitive


def export(graph, **fields):
    stream = io.BytesIO()
    tx.export(graph, stream, **fields)
    return stream.getvalue()


TRANSFORMS = {
    "copy": copy_graph,
    "retarget to 9": lambda graph: tx.retarget(graph, 9),
    "retarget to 26": lambda graph: tx.retarget(graph, 26, domains=["ai.onnx"]),
    "plan": lambda graph: plan(graph, ExportConfig(7, ["ai.onnx"])),
    "export": export,
    "tidy export": lambda graph: export(graph, tidy=True),
    "export to 13": lambda graph: export(graph, opset_version=13, domains=["ai.onnx"]),
    "decompose": lambda graph: tx.decompose(graph, keep_primitives),
    "fold": tx.fold,
    "prune": tx.prune,
    "simplify": tx.simplify,
    "fuse": tx.fuse,
    "to qdq": to_qdq,
    "to qoperator": to_qoperator,
    "merge": merge_common_subexpressions,
    "rules": lambda graph: apply_rules(graph, {"Relu": lambda node, x: (x + x) * 0.5}),
    "grad": differentiated,
    "numpy": lambda graph: graph.compile("numpy"),
    "onnxruntime": lambda graph: graph.compile("onnxruntime"),
}
QUICK = ("retarget to 9", "plan", "tidy export", "decompose", "merge", "rules")


def check(source, names):
    graph = source if isinstance(source, tx.Graph) else tx.load(source)
    before = contents(graph)
    for name in names:
        with contextlib.suppress(
            tx.TenonnxError, tx.FallbackWarning, IndexError
        ):  # some models do not suit a transform
            TRANSFORMS[name](graph)
        assert contents(graph) == before, name


@pytest.mark.parametrize("path", SMALL, ids=lambda path: "/".join(path.parts[-2:]))
def test_no_transform_writes_into_its_source(path):
    check(path, TRANSFORMS)


def test_a_write_would_be_detected():
    graph = tx.load(example("digits/digits"))
    before = contents(graph)
    graph.infer()
    assert contents(graph) != before


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_no_transform_writes_into_a_large_source(path):
    check(path, QUICK)


@pytest.mark.parametrize("name", ["digits/digits", "digits_cnn/digits-cnn"])
def test_no_transform_changes_a_training_step_and_that_not_its_source(name):
    graph = tx.load(example(name))
    before = contents(graph)
    step = TrainingStep(graph, "softmax_cross_entropy", backend="numpy").graph()
    assert contents(graph) == before
    check(step, QUICK)


@pytest.mark.parametrize("name", ["digits/digits", "decoder/decoder", "iris/tree"])
def test_verification_does_not_change_the_graphs(name):
    graph = tx.load(example(name))
    moved = tx.retarget(graph, {"ai.onnx": 17})
    before = contents(graph), contents(moved)
    tx.verify(graph, moved, feeds=feeds(name)).raise_if_failed()
    assert (contents(graph), contents(moved)) == before


NESTED = """
<ir_version: 8, opset_import: ["": 17, "own": 1]>
agraph (float[n] x, bool c) => (float[n] y) {
    scale = Constant <value = float[1] {2}> ()
    many = Constant <value = int64 {3}> ()
    h = own.twice (x)
    y = Loop (many, c, h) <body = inner (int64 i, bool going, float[n] carried) => (bool on, float[n] next) {
        on = Identity (going)
        next = If (going) <
            then_branch = grown () => (float[n] a) { t = own.twice (carried) a = Mul (t, scale) },
            else_branch = same () => (float[n] b) { b = Softmax <axis = 0> (carried) }
        >
    }>
}
<opset_import: ["": 17], domain: "own">
twice (v) => (w) { w = Add (v, v) }
"""


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_do_not_change_subgraphs_and_functions(name):
    graph = tx.load(onnx.parser.parse_model(NESTED))
    before = contents(graph)
    with contextlib.suppress(tx.TenonnxError):
        TRANSFORMS[name](graph)
    assert contents(graph) == before


def everything(graph, fed):
    """Results of compiling, retargeting and differentiating, as comparable data."""
    outputs = [graph.compile("numpy")(fed), tx.retarget(graph, 13, domains=["ai.onnx"]).compile("onnxruntime")(fed)]
    return [export(graph, opset_version=11), export(differentiated(graph)), outputs]


@pytest.mark.parametrize("name", ["digits/digits", "decoder/decoder"])
def test_eight_threads_get_the_results_of_one(name):
    graph, fed = tx.load(example(name)), feeds(name)
    alone = everything(tx.load(example(name)), fed)
    start, found, failures = threading.Barrier(8), [None] * 8, []

    def work(k):
        try:
            start.wait()
            found[k] = everything(graph, fed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for result in found:
        assert result[:2] == alone[:2]
        for ours, theirs in zip(result[2], alone[2], strict=True):
            assert ours.keys() == theirs.keys()
            assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
