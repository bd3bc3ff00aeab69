"""Search ops: calls that conformance cases avoid, and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx.formats.onnx.writer import to_model

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt2"
VOCABULARY, WIDTH, HEADS, END, PADDING = 9, 8, 2, 8, 5


def decoder(seed, past=("past_0", "present_0")):
    random = np.random.default_rng(seed)

    def weight(name, *shape):
        return numpy_helper.from_array((random.normal(size=shape) * 0.9).astype(np.float32), name)

    held = [weight("tokens", VOCABULARY, WIDTH), weight("places", 16, WIDTH), weight("out", WIDTH, VOCABULARY)]
    held += [weight("weights", WIDTH, 3 * WIDTH), weight("bias", 3 * WIDTH)]
    nodes = [
        helper.make_node("Gather", ["tokens", "input_ids"], ["t"]),
        helper.make_node("Gather", ["places", "position_ids"], ["p"]),
        helper.make_node("Add", ["t", "p"], ["x"]),
        helper.make_node(
            "Attention",
            ["x", "weights", "bias", "attention_mask", past[0]],
            ["a", past[1]],
            domain="com.microsoft",
            num_heads=HEADS,
            unidirectional=1,
        ),
        helper.make_node("Add", ["x", "a"], ["y"]),
        helper.make_node("MatMul", ["y", "out"], ["logits"]),
    ]
    tokens = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["rows", length])
        for name, length in (("input_ids", "length"), ("position_ids", "length"), ("attention_mask", "total"))
    ]
    size = WIDTH // HEADS
    before = helper.make_tensor_value_info(past[0], TensorProto.FLOAT, [2, "rows", HEADS, "past", size])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", "length", VOCABULARY])
    after = helper.make_tensor_value_info(past[1], TensorProto.FLOAT, [2, "rows", HEADS, "total", size])
    return helper.make_graph(nodes, "decoder", [*tokens, before], [logits, after], held)


def greedy(seed, **more):
    attributes = {"decoder": decoder(seed), "eos_token_id": END, "pad_token_id": PADDING} | more
    node = helper.make_node(
        "GreedySearch", ["input_ids", "max_length"], ["sequences"], domain="com.microsoft", **attributes
    )
    given = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["batch", "length"]),
        helper.make_tensor_value_info("max_length", TensorProto.INT32, [1]),
    ]
    result = helper.make_tensor_value_info("sequences", TensorProto.INT32, ["batch", "max_length"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", given, [result]), opset_imports=opsets, ir_version=8)


FEEDS = {"input_ids": np.array([[3, 1, 2], [0, 4, 5]], np.int32), "max_length": np.array([10], np.int32)}


@pytest.mark.parametrize("seed", range(4))
def test_padding_follows_the_end_token(seed):
    """onnxruntime stops once all sequences have ended, and leaves uninitialized memory after them."""
    model = greedy(seed)
    sequences = tx.load(model).run(FEEDS, backend="numpy")["sequences"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, FEEDS)
    running = [np.flatnonzero(row != PADDING).max() + 1 for row in sequences]
    length = min(max(running) + 1, sequences.shape[1])
    assert sequences[:, :length].tolist() == expected[:, :length].tolist()
    assert all((row[n:] == PADDING).all() for row, n in zip(sequences, running, strict=True))


def one_search(kind, feeds, outputs=("sequences",), **more):
    """Return a model with one search op."""
    attributes = {"decoder": decoder(2), "eos_token_id": END, "pad_token_id": PADDING} | more
    node = helper.make_node(kind, list(feeds), outputs, domain="com.microsoft", **attributes)
    types = {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.float32): TensorProto.FLOAT}
    given = [helper.make_tensor_value_info(name, types[x.dtype], x.shape) for name, x in feeds.items()]
    kinds = zip(outputs, "if"[: len(outputs)], strict=True)
    result = [helper.make_tensor_value_info(name, types[np.dtype(kind)], None) for name, kind in kinds]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", given, result), opset_imports=opsets, ir_version=8)


def searched(kind, feeds, outputs=("sequences",), **more):
    """Run one search in onnxruntime and here, and return both results."""
    model = one_search(kind, feeds, outputs, **more)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds), list(tx.load(model).run(feeds, backend="numpy").values())


def ints(*numbers):
    return np.array(numbers, np.int32)


BEAMS = {"min_length": ints(1), "num_beams": ints(1), "num_return_sequences": ints(1), "factor": np.ones(1, "f")}
PENALTY = {"penalty": np.ones(1, "f")}


@pytest.mark.parametrize("end", range(9))
def test_whether_a_second_prompt_is_done_depends_on_the_first(end):
    """onnxruntime's kernel reads the scores of the previous prompt."""
    feeds = {"input_ids": ints([7], [5], [3]), "max_length": ints(5)} | BEAMS
    expected, result = searched("BeamSearch", feeds, eos_token_id=end)
    np.testing.assert_array_equal(result, expected)


