"""Generator of a tiny LLaMA-like decoder of onnxruntime's fused ``com.microsoft`` operators.

Run ``python make.py [folder]``. It writes ``decoder.onnx``, whose weights are random numbers of a fixed seed, and
inputs for it: ``samples.npz`` is a prompt with an empty past, ``samples-decode.npz`` the token after that prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LAYERS, HIDDEN, INNER, VOCABULARY, POSITIONS = 2, 32, 64, 64, 128
HEADS, KEY_VALUE_HEADS, HEAD_SIZE = 4, 2, 8
FUSED = {"FusedMatMul", "Gelu", "GroupQueryAttention", "RotaryEmbedding", "SkipSimplifiedLayerNormalization"}
CACHE = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]

Tensors = dict[str, np.ndarray]


class Builder:
    """A builder that collects nodes and weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def node(self, operator: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        """Add a node with the name of its first output, and return that name."""
        domain = "com.microsoft" if operator in FUSED else ""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def constant(self, name: str, value: Any, dtype: type = np.float32) -> str:
        """Add an initializer and return its name."""
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, name: str, rows: int, columns: int) -> str:
        """Add a random matrix, scaled to preserve the variance of activations."""
        return self.constant(name, self.random.standard_normal((rows, columns)) / np.sqrt(rows))

    def gain(self, name: str) -> str:
        """Add the scale of a normalization: random numbers near one."""
        return self.constant(name, 1 + 0.1 * self.random.standard_normal(HIDDEN))

    def project(self, name: str, source: str, rows: int, columns: int) -> str:
        """Multiply ``source`` by a new weight matrix."""
        return self.node("MatMul", [source, self.weight(f"{name}.weight", rows, columns)], name)


def add_lengths(graph: Builder) -> tuple[str, str, str]:
    """Derive the last key's index, the total length and the positions of the new tokens from the attention mask."""
    one, axis = graph.constant("one", [1], np.int64), graph.constant("axis", 1, np.int64)
    end = graph.constant("end", [np.iinfo(np.int64).max], np.int64)
    graph.node("ReduceSum", ["attention_mask", one], "mask.count", keepdims=0)
    graph.node("Sub", ["mask.count", one], "mask.last")
    last = graph.node("Cast", ["mask.last"], "seqlens_k", to=TensorProto.INT32)
    graph.node("Shape", ["attention_mask"], "mask.shape")
    graph.node("Gather", ["mask.shape", axis], "mask.length")
    total = graph.node("Cast", ["mask.length"], "total_sequence_length", to=TensorProto.INT32)
    graph.node("CumSum", ["attention_mask", axis], "mask.running")
    graph.node("Sub", ["mask.running", one], "mask.positions")
    # The new tokens are the last columns of the mask.
    graph.node("Shape", ["input_ids"], "new.length", start=1, end=2)
    graph.node("Neg", ["new.length"], "new.start")
    return last, total, graph.node("Slice", ["mask.positions", "new.start", end, one], "position_ids")


def add_attention(graph: Builder, layer: int, source: str, lengths: tuple[str, str, str]) -> str:
    """Add grouped-query attention over the past and the new tokens; return its projection."""
    last, total, positions = lengths
    prefix, width, narrow = f"layers.{layer}.attention", HEADS * HEAD_SIZE, KEY_VALUE_HEADS * HEAD_SIZE
    query = graph.project(f"{prefix}.query", source, HIDDEN, width)
    key = graph.project(f"{prefix}.key", source, HIDDEN, narrow)
    value = graph.project(f"{prefix}.value", source, HIDDEN, narrow)
    rotary = [positions, "rotary.cosine", "rotary.sine"]
    query = graph.node("RotaryEmbedding", [query, *rotary], f"{query}.rotary", interleaved=0)
    key = graph.node("RotaryEmbedding", [key, *rotary], f"{key}.rotary", interleaved=0)
    past = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
    present = [f"present.{layer}.key", f"present.{layer}.value"]
    attributes = {"num_heads": HEADS, "kv_num_heads": KEY_VALUE_HEADS, "scale": HEAD_SIZE**-0.5, "do_rotary": 0}
    graph.node("GroupQueryAttention", [query, key, value, *past, last, total], prefix, *present, **attributes)
    return graph.project(f"{prefix}.output", prefix, width, HIDDEN)


def add_feed_forward(graph: Builder, layer: int, source: str) -> str:
    """Add the gated feed-forward part of a layer."""
    prefix = f"layers.{layer}.feed_forward"
    gate = graph.node("Gelu", [graph.project(f"{prefix}.gate", source, HIDDEN, INNER)], f"{prefix}.gelu")
    up = graph.project(f"{prefix}.up", source, HIDDEN, INNER)
    return graph.project(f"{prefix}.down", graph.node("Mul", [gate, up], f"{prefix}.product"), INNER, HIDDEN)


