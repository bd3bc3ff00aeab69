"""Models whose strings, sequences and maps need too much memory: refused before allocation."""

import itertools
import os
import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper

import tenonnx as tx

MEMORY = 1 << 28


def info(name, kind=TensorProto.FLOAT, dims=None):
    return helper.make_tensor_value_info(name, kind, dims)


def text(name, *texts):
    kind, encoded = TensorProto.STRING, [each.encode() for each in texts]
    return TensorProto(name=name, data_type=kind, dims=[len(texts)], string_data=encoded)


def sizes(name, *dims):
    return helper.make_tensor(name, TensorProto.INT64, [len(dims)], dims)


def model_of(nodes, initializers, kind=TensorProto.STRING):
    graph = helper.make_graph(nodes, "g", [], [info("y", kind)], initializers)
    imports = [
        helper.make_opsetid("", 21),
        helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("ai.onnx.ml", 3),
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def doubled(times):
    names = [*(f"s{k}" for k in range(times)), "y"]
    nodes = [helper.make_node("StringConcat", [a, a], [b]) for a, b in itertools.pairwise(names)]
    return model_of(nodes, [text("s0", "ab")])


def looped():
    given = [info("n", TensorProto.INT64, []), info("k", TensorProto.BOOL, []), info("v", TensorProto.STRING, [1])]
    nodes = [helper.make_node("Identity", ["k"], ["k1"]), helper.make_node("StringConcat", ["v", "v"], ["w"])]
    body = helper.make_graph(nodes, "b", given, [info("k1", TensorProto.BOOL), info("w", TensorProto.STRING, [1])])
    count = helper.make_tensor("m", TensorProto.INT64, [], [60])
    return model_of([helper.make_node("Loop", ["m", "", "s"], ["y"], body=body)], [count, text("s", "ab")])


def of_zeros(op, count, **attributes):
    """A string output of an op on ``count`` zeros."""
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c"]), helper.make_node(op, ["c"], ["y"], **attributes)]
    return model_of(nodes, [sizes("s", count)])


def pieces_of_zeros(op, *dims, **attributes):
    """The length of a sequence that an op makes of zeros."""
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node(op, ["c"], ["q"], **attributes),
        helper.make_node("SequenceLength", ["q"], ["y"]),
    ]
    return model_of(nodes, [sizes("s", *dims)], TensorProto.INT64)


def repeated():
    """A sequence with one tensor many times, concatenated."""
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("SequenceConstruct", ["c"] * 400, ["q"]),
    ]
    nodes.append(helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0))
    return model_of(nodes, [sizes("s", 1 << 20)], TensorProto.FLOAT)


def of_text(op, contents, outputs, **attributes):
    return model_of([helper.make_node(op, ["s"], outputs, **attributes)], [text("s", contents)])


GROWING = {
    "31 times twice the text": doubled(31),
    "40 times twice the text": doubled(40),
    "twice the text in a loop": looped(),
}

