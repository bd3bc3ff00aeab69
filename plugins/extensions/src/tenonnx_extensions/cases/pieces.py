"""Cases of SentencePiece, with a model trained on a few sentences."""

from __future__ import annotations

import functools
import io

import numpy as np
from hypothesis import strategies as st

from tenonnx_extensions.cases.library import kernel
from tenonnx_extensions.checks import strings
from tenonnx_extensions.unigram import sentencepiece_decoder, sentencepiece_tokenizer
from tenonnx_testing import Gap, call, cases

SENTENCES = [
    "hello world, this is a test",
    "the quick brown fox jumps over the lazy dog",
    "pieces of words and numbers 12",
]
TEXTS = ["", "hello world", "the  fox \u00e4", "12 \U0001f600", "unknown \u4f60"]


@functools.cache
def model() -> bytes:
    """A serialized model of 60 pieces."""
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20),
        model_writer=written,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return written.getvalue()


def flag(draw):
    return np.asarray([draw(st.booleans())])


TURNED = Gap(
    "expected",
    "the library ignores fairseq together with reverse",
    when=lambda call: len(call.inputs) > 6 and call.inputs[6] is not None and call.inputs[5].any(),
)


@cases(sentencepiece_tokenizer, gradient=False, gaps=[TURNED], reference=kernel("SentencepieceTokenizer", 3))
def sentencepiece_tokenizer_cases(draw):
    text = strings(draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3)))
    flags = [flag(draw) for _ in range(draw(st.sampled_from([3, 4])))]
    return call(text, np.asarray([0]), np.asarray([0], np.float32), *flags, model=model())


@cases(sentencepiece_decoder, gradient=False, reference=kernel("SentencepieceDecoder"))
def sentencepiece_decoder_cases(draw):
    ids = np.asarray(draw(st.lists(st.integers(3, 40), min_size=1, max_size=6)))
    return call(ids, *([flag(draw)] if draw(st.booleans()) else []), model=model())
