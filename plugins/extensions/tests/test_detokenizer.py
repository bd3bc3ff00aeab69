"""Tokens to text as graphs: equal to tokenizers and sentencepiece, or refused."""

import json

import numpy as np
import pytest
import text_files
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

import tenonnx as tx

DRAWN = np.random.default_rng(0)


def wordpiece():
    made = text_files.wordpiece()
    made.decoder = decoders.WordPiece()
    return made


def unigram():
    made = text_files.unigram()
    made.decoder = decoders.Metaspace()
    return made


def byte_level():
    made = text_files.byte_level()
    made.add_tokens(["two words", "\u4f60\n"])
    return made


def fallback():
    words = {"<unk>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)} | {"\u2581a": 257, "b": 258}
    made = tokenizers.Tokenizer(models.BPE(words, [], byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("kind", [wordpiece, unigram, byte_level])
def test_tokens_of_a_tokenizer_json(kind, clean, tmp_path):
    made = kind()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"clean_up_tokenization_spaces": clean}), "utf-8")
    rows = DRAWN.integers(0, made.get_vocab_size() + 3, (100, 15))
    expected = made.decode_batch(rows.tolist(), skip_special_tokens=True)
    if clean and kind is not byte_level:
        for mark in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"):
            expected = [text.replace(mark, mark.strip()) for text in expected]
    result = tx.detokenizer(tmp_path).run({"sequences": rows}, backend="numpy")["generated_text"]
    assert result.tolist() == expected


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("fairseq", [False, True])
def test_tokens_of_sentencepiece(kind, fairseq, tmp_path):
    data = text_files.sentencepiece_model(kind)
    (tmp_path / "spiece.model").write_bytes(data)
    if fairseq:
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}', "utf-8")
    processor = text_files.sentencepiece.SentencePieceProcessor(model_proto=data)
    rows = DRAWN.integers(0, processor.get_piece_size(), (100, 15))
    rows[:10, :2] = processor.piece_to_id("\u2581") + fairseq  # white space at the start
    shift, special = (1, range(4)) if fairseq else (0, range(3))
    expected = [processor.decode([k - shift for k in row if k not in special]) for row in rows.tolist()]
    assert tx.detokenizer(tmp_path).run({"sequences": rows}, backend="numpy")["generated_text"].tolist() == expected


def test_bytes_of_characters_are_refused(tmp_path):
    fallback().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(tx.NotRepresentable, match="have no fixed text"):
        tx.detokenizer(tmp_path)
