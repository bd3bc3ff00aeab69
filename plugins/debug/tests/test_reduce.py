"""Reduction to a minimal failing model."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx_cli.tools import program
from tenonnx_debug.failures import CommandCheck
from tenonnx_debug.parts import Parts
from tenonnx_debug.probe import plain
from tenonnx_debug.reduce import Reducer, reduce

EXAMPLES = Path(__file__).parents[3] / "examples"


def chain(count, fault, at, width=16):
    """A chain of ``count`` nodes with the nodes of a fault inserted at position ``at``."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for step in range(count):
        op = ["MatMul", "Tanh", "Add", "Sigmoid"][step % 4]
        inputs = [last]
        if op in ("MatMul", "Add"):
            shape = (width, width) if op == "MatMul" else (width,)
            weights.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), f"w{step}"))
            inputs.append(f"w{step}")
        nodes.append(helper.make_node(op, inputs, [f"v{step}"], name=f"node{step}"))
        last = f"v{step}"
        if step == at:
            nodes += fault(last)
            last = nodes[-1].output[0]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "chain", info[:1], info[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def square_root(name):
    return [
        helper.make_node("Neg", [name], ["minus"]),
        helper.make_node("Exp", ["minus"], ["positive"]),
        helper.make_node("Neg", ["positive"], ["negative"]),
        helper.make_node("Sqrt", ["negative"], ["root"]),
    ]


def test_a_predicate_in_python():
    graph = tx.load(chain(120, square_root, 57))
    calls = []

    def failing(part):
        calls.append(part)
        return {"Exp", "Sqrt"} <= {node.op_type for node in part.nodes}

    small = reduce(graph, failing)
    assert sorted(node.op_type for node in small.nodes) == ["Exp", "Sqrt"]
    assert len(calls) < 100
    onnx.checker.check_model(small.to_proto())


def test_a_model_that_does_not_fail_is_refused():
    with pytest.raises(tx.InvalidCall, match="does not fail"):
        reduce(tx.load(chain(4, square_root, 1)), lambda graph: False)


def test_dims_and_weights_shrink():
    graph = tx.load(chain(12, square_root, 5, width=64))
    small = reduce(graph, lambda part: any(node.op_type == "MatMul" for node in part.nodes))
    assert [node.op_type for node in small.nodes] == ["MatMul"]
    assert sum(value.data.nbytes for value in small.variables) <= 4


def test_branches_and_functions_are_inlined():
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
    m (bool c, float[4] x) => (float[4] y) {
        a = f.twice(x)
        b = If(c) <then_branch = one () => (float[4] t) { s = Neg(a)  t = Erf(s) },
                   else_branch = two () => (float[4] e) { e = Abs(a) }>
        y = Relu(b)
    }
    <domain: "f", opset_import: ["" : 17]> twice (x) => (y) { h = Add(x, x)  y = Cos(h) }"""
    graph = tx.load(onnx.parser.parse_model(text))
    for op in ("Erf", "Cos"):
        small = reduce(graph, lambda part, op=op: f'"{op}"' in str(part.to_proto()))
        assert [node.op_type for node in small.nodes] == [op]


LOOP = """<ir_version: 8, opset_import: ["" : 17]>
    m (int64 n, float[4] x) => (float[4] y) {
        a = Relu(x)
        b = Loop(n, , a) <body = step (int64 k, bool c, float[4] held) => (bool d, float[4] next) {
            d = Identity(c)  p = Neg(held)  q = Erf(p)  r = Abs(q)  s = Exp(r)  next = Cos(s) }>
        y = Tanh(b)
    }"""


def test_a_loop_is_replaced_by_one_iteration():
    graph = tx.load(onnx.parser.parse_model(LOOP))
    small = reduce(graph, lambda part: any(node.op_type == "Erf" for node in part.walk()))
    assert [node.op_type for node in small.nodes] == ["Erf"]


def test_nodes_of_a_remaining_subgraph_are_removed():
    graph = tx.load(onnx.parser.parse_model(LOOP))

    def failing(part):
        return any(node.op_type == "Erf" for loop in part.nodes for body in loop.subgraphs for node in body.nodes)

    small = reduce(graph, failing)
    assert [node.op_type for node in small.nodes] == ["Loop"]
    assert {node.op_type for node in small.nodes[0].subgraphs[0].nodes} <= {"Erf", "Identity"}
    onnx.checker.check_model(small.to_proto())


def test_the_oldest_failing_opset_is_chosen():
    graph = tx.load(onnx.parser.parse_model(LOOP))
    assert reduce(graph, lambda part: any(node.op_type == "Tanh" for node in part.nodes)).opsets["ai.onnx"] == 7
    smallest = reduce(graph, lambda part: part.opsets["ai.onnx"] > 14 and any(n.op_type == "Tanh" for n in part.nodes))
    assert smallest.opsets["ai.onnx"] == 15


def test_computed_sizes_become_constants():
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[2, 6] x) => (float[3, 4] y)
    <int64[2] zero = {3, 4}> { s = Identity(zero)  h = Tanh(x)  r = Reshape(h, s)  y = Softplus(r) }"""
    graph = tx.load(onnx.parser.parse_model(text))
    small = reduce(graph, lambda part: "Reshape" in {node.op_type for node in part.nodes})
    assert [node.op_type for node in small.nodes] == ["Reshape"]
    assert [value.dtype.name for value in small.inputs] == ["float32"]


def growing(name):
    """Values that double 40 times, so that Exp overflows."""
    nodes, last = [helper.make_node("Abs", [name], ["size"])], "size"
    for step in range(40):
        nodes.append(helper.make_node("Add", [last, last], [f"twice{step}"]))
        last = f"twice{step}"
    return [*nodes, helper.make_node("Exp", [last], ["large"])]


def test_a_failure_that_depends_on_large_values_keeps_them_as_a_constant():
    def failing(part):
        rng = np.random.default_rng(0)
        feeds = {value.name: rng.standard_normal((2, 16), np.float32) for value in part.inputs}
        with np.errstate(over="ignore"):
            outputs = part.run(feeds, backend="numpy")
        return not all(np.isfinite(each).all() for each in outputs.values())

    small = reduce(tx.load(chain(24, growing, 11)), failing)
    assert [node.op_type for node in small.nodes] == ["Exp"]
    assert small.variables
    assert all(np.isfinite(value.data.array()).all() for value in small.variables)


def test_values_before_a_failing_node_are_recorded():
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[2, 6] x) => (float[3, 5] y)
    <int64[2] zero = {3, 4}, int64[2] wrong = {3, 5}> {
        s = Identity(zero)  h = Tanh(x)  r = Reshape(h, s)  w = Identity(wrong)  z = Reshape(r, w)  y = Abs(z) }"""
    parts = Parts(onnx.parser.parse_model(text))
    part = parts.model([2, 4], recorded=False)
    assert {each.name for each in part.graph.initializer} >= {"s"}


def test_an_interrupted_search_continues():
    model = chain(40, square_root, 21)
    results, asked = {}, []

    def test(message):
        asked.append(message)
        if len(asked) == 9:
            raise KeyboardInterrupt
        return any(node.op_type == "Sqrt" for node in message.graph.node)

    with pytest.raises(KeyboardInterrupt):
        Reducer(model, test, results=results).run()
    before = len(results)
    smallest = Reducer(model, test, results=results).run()
    assert [node.op_type for node in smallest.graph.node] == ["Sqrt"]
    assert before == 8
    assert len({each.SerializeToString() for each in asked}) == len(asked) - 1, "nothing is asked twice but the last"


def run(*line):
    return program.main(["reduce", *map(str, line)], standalone_mode=False)


def test_nan_on_a_backend(tmp_path, capsys):
    onnx.save(chain(60, square_root, 33), tmp_path / "m.onnx")
    run(tmp_path / "m.onnx", "-o", tmp_path / "small.onnx", "--fails-in", "numpy")
    small = onnx.load(tmp_path / "small.onnx")
    assert len(small.graph.node) <= 2
    assert small.graph.node[-1].op_type == "Sqrt"
    assert "nan" in capsys.readouterr().out
    assert not (tmp_path / "small.onnx.progress").exists()


def test_a_command_that_ends_with_its_own_status(tmp_path, capsys):
    onnx.save(chain(40, square_root, 21), tmp_path / "m.onnx")
    script = tmp_path / "check.py"
    script.write_text(
        "import onnx, sys\n"
        "ops = [node.op_type for node in onnx.load(sys.argv[1]).graph.node]\n"
        "if 'Sqrt' in ops and 'Exp' in ops: print('bad pair'); sys.exit(7)\n"
    )
    command = f"{sys.executable} {script}"
    run(tmp_path / "m.onnx", "-o", tmp_path / "small.onnx", "--check", command, "--json")
    assert sorted(node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node) == ["Exp", "Sqrt"]
    assert '"failure": "7"' in capsys.readouterr().out
    run(
        tmp_path / "m.onnx", "-o", tmp_path / "small.onnx", "--check", f"{command} {{model}}", "--check-output", "bad p"
    )
    assert len(onnx.load(tmp_path / "small.onnx").graph.node) == 2


def test_a_process_that_ends_by_a_signal_or_hangs(tmp_path):
    script = tmp_path / "check.py"
    script.write_text(
        "import onnx, os, sys, time\n"
        "ops = [node.op_type for node in onnx.load(sys.argv[1]).graph.node]\n"
        "if 'Exp' in ops: os.abort()\n"
        "if 'Erf' in ops: time.sleep(60)\n"
    )
    check = CommandCheck(f"{sys.executable} {script}", None, 20.0)
    assert check(chain(8, square_root, 3))
    assert check.expected == ("-6",)
    check.close()
    check = CommandCheck(f"{sys.executable} {script}", None, 2.0)
    assert check(chain(8, lambda name: [helper.make_node("Erf", [name], ["erf"])], 3))
    assert check.expected == ("timeout",)
    check.close()


def test_versions_of_a_runtime_are_named_by_their_interpreters(tmp_path, capsys):
    """A stand-in for onnxruntime computes Tanh differently, as another version might."""
    changed = tmp_path / "python"
    (tmp_path / "onnxruntime.py").write_text(
        "import numpy as np, onnx\n"
        "from onnx.reference import ReferenceEvaluator\n"
        "class InferenceSession:\n"
        "    def __init__(self, path, providers):\n"
        "        self.model = onnx.load(path)\n"
        "    def get_outputs(self):\n"
        "        return self.model.graph.output\n"
        "    def run(self, names, feeds):\n"
        "        for node in self.model.graph.node:\n"
        "            node.op_type = {'Tanh': 'Cos'}.get(node.op_type, node.op_type)\n"
        "        return ReferenceEvaluator(self.model).run(names, feeds)\n"
    )
    changed.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={tmp_path} exec {sys.executable} -P "$@"\n')
    changed.chmod(0o755)
    onnx.save(chain(16, lambda name: [helper.make_node("Neg", [name], ["minus"])], 9), tmp_path / "m.onnx")
    run(tmp_path / "m.onnx", "-o", tmp_path / "small.onnx", "--differs", sys.executable, changed)
    assert [node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node] == ["Tanh"]
    assert "differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--differs", "numpy", "/no/such/python"], "no such Python interpreter"),
        ([], "not exactly one check"),
        (["--check", "false", "--fails-in", "numpy"], "not exactly one check"),
        (["--fails-in", "abacus"], 'no installed backend is called "abacus"'),
        (["--check", ""], "not exactly one check"),
        (["--check", "/no/such/program"], "cannot start the command"),
        (["--check", "true", "--check-output", "["], "not a regular expression"),
        (["--check", "true"], "does not fail"),
    ],
)
def test_wrong_checks_are_refused(tmp_path, options, said):
    onnx.save(chain(4, square_root, 1), tmp_path / "m.onnx")
    with pytest.raises(tx.InvalidCall, match=said):
        run(tmp_path / "m.onnx", "-o", tmp_path / "small.onnx", *options)
    assert not (tmp_path / "small.onnx").exists()


def test_errors_are_distinguished_by_their_words():
    one = plain('onnxruntime: node "/a/b" (Add) has 3 inputs, {2, 4} by {4, 2}')
    assert one == plain('onnxruntime: node "other" (Mul) has 7 inputs, {1, 4} by {4, 9}')
    assert one != plain("onnxruntime: no kernel of Add")


def test_a_wrong_value_info_is_kept():
    model = chain(60, square_root, 31)
    model.graph.value_info.append(helper.make_tensor_value_info("minus", TensorProto.FLOAT, ["n", 17]))

    def failing(message):
        try:
            onnx.shape_inference.infer_shapes(message, strict_mode=True)
        except onnx.shape_inference.InferenceError:
            return True
        return False

    reducer = Reducer(model, failing)
    assert [node.op_type for node in reducer.run().graph.node] == ["Neg"]
    assert reducer.tried < 40
