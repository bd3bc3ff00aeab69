"""Texts of all scripts, and small tokenizers trained on some of them."""

import io
import json
import random

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

SCRIPTS = [
    "abcdefghijklmnopqrstuvwxyz ",
    "ABCDEFGHIJ .,!?'-_[]()0123456789",
    "\u00e4\u00f6\u00fc\u00df\u00e9\u00f1\u00c7\u0130",
    "\u4f60\u597d\u4e16\u754c\u65e5\u672c",
    "\u05e9\u05dc\u05d5\u05dd\u0639\u0631\u0628\u064a",
    "\U0001f600\U0001f44d\U0001f3fd\u200d\U0001f468",
    "e\u0301a\u0308\u0323o",
    "\u200b\u00a0\t\n\r\x01\x7f\u202e\u3000 ",
]
SENTENCES = [
    "hello world, this is a test",
    "the quick brown fox jumps over the lazy dog",
    "Wie geht's? \u00c7a va bien",
    "12 34",
]


def random_texts(count=1000, seed=0):
    """Random strings of 0 to 200 characters, and one of 10,000."""
    drawn = random.Random(seed)
    sizes = [0, 10_000, *(drawn.choice([1, 3, 10, 40, 200]) for _ in range(count - 2))]
    return ["".join(drawn.choice(drawn.choice(SCRIPTS)) for _ in range(size)) for size in sizes]


def corpus():
    return [*SENTENCES * 10, *random_texts(60, seed=7)]


def byte_level():
    """A byte-level BPE tokenizer like GPT-2's."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(corpus(), trainer)
    return made


def wordpiece():
    """A WordPiece tokenizer like BERT's."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    made.train_from_iterator(corpus(), trainer)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def unigram():
    """A unigram tokenizer like ALBERT's."""
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(corpus(), trainer)
    return made


KINDS = {"byte-level": byte_level, "wordpiece": wordpiece, "unigram": unigram}


def sentencepiece_model(kind):
    """A serialized model of SentencePiece, ``unigram`` or ``bpe``."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20),
        model_writer=written,
        vocab_size=80,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return written.getvalue()


def write_vocabulary(folder, made, **config):
    """Write the vocabulary of a tokenizer as BERT's ``vocab.txt``, with its configuration."""
    vocabulary = sorted(made.get_vocab().items(), key=lambda entry: entry[1])
    (folder / "vocab.txt").write_text("\n".join(token for token, _ in vocabulary), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
