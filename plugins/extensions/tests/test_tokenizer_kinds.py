"""Every kind of model, normalizer, pre-tokenizer, post-processor and added token in a ``tokenizer.json``."""

import numpy as np
import pytest
import text_files
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import tenonnx as tx

TEXTS = [*text_files.random_texts(998, seed=3), "hello <|x|>  the QU", "Hello World \u0130 [X] hello hellos"]

#: Two batches, since the second text is very long and all rows of a batch are padded to the longest.
BATCHES = [TEXTS[:2], TEXTS[2:]]
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "<s>", "</s>", "<unk>", "<pad>"]
LEVEL = pre_tokenizers.ByteLevel
LLAMA_3 = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TRAINERS = {
    models.BPE: trainers.BpeTrainer,
    models.WordPiece: trainers.WordPieceTrainer,
    models.Unigram: trainers.UnigramTrainer,
    models.WordLevel: trainers.WordLevelTrainer,
}


def made(model, normalizer=None, pre_tokenizer=None, post_processor=None, added=(), **training):
    """A tokenizer with these components; an empty model is trained on the corpus."""
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if tokenizer.get_vocab_size() < 2:
        if isinstance(model, models.Unigram):
            training["unk_token"] = "<unk>"
        trainer = TRAINERS[type(model)](vocab_size=300, special_tokens=SPECIAL, show_progress=False, **training)
        tokenizer.train_from_iterator(text_files.corpus(), trainer)
    if post_processor is not None:
        tokenizer.post_processor = post_processor(tokenizer)
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return tokenizer


def of_bytes(*parts, **options):
    training = {"initial_alphabet": LEVEL.alphabet()}
    return made(models.BPE(**options.pop("model", {})), *parts, **training, **options)


def pair(tokenizer, *names):
    return [(name, tokenizer.token_to_id(name)) for name in names]


def roberta(tokenizer):
    end, start = pair(tokenizer, "</s>", "<s>")
    return processors.RobertaProcessing(end, start)


def bert(tokenizer):
    return processors.BertProcessing(*pair(tokenizer, "[SEP]", "[CLS]"))


def template(tokenizer):
    return processors.TemplateProcessing(single="<s> $A </s>", special_tokens=pair(tokenizer, "<s>", "</s>"))


def of_type_one(tokenizer):
    return processors.TemplateProcessing(
        single="[CLS]:1 $A:1 [SEP]:1", special_tokens=pair(tokenizer, "[CLS]", "[SEP]")
    )


def both(tokenizer):
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), template(tokenizer)])