def test_a_prompt_of_padding_starts_at_position_0():
    feeds = {"input_ids": ints([5], [4], [2]), "max_length": ints(6), "min_length": ints(6)}
    mask = {"mask": ints(*[1] * VOCABULARY), "first": np.ones((3, VOCABULARY), np.int32), "seen": ints([1], [1], [1])}
    expected, result = searched("GreedySearch", feeds | PENALTY | mask)
    np.testing.assert_array_equal(result, expected)


def test_sequences_without_a_possible_token():
    """Fully masked sequences have the score -inf, and are returned nevertheless."""
    feeds = {"input_ids": ints([0, 7, 2], [1, 7, 3]), "max_length": ints(9)} | BEAMS
    feeds |= {"num_beams": ints(3), "num_return_sequences": ints(3), "factor": np.float32([-0.5])}
    masks = PENALTY | {"mask": ints(1, 0, 1, 0, 1, 1, 1, 0, 0)}
    expected, result = searched("BeamSearch", feeds | masks, ("sequences", "scores"), no_repeat_ngram_size=1)
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-4)
    assert np.isinf(result[1]).any()


@pytest.mark.parametrize("options", [{"top_p": 0.8}, {"top_p": 0.6, "custom": 1}, {"top_p": 0.99}])
def test_a_token_is_drawn_as_often_as_in_onnxruntime(options):
    count = 2000
    feeds = {"input_ids": ints(*[[3]] * count), "max_length": ints(2), "min_length": ints(2)} | PENALTY
    masks = {"mask": ints(*[1] * VOCABULARY), "first": np.ones((count, VOCABULARY), np.int32)}
    masks |= {"seen": np.ones((count, 1), np.int32), "listed": np.zeros((count, VOCABULARY), np.int32)}
    masks["seed"] = ints(3)
    (expected,), (result,) = searched("Sampling", feeds | masks, temperature=6.0, min_tokens_to_keep=1, **options)
    often = [np.bincount(tokens[:, 1], minlength=VOCABULARY) / count for tokens in (expected, result)]
    assert np.count_nonzero(often[1]) > 1
    np.testing.assert_allclose(*often, atol=5 * (0.5 / count) ** 0.5)


def test_the_seed_of_a_file_is_used():
    ids = {"input_ids": ints(*[[3]] * 20), "max_length": ints(12)}
    drawn = []
    for seed in (1, 1, 2):
        model = one_search("Sampling", ids, temperature=9.0, top_p=0.99)
        node = model.graph.node[0]
        node.input.extend([""] * 6 + ["seed"])
        model.graph.initializer.append(numpy_helper.from_array(ints(seed), "seed"))
        drawn.append(tx.load(model).run(ids, backend="numpy")["sequences"])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_generation_is_lowered_to_a_loop(opset):
    moved = tx.retarget(tx.load(greedy(1)), opset, domains=["ai.onnx"])
    assert {node.domain for node in moved.walk()} == {"ai.onnx"}
    assert [node.op_type for node in moved.nodes].count("Loop") == 1


def test_unsupported_decoders_are_rejected():
    with pytest.raises(tx.TenonnxError, match="model_type is not 0"):
        tx.load(greedy(0, model_type=1)).infer()
    for kind, model_type, output in (
        ("BeamSearch", 1, "encoder is missing"),
        ("BeamSearch", 3, "model_type is not 0, 1 or 2"),
        ("WhisperBeamSearch", 0, "model_type is not 2"),
    ):
        feeds = {"input_ids": ints([1]), "max_length": ints(5)} | BEAMS
        if kind == "WhisperBeamSearch":
            feeds["input_ids"] = np.zeros((1, 2, 3), np.float32)
        with pytest.raises(tx.TenonnxError, match=output):
            tx.load(one_search(kind, feeds, model_type=model_type)).infer()
    odd = decoder(0)
    del odd.output[1]
    with pytest.raises(tx.TenonnxError, match="return logits and as many present states"):
        tx.load(greedy(0, decoder=odd)).infer()


def test_generation_has_no_gradient():
    graph = tx.load(EXAMPLE / "gpt2-beams.onnx")
    with pytest.raises(tx.NotDifferentiable, match="BeamSearch@1: selected tokens have no gradient"):
        tx.grad(graph, of="sequences_scores", wrt="length_penalty", seeds={"sequences_scores": "seed"})


@pytest.mark.parametrize("name", ["", "-beams"])
@pytest.mark.parametrize("opset", [None, 13, 17, 21, 23])
def test_gpt2(name, opset):
    """Run the GPT-2 example, with and without beams."""
    path = EXAMPLE / f"gpt2{name}.onnx"
    with np.load(EXAMPLE / f"samples{name}.npz") as arrays:
        feeds = dict(arrays)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    graph = tx.load(path)
    if opset is None:
        result = list(graph.run(feeds, backend="numpy").values())
    else:
        model = to_model(tx.retarget(graph, opset, domains=["ai.onnx"])).SerializeToString()
        result = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    for actual, wanted in zip(result, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)
