"""Faults planted in models of about 500 nodes: how small ``tenonnx reduce`` makes them, and in what time.

    python plugins/debug/benchmarks/planted_faults.py --count 60

A fault is a NaN on a backend, a difference between two versions of a runtime, a process that crashes, or an output of a
wrong shape. With --anonymize the models are also anonymized, and the failure is looked for in the copy.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tenonnx_debug.anonymize import anonymize
from tenonnx_debug.failures import BackendCheck, CommandCheck
from tenonnx_debug.reduce import Reducer, sizes

WIDTH = 8

#: In place of a check of a user: what it looks for in the operators of a model, and how it ends.
CHECKS = {
    "crash": "import os\nif 'Erf' in ops: os.abort()",
    "shape": "if any(a == 'Transpose' and b == 'Softplus' for a, b in zip(ops, ops[1:])): sys.exit('wrong shape')",
}

#: In place of a version of onnxruntime whose HardSwish is wrong.
RUNTIME = """
import numpy, onnx
from onnx.reference import ReferenceEvaluator
class InferenceSession:
    def __init__(self, path, providers):
        self.model = onnx.load(path)
    def get_outputs(self):
        return self.model.graph.output
    def run(self, names, feeds):
        for node in self.model.graph.node:
            node.op_type = {"HardSwish": "Abs"}.get(node.op_type, node.op_type)
        return ReferenceEvaluator(self.model).run(names, feeds)
"""

FAULTS = {
    "nan": ["Abs", "Neg", "Sqrt"],
    "version": ["HardSwish"],
    "crash": ["Erf"],
    "shape": ["Transpose", "Softplus", "Transpose"],
}


def planted(kind, seed, count=500):
    """A model of so many nodes in branches that join, with a fault at a random place."""
    rng = np.random.default_rng(seed)
    values, nodes, weights = ["x"], [], []
    at = int(rng.integers(50, count - 50))
    for number in range(count):
        inputs, op = [values[int(rng.integers(max(0, len(values) - 6), len(values)))]], ""
        if number == at:
            for op in FAULTS[kind]:
                nodes.append(helper.make_node(op, inputs, [f"fault{len(nodes)}"]))
                inputs = list(nodes[-1].output)
            values.append(inputs[0])
            continue
        op = str(rng.choice(["Tanh", "Sigmoid", "Add", "Mul", "MatMul", "Cos"]))
        if op in ("Add", "Mul"):
            inputs.append(values[int(rng.integers(max(0, len(values) - 6), len(values)))])
        if op == "MatMul":
            contents = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH
            weights.append(numpy_helper.from_array(contents, f"w{number}"))
            inputs.append(f"w{number}")
        nodes.append(helper.make_node(op, inputs, [f"v{number}"]))
        values.append(f"v{number}")
    read = {name for node in nodes for name in node.input}
    outputs = [node.output[0] for node in nodes if node.output[0] not in read]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [WIDTH, WIDTH]) for name in ("x", *outputs)]
    graph = helper.make_graph(nodes, "planted", info[:1], info[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check_of(kind, folder):
    if kind == "nan":
        return BackendCheck(["numpy"], 60.0)
    if kind == "version":
        (folder / "onnxruntime.py").write_text(RUNTIME)
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={folder} exec {sys.executable} -P "$@"\n')
        python.chmod(0o755)
        return BackendCheck(["onnxruntime", str(python)], 60.0)
    script = folder / f"{kind}.py"
    begin = "import sys, onnx\nops = [node.op_type for node in onnx.load(sys.argv[1]).graph.node]\n"
    script.write_text(begin + CHECKS[kind])
    return CommandCheck(f"{sys.executable} {script}", None, 60.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--anonymize", action="store_true", help="only anonymize, and look for the failure")
    options = parser.parse_args()
    left, seconds, kept = [], [], 0
    for seed in range(options.first, options.first + options.count):
        kind = list(FAULTS)[seed % len(FAULTS)]
        model = planted(kind, seed)
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(check_of(kind, Path(folder))) as check:
            if options.anonymize:
                kept += check(model) and check(anonymize(model))
                continue
            start = time.perf_counter()
            reducer = Reducer(model, check)
            small = reducer.run()
            seconds.append(time.perf_counter() - start)
        onnx.checker.check_model(small)
        left.append(sizes(small)[0])
        print(
            f"{seed:3} {kind:8} {sizes(model)[0]} -> {left[-1]} nodes, {reducer.tried} checks, {seconds[-1]:.1f} s",
            flush=True,
        )
    if options.anonymize:
        print(f"{kept} of {options.count} anonymized models fail as before")
    else:
        print(f"{len(left)} faults: at most {max(left)} nodes, {max(seconds):.1f} s; median {np.median(seconds):.1f} s")


if __name__ == "__main__":
    main()
