"""Models of about 500 nodes with one planted fault each, and the checks that detect them."""

from __future__ import annotations

import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tenonnx_debug.failures import BackendCheck, CommandCheck

WIDTH = 8

#: Source of a stand-in for onnxruntime with a wrong kernel: ``wrong`` changes the model before it runs.
RUNTIME = """
import numpy as np, onnx, sys
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

def nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes(attribute.g)

def rename(node, op):
    node.op_type = op
    del node.attribute[:]

def attribute(node, name):
    return next((helper.get_attribute_value(each) for each in node.attribute if each.name == name), None)

class InferenceSession:
    def __init__(self, path, providers):
        self.model, self.ops = onnx.load(path), []
        graph = self.model.graph
        made = {name: node for node in graph.node for name in node.output}
        weights = {each.name: each for each in graph.initializer}
        %s
    def get_outputs(self):
        return self.model.graph.output
    def run(self, names, feeds):
        return ReferenceEvaluator(self.model, new_ops=self.ops).run(names, feeds)
"""

#: Bodies of ``wrong`` by fault.
WRONG = {
    "an op": "for n in nodes(graph):\n            if n.op_type == 'HardSwish': rename(n, 'Abs')",
    "an attribute": "for n in nodes(graph):\n            if n.op_type == 'Softmax' and attribute(n, 'axis') == 0:"
    " n.attribute[0].i = 1",
    "a fused pair": "for n in graph.node:\n            if n.op_type == 'Erf' and n.input[0] in made and "
    "made[n.input[0]].op_type == 'Neg': rename(n, 'Tanh')",
    "large numbers": "class Tanh(OpRun):\n            def _run(self, x):\n"
    "                return (np.where(np.abs(x) > 50, 0, np.tanh(x)).astype(x.dtype),)\n        self.ops.append(Tanh)",
    "a weight": "for n in nodes(graph):\n            if n.op_type == 'MatMul' and n.input[1] in weights and "
    "onnx.numpy_helper.to_array(weights[n.input[1]]).max() > 90: rename(n, 'Add')",
    "half floats": "class Sqrt(OpRun):\n            def _run(self, x):\n"
    "                return ((np.sqrt(x) * (2 if x.dtype == np.float16 else 1)).astype(x.dtype),)\n"
    "        self.ops.append(Sqrt)",
    "a body": "for n in graph.node:\n"
    "            for m in (m for a in n.attribute if a.HasField('g') for m in nodes(a.g)):\n"
    "                if m.op_type == 'Softplus': rename(m, 'Abs')",
    "a wrong shape": "class ReduceMax(OpRun):\n            def _run(self, x, axes=None, keepdims=1,"
    " noop_with_empty_axes=0):\n                return (x.max(axis=-1),)\n        self.ops.append(ReduceMax)",
    "a transposed result": "class Softsign(OpRun):\n            def _run(self, x):\n"
    "                return ((x / (1 + np.abs(x))).T[:, :2],)\n        self.ops.append(Softsign)",
    "a wrong type": "class Round(OpRun):\n            def _run(self, x):\n"
    "                return (np.round(x).astype(np.float64),)\n        self.ops.append(Round)",
}

#: Conditions on ``ops``, ``graph`` and ``model`` under which the child process crashes.
CRASHES = {
    "an op": "if 'Erf' in ops: os.abort()",
    "a segmentation fault": "if 'Erf' in ops: os.kill(os.getpid(), 11)",
    "a pair of ops far from each other": "if 'Erf' in ops and 'Softplus' in ops: os.abort()",
    "four of an op": "if ops.count('Erf') > 3: os.abort()",
    "an op in a body": "if any(n.op_type == 'Softplus' for m in graph.node for a in m.attribute for n in a.g.node):"
    " os.abort()",
    "an exit without a word": "if 'Erf' in ops: os._exit(9)",
    "what reads one value twice": "if any(n.op_type == 'Add' and n.input[0] == n.input[1] for n in graph.node):"
    " os.abort()",
    "an error that names the node": "bad = [n.name for n in graph.node if n.op_type == 'Erf']\n"
    "if bad: raise RuntimeError(f'no kernel for {bad[0]}')",
}

