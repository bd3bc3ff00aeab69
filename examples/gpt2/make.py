"""Generator of ``gpt2.onnx``, a GPT-2-like decoder with a past, and of ``gpt2-beams.onnx``, beam search with it.

Run ``python make.py [folder]``. The weights are random numbers of a fixed seed; ``samples.npz`` has the inputs of the
decoder, ``samples-beams.npz`` those of the beam search.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LAYERS, HIDDEN, HEADS, VOCABULARY, POSITIONS, END = 2, 16, 2, 24, 32, 23


class Decoder:
    """A builder that collects nodes and weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def weight(self, name: str, *shape: int, around: float = 0.0) -> str:
        values = self.random.standard_normal(shape) / np.sqrt(shape[0]) + around
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def add(self, op_type: str, *inputs: str, outputs: list[str], domain: str = "", **attributes: object) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def fused(self, op_type: str, *inputs: str, outputs: list[str], **attributes: object) -> str:
        return self.add(op_type, *inputs, outputs=outputs, domain="com.microsoft", **attributes)

    def skip(self, x: str, beside: str, name: str) -> tuple[str, str]:
        """Add a residual connection; returns the sum and its layer normalization."""
        shift = [self.weight(f"{name}.scale", HIDDEN, around=1.0), self.weight(f"{name}.shift", HIDDEN)]
        outputs = [f"{name}/norm", "", "", f"{name}/sum"]
        norm = self.fused("SkipLayerNormalization", x, beside, *shift, outputs=outputs, epsilon=1e-5)
        return f"{name}/sum", norm

    def layer(self, x: str, norm: str, number: int) -> tuple[str, str]:
        name = f"layer_{number}"
        weights = [self.weight(f"{name}.qkv", HIDDEN, 3 * HIDDEN), self.weight(f"{name}.qkv_bias", 3 * HIDDEN)]
        seen = self.fused(
            "Attention",
            norm,
            *weights,
            "attention_mask",
            f"past_{number}",
            outputs=[f"{name}/seen", f"present_{number}"],
            num_heads=HEADS,
            unidirectional=1,
        )
        joined = self.add("MatMul", seen, self.weight(f"{name}.out", HIDDEN, HIDDEN), outputs=[f"{name}/joined"])
        x, norm = self.skip(joined, x, f"{name}.middle")
        wide = self.add("MatMul", norm, self.weight(f"{name}.wide", HIDDEN, 4 * HIDDEN), outputs=[f"{name}/wide"])
        bent = self.fused("FastGelu", wide, self.weight(f"{name}.wide_bias", 4 * HIDDEN), outputs=[f"{name}/bent"])
        back = self.add("MatMul", bent, self.weight(f"{name}.back", 4 * HIDDEN, HIDDEN), outputs=[f"{name}/back"])
        return self.skip(back, x, f"{name}.last")

    def graph(self) -> onnx.GraphProto:
        words = self.add("Gather", self.weight("words", VOCABULARY, HIDDEN), "input_ids", outputs=["words/rows"])
        places = self.add("Gather", self.weight("places", POSITIONS, HIDDEN), "position_ids", outputs=["places/rows"])
        x, norm = self.skip(words, places, "first")
        for number in range(LAYERS):
            x, norm = self.layer(x, norm, number)
        self.add("MatMul", norm, self.weight("logits.weight", HIDDEN, VOCABULARY), outputs=["logits"])
        sizes = {"input_ids": "length", "position_ids": "length", "attention_mask": "total"}
        inputs = [helper.make_tensor_value_info(n, TensorProto.INT32, ["rows", size]) for n, size in sizes.items()]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", "length", VOCABULARY])]
        for states, name, length in ((inputs, "past", "before"), (outputs, "present", "total")):
            shape = [2, "rows", HEADS, length, HIDDEN // HEADS]
            states += [helper.make_tensor_value_info(f"{name}_{k}", TensorProto.FLOAT, shape) for k in range(LAYERS)]
        return helper.make_graph(self.nodes, "decoder", inputs, outputs, self.weights)


def model(graph: onnx.GraphProto) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def search(decoder: onnx.GraphProto) -> onnx.GraphProto:
    """A graph of one BeamSearch node with constant numbers of beams and tokens."""
    counts = {"min_length": 1, "num_beams": 3, "num_return_sequences": 2}
    factors = {"length_penalty": 1.0, "repetition_penalty": 1.1}
    names = ["input_ids", "max_length", *counts, *factors]
    node = helper.make_node(
        "BeamSearch",
        names,
        ["sequences", "sequences_scores"],
        name="search",
        domain="com.microsoft",
        decoder=decoder,
        eos_token_id=END,
        pad_token_id=END,
        no_repeat_ngram_size=3,
    )
    initializers = [numpy_helper.from_array(np.array([value], np.int32), name) for name, value in counts.items()]
    initializers += [numpy_helper.from_array(np.array([value], np.float32), name) for name, value in factors.items()]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["batch", "length"]),
        helper.make_tensor_value_info("max_length", TensorProto.INT32, [1]),
    ]
    outputs = [
        helper.make_tensor_value_info("sequences", TensorProto.INT32, ["batch", 2, "max_length"]),
        helper.make_tensor_value_info("sequences_scores", TensorProto.FLOAT, ["batch", 2]),
    ]
    return helper.make_graph([node], "search", inputs, outputs, initializers)


def main(folder: Path) -> None:
    decoder = Decoder().graph()
    random = np.random.default_rng(1)
    tokens = random.integers(0, END, (2, 5)).astype(np.int32)
    feeds = {
        "input_ids": tokens[:, :2],
        "position_ids": np.array([[3, 4], [3, 4]], np.int32),
        "attention_mask": np.array([[1] * 5, [0] + [1] * 4], np.int32),
    }
    for number in range(LAYERS):
        past = random.standard_normal((2, 2, HEADS, 3, HIDDEN // HEADS))
        feeds[f"past_{number}"] = past.astype(np.float32)
    for name, graph, inputs in (
        ("", decoder, feeds),
        ("-beams", search(decoder), {"input_ids": tokens, "max_length": np.array([14], np.int32)}),
    ):
        path = folder / f"gpt2{name}.onnx"
        onnx.save(model(graph), path)
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)
        np.savez(folder / f"samples{name}.npz", **inputs)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