def add_skip(graph: Builder, name: str, added: str, residual: str, *, keep_sum: bool) -> tuple[str, str]:
    """Add ``added`` to ``residual`` and normalize; return the normalized sum and the sum."""
    inputs, sums = [added, residual, graph.gain(f"{name}.weight")], ["", "", f"{name}.sum"] if keep_sum else []
    return graph.node("SkipSimplifiedLayerNormalization", inputs, name, *sums, epsilon=1e-5), f"{name}.sum"


def build() -> onnx.ModelProto:
    """Return the whole model; the embedding matrix is also the output projection, transposed."""
    graph = Builder()
    angles = np.outer(np.arange(POSITIONS), 10000.0 ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE))
    graph.constant("rotary.cosine", np.cos(angles))
    graph.constant("rotary.sine", np.sin(angles))
    lengths = add_lengths(graph)
    embedding = graph.weight("embedding.weight", VOCABULARY, HIDDEN)
    residual = graph.node("Gather", [embedding, "input_ids"], "embedding")
    # onnxruntime keeps this operator in the default domain, though ONNX itself has none of that name.
    inputs = [residual, graph.gain("first_norm.weight")]
    source = graph.node("SimplifiedLayerNormalization", inputs, "first_norm", axis=-1, epsilon=1e-5, stash_type=1)
    for layer in range(LAYERS):
        attention = add_attention(graph, layer, source, lengths)
        source, residual = add_skip(graph, f"layers.{layer}.attention_norm", attention, residual, keep_sum=True)
        forward = add_feed_forward(graph, layer, source)
        # Nothing reads the sum after the last normalization.
        more = layer < LAYERS - 1
        source, residual = add_skip(graph, f"layers.{layer}.feed_forward_norm", forward, residual, keep_sum=more)
    graph.node("FusedMatMul", [source, embedding], "logits", transB=1, alpha=2.0)
    return finish(graph)


def finish(graph: Builder) -> onnx.ModelProto:
    """Make a model of the graph with its inputs and outputs."""
    real, whole, value = TensorProto.FLOAT, TensorProto.INT64, helper.make_tensor_value_info
    past, present = (["batch", KEY_VALUE_HEADS, length, HEAD_SIZE] for length in ("past", "total"))
    inputs = [
        value("input_ids", whole, ["batch", "sequence"]),
        value("attention_mask", whole, ["batch", "total"]),
        *(value(f"past_key_values.{name}", real, past) for name in CACHE),
    ]
    outputs = [
        value("logits", real, ["batch", "sequence", VOCABULARY]),
        *(value(f"present.{name}", real, present) for name in CACHE),
    ]
    body = helper.make_graph(graph.nodes, "decoder", inputs, outputs, graph.initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(body, opset_imports=opsets, ir_version=10, producer_name="examples/decoder")


def advance(session: onnxruntime.InferenceSession, tokens: np.ndarray, past: Tensors | None) -> tuple[Tensors, Tensors]:
    """Run new tokens after a past; return the feeds and the outputs."""
    empty = np.zeros((len(tokens), KEY_VALUE_HEADS, 0, HEAD_SIZE), np.float32)
    cache = {f"past_key_values.{name}": past[f"present.{name}"] if past else empty for name in CACHE}
    total = cache["past_key_values.0.key"].shape[2] + tokens.shape[1]
    feeds = {"input_ids": tokens, "attention_mask": np.ones((len(tokens), total), np.int64), **cache}
    return feeds, dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))


def main(folder: Path = Path(__file__).parent) -> None:
    """Write the model and its samples into ``folder``; check that decoding token by token matches the whole prompt."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(build(), folder / "decoder.onnx")
    session = onnxruntime.InferenceSession(folder / "decoder.onnx", providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, (2, 9))
    _, whole = advance(session, tokens, None)
    past = None
    for index in range(tokens.shape[1]):
        _, past = advance(session, tokens[:, index : index + 1], past)
        np.testing.assert_allclose(past["logits"][:, 0], whole["logits"][:, index], rtol=0, atol=1e-4)
    prompt, past = advance(session, tokens[:, :-1], None)
    step, after = advance(session, tokens[:, -1:], past)
    np.testing.assert_allclose(after["logits"][:, 0], whole["logits"][:, -1], rtol=0, atol=1e-4)
    np.savez(folder / "samples.npz", allow_pickle=False, **prompt)
    np.savez(folder / "samples-decode.npz", allow_pickle=False, **step)
    print(f"decoder.onnx: {tokens.shape[1]} tokens one by one give what they give at once")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
