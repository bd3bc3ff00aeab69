"""Time and peak memory of commands on a decoder with billions of parameters, compared with copying its weights.

``large_decoder.py FOLDER LAYERS``: 32 layers have 6.7 billion parameters, 27 GB in float32, and each command may write
as much. The weights are external data in a sparse file; ``cp`` writes every byte of it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from measure import _process as timed
from measure import python, table
from onnx import TensorProto, helper


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder that has 6.7 billion parameters at 32 layers."""

    hidden: int = 4096
    heads: int = 32
    feed_forward: int = 11008
    words: int = 32000

    @property
    def width(self) -> int:
        return self.hidden // self.heads


DECODER = Sizes()

#: Arguments of each command. They do not verify the result, since running the model would dominate the time.
COMMANDS = {
    "retarget, 21 to 17": "convert {model} -o {out} --opset 17 --no-verify",
    "fuse": "convert {model} -o {out} --fuse --domains ai.onnx,com.microsoft --no-verify",
    "simplify": "convert {model} -o {out} --simplify --no-verify",
    "float16": "convert {model} -o {out} --float16 --no-verify",
    "4-bit weights": "quantize {model} -o {out} --mode weights",
}


RUN = "import sys; from tenonnx_cli import main; sys.argv = {}; assert not main()"


class Decoder:
    """Builder of a decoder without a cache: RMS norm, rotary embedding, causal attention, gated feed-forward layer."""

    def __init__(self, data: Path, sizes: Sizes) -> None:
        self.sizes = sizes
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.file, self.end = data.name, 0

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def weight(self, name: str, *dims: int) -> str:
        tensor = TensorProto(name=name, data_type=1, dims=dims, data_location=TensorProto.EXTERNAL)
        length = 4 * int(np.prod(dims))
        for key, value in {"location": self.file, "offset": self.end, "length": length}.items():
            tensor.external_data.add(key=key, value=str(value))
        self.end += (length + 4095) // 4096 * 4096
        self.weights.append(tensor)
        return name

    def constant(self, name: str, contents: Any, dtype: type = np.int64) -> str:
        if all(each.name != name for each in self.weights):
            self.weights.append(onnx.numpy_helper.from_array(np.array(contents, dtype), name))
        return name

    def normalized(self, x: str, name: str) -> str:
        two, small = self.constant("two", 2, np.float32), self.constant("epsilon", 1e-5, np.float32)
        mean = self.node("ReduceMean", self.node("Pow", x, two), self.constant("last", [-1]), keepdims=1)
        divided = self.node("Div", x, self.node("Sqrt", self.node("Add", mean, small)))
        return self.node("Mul", divided, self.weight(f"{name}.weight", self.sizes.hidden))

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        return self.node("MatMul", x, self.weight(f"{name}.weight", rows, columns))

    def heads(self, x: str) -> str:
        split = self.node("Reshape", x, self.constant("split", [0, 0, self.sizes.heads, self.sizes.width]))
        return self.node("Transpose", split, perm=[0, 2, 1, 3])

    def rotated(self, x: str) -> str:
        zero, middle, end, axis = (
            self.constant(f"at_{k}", [k]) for k in (0, self.sizes.width // 2, self.sizes.width, 3)
        )
        low, high = self.node("Slice", x, zero, middle, axis), self.node("Slice", x, middle, end, axis)
        turned = self.node("Concat", self.node("Neg", high), low, axis=-1)
        return self.node("Add", self.node("Mul", x, "cosines"), self.node("Mul", turned, "sines"))

    def layer(self, x: str, name: str) -> str:
        inner = self.normalized(x, f"{name}.input_norm")
        q, k, v = (
            self.heads(self.product(inner, f"{name}.{part}", self.sizes.hidden, self.sizes.hidden)) for part in "qkv"
        )
        keys = self.node("Transpose", self.rotated(k), perm=[0, 1, 3, 2])
        scores = self.node("MatMul", self.rotated(q), keys)
        scores = self.node("Mul", scores, self.constant("scale", self.sizes.width**-0.5, np.float32))
        weights = self.node("Softmax", self.node("Add", scores, "mask"), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        joined = self.node("Reshape", mixed, self.constant("join", [0, 0, self.sizes.hidden]))
        x = self.node("Add", x, self.product(joined, f"{name}.o", self.sizes.hidden, self.sizes.hidden))
        inner = self.normalized(x, f"{name}.output_norm")
        gate = self.product(inner, f"{name}.gate", self.sizes.hidden, self.sizes.feed_forward)
        gated = self.node("Mul", gate, self.node("Sigmoid", gate))
        up = self.product(inner, f"{name}.up", self.sizes.hidden, self.sizes.feed_forward)
        return self.node(
            "Add",
            x,
            self.product(self.node("Mul", gated, up), f"{name}.down", self.sizes.feed_forward, self.sizes.hidden),
        )


def write_model(folder: Path, layers: int, sizes: Sizes = DECODER) -> Path:
    """Write a decoder of ``layers`` layers at opset 21 with zero weights; returns its path."""
    data = folder / "weights.bin"
    decoder = Decoder(data, sizes)
    x = decoder.node("Gather", decoder.weight("words.weight", sizes.words, sizes.hidden), "tokens")
    for k in range(layers):
        x = decoder.layer(x, f"layers.{k}")
    logits = decoder.product(decoder.normalized(x, "norm"), "head", sizes.hidden, sizes.words)
    with data.open("wb") as file:
        file.truncate(decoder.end)
    info = helper.make_tensor_value_info
    inputs = [info("tokens", TensorProto.INT64, ["batch", "length"]), info("mask", 1, ["length", "length"])]
    inputs += [info(name, 1, ["length", sizes.width]) for name in ("cosines", "sines")]
    graph = helper.make_graph(decoder.nodes, "decoder", inputs, [info(logits, 1, None)], decoder.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def main() -> None:
    folder_of, layers = sys.argv[1] if len(sys.argv) > 1 else None, int(sys.argv[2]) if len(sys.argv) > 2 else 4
    with tempfile.TemporaryDirectory(dir=folder_of) as name:
        folder = Path(name)
        model, out = write_model(folder, layers), folder / "out.onnx"
        weights = folder / "weights.bin"
        copying, _ = timed(["cp", "--sparse=never", str(weights), str(folder / "copy")], {})
        rows: list[list[object]] = [["cp", copying, 1.0, "-"]]
        for what, line in COMMANDS.items():
            for left in [folder / "copy", *folder.glob("out.onnx*")]:
                left.unlink(missing_ok=True)
            subprocess.run(["sync"], check=True)
            words = line.format(model=model, out=out).split()
            seconds, peak = timed(python(f"{RUN.format(['tenonnx', *words])}"), {})
            rows.append([what, seconds, seconds / copying, f"{peak:.0f}"])
            print(what, seconds, peak, file=sys.stderr, flush=True)
        size = weights.stat().st_size / 1e9
    table(f"{layers} layers, {size:.1f} GB of weights", ["", "seconds", "times cp", "MiB at the peak"], rows)


if __name__ == "__main__":
    main()