SHAPES = {
    "a chain of ops": "if any(a == 'Transpose' and b == 'Softplus' for a, b in zip(ops, ops[1:])):"
    " sys.exit('wrong shape')",
    "shape inference of onnx": "onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True)",
}


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], f"layer/{output}", **attributes)


def body_if(name):
    then = helper.make_graph(
        [node("Neg", [name], f"{name}_n"), node("Softplus", [f"{name}_n"], f"{name}_t")],
        "then",
        [],
        [info(f"{name}_t")],
    )
    other = helper.make_graph([node("Abs", [name], f"{name}_e")], "else", [], [info(f"{name}_e")])
    return [
        node("ReduceMax", [name], f"{name}_m", keepdims=0),
        node("IsNaN", [f"{name}_m"], f"{name}_i"),
        node("Not", [f"{name}_i"], f"{name}_c"),
        node("If", [f"{name}_c"], f"{name}_o", then_branch=then, else_branch=other),
    ]


def info(name, shape=(WIDTH, WIDTH)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def along(*ops):
    """A builder of a chain of nodes. An op is its name, or a pair of name and attributes."""

    def build(name):
        nodes, last = [], name
        for number, op in enumerate(ops):
            op, attributes = (op, {}) if isinstance(op, str) else op
            nodes.append(node(op, [last], f"{name}_{number}", **attributes))
            last = f"{name}_{number}"
        return nodes

    return build


def in_half(op):
    return along(("Cast", {"to": TensorProto.FLOAT16}), "Abs", op, ("Cast", {"to": TensorProto.FLOAT}))


def growing(op):
    """A builder of a chain whose values grow until the last node overflows."""

    def build(name):
        nodes, last = [node("Abs", [name], f"{name}_a")], f"{name}_a"
        for number in range(40):
            nodes.append(node("Add", [last, last if number % 2 else f"{name}_a"], f"{name}_{number}"))
            last = f"{name}_{number}"
        return [*nodes, node(op, [last], f"{name}_g")]

    return build


def twice(op):
    return lambda name: [node(op, [name, name], f"{name}_d")]


def quotient(name):
    return [node("Sub", [name, name], f"{name}_z"), node("Div", [f"{name}_z", f"{name}_z"], f"{name}_q")]


def with_reduction(name):
    return [node("ReduceMax", [name], f"{name}_r", axes=[0], keepdims=1), node("Add", [name, f"{name}_r"], f"{name}_s")]


def half_product(name):
    """A product of many factors that overflows in float16."""
    nodes, last = along(("Cast", {"to": TensorProto.FLOAT16}), "Abs", "Exp")(name), f"{name}_2"
    for number in range(60):
        nodes.append(node("Mul", [last, f"{name}_2"], f"{name}_h{number}"))
        last = f"{name}_h{number}"
    return [*nodes, node("Cast", [last], f"{name}_f", to=TensorProto.FLOAT)]


def scattered(*ops):
    """A builder of nodes at several positions of the model."""
    return [along(op) for op in ops]


#: Faults: kind, description, builder of the planted nodes, and arguments of the check.
FAULTS = [
    ("nan", "of a negative number", along("Abs", "Neg", "Sqrt"), "numpy"),
    ("kernel", "an op", along("HardSwish"), "an op"),
    ("crash", "an op", along("Erf"), "an op"),
    ("shape", "a chain of ops", along("Transpose", "Softplus", "Transpose"), "a chain of ops"),
    ("nan", "of large numbers", growing("Exp"), "onnxruntime"),
    ("kernel", "an attribute", along(("Softmax", {"axis": 0})), "an attribute"),
    ("crash", "a pair of ops far from each other", scattered("Erf", "Softplus"), "a pair of ops far from each other"),
    ("shape", "a wrong shape", with_reduction, "a wrong shape"),
    ("nan", "of zero by zero", quotient, "onnxruntime"),
    ("kernel", "large numbers", growing("Tanh"), "large numbers"),
    ("crash", "a segmentation fault", along("Erf"), "a segmentation fault"),
    ("shape", "a transposed result", along("Softsign"), "a transposed result"),
    ("nan", "in a weight", "nan", "numpy"),
    ("kernel", "a fused pair", along("Neg", "Erf"), "a fused pair"),
    ("crash", "four of an op", scattered("Erf", "Erf", "Erf", "Erf", "Erf"), "four of an op"),
    ("shape", "a wrong type", along("Round"), "a wrong type"),
    ("nan", "of half floats", half_product, "numpy"),
    ("kernel", "a weight", "large", "a weight"),
    ("crash", "an op in a body", body_if, "an op in a body"),
    ("shape", "declared wrongly", "declared", "shape inference of onnx"),
    ("nan", "of a logarithm", along("Abs", "Neg", "Relu", "Log"), "onnxruntime"),
    ("kernel", "half floats", in_half("Sqrt"), "half floats"),
    ("crash", "an exit without a word", along("Erf"), "an exit without a word"),
    ("shape", "refused by the runtime", "reshape", "onnxruntime"),
    ("kernel", "a body", body_if, "a body"),
    ("crash", "what reads one value twice", twice("Add"), "what reads one value twice"),
    ("crash", "an error that names the node", along("Erf"), "an error that names the node"),
]


def planted(fault, seed, count=500):
    """A model of about ``count`` nodes in branches that join, with a fault at a random position."""
    rng = np.random.default_rng(seed)
    _, _, plant, _ = fault
    values, nodes, weights = ["x"], [], []
    plants = plant if isinstance(plant, list) else [plant]
    places = sorted(rng.choice(np.arange(50, count - 50), len(plants), replace=False).tolist())
    declared = []
    for number in range(count):
        near = lambda: values[int(rng.integers(max(0, len(values) - 6), len(values)))]  # noqa: E731
        if number in places:
            chosen, at = plants[places.index(number)], near()
            if chosen == "nan" or chosen == "large":
                contents = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
                contents[3, 5] = np.nan if chosen == "nan" else 100
                weights.append(numpy_helper.from_array(contents, "bad"))
                nodes.append(node("MatMul", [at, "bad"], "faulty"))
            elif chosen == "declared":
                nodes.append(node("Erf", [at], "faulty"))
                declared.append(info("faulty", (WIDTH, WIDTH + 1)))
            elif chosen == "reshape":
                weights.append(numpy_helper.from_array(np.array([WIDTH, WIDTH - 1]), "sizes"))
                nodes.append(node("Reshape", [at, "sizes"], "faulty"))
                declared.append(info("faulty", (WIDTH, WIDTH)))
            else:
                nodes += chosen(at)
            values.append(nodes[-1].output[0])
            continue
        op, inputs = str(rng.choice(["Tanh", "Sigmoid", "Add", "Mul", "MatMul", "Cos"])), [near()]
        if op in ("Add", "Mul"):
            other = near()
            inputs.append(other if other != inputs[0] else values[max(0, len(values) - 7)])
            if inputs[0] == inputs[1]:
                op, inputs = "Cos", inputs[:1]
        if op == "MatMul":
            contents = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH
            weights.append(numpy_helper.from_array(contents, f"w{number}"))
            inputs.append(f"w{number}")
        nodes.append(node(op, inputs, f"v{number}"))
        values.append(f"v{number}")
    read = {name for each in nodes for name in each.input}
    outputs = [each.output[0] for each in nodes if each.output[0] not in read]
    wrong = {each.name: each for each in declared}
    ends = [wrong.pop(name, info(name)) for name in outputs]
    graph = helper.make_graph(nodes, "planted", [info("x")], ends, weights, value_info=[*wrong.values()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check_of(fault, folder):
    """The check that detects a fault; its files are written to ``folder``."""
    kind, _, _, how = fault
    if how in ("numpy", "onnxruntime"):
        return BackendCheck([how], 60.0)
    if how in WRONG and kind != "crash":
        (folder / "onnxruntime.py").write_text(RUNTIME % WRONG[how])
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={folder} exec {sys.executable} -P "$@"\n')
        python.chmod(0o755)
        return BackendCheck(["onnxruntime", str(python)], 60.0)
    script = folder / "check.py"
    begin = "import os, sys, onnx\nmodel = onnx.load(sys.argv[1])\ngraph = model.graph\n"
    begin += "ops = [node.op_type for node in graph.node]\n"
    script.write_text(begin + (CRASHES if kind == "crash" else SHAPES)[how])
    return CommandCheck(f"{sys.executable} {script}", None, 60.0)
