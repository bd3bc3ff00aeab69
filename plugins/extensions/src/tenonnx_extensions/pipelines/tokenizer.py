"""Tokenizers as graphs, from the files of Hugging Face and SentencePiece."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, Graph, InvalidCall, InvalidModel, NotRepresentable, Value
from tenonnx_extensions.bpe import hf_json_tokenizer, of_json
from tenonnx_extensions.checks import DOMAIN, module
from tenonnx_extensions.pipelines.files import contents, settings
from tenonnx_extensions.ragged import ragged_tensor_to_dense
from tenonnx_extensions.unigram import processor_of, sentencepiece_tokenizer

#: Tokenizer files, in order of preference.
FILES = ("tokenizer.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "source.spm")

#: Classes of transformers with fairseq's ids.
FAIRSEQ = ("XLMRobertaTokenizer", "XLMRobertaTokenizerFast")

#: Special tokens of Marian.
_MARIAN = ("<unk>", "</s>", "<pad>")

_OPSETS = {"ai.onnx": 21, DOMAIN: 1}


def tokenizer(path: str | os.PathLike[str], *, model: Graph | None = None, length: int | None = None) -> Graph:
    """The graph of a tokenizer: from ``text``, string[batch], to the inputs of a model.

    ``path`` is a ``tokenizer.json``, a ``vocab.txt`` of BERT, a ``.model`` of SentencePiece, a ``source.spm`` of Marian
    beside its ``vocab.json``, or a folder with one of these; a ``tokenizer_config.json`` beside it is read, too.
    Outputs are ``input_ids``, ``attention_mask`` and ``token_type_ids``, int64[batch, tokens], and, but for
    SentencePiece, ``offset_mapping``, int64[batch, tokens, 2], which counts characters. Rows are padded to the longest.
    With ``length`` they are padded or truncated to that many tokens. With ``model``, only the outputs that it has as
    inputs are computed, in the types of these. Raises ``InvalidModel`` for a file that cannot be read, and
    ``InvalidCall`` if ``model`` has none of these inputs.
    """
    if length is not None and length < 1:
        raise InvalidCall("length is not positive", given=str(length))
    file = file_of(Path(path))
    beside = file.parent / "tokenizer_config.json"
    config = settings(beside) if beside.is_file() else {}
    graph = Graph("tokenizer", opsets=_OPSETS)
    text = graph.input("text", "string", ("batch",))
    if file.suffix in (".model", ".spm"):
        found = _sentencepiece(graph, text, file, config, length)
    else:
        found = _of_hugging_face(text, read_json(file, config, length), config)
    return _with_outputs(graph, found, model)


def file_of(path: Path) -> Path:
    """The file of a tokenizer at a path, or in a folder. Raises ``InvalidModel`` if there is none."""
    if not path.is_dir():
        if not path.is_file():
            raise InvalidModel(f'cannot read "{path}": No such file or directory')
        return path
    result = next((path / name for name in FILES if (path / name).is_file()), None)
    if result is None:
        raise InvalidModel(f'"{path}" has no file of a tokenizer', available=", ".join(FILES))
    return result


def _with_outputs(graph: Graph, found: dict[str, Value], model: Graph | None) -> Graph:
    """The graph with all outputs, or only those that a model reads, in the types of its inputs."""
    if model is None:
        for name, value in found.items():
            graph.output(name, value)
        return graph
    read = [value for value in model.inputs if value.name in found]
    if not read:
        raise InvalidCall(
            "the model reads none of the tokenizer's outputs",
            given=", ".join(value.name for value in model.inputs),
            available=", ".join(found),
            do="rename its inputs: tenonnx rename",
        )
    for value in read:
        dtype = value.dtype
        graph.output(value.name, found[value.name] if dtype is DType.int64 else ops.cast(found[value.name], to=dtype))
    return graph


# ----- tokenizers -----------------------------------------------------------------------------------------------------


def _of_hugging_face(text: Value, written: str, config: dict[str, Any]) -> dict[str, Value]:
    tokenizer, padding = of_json(hf_json_tokenizer.title, written, "{}")
    ids, mask, offsets = hf_json_tokenizer(text, tokenizer_vocab=written, tokenizer_config=json.dumps(config))
    found = {"input_ids": ids, "attention_mask": mask}
    types = set(tokenizer.encode("a b").type_ids)
    if len(types) < 2:  # a template may give tokens of one text several types, as XLNet's: these stay unknown
        of_padding = padding.get("pad_type_id", 0)
        found["token_type_ids"] = mask * (max(types, default=0) - of_padding) + of_padding
    return found | {"offset_mapping": offsets}


def read_json(file: Path, config: dict[str, Any], length: int | None) -> str:
    """The contents of a ``tokenizer.json`` that says how rows are truncated and padded."""
    tokenizers = module("tokenizers", "text")
    if file.suffix == ".json":
        try:
            tokenizer = tokenizers.Tokenizer.from_str(contents(file))
        except InvalidModel:
            raise
        except Exception as error:  # the library raises only this class
            raise InvalidModel(f'"{file}" is not a tokenizer.json', given=str(error)[:500]) from error
    else:
        tokenizer = _bert(tokenizers, contents(file), config)
    token = _token(config.get("pad_token"), "[PAD]" if file.suffix == ".txt" else None)
    number = tokenizer.token_to_id(token) if token is not None else None
    if tokenizer.padding is None or length is not None:
        side = config.get("padding_side", "right")
        tokenizer.enable_padding(direction=side, pad_id=number or 0, pad_token=token or "", length=length)
    if length is not None:
        tokenizer.enable_truncation(length)
    return str(tokenizer.to_str())


def _token(written: Any, default: str | None) -> str | None:
    """A token of a configuration: a string, or an object with its contents."""
    token = written.get("content") if isinstance(written, dict) else written
    return token if isinstance(token, str) else default


def _bert(tokenizers: Any, vocabulary: str, config: dict[str, Any]) -> Any:
    """The tokenizer for a ``vocab.txt``, configured like in transformers."""
    tokens = vocabulary.split("\n")
    ids = {token.rstrip("\r"): k for k, token in enumerate(tokens) if token}
    names = ("unk_token", "cls_token", "sep_token", "pad_token", "mask_token")
    defaults = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    special = {name: _token(config.get(name), default) for name, default in zip(names, defaults, strict=True)}
    missing = [special[name] for name in names[:3] if special[name] not in ids]
    if missing:
        raise InvalidModel(f"vocab.txt has no token {missing[0]}", given=f"{len(ids)} tokens")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token=special["unk_token"]))
    tokenizer.add_special_tokens([token for token in special.values() if token in ids])
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=bool(config.get("do_lower_case", True)),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    end, start = special["sep_token"], special["cls_token"]
    tokenizer.post_processor = tokenizers.processors.BertProcessing((end, ids[end]), (start, ids[start]))
    return tokenizer


# ----- SentencePiece --------------------------------------------------------------------------------------------------


def _sentencepiece(
    graph: Graph, text: Value, file: Path, config: dict[str, Any], length: int | None
) -> dict[str, Value]:
    processor = read_sentencepiece(file)
    kind = str(config.get("tokenizer_class", ""))
    fairseq = kind in FAIRSEQ
    starts = bool(config.get("add_bos_token", fairseq or kind.startswith(("Llama", "Gemma"))))
    marian = file.suffix == ".spm"
    ends = bool(config.get("add_eos_token", fairseq or marian or kind.startswith(("T5", "MT5"))))
    pad, last = (1, 2) if fairseq else (max(processor.pad_id(), 0), processor.eos_id())
    if marian:
        vocabulary, _ = marian_vocabulary(file)
        pad, last = vocabulary["<pad>"], vocabulary["</s>"]
    flags = [graph.variable(name, np.asarray([flag])) for name, flag in _flags(starts, ends, fairseq)]
    samples = graph.variable("nbest_size", np.zeros(1, np.int64)), graph.variable("alpha", np.zeros(1, np.float32))
    ids, rows, _ = sentencepiece_tokenizer(text, *samples, *flags, model=processor.serialized_model_proto())
    ids = ops.cast(ids, to=DType.int64)
    if marian:  # its ids are not those of SentencePiece
        pieces = (processor.id_to_piece(number) for number in range(processor.get_piece_size()))
        numbers = np.array([vocabulary.get(piece, vocabulary["<unk>"]) for piece in pieces])
        ids = ops.gather(graph.variable("numbers", numbers), ids)
    zero = graph.variable("zero", np.zeros(1, np.int64))
    fill = graph.variable("pad", np.asarray([pad], np.int64))
    found = {
        "input_ids": ragged_tensor_to_dense(zero, ids, fill, rows),
        "attention_mask": ragged_tensor_to_dense(zero, ids * 0 + 1, zero, rows),
    }
    if length is not None:
        end = graph.variable("end", np.asarray([last], np.int64)) if ends else None
        found = _of_length(graph, found, length, pad, end)
    return found | {"token_type_ids": found["input_ids"] * 0}


def read_sentencepiece(file: Path) -> Any:
    """The processor of a SentencePiece file. Raises ``InvalidModel`` if the file cannot be read."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidModel(f'cannot read "{file}": {error.strerror}') from error
    return processor_of(f'"{file}"', data)