MODELS = GROWING | {
    "numbers as text": of_zeros("Cast", 1 << 26, to=TensorProto.STRING),
    "pieces of one element": pieces_of_zeros("SplitToSequence", 1 << 23, keepdims=0),
    "rows that keep the axis": pieces_of_zeros("SplitToSequence", 1 << 23),
    "maps": pieces_of_zeros("ZipMap", 1 << 25, 1, domain="ai.onnx.ml", classlabels_int64s=[1]),
    "one tensor, many times": repeated(),
    "pieces of a text": of_text("StringSplit", "," * (1 << 23), ["y", "n"], delimiter=","),
    "tokens of a text": of_text(
        "Tokenizer",
        "a" * (1 << 23),
        ["y"],
        domain="com.microsoft",
        mark=0,
        mincharnum=1,
        pad_value="",
        separators=[""],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_memory_limit_counts_bytes_of_strings(name):
    with tx.limits.override(memory=MEMORY), pytest.raises(tx.LimitExceeded, match=r'"(memory|elements)"'):
        tx.load(MODELS[name]).run({}, backend="numpy")


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.filterwarnings("ignore::tenonnx.errors.FallbackWarning")
def test_growing_strings_are_not_passed_to_a_runtime_without_limits(name):
    with tx.limits.override(memory=MEMORY), pytest.raises(tx.LimitExceeded, match='"memory"'):
        tx.load(MODELS[name]).run({}, backend="auto")


@pytest.mark.parametrize("name", GROWING)
def test_inference_and_export_allocate_no_large_strings(name, tmp_path):
    graph = tx.load(MODELS[name])
    before = tx.limits.resident()
    tx.infer(graph, strict=False)
    tx.export(graph, tmp_path / "m.onnx", opset_version=22)
    assert (tmp_path / "m.onnx").stat().st_size < 1 << 16
    assert tx.limits.resident() - before < MEMORY


def test_one_long_string_among_short_ones_needs_only_its_own_memory(tmp_path):
    texts = text("s", *["a"] * 50_000, "b" * 100_000, "")
    onnx.save(model_of([helper.make_node("Identity", ["s"], ["y"])], [texts]), tmp_path / "m.onnx")
    before = tx.limits.resident()
    graph = tx.load(tmp_path / "m.onnx")
    tx.infer(graph)
    result = graph.run({}, backend="numpy")["y"]
    assert (result[0], len(result[50_000]), result[50_001], result.shape) == ("a", 100_000, "", (50_002,))
    assert tx.limits.resident() - before < MEMORY


@pytest.mark.parametrize("dims", [[3], [0], [2, 2]])
def test_a_number_of_strings_that_contradicts_the_dims_is_refused(dims):
    broken = text("s", "a", "b")
    broken.dims[:] = dims
    with pytest.raises(tx.InvalidModel, match='tensor "s"'):
        tx.load(model_of([helper.make_node("Identity", ["s"], ["y"])], [broken])).run({}, backend="numpy")


def test_strings_with_invalid_utf_8_are_refused():
    broken = text("s", "a", "b")
    broken.string_data[1] = b"\xff"
    with pytest.raises(tx.InvalidModel, match='tensor "s"'):
        tx.load(model_of([helper.make_node("Identity", ["s"], ["y"])], [broken])).run({}, backend="numpy")


def test_the_sum_of_all_values_keeps_to_the_limit():
    nodes = []
    for k in range(20):
        nodes.append(helper.make_node("ConstantOfShape", ["s"], [f"c{k}"]))
        nodes.append(helper.make_node("Neg", [f"c{k}"], [f"d{k}"]))
    nodes.append(helper.make_node("SequenceConstruct", [f"d{k}" for k in range(20)], ["q"]))
    nodes.append(helper.make_node("SequenceLength", ["q"], ["y"]))
    model = model_of(nodes, [sizes("s", 1 << 23)], TensorProto.INT64)
    with (
        tx.limits.override(memory=MEMORY),
        pytest.raises(tx.LimitExceeded, match='exceed the limit "memory" in total'),
    ):
        tx.load(model).run({}, backend="numpy")


def test_strings_within_the_limit_are_unchanged():
    assert tx.load(doubled(10)).run({}, backend="numpy")["y"].tolist() == ["ab" * 1024]
    split = model_of([helper.make_node("StringSplit", ["s"], ["y", "n"])], [text("s", "a b  c")])
    assert tx.load(split).run({}, backend="numpy")["y"].tolist() == [["a", "b", "c"]]


def test_a_command_ends_if_a_runtime_takes_too_much_memory(tmp_path):
    nodes = []
    for k in range(24):
        nodes += [
            helper.make_node("ConstantOfShape", ["s"], [f"c{k}"]),
            helper.make_node("Add", [f"c{k}", "x"], [f"d{k}"]),
        ]
    nodes += [helper.make_node("SequenceConstruct", [f"d{k}" for k in range(24)], ["q"])]
    nodes += [helper.make_node("SequenceLength", ["q"], ["y"])]
    model = model_of(nodes, [sizes("s", 1 << 23)], TensorProto.INT64)
    model.graph.input.append(info("x", dims=[1]))
    onnx.save(model, tmp_path / "m.onnx")
    command = [sys.executable, "-m", "tenonnx", "run", str(tmp_path / "m.onnx"), "--backend", "onnxruntime"]
    environment = {**os.environ, "TENONNX_LIMIT_MEMORY": str(MEMORY)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'LimitExceeded: the values of the model exceed the limit "memory" in total' in done.stderr
