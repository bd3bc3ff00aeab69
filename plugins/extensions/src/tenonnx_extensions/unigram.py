"""Tokenization and decoding with SentencePiece models."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, dtypes, primitive
from tenonnx_extensions.checks import DOMAIN, module, single, strings
from tenonnx_standard.checking import numpy_rule

#: The ids of fairseq for start, padding, end and unknown; others are SentencePiece's plus one.
_FAIRSEQ = {"bos": 0, "eos": 2, "unk": 3}


@lru_cache(maxsize=8)
def processor_of(title, model):
    """The processor of a serialized model. Raises ``TypeMismatch`` if it cannot be read."""
    try:
        return module("sentencepiece", "text").SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise TypeMismatch(f"{title}: the model cannot be read by SentencePiece", given=str(error)) from error


@primitive("SentencepieceTokenizer", domain=DOMAIN)
def sentencepiece_tokenizer(inputs, nbest_size, alpha, add_bos, add_eos, reverse, fairseq=None, *, model: bytes):
    """Encode strings by a serialized SentencePiece ``model``.

    Returns int32 ids of all strings in one vector, the int64 index of the first id of each string, and the byte offset
    of each piece in its string. Sampling (``nbest_size``) is refused, since it is random. With ``fairseq``, ids are
    numbered as in fairseq.
    """


sentencepiece_tokenizer.requires(
    dtypes(
        inputs="string",
        nbest_size="int64",
        alpha="float32",
        add_bos="bool",
        add_eos="bool",
        reverse="bool",
        fairseq="bool",
    )
)


@sentencepiece_tokenizer.type
def sentencepiece_tokenizer_type(inputs, *others, model):
    row = TensorType(DType.int32, (None,))
    return row, TensorType(DType.int64, (None,)), row


@numpy_rule(sentencepiece_tokenizer)
def sentencepiece_tokenizer_numpy(inputs, nbest_size, alpha, add_bos, add_eos, reverse, fairseq=None, *, model):
    op = sentencepiece_tokenizer
    processor = processor_of(op.title, model)
    if single(op, "nbest_size", nbest_size) not in (0, 1):
        raise TypeMismatch(f"{op.title}: nbest_size asks for random samples", given=str(nbest_size.reshape(-1)[0]))
    starts, ends, turned = (bool(single(op, "a flag", flag)) for flag in (add_bos, add_eos, reverse))
    shifted = fairseq is not None and bool(single(op, "fairseq", fairseq))
    ids, places, rows = [], [], [0]
    for text in inputs.reshape(-1).tolist():
        found = processor.encode_as_offset_mapping(text)
        numbers = [_numbered(processor, each) if shifted else each for each in found["ids"]]
        byte = [0, *accumulate(len(character.encode()) for character in text)]
        row = [(number, byte[begin]) for number, (begin, _) in zip(numbers, found["offsets"], strict=True)]
        if starts:
            row.insert(0, (_FAIRSEQ["bos"] if shifted else processor.bos_id(), 0))
        if ends:
            row.append((_FAIRSEQ["eos"] if shifted else processor.eos_id(), byte[-1]))
        for number, place in reversed(row) if turned else row:
            ids.append(number)
            places.append(place)
        rows.append(len(ids))
    return np.asarray(ids, np.int32), np.asarray(rows, np.int64), np.asarray(places, np.int32)


def _numbered(processor, number):
    return _FAIRSEQ["unk"] if number == processor.unk_id() else number + 1


@primitive("SentencepieceDecoder", domain=DOMAIN)
def sentencepiece_decoder(ids, fairseq=None, *, model: bytes):
    """Decode a vector of ids to a string, by a serialized SentencePiece model."""


sentencepiece_decoder.requires(dtypes(ids="int64", fairseq="bool"))


@sentencepiece_decoder.type
def sentencepiece_decoder_type(ids, fairseq=None, *, model):
    if ids.rank not in (None, 1) and not (ids.rank == 2 and ids.shape[0] in (1, None)):
        raise TypeMismatch(f"{sentencepiece_decoder.title}: ids are not one row", given=repr(ids))
    return TensorType(DType.string, (1,))


@numpy_rule(sentencepiece_decoder)
def sentencepiece_decoder_numpy(ids, fairseq=None, *, model):
    op = sentencepiece_decoder
    processor = processor_of(op.title, model)
    numbers = ids.reshape(-1).tolist()
    if fairseq is not None and bool(single(op, "fairseq", fairseq)):
        special = {0: processor.bos_id(), 1: processor.unk_id(), 2: processor.eos_id(), 3: processor.unk_id()}
        numbers = [special.get(number, number - 1) for number in numbers]
    strange = next((number for number in numbers if not 0 <= number < processor.get_piece_size()), None)
    if strange is not None:
        raise TypeMismatch(f"{op.title}: an id lies outside the model", given=str(strange))
    return strings([processor.decode(numbers)])