def fallback(*parts):
    """Byte pair encoding of a few letters with byte fallback."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for token in ["\u2581", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "\u2581w", "or"]:
        vocabulary[token] = len(vocabulary)
    merges = [("h", "e"), ("l", "l"), ("\u2581", "w"), ("o", "r")]
    options = {"unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True}
    return made(models.BPE(vocab=vocabulary, merges=merges, **options), *parts)


def unigram_of_bytes():
    pieces = [("\u2581", -2.0), ("a", -3.0), ("he", -3.5), ("llo", -4.0), ("l", -5.0)]
    every = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -20.0) for byte in range(256)), *pieces]
    return made(models.Unigram(vocab=every, unk_id=0, byte_fallback=True))


def of_words(*parts, **options):
    return made(models.WordLevel(unk_token="[UNK]"), *parts, **options)


def of_pieces(*parts, model=None, **options):
    return made(models.WordPiece(unk_token="[UNK]", **(model or {})), *parts, **options)


def of_pairs(*parts, model=None, **options):
    return made(models.BPE(unk_token="[UNK]", **(model or {})), *parts, **options)


def padded(tokenizer, padding, truncation):
    tokenizer.enable_padding(pad_id=6, pad_token="<pad>", **padding)
    tokenizer.enable_truncation(**truncation)
    return tokenizer


N, P = normalizers, pre_tokenizers
OF_BERT = (N.BertNormalizer(), P.BertPreTokenizer())
KINDS = {
    "gpt2": lambda: of_bytes(None, LEVEL(add_prefix_space=False)),
    "trimmed": lambda: of_bytes(None, LEVEL(), lambda _: processors.ByteLevel(trim_offsets=True)),
    "roberta": lambda: of_bytes(None, LEVEL(add_prefix_space=True), roberta),
    "llama3": lambda: of_bytes(
        None,
        P.Sequence([P.Split(Regex(LLAMA_3), "isolated"), LEVEL(add_prefix_space=False, use_regex=False)]),
        both,
        model={"ignore_merges": True},
    ),
    "clip": lambda: of_bytes(
        N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]),
        P.Sequence([P.Split(Regex(r"'s|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True), LEVEL()]),
        roberta,
        model={"unk_token": "[UNK]", "end_of_word_suffix": "</w>"},
        end_of_word_suffix="</w>",
    ),
    "byte normalizer": lambda: of_bytes(N.ByteLevel(), P.Split(Regex(r"\w+|\W"), "isolated")),
    "added": lambda: of_bytes(
        None,
        LEVEL(),
        added=[
            AddedToken("hello", single_word=True),
            AddedToken("the", lstrip=True),
            AddedToken("QU", normalized=True),
            AddedToken("<|x|>", special=True, rstrip=True),
        ],
    ),
    "llama": lambda: fallback(N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")])),
    "gemma": lambda: fallback(N.Replace(" ", "\u2581"), P.Split(" ", "merged_with_previous")),
    "metaspace first": lambda: fallback(None, P.Metaspace(prepend_scheme="first", split=False)),
    "llama template": lambda: fallback(N.Prepend("\u2581"), None, template),
    "bert": lambda: of_pieces(*OF_BERT, bert),
    "bert cased": lambda: of_pieces(
        N.BertNormalizer(lowercase=False, strip_accents=True, handle_chinese_chars=False),
        P.BertPreTokenizer(),
        of_type_one,
        model={"max_input_chars_per_word": 8},
    ),
    "other prefix": lambda: of_pieces(
        N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase()]),
        P.Whitespace(),
        of_type_one,
        model={"continuing_subword_prefix": "@@"},
        continuing_subword_prefix="@@",
    ),
    "pieces alone": lambda: of_pieces(N.Lowercase(), model={"max_input_chars_per_word": 1000}),
    "added and normalized": lambda: of_pieces(
        *OF_BERT,
        added=[
            AddedToken("Hello World", normalized=True),
            AddedToken("\u0130", normalized=False),
            AddedToken("[X]", special=True),
        ],
    ),
    "albert": lambda: made(
        models.Unigram(),
        N.Sequence([N.Replace("``", '"'), N.NFKD(), N.StripAccents(), N.Lowercase()]),
        P.Metaspace(),
        template,
    ),
    "xlm": lambda: made(models.Unigram(), N.NFKC(), P.Sequence([P.WhitespaceSplit(), P.Metaspace()]), template),
    "metaspace never": lambda: made(models.Unigram(), N.Nmt(), P.Metaspace(prepend_scheme="never")),
    "merged with next": lambda: made(
        models.Unigram(), N.Sequence([N.Strip(right=False), N.NFD()]), P.Split(Regex("[ ,]"), "merged_with_next")
    ),
    "other metaspace": lambda: made(
        models.Unigram(), N.Sequence([N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(replacement="_")
    ),
    "unigram of bytes": unigram_of_bytes,
    "words": lambda: of_words(N.Lowercase(), P.Whitespace()),
    "words and digits": lambda: of_words(
        N.Strip(), P.Sequence([P.WhitespaceSplit(), P.Punctuation("contiguous"), P.Digits(individual_digits=True)])
    ),
    "words by a letter": lambda: of_words(None, P.CharDelimiterSplit("e")),
    "scripts": lambda: of_pairs(None, P.UnicodeScripts()),
    "fused": lambda: of_pairs(N.NFKD(), P.Sequence([P.WhitespaceSplit(), P.Punctuation()]), model={"fuse_unk": True}),
    "suffix": lambda: of_pairs(
        N.Lowercase(), P.BertPreTokenizer(), model={"end_of_word_suffix": "</w>"}, end_of_word_suffix="</w>"
    ),
    "pairs alone": lambda: made(models.BPE()),
    "fixed length": lambda: of_pairs(None, P.FixedLength(length=5)),
    "padded left": lambda: padded(
        of_pieces(*OF_BERT, of_type_one),
        {"direction": "left", "pad_to_multiple_of": 8},
        {"max_length": 12, "direction": "left"},
    ),
    "padded to a length": lambda: padded(
        of_bytes(None, LEVEL()), {"length": 9, "pad_type_id": 1}, {"max_length": 7, "stride": 2}
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_equal_those_of_tokenizers(kind, tmp_path):
    tokenizer = KINDS[kind]()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    graph = tx.tokenizer(tmp_path)
    if tokenizer.padding is None:
        tokenizer.enable_padding()
    for texts in BATCHES:
        result = graph.run({"text": np.array(texts, object)}, backend="numpy")
        expected = tokenizer.encode_batch(texts)
        mask = np.array([each.attention_mask for each in expected])
        kept = mask == 1
        np.testing.assert_array_equal(result["attention_mask"], mask)
        np.testing.assert_array_equal(result["token_type_ids"], [each.type_ids for each in expected])
        for name, rows in (("input_ids", [each.ids for each in expected]), ("offset_mapping", _offsets(expected))):
            np.testing.assert_array_equal(result[name][kept], np.array(rows)[kept])


def _offsets(encodings):
    return [np.array(each.offsets, np.int64).reshape(-1, 2) for each in encodings]


def test_a_template_with_several_types_has_no_type_ids(tmp_path):
    tokenizer = KINDS["xlm"]()
    single = {"single": "$A:0 </s>:0 <s>:2", "special_tokens": pair(tokenizer, "<s>", "</s>")}
    tokenizer.post_processor = processors.TemplateProcessing(**single)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert [value.name for value in tx.tokenizer(tmp_path).outputs] == ["input_ids", "attention_mask", "offset_mapping"]
