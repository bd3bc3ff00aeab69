"""Models with fused ops of onnxruntime: unchanged, lowered to ``ai.onnx``, and on numpy, all on one thread.

``python benchmarks/fused_models.py [word ...]`` runs the models whose names contain one of the words. They resemble the
output of onnxruntime's transformer optimizer and of onnxruntime-genai's model builder, with dynamic dims and random
weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from measure import rounds, table
from operators import ONE_THREAD

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.formats.onnx.writer import to_model
from tenonnx_contrib_ms import attention, gelu, grouped_query, normalization

LAYERS, HIDDEN, HEADS, GROUPS, SIZE, INNER, WORDS, LENGTH = 4, 512, 8, 2, 64, 1376, 4000, 128
LOWERED = (17, 23)
#: Number of calls of each contestant.
COUNT = 9

Feeds = dict[str, Any]


class Model:
    """A builder of graphs with random weights."""

    def __init__(self, opset_version: int) -> None:
        self.graph = tx.Graph(opsets={"ai.onnx": opset_version, "com.microsoft": 1})
        self.random = np.random.default_rng(0)

    def weight(self, *shape: int) -> Any:
        drawn = self.random.standard_normal(shape, np.float32) * np.float32(shape[0] ** -0.5 if shape[1:] else 1)
        return self.graph.variable(f"w{len(self.graph.variables)}", drawn)

    def linear(self, x: Any, inner: int, outer: int) -> Any:
        return ops.matmul(x, self.weight(inner, outer))

    def norm(self) -> tuple[Any, Any]:
        return self.weight(HIDDEN), self.weight(HIDDEN)

    def outputs(self, **values: Any) -> tx.Graph:
        for name, value in values.items():
            self.graph.output(name, value)
        return self.graph


def bert() -> tuple[tx.Graph, Feeds]:
    """An encoder of one sentence with a mask."""
    model = Model(17)
    names = "input_ids", "token_type_ids", "attention_mask"
    words, segments, mask = (model.graph.input(name, "int32", ("batch", "length")) for name in names)
    tables = model.weight(WORDS, HIDDEN), model.weight(LENGTH, HIDDEN), model.weight(2, HIDDEN)
    x, counted, _ = normalization.embed_layer_normalization(words, segments, *tables, *model.norm(), mask)
    for _ in range(LAYERS):
        projection = model.weight(HIDDEN, 3 * HIDDEN), model.weight(3 * HIDDEN)
        seen = attention.attention(x, *projection, counted, num_heads=HEADS, _outputs=1)
        skip = normalization.skip_layer_normalization
        x = skip(model.linear(seen, HIDDEN, HIDDEN), x, *model.norm(), model.weight(HIDDEN))[0]
        inner = gelu.bias_gelu(model.linear(x, HIDDEN, 4 * HIDDEN), model.weight(4 * HIDDEN))
        x = skip(model.linear(inner, 4 * HIDDEN, HIDDEN), x, *model.norm(), model.weight(HIDDEN))[0]
    feeds = {name: np.ones((1, LENGTH), np.int32) for name in names}
    feeds["input_ids"] = model.random.integers(WORDS, size=(1, LENGTH), dtype=np.int32)
    feeds["token_type_ids"][:, : LENGTH // 2] = 0
    return model.outputs(y=x), feeds


def gpt2(length: int, past: int) -> tuple[tx.Graph, Feeds]:
    """A decoder with past keys and values, and a mask that hides none of them."""
    model = Model(17)
    words, places = (model.graph.input(name, "int32", ("batch", "length")) for name in ("input_ids", "position_ids"))
    mask = model.graph.input("attention_mask", "int32", ("batch", "total"))
    skip = normalization.skip_layer_normalization
    x = ops.gather(model.weight(WORDS, HIDDEN), words)
    y, _, _, x = skip(x, ops.gather(model.weight(2 * LENGTH, HIDDEN), places), *model.norm())
    results, feeds = {}, {}
    for layer in range(LAYERS):
        past_state = model.graph.input(f"past_{layer}", "float32", (2, "batch", HEADS, "past", SIZE))
        feeds[f"past_{layer}"] = model.random.standard_normal((2, 1, HEADS, past, SIZE), np.float32)
        projection = model.weight(HIDDEN, 3 * HIDDEN), model.weight(3 * HIDDEN)
        seen, results[f"present_{layer}"] = attention.attention(
            y, *projection, mask, past_state, num_heads=HEADS, unidirectional=1
        )
        y, _, _, x = skip(model.linear(seen, HIDDEN, HIDDEN), x, *model.norm(), model.weight(HIDDEN))
        inner = gelu.fast_gelu(model.linear(y, HIDDEN, 4 * HIDDEN), model.weight(4 * HIDDEN))
        y, _, _, x = skip(model.linear(inner, 4 * HIDDEN, HIDDEN), x, *model.norm(), model.weight(HIDDEN))
    feeds["input_ids"] = model.random.integers(WORDS, size=(1, length), dtype=np.int32)
    feeds["position_ids"] = np.arange(past, past + length, dtype=np.int32)[None]
    feeds["attention_mask"] = np.ones((1, past + length), np.int32)
    return model.outputs(logits=model.linear(y, HIDDEN, WORDS), **results), feeds


def llama(length: int, past: int) -> tuple[tx.Graph, Feeds]:
    """A decoder with rotary embeddings and grouped-query attention; sequence lengths are computed from the mask."""
    model = Model(21)
    words = model.graph.input("input_ids", "int64", ("batch", "length"))
    mask = model.graph.input("attention_mask", "int64", ("batch", "total"))
    last = ops.cast(ops.reduce_sum(mask, [1], keepdims=0) - 1, to="int32")
    total = ops.cast(ops.gather(ops.shape(mask), np.int64(1)), to="int32")
    angles = np.outer(np.arange(4 * LENGTH), 10000.0 ** -(np.arange(0, SIZE, 2) / SIZE))
    tables = [model.graph.variable(f.__name__, f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    x = ops.gather(model.weight(WORDS, HIDDEN), words)
    y, _ = ops.simplified_layer_normalization(x, model.weight(HIDDEN))
    results, feeds = {}, {}
    for layer in range(LAYERS):
        names = [f"past_{layer}.{part}" for part in ("key", "value")]
        past_states = [model.graph.input(name, "float32", ("batch", GROUPS, "past", SIZE)) for name in names]
        feeds |= {name: model.random.standard_normal((1, GROUPS, past, SIZE), np.float32) for name in names}
        projected = [model.linear(y, HIDDEN, heads * SIZE) for heads in (HEADS, GROUPS, GROUPS)]
        seen, *present = grouped_query.group_query_attention(
            *projected, *past_states, last, total, *tables, num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1
        )
        results |= {name.replace("past", "present"): value for name, value in zip(names, present, strict=True)}
        skip = normalization.skip_simplified_layer_normalization
        y, _, _, x = skip(model.linear(seen, HIDDEN, HIDDEN), x, model.weight(HIDDEN))
        gate, up = (model.linear(y, HIDDEN, INNER) for _ in range(2))
        y, _, _, x = skip(model.linear(gate * ops.sigmoid(gate) * up, INNER, HIDDEN), x, model.weight(HIDDEN))
    feeds["input_ids"] = model.random.integers(WORDS, size=(1, length))
    feeds["attention_mask"] = np.ones((1, past + length), np.int64)
    return model.outputs(logits=model.linear(y, HIDDEN, WORDS), **results), feeds


MODELS: dict[str, Callable[[], tuple[tx.Graph, Feeds]]] = {
    "BERT": bert,
    "GPT-2, prompt": lambda: gpt2(LENGTH, 0),
    "GPT-2, next token": lambda: gpt2(1, LENGTH),
    "LLaMA, prompt": lambda: llama(LENGTH, 0),
    "LLaMA, next token": lambda: llama(1, LENGTH),
}


def session(graph: tx.Graph) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    model = to_model(graph).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def measured(graph: tx.Graph, feeds: Feeds) -> list[float]:
    """Processor milliseconds of the fused file, and the time ratios of the others. Raises if outputs differ."""
    ours = graph.compile("numpy")
    fused = session(graph)
    lowered = {str(k): session(tx.retarget(graph, k, domains=["ai.onnx"])) for k in LOWERED}
    implementations: dict[str, Callable[[], Any]] = {"fused": lambda: fused.run(None, feeds)}
    for name, moved in lowered.items():
        implementations[name] = lambda moved=moved: moved.run(None, feeds)
    implementations["numpy"] = lambda: list(ours(feeds).values())
    expected = implementations["fused"]()
    for call in list(implementations.values()) * 3:  # the numpy backend prepares kernels at the second call
        for found, wanted in zip(call(), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    times = rounds(implementations, count=COUNT, clock=time.process_time)
    return [times["fused"] * 1e3, *(times[name] / times["fused"] for name in implementations if name != "fused")]


def main(*wanted: str) -> None:
    if os.environ.get("OMP_NUM_THREADS") != "1":
        subprocess.run([sys.executable, __file__, *wanted], check=True, env=os.environ | ONE_THREAD)
        return
    chosen = {name: make for name, make in MODELS.items() if not wanted or any(word in name for word in wanted)}
    rows = [[name, *measured(*make())] for name, make in chosen.items()]
    columns = ["model", "fused ms", *(f"lowered to {k}" for k in LOWERED), "numpy"]
    table("Fused models, times the fused file in onnxruntime", columns, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
