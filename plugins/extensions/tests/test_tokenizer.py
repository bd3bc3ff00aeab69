"""Tokenizer graphs: ids equal to the library's, composition with models, the command line, and invalid files."""

import json

import numpy as np
import onnxruntime
import pytest
import sentencepiece
import text_files
from click.testing import CliRunner

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli.program import program
from tenonnx_onnxruntime import extensions

TEXTS = text_files.random_texts()
INPUT = np.array(TEXTS, object)


def rows(ids, mask):
    return [row[kept == 1].tolist() for row, kept in zip(ids, mask, strict=True)]


@pytest.mark.parametrize("kind", text_files.KINDS)
def test_ids_of_a_tokenizer_json(kind, tmp_path):
    made = text_files.KINDS[kind]()
    made.save(str(tmp_path / "tokenizer.json"))
    result = tx.tokenizer(tmp_path).run({"text": INPUT}, backend="numpy")
    expected = [made.encode(text) for text in TEXTS]
    assert rows(result["input_ids"], result["attention_mask"]) == [each.ids for each in expected]
    for row, each in zip(result["offset_mapping"], expected, strict=True):
        assert [tuple(pair) for pair in row[: len(each.ids)].tolist()] == each.offsets
    assert result["token_type_ids"].shape == result["input_ids"].shape


def test_ids_of_a_vocabulary(tmp_path):
    made = text_files.wordpiece()
    text_files.write_vocabulary(tmp_path, made, do_lower_case=True)
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    result = tx.tokenizer(tmp_path).run({"text": INPUT}, backend="numpy")
    assert rows(result["input_ids"], result["attention_mask"]) == [made.encode(text).ids for text in TEXTS]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word"])
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_ids_of_sentencepiece(kind, backend, tmp_path):
    data = text_files.sentencepiece_model(kind)
    (tmp_path / "spiece.model").write_bytes(data)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    result = tx.tokenizer(tmp_path).run({"text": INPUT}, backend=backend)
    expected = [[*processor.encode(text), processor.eos_id()] for text in TEXTS]
    assert rows(result["input_ids"], result["attention_mask"]) == expected


