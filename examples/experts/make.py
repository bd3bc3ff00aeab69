"""Generator of ``experts.onnx``: a mixture-of-experts decoder of fused ``com.microsoft`` operators.

Run ``python make.py [folder]``. The weights are random numbers of a fixed seed; ``samples.npz`` has inputs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LAYERS, HIDDEN, INNER, VOCABULARY, EXPERTS, CHOSEN = 2, 32, 24, 40, 4, 2
HEADS, KEY_VALUE_HEADS = 4, 2


class Model:
    """A builder that collects nodes and weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def weight(self, name: str, *shape: int, around: float = 0.0) -> str:
        values = self.random.standard_normal(shape) / np.sqrt(shape[-1]) + around
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def add(self, op_type: str, *inputs: str, outputs: list[str], domain: str = "", **attributes: object) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return next(filter(None, outputs))

    def layer(self, x: str, norm: str, name: str) -> tuple[str, str]:
        """Add a layer to the residual ``x`` and its normalized value; returns both for the next layer."""
        width = HIDDEN // HEADS
        q, k, v = (
            self.add("MatMul", norm, self.weight(f"{name}.{part}", HIDDEN, count * width), outputs=[f"{name}/{part}"])
            for part, count in (("query", HEADS), ("key", KEY_VALUE_HEADS), ("value", KEY_VALUE_HEADS))
        )
        seen = self.add(
            "GroupQueryAttention",
            q,
            k,
            v,
            "",
            "",
            "seqlens_k",
            "total_sequence_length",
            domain="com.microsoft",
            outputs=[f"{name}/seen", f"{name}/present_key", f"{name}/present_value"],
            num_heads=HEADS,
            kv_num_heads=KEY_VALUE_HEADS,
        )
        seen = self.add("MatMul", seen, self.weight(f"{name}.joined", HIDDEN, HIDDEN), outputs=[f"{name}/joined"])
        x, norm = self.skip(seen, x, f"{name}.norm")
        rows = self.add("Reshape", norm, "rows", outputs=[f"{name}/rows"])
        logits = self.add("MatMul", rows, self.weight(f"{name}.router", HIDDEN, EXPERTS), outputs=[f"{name}/router"])
        inside = self.weight(f"{name}.inside", EXPERTS, 2 * INNER, HIDDEN)
        biases = [self.weight(f"{name}.{part}", EXPERTS, size) for part, size in (("b1", 2 * INNER), ("b2", HIDDEN))]
        outside = self.weight(f"{name}.outside", EXPERTS, HIDDEN, INNER)
        mixed = self.add(
            "MoE",
            norm,
            logits,
            inside,
            biases[0],
            outside,
            biases[1],
            domain="com.microsoft",
            outputs=[f"{name}/mixed"],
            k=CHOSEN,
            activation_type="swiglu",
            swiglu_fusion=1,
            activation_alpha=1.702,
            activation_beta=1.0,
            swiglu_limit=7.0,
            normalize_routing_weights=1,
        )
        return self.skip(mixed, x, f"{name}.last")

    def skip(self, x: str, beside: str, name: str) -> tuple[str, str]:
        norm = self.add(
            "SkipSimplifiedLayerNormalization",
            x,
            beside,
            self.weight(name, HIDDEN, around=1.0),
            epsilon=1e-5,
            domain="com.microsoft",
            outputs=[f"{name}/norm", "", "", f"{name}/sum"],
        )
        return f"{name}/sum", norm


def decoder() -> onnx.ModelProto:
    model = Model()
    model.weights.append(numpy_helper.from_array(np.array([-1, HIDDEN]), "rows"))
    x = model.add("Gather", model.weight("words", VOCABULARY, HIDDEN, around=0.1), "input_ids", outputs=["embedded"])
    scale = model.weight("first", HIDDEN, around=1.0)
    norm = model.add("SimplifiedLayerNormalization", x, scale, outputs=["first/norm"], axis=-1, epsilon=1e-5)
    for number in range(LAYERS):
        x, norm = model.layer(x, norm, f"layer_{number}")
    model.add("MatMul", norm, model.weight("logits.weight", HIDDEN, VOCABULARY), outputs=["logits"])
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"]),
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, ["batch"]),
        helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, []),
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", VOCABULARY])
    graph = helper.make_graph(model.nodes, "experts", inputs, [output], model.weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def main(folder: Path) -> None:
    onnx.save(decoder(), folder / "experts.onnx")
    feeds = {
        "input_ids": np.random.default_rng(1).integers(0, VOCABULARY, (2, 5)),
        "seqlens_k": np.array([4, 4], np.int32),
        "total_sequence_length": np.array(5, np.int32),
    }
    onnxruntime.InferenceSession(folder / "experts.onnx", providers=["CPUExecutionProvider"]).run(None, feeds)
    np.savez(folder / "samples.npz", **feeds)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
