"""Anonymized models have no names, texts and weights of the original."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx
from tenonnx_cli.tools import program
from tenonnx_debug.anonymize import anonymize
from tenonnx_debug.weights import Numbers

EXAMPLES = Path(__file__).parents[3] / "examples"
MODELS = [
    "digits/digits.onnx",
    "bert/bert.onnx",
    "decoder/decoder.onnx",
    "iris/iris.onnx",
    "quantized/resnet-qdq.onnx",
    "whisper/whisper.onnx",
]


def texts_of(message):
    """The names and texts of a model, except op types, domains and attributes."""
    texts = {message.producer_name, message.graph.name, message.doc_string}

    def look(graph):
        texts.update(each.name for each in (*graph.input, *graph.output, *graph.initializer, *graph.value_info))
        for node in graph.node:
            texts.update((node.name, *node.input, *node.output))
            for attribute in node.attribute:
                for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                    look(inner)

    look(message.graph)
    return {text for text in texts if len(text) >= 4}


def public_words(message):
    """Op types, domains, attribute names, enumerated values, and subgraph inputs that kernels refer to by name."""
    words = {"ai.onnx.ml", "com.microsoft", "model", "body"}

    def look(nodes):
        for node in nodes:
            words.update((node.op_type, *(each.name for each in node.attribute)))
            words.update(each.s.decode("utf-8", "replace") for each in node.attribute)
            for each in node.attribute:
                if node.domain == "com.microsoft":
                    words.update(v.name for v in (*each.g.input, *each.g.output))
                look(each.g.node)

    look(message.graph.node)
    return "\n".join(words)


@pytest.mark.parametrize("name", MODELS)
def test_names_texts_and_weights_of_the_original_are_removed(name):
    source = tx.load(EXAMPLES / name).to_proto()
    anonymized = anonymize(source)
    if name != "decoder/decoder.onnx":  # it has a contributed op
        onnx.checker.check_model(anonymized)
    data, kept = anonymized.SerializeToString(), public_words(anonymized)
    for text in texts_of(source):
        for start in range(len(text) - 3):
            part = text[start : start + 4]
            assert part.encode() not in data or part in kept or re.fullmatch(r"[vnd]\d+|\d+", part), part
    floats = {
        number
        for tensor in source.graph.initializer
        if numpy_helper.to_array(tensor).dtype.kind == "f"
        for number in numpy_helper.to_array(tensor).reshape(-1).tolist()
    }
    left = [
        number
        for tensor in anonymized.graph.initializer
        if numpy_helper.to_array(tensor).dtype == np.float32
        for number in numpy_helper.to_array(tensor).reshape(-1).tolist()
        if number in floats and number not in (0, 1, -1) and np.isfinite(number)
    ]
    assert not left
    assert [node.op_type for node in anonymized.graph.node] == [node.op_type for node in source.graph.node]


@pytest.mark.parametrize("name", MODELS[:-1])  # the beam search of Whisper does not take random lengths
def test_it_still_runs_with_the_same_shapes(name):
    source = tx.load(EXAMPLES / name)
    anonymized = tx.load(anonymize(source))
    tx.infer(anonymized, strict=False)
    assert len(anonymized.nodes) == len(source.nodes)
    assert [value.dtype for value in anonymized.inputs] == [value.dtype for value in source.inputs]
    assert [value.rank for value in anonymized.outputs] == [value.rank for value in source.outputs]
    assert tx.verify(anonymized).outputs


def test_private_ops_functions_and_texts_are_renamed():
    tensor = helper.make_tensor("labels", TensorProto.STRING, [2], [b"secret one", b"secret two"])
    nodes = [
        helper.make_node("SecretOp", ["secret_x"], ["secret_y"], domain="com.secret", secret_attribute="secret value"),
        helper.make_node("Twice", ["secret_y"], ["secret_z"], domain="com.secret"),
        helper.make_node("Einsum", ["secret_z", "secret_z"], ["secret_e"], equation="qk,qk->q"),
        helper.make_node("Constant", [], ["secret_c"], value=tensor),
    ]
    add = helper.make_node("Add", ["secret_a", "secret_a"], ["secret_b"])
    opset = helper.make_opsetid("", 17)
    body = helper.make_function("com.secret", "Twice", ["secret_a"], ["secret_b"], [add], [opset])
    graph = helper.make_graph(
        nodes,
        "secret graph",
        [helper.make_tensor_value_info("secret_x", TensorProto.FLOAT, ["secret_n", 4])],
        [helper.make_tensor_value_info("secret_e", TensorProto.FLOAT, ["secret_n"])],
        doc_string="secret",
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.secret", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=[body], producer_name="secret")
    helper.set_model_props(model, {"secret": "secret"})
    anonymized = anonymize(model)
    assert b"ecre" not in anonymized.SerializeToString()
    assert {node.domain for node in anonymized.graph.node} == {"", "private"}
    assert anonymized.graph.node[1].op_type == anonymized.functions[0].name
    assert anonymized.graph.node[2].attribute[0].s == b"ab,ab->a"
    assert len(set(anonymized.graph.node[3].attribute[0].t.string_data)) == 2


def test_weights_keep_zeros_range_special_values_and_equal_rows():
    contents = np.array([[0, 1, -1, np.nan], [np.inf, -np.inf, 0.25, -3], [0, 1, -1, np.nan]], np.float32)
    replaced = Numbers(0, [contents]).replaced(contents)
    special = ~np.isfinite(contents) | np.isin(contents, (0, 1, -1))
    np.testing.assert_array_equal(replaced[special], contents[special])
    assert (replaced[~special] != contents[~special]).all()
    assert (np.sign(replaced[~special]) == np.sign(contents[~special])).all()
    assert np.abs(replaced[~special]).max() <= 3
    np.testing.assert_array_equal(replaced[0], replaced[2])
    quantized = np.array([[0, 5, 0, -7]], np.int8)
    new = Numbers(0).replaced(quantized)
    assert ((new == 0) == (quantized == 0)).all()
    assert new.dtype == np.int8


def test_the_seed_determines_weights_and_initializers_can_be_kept():
    source = tx.load(EXAMPLES / "digits/digits.onnx")
    assert anonymize(source) == anonymize(source)
    assert anonymize(source) != anonymize(source, seed=1)
    kept = next(value.name for value in source.variables if value.data.array().dtype == np.float32)
    anonymized = anonymize(source, keep=[kept])
    place = [each.name for each in source.to_proto().graph.initializer].index(kept)
    np.testing.assert_array_equal(numpy_helper.to_array(anonymized.graph.initializer[place]), source[kept].data.array())
    with pytest.raises(tx.InvalidCall, match='no initializer "w0"'):
        anonymize(source, keep=["w0"])


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("raise SystemExit(3)", 0),
        ("raise SystemExit('digits' in open(__import__('sys').argv[1], 'rb').read().decode('latin-1'))", 1),
    ],
)
def test_the_command_reports_whether_the_failure_remains(tmp_path, capsys, script, code):
    import sys

    (tmp_path / "check.py").write_text(script)
    line = ["anonymize", str(EXAMPLES / "digits/digits.onnx"), "-o", str(tmp_path / "a.onnx")]
    line += ["--check", f"{sys.executable} {tmp_path / 'check.py'}"]
    assert program.main(line, standalone_mode=False) == code
    assert (tmp_path / "a.onnx").exists()
    assert "fail" in capsys.readouterr().err
