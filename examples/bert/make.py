"""Generator of ``bert.onnx``: a BERT-like encoder in the form of PyTorch's exporter, fused by onnxruntime's optimizer.

Run ``python make.py [folder]``. The weights are random numbers of a fixed seed; ``samples.npz`` has inputs, and the
outputs of the model before fusion.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model

WORDS, PLACES, SEGMENTS, HIDDEN, HEADS, INNER, LAYERS = 50, 16, 2, 16, 2, 32, 2


class Model:
    """A builder that collects nodes and weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def weight(self, name: str, *shape: int, around: float = 0.0) -> str:
        values = self.random.standard_normal(shape).astype(np.float32) * np.float32(0.2) + np.float32(around)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, values: object, dtype: type = np.int64) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), f"constant_{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, op_type: str, *inputs: str, name: str = "", **attributes: object) -> str:
        output = name or f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=f"n_{output}", **attributes))
        return output

    def linear(self, x: str, name: str, size: int, width: int) -> str:
        product = self.add("MatMul", x, self.weight(f"{name}.weight", size, width))
        return self.add("Add", self.weight(f"{name}.bias", width), product)

    def norm(self, x: str, name: str) -> str:
        parameters = self.weight(f"{name}.weight", HIDDEN, around=1.0), self.weight(f"{name}.bias", HIDDEN)
        return self.add("LayerNormalization", x, *parameters, epsilon=1e-12)

    def gelu(self, x: str) -> str:
        erf = self.add("Erf", self.add("Div", x, self.constant(2**0.5, np.float32)))
        whole = self.add("Mul", x, self.add("Add", erf, self.constant(1.0, np.float32)))
        return self.add("Mul", whole, self.constant(0.5, np.float32))

    def heads(self, x: str, perm: list[int]) -> str:
        reshaped = self.add("Reshape", x, self.constant([0, 0, HEADS, HIDDEN // HEADS]))
        return self.add("Transpose", reshaped, perm=perm)

    def layer(self, x: str, mask: str, name: str) -> str:
        q, k, v = (self.linear(x, f"{name}.{part}", HIDDEN, HIDDEN) for part in ("query", "key", "value"))
        scores = self.add("MatMul", self.heads(q, [0, 2, 1, 3]), self.heads(k, [0, 2, 3, 1]))
        scaled = self.add("Div", scores, self.constant((HIDDEN // HEADS) ** 0.5, np.float32))
        shares = self.add("Softmax", self.add("Add", scaled, mask), axis=-1)
        found = self.add("Transpose", self.add("MatMul", shares, self.heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        joined = self.add("Reshape", found, self.constant([0, 0, HIDDEN]))
        x = self.norm(self.add("Add", self.linear(joined, f"{name}.output", HIDDEN, HIDDEN), x), f"{name}.norm")
        inner = self.gelu(self.linear(x, f"{name}.inner", HIDDEN, INNER))
        return self.norm(self.add("Add", self.linear(inner, f"{name}.outer", INNER, HIDDEN), x), f"{name}.last")


def encoder() -> onnx.ModelProto:
    model = Model()
    mask = model.add("Unsqueeze", "attention_mask", model.constant([1]))
    mask = model.add("Unsqueeze", mask, model.constant([2]))
    mask = model.add("Cast", mask, to=TensorProto.FLOAT)
    mask = model.add("Sub", model.constant(1.0, np.float32), mask)
    mask = model.add("Mul", mask, model.constant(-10000.0, np.float32))
    words = model.add("Gather", model.weight("words", WORDS, HIDDEN), "input_ids")
    segments = model.add("Gather", model.weight("segments", SEGMENTS, HIDDEN), "token_type_ids")
    length = model.add("Gather", model.add("Shape", "input_ids"), model.constant(1))
    ends = model.add("Unsqueeze", length, model.constant([0]))
    positions = model.add("Slice", model.constant([range(PLACES)]), model.constant([0]), ends, model.constant([1]))
    places = model.add("Gather", model.weight("places", PLACES, HIDDEN), positions)
    x = model.norm(model.add("Add", model.add("Add", words, segments), places), "embeddings")
    for layer in range(LAYERS):
        x = model.layer(x, mask, f"layer_{layer}")
    model.nodes[-1].output[0] = "last_hidden_state"
    dims = ["batch", "sequence"]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, dims)
        for name in ("input_ids", "token_type_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*dims, HIDDEN])
    graph = helper.make_graph(model.nodes, "bert", inputs, [output], model.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main(folder: Path) -> None:
    plain = folder / "plain.onnx"
    onnx.save(encoder(), plain)
    random = np.random.default_rng(1)
    feeds = {
        "input_ids": random.integers(0, WORDS, (2, 6)),
        "token_type_ids": random.integers(0, SEGMENTS, (2, 6)),
        "attention_mask": np.array([[1] * 6, [1] * 4 + [0] * 2]),
    }
    (expected,) = onnxruntime.InferenceSession(plain, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.savez(folder / "samples.npz", **feeds, last_hidden_state=expected)
    options = FusionOptions("bert")
    fused = optimize_model(
        str(plain), "bert", num_heads=HEADS, hidden_size=HIDDEN, optimization_options=options, opt_level=0
    )
    fused.save_model_to_file(str(folder / "bert.onnx"))
    plain.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