@pytest.mark.parametrize("length", [4, 40])
def test_length_truncates_and_pads(length, tmp_path):
    made = text_files.wordpiece()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "spiece.model").write_bytes(text_files.sentencepiece_model("unigram"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer", "pad_token": "[PAD]"}')
    made.enable_truncation(length)
    made.enable_padding(length=length, pad_id=0, pad_token="[PAD]")
    result = tx.tokenizer(tmp_path, length=length).run({"text": INPUT}, backend="numpy")
    assert result["input_ids"].tolist() == [made.encode(text).ids for text in TEXTS]
    pieces = tx.tokenizer(tmp_path / "spiece.model", length=length).run({"text": INPUT}, backend="numpy")
    assert pieces["input_ids"].shape == (len(TEXTS), length)
    long = np.array([len(text) > 250 for text in TEXTS])
    assert (pieces["input_ids"][long, -1] == 2).all()


def test_the_library_has_the_same_ids_for_byte_pairs(tmp_path):
    made = text_files.byte_level()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    graph = tx.tokenizer(tmp_path)
    graph.save(tmp_path / "t.onnx")
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(extensions.library())
    session = onnxruntime.InferenceSession(tmp_path / "t.onnx", options)
    texts = np.array([text for text in TEXTS if text], object)
    ids, mask = session.run(["input_ids", "attention_mask"], {"text": texts})
    assert rows(ids, mask) == [made.encode(text).ids for text in texts]


# ----- in front of models ---------------------------------------------------------------------------------------------


@pytest.fixture
def classifier():
    """A model of scores from the mean embedding, with int32 ids as input."""
    graph = tx.Graph("classifier", opsets={"ai.onnx": 17})
    ids = graph.input("input_ids", "int32", ("batch", "tokens"))
    mask = graph.input("attention_mask", "int64", ("batch", "tokens"))
    drawn = np.random.default_rng(0)
    table = graph.variable("table", drawn.standard_normal((400, 8)).astype(np.float32))
    weights = graph.variable("weights", drawn.standard_normal((8, 3)).astype(np.float32))
    kept = ops.unsqueeze(ops.cast(mask, to="float32"), [2])
    mean = ops.reduce_sum(ops.gather(table, ids) * kept, [1], keepdims=0) / ops.reduce_sum(kept, [1], keepdims=0)
    graph.output("scores", ops.softmax(mean @ weights))
    return graph


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.filterwarnings("ignore:numpy runs the ops")
def test_text_classification_in_one_file(classifier, backend, tmp_path):
    made = text_files.wordpiece()
    made.save(str(tmp_path / "tokenizer.json"))
    classifier.save(tmp_path / "m.onnx")
    arguments = ["compose", str(tmp_path), str(tmp_path / "m.onnx"), "-o", str(tmp_path / "whole.onnx")]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 0, done.output
    whole = tx.load(tmp_path / "whole.onnx")
    assert [value.name for value in whole.inputs] == ["text"]
    assert [value.name for value in whole.outputs] == ["scores"]
    texts = ["hello world", "the fox", "Wie geht's?"]
    result = whole.run({"text": np.array(texts, object)}, backend=backend)["scores"]
    for text, row in zip(texts, result, strict=True):
        encoded = made.encode(text)
        feeds = {"input_ids": np.int32([encoded.ids]), "attention_mask": np.int64([encoded.attention_mask])}
        np.testing.assert_allclose(row, classifier.run(feeds, backend="numpy")["scores"][0], rtol=1e-5)


def test_a_fixed_length_before_a_model(classifier, tmp_path):
    text_files.wordpiece().save(str(tmp_path / "tokenizer.json"))
    classifier.output("ids", ops.identity(classifier.inputs[0]))
    classifier.save(tmp_path / "m.onnx")
    arguments = ["compose", str(tmp_path), str(tmp_path / "m.onnx"), "-o", str(tmp_path / "w.onnx"), "--length", "6"]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 0, done.output
    result = tx.load(tmp_path / "w.onnx").run(
        {"text": np.array(["the fox", "hello world " * 9], object)}, backend="numpy"
    )
    assert result["ids"].shape == (2, 6)
    arguments[1] = arguments[2]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 2
    assert "--length was given without a tokenizer" in done.output


def test_a_model_without_tokens_is_refused(tmp_path):
    text_files.wordpiece().save(str(tmp_path / "tokenizer.json"))
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.relu(graph.input("x", "float32", (2,))))
    with pytest.raises(tx.InvalidCall, match="reads none of the tokenizer's outputs"):
        tx.tokenizer(tmp_path, model=graph)


@pytest.mark.filterwarnings("ignore:numpy runs the ops")
def test_plain_lowers_what_ai_onnx_can_express(tmp_path):
    (tmp_path / "spiece.model").write_bytes(text_files.sentencepiece_model("unigram"))
    model = tx.Graph(opsets={"ai.onnx": 17})
    ids = model.input("input_ids", "int64", ("batch", "tokens"))
    model.output("sums", ops.reduce_sum(ids, [1], keepdims=0))
    model.save(tmp_path / "m.onnx")
    result = {}
    for option in ([], ["--plain"]):
        whole = tmp_path / f"whole{len(option)}.onnx"
        arguments = ["compose", str(tmp_path / "spiece.model"), str(tmp_path / "m.onnx"), "-o", str(whole), *option]
        done = CliRunner().invoke(program, arguments)
        assert done.exit_code == 0, done.output
        graph = tx.load(whole)
        of_others = [node.op_type for node in graph.nodes if node.domain != "ai.onnx"]
        result[len(option)] = of_others, graph.run({"text": INPUT})["sums"].tolist()
    assert set(result[0][0]) == {"SentencepieceTokenizer", "RaggedTensorToDense"}
    assert result[1] == (["SentencepieceTokenizer"], result[0][1])


# ----- invalid files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("tokenizer.json", b"{", "not a tokenizer.json"),
        ("tokenizer.json", b'{"version": "1.0"}', "not a tokenizer.json"),
        ("tokenizer.json", b"\xff\xfe", "cannot read"),
        ("vocab.txt", b"hello\nworld", "no token \\[UNK\\]"),
        ("spiece.model", b"abc", "cannot be read by SentencePiece"),
        ("other.txt", b"", "no file of a tokenizer"),
    ],
)
def test_invalid_files_are_refused(name, contents, message, tmp_path):
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(tx.TenonnxError, match=message):
        tx.tokenizer(tmp_path)


def test_invalid_configurations_are_refused(tmp_path):
    text_files.wordpiece().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps([1]))
    with pytest.raises(tx.InvalidModel, match="does not hold a JSON object"):
        tx.tokenizer(tmp_path)
    with pytest.raises(tx.InvalidModel, match="No such file"):
        tx.tokenizer(tmp_path / "missing.json")
    with pytest.raises(tx.InvalidCall, match="not positive"):
        tx.tokenizer(tmp_path, length=0)
