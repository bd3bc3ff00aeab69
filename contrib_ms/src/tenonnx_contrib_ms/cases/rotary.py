"""Cases of RotaryEmbedding."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.rotary import rotary_embedding
from tenonnx_testing import call, cases, tensors

POSITIONS = 9


@cases(rotary_embedding, gradient=["input", "cos_cache", "sin_cache"])
def _(draw):
    batch, length, heads, half = (draw(st.integers(1, 3)) for _ in range(4))
    size = 2 * half
    part = draw(st.integers(1, half))
    flat = draw(st.booleans())
    shape = (batch, length, heads * size) if flat else (batch, heads, length, size)
    x = draw(tensors(["float32", "float16", "float64"], shape=shape))
    caches = [draw(tensors(x.dtype.name, shape=(POSITIONS, part), min_value=-1, max_value=1)) for _ in range(2)]
    if draw(st.booleans()):
        positions = np.array([draw(st.integers(0, POSITIONS - length))])
    else:
        positions = draw(tensors("int64", shape=(batch, length), min_value=0, max_value=POSITIONS - 1))
    attributes = {"interleaved": draw(st.integers(0, 1))}
    if part < half:
        attributes |= {"rotary_embedding_dim": 2 * part, "num_heads": heads}
    elif flat and draw(st.booleans()):
        attributes |= {"num_heads": heads}
    return call(x, positions, *caches, **attributes)
