"""Comparison of typical user scripts of other tools, run with the tool and with tenonnx-compat.

``python benchmarks/user_scripts.py --theirs TOOL=PYTHON --ours TOOL=PYTHON`` runs each script of
``benchmarks/user_scripts`` twice, in folders with the same models: with an interpreter that has the tool, and by
``python -m tenonnx_compat run`` with one that has tenonnx. It compares exit codes, printed lines that begin with
RESULT, and the written ONNX files: their names, interfaces, and outputs in onnxruntime on random inputs.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, parser

SCRIPTS = Path(__file__).with_name("user_scripts")

#: Tolerance for quantized activations, since ties may be rounded either way.
QUANTIZED = 0.08

#: Code before the scripts of a tool, with functions and files for them.
BEFORE = {
    "skl2onnx": """
import numpy as np
def save(model, feeds, path="out.onnx"):
    open(path, "wb").write(model.SerializeToString())
    np.savez(path + ".npz", **feeds, allow_pickle=True)
""",
}

#: Code that writes the input files of commands, for both tools.
FILES = {
    "tf2onnx": """
import tensorflow as tf
class Module(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serve(self, x):
        return {"y": tf.nn.relu(x) * 2}
module = Module()
tf.saved_model.save(module, "saved", signatures=module.serve)
with tf.Graph().as_default() as graph:
    a = tf.compat.v1.placeholder(tf.float32, [2, 3], name="a")
    tf.identity(tf.reduce_sum(a, axis=1) + 1.0, name="out")
open("graph.pb", "wb").write(graph.as_graph_def().SerializeToString())
converter = tf.lite.TFLiteConverter.from_concrete_functions([module.serve.get_concrete_function()], module)
open("model.tflite", "wb").write(converter.convert())
""",
}


def write_models(folder: Path) -> None:
    """Write the input models of the scripts."""
    generator = np.random.default_rng(0)

    def add(path: str, text: str, **weights: np.ndarray[Any, Any]) -> onnx.ModelProto:
        model = parser.parse_model(text)
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
        onnx.save(model, folder / path)
        return model

    def random(*shape: int) -> np.ndarray[Any, Any]:
        return generator.standard_normal(shape).astype(np.float32)

    head = '<ir_version: 8, opset_import: ["": {}]>\n'
    add(
        "conv.onnx",
        head.format(17)
        + "g (float[n,3,8,8] image) => (float[n,4,6,6] y) { c = Conv(image, w)\n"
        + "b = BatchNormalization(c, s, t, m, v)\n i = Identity(b)\n y = Relu(i) }",
        w=random(4, 3, 3, 3),
        s=np.ones(4, np.float32),
        t=random(4),
        m=random(4),
        v=np.ones(4, np.float32),
    )
    names = add(
        "mlp.onnx",
        head.format(17) + "g (float[n,4] x) => (float[n,2] y) { a = MatMul(x, w)\n h = Add(a, b)\n r = Relu(h)\n"
        "m = MatMul(r, u)\n y = Add(m, c) }",
        w=random(4, 8),
        b=random(8),
        u=random(8, 2),
        c=random(2),
    )
    for node, name in zip(names.graph.node, ("first", "bias", "relu", "second", "last"), strict=True):
        node.name = name
    onnx.save(names, folder / "mlp.onnx")
    add(
        "dynamic.onnx",
        head.format(17)
        + "g (float[n,c,w] x) => (float[n,k] y) { s = Shape(x)\n z = Constant<value_ints = [0]>()\n"
        + "n = Gather(s, z)\n minus = Constant<value_ints = [-1]>()\n t = Concat<axis=0>(n, minus)\n"
        + "y = Reshape(x, t) }",
    )
    add(
        "two.onnx",
        head.format(17)
        + "g (float[2,3] a, float[2,3] b) => (float[2,3] total, float[2,3] product)\n"
        + "{ total = Add(a, b)\n product = Mul(a, b) }",
    )
    add("old.onnx", head.format(9) + "g (float[2,3] x) => (float[2,3] y) { s = Softmax<axis=1>(x)\n y = Dropout(s) }")
    listed = add("listed.onnx", head.format(17) + "g (float[2,3] x) => (float[2,3] y) { y = Add(x, w) }", w=random(3))
    listed.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    onnx.save(listed, folder / "listed.onnx")
    add(
        "branch.onnx",
        head.format(17)
        + "g (float[2] x, bool c) => (float[2] y) { y = If(c)\n"
        + "<then_branch = t () => (float[2] p) { i = Identity(x)\n p = Relu(i) },\n"
        + "else_branch = e () => (float[2] q) { q = Neg(x) }> }",
    )
    add(
        "big.onnx",
        head.format(17)
        + "g (float[n,64] x) => (float[n,64] y) { z = ConstantOfShape<value = float[1] {0.01}>(shape)\n"
        + "w = Add(z, u)\n y = MatMul(x, w) }",
        shape=np.array([64, 64], np.int64),
        u=random(64, 64),
    )


def scripts(path: Path) -> Iterator[tuple[str, str]]:
    """Titles and texts of a tool's scripts; a command is its own title."""
    for part in path.read_text().split("### ")[1:]:
        title, _, text = part.partition("\n")
        yield (text.strip(), "") if title == "$" else (title, text)


def run(python: str, ours: bool, tool: str, title: str, text: str, folder: Path) -> tuple[int, list[str], str]:
    """Run a script or a command; returns its exit code, result lines and errors."""
    write_models(folder)
    if not text and tool in FILES:
        subprocess.run([python, "-c", FILES[tool]], cwd=folder, capture_output=True, check=True)
    ahead = ["-m", "tenonnx_compat", "run"] if ours else []
    if text:
        (folder / "script.py").write_text(BEFORE.get(tool, "") + text)
        command = [python, "-W", "ignore", *ahead, "script.py"]
    else:
        module, *words = shlex.split(title.removeprefix("python -m "))
        command = [python, "-W", "ignore", *ahead, "-m", module, *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, [x for x in ended.stdout.splitlines() if x.startswith("RESULT")], ended.stderr


def differences(theirs: Path, ours: Path, quantized: bool) -> str:
    """The first difference between the ONNX files of two folders, or an empty string."""
    given = {"conv", "mlp", "dynamic", "two", "old", "listed", "branch", "big"}
    files = [{p.name for p in folder.glob("*.onnx")} - {f"{n}.onnx" for n in given} for folder in (theirs, ours)]
    if files[0] != files[1]:
        return f"files {sorted(files[0])} and {sorted(files[1])}"
    for name in sorted(files[0]):
        sessions = []
        for whose, folder in (("the tool", theirs), ("ours", ours)):
            try:
                sessions.append(onnxruntime.InferenceSession(folder / name))
            except Exception as error:
                return f"{name} of {whose} does not load: {str(error).strip().splitlines()[0][:160]}"
        one, two = sessions
        for each in ("get_inputs", "get_outputs"):
            a, b = ([(v.name, v.type, len(v.shape)) for v in getattr(s, each)()] for s in (one, two))
            if each == "get_outputs":  # one of them may not know the rank of an output
                a, b = [v[:2] for v in a], [v[:2] for v in b]
            if sorted(a) != sorted(b):
                return f"{name}: {a} and {b}"
        arrays = theirs / f"{name}.npz"
        feeds = dict(np.load(arrays, allow_pickle=True)) if arrays.exists() else feeds_of(one)
        feeds.pop("allow_pickle", None)
        outputs = [value.name for value in one.get_outputs()]
        for output, a, b in zip(outputs, one.run(outputs, feeds), two.run(outputs, feeds), strict=True):
            if isinstance(a, list):
                a, b = (np.array([[v for _, v in sorted(row.items())] for row in each]) for each in (a, b))
            if np.shape(a) != np.shape(b):
                return f"{name}: {output} has the shapes {np.shape(a)} and {np.shape(b)}"
            if a.dtype.kind in "US" or a.dtype == object:
                if (a != b).any():
                    return f"{name}: {output} has other texts"
                continue
            scale = float(np.abs(a).max(initial=0)) or 1.0
            difference = float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0)) / scale
            if difference > (QUANTIZED if quantized else 1e-3):
                return f"{name}: {output} is {difference:.2g} of its range apart"
    return ""