def marian_vocabulary(file: Path) -> tuple[dict[str, int], set[int]]:
    """The ids of pieces in the ``vocab.json`` beside a ``source.spm``, and those of special tokens.

    Raises ``InvalidModel`` without special tokens, and ``NotRepresentable`` if there are codes of languages.
    """
    result = settings(file.parent / "vocab.json")
    missing = [token for token in _MARIAN if not isinstance(result.get(token), int)]
    if missing:
        raise InvalidModel(f"vocab.json has no token {missing[0]}", given=f"{len(result)} tokens")
    code = next((token for token in result if token.startswith(">>") and token.endswith("<<")), None)
    if code is not None:
        raise NotRepresentable("language codes before the text of Marian are not supported yet", given=code)
    return result, {result[token] for token in _MARIAN}


def _flags(starts: bool, ends: bool, fairseq: bool) -> list[tuple[str, bool]]:
    return [("add_bos", starts), ("add_eos", ends), ("reverse", False), ("fairseq", fairseq)]


def _of_length(graph: Graph, found: dict[str, Value], length: int, pad: int, end: Value | None) -> dict[str, Value]:
    """Rows of one length; truncated rows end with the end token, if there is one."""
    missing = graph.variable("missing", np.asarray([0, length]))
    axes = graph.variable("columns", np.asarray([1]))
    sized = {}
    for name, fill in (("input_ids", pad), ("attention_mask", 0)):
        longer = ops.pad(found[name], missing, graph.variable(f"{name}/fill", np.int64(fill)), axes)
        sized[name] = ops.slice_(longer, [0], [length], [1])
    if end is not None:
        is_cut = ops.reduce_sum(found["attention_mask"], [1]) > length
        is_last = graph.variable("is_last", np.arange(length)[None] == length - 1)
        sized["input_ids"] = ops.where(ops.and_(is_cut, is_last), end, sized["input_ids"])
    return sized
