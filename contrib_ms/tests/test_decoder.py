"""The example decoder on numpy, with onnxruntime's fused operators, and lowered to ``ai.onnx``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model
from tenonnx_contrib_ms.grouped_query import group_query_attention

DECODER = Path(__file__).parents[2] / "examples" / "decoder"
SAMPLES = ["samples.npz", "samples-decode.npz"]


@pytest.fixture(scope="module")
def graph():
    return tx.load(DECODER / "decoder.onnx")


@pytest.fixture(scope="module")
def reference():
    session = onnxruntime.InferenceSession(DECODER / "decoder.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds), strict=True))


def feeds_of(name):
    return dict(np.load(DECODER / name))


def padded(feeds):
    """Return the same prompt with the first sequence three tokens shorter, padded on the right."""
    mask = feeds["attention_mask"].copy()
    mask[0, -3:] = 0
    return feeds | {"attention_mask": mask}


def assert_equal(actual, expected, rows=None):
    assert actual.keys() == expected.keys()
    for name, wanted in expected.items():
        assert actual[name].shape == wanted.shape
        chosen = rows if rows is not None and name == "logits" else np.ones(wanted.shape[:1], bool)
        np.testing.assert_allclose(actual[name][chosen], wanted[chosen], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", SAMPLES)
def test_equals_onnxruntime(graph, reference, name):
    feeds = feeds_of(name)
    assert_equal(graph.run(feeds, backend="numpy"), reference(feeds))


def test_padding(graph, reference):
    feeds = padded(feeds_of("samples.npz"))
    assert_equal(graph.run(feeds, backend="numpy"), reference(feeds), feeds["attention_mask"].astype(bool))


def test_ragged_past(graph, reference):
    """In a batch, a shorter sequence continues after its own past."""
    prompt = padded(feeds_of("samples.npz"))
    past = reference(prompt)
    for name, array in past.items():
        if name != "logits":
            array[0, :, -3:] = 0  # onnxruntime clears memory after a past, unless it writes in place
    feeds = feeds_of("samples-decode.npz")
    feeds |= {name.replace("present", "past_key_values"): array for name, array in past.items() if name != "logits"}
    mask = feeds["attention_mask"].copy()
    mask[0, -4:-1] = 0
    feeds["attention_mask"] = mask
    assert_equal(graph.run(feeds, backend="numpy"), reference(feeds))


@pytest.mark.parametrize("opset", [9, 11, 15, 21, 25])
def test_plain_operators(graph, reference, opset):
    """The lowered model gives the same results in onnxruntime, for a prompt and for the next token."""
    moved = tx.retarget(graph, opset, domains=["ai.onnx"])
    assert {node.domain for node in moved.nodes} == {"ai.onnx"}
    model = to_model(moved)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for name in SAMPLES:
        feeds = feeds_of(name)
        expected = reference(feeds)
        assert_equal(dict(zip(expected, session.run(list(expected), feeds), strict=True)), expected)


def test_heads_are_checked_at_import():
    model = onnx.load(DECODER / "decoder.onnx")
    node = next(n for n in model.graph.node if n.op_type == "GroupQueryAttention")
    next(a for a in node.attribute if a.name == "kv_num_heads").i = 3
    with pytest.raises(tx.TenonnxError, match="kv_num_heads does not divide num_heads"):
        tx.load(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sliding_window_cache": 1}, "sliding_window_cache is set, without local_window_size"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type and v_quant_type differ"),
        ({"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}, "k_scale or v_scale is missing"),
        ({"k_quant_type": "PER_ROW"}, "unknown k_quant_type"),
        ({"causal": 0, "local_window_size": 3}, "local_window_size is not -1, with causal 0"),
    ],
)
def test_contradictory_attributes_are_rejected(change, message):
    model = onnx.load(DECODER / "decoder.onnx")
    node = next(n for n in model.graph.node if n.op_type == "GroupQueryAttention")
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in change.items())
    with pytest.raises(tx.TenonnxError, match=message):
        tx.load(model).infer()


@pytest.mark.parametrize(("opset", "most"), [(13, 60), (17, 60), (23, 40)])
def test_a_lowered_attention_is_short(opset, most):
    """With static sizes and a cache, the lowered graph is as short as a handwritten one."""
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    given = [graph.input(name, "float32", (2, 1, width)) for name, width in (("q", 64), ("k", 32), ("v", 32))]
    past = [graph.input(name, "float32", (2, 2, 8, 16)) for name in ("past_key", "past_value")]
    counts = graph.input("last", "int32", (2,)), graph.input("total", "int32", ())
    tables = [graph.input(name, "float32", (32, 8)) for name in ("cos", "sin")]
    for k, y in enumerate(
        group_query_attention(*given, *past, *counts, *tables, num_heads=4, kv_num_heads=2, do_rotary=1)
    ):
        graph.output(f"y{k}", y)
    assert len(tx.retarget(graph, opset, domains=["ai.onnx"]).nodes) <= most


@pytest.mark.parametrize("opset", [17, 23])
def test_layers_share_their_mask_and_their_tables(opset):
    """After simplification, all layers share one mask and two tables."""
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    x = graph.input("x", "float32", ("batch", "length", 64))
    counts = graph.input("last", "int32", ("batch",)), graph.input("total", "int32", ())
    tables = [graph.input(name, "float32", (32, 8)) for name in ("cos", "sin")]
    for layer in range(3):
        past = [graph.input(f"past_{layer}_{k}", "float32", ("batch", 4, "past", 16)) for k in range(2)]
        x, *_ = group_query_attention(x, x, x, *past, *counts, *tables, num_heads=4, kv_num_heads=4, do_rotary=1)
    graph.output("y", x)
    moved = tx.retarget(graph, opset, domains=["ai.onnx"])
    assert position_nodes(moved) == (3, 6)
    assert position_nodes(tx.simplify(moved)) == (1, 2)


def position_nodes(graph):
    """Numbers of nodes that compare positions, and that gather rows of the rotary caches."""
    read = [node for node in graph.nodes if node.op_type == "Gather" and node.inputs[0].name in ("cos", "sin")]
    return [node.op_type for node in graph.nodes].count("LessOrEqual"), len(read)