def feeds_of(session: Any) -> dict[str, Any]:
    """Random inputs of a session; dynamic dims are 2 as the first dim, else 3."""
    generator = np.random.default_rng(0)
    result = {}
    for value in session.get_inputs():
        shape = [dim if isinstance(dim, int) else min(place, 1) + 2 for place, dim in enumerate(value.shape)]
        array = generator.random(shape)
        kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(bool)": np.bool_}
        result[value.name] = array.astype(kinds.get(value.type, np.float64))
    return result


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--theirs", action="append", required=True, metavar="TOOL=PYTHON")
    flags.add_argument("--ours", action="append", default=[], metavar="TOOL=PYTHON")
    flags.add_argument("--only", default="", help="part of a title")
    flags.add_argument("--skip", type=int, default=0, help="number of scripts of each tool to leave out")
    given = flags.parse_args()
    ours = dict(each.split("=", 1) for each in given.ours)
    for tool, theirs in (each.split("=", 1) for each in given.theirs):
        equal = total = 0
        for title, text in list(scripts(SCRIPTS / f"{tool}.txt"))[given.skip :]:
            if given.only not in title:
                continue
            with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
                python = str(Path(ours.get(tool, sys.executable)).absolute())
                a = run(str(Path(theirs).absolute()), False, tool, title, text, Path(one))
                b = run(python, True, tool, title, text, Path(two))
                reason = ""
                if bool(a[0]) != bool(b[0]):
                    last = (b[2] if b[0] else a[2]).strip().splitlines()
                    reason = f"exit codes {a[0]} and {b[0]}: {' / '.join(last[-3:])[:600]}"
                elif a[1] != b[1]:
                    reason = f"{a[1]} and {b[1]}"
                elif not a[0]:
                    reason = differences(Path(one), Path(two), tool == "quantization")
            total += 1
            equal += not reason
            if reason:
                print(f"  {title}: {reason}", flush=True)
        print(f"{tool}: {equal} of {total} equal", flush=True)


if __name__ == "__main__":
    main()
