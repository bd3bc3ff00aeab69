"""Cases of token ops for text generation."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.tokens import bifurcation_detector, n_gram_repeat_block
from tenonnx_testing import call, cases, tensors


@cases(n_gram_repeat_block, gradient=False)
def n_gram_repeat_block_cases(draw):
    batch, vocabulary = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    ids = draw(tensors("int64", shape=(batch, draw(st.integers(1, 8))), min_value=0, max_value=vocabulary - 1))
    return call(ids, draw(tensors(shape=(batch, vocabulary))), ngram_size=draw(st.integers(1, 4)))


@cases(bifurcation_detector, gradient=False)
def bifurcation_detector_cases(draw):
    source, current = (
        draw(tensors("int64", shape=(draw(st.integers(1, 7)),), min_value=0, max_value=3)) for _ in range(2)
    )
    place = draw(st.integers(0, len(source)))
    predicted = None
    if draw(st.booleans()):
        predicted = draw(tensors("int64", shape=(len(source) - place + 1,), min_value=0, max_value=3))
        if draw(st.booleans()):
            predicted[:-1] = source[place:]
    sizes = draw(st.sampled_from([{}, {"min_ngram_size": 2}, {"max_ngram_size": 2}]))
    return call(source, current, np.array([place]), predicted, **sizes)
