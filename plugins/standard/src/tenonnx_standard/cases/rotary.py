"""Cases of RotaryEmbedding."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.rotary import rotary_embedding
from tenonnx_testing import call, cases, tensors


@cases(rotary_embedding, gradient=("X",))
def rotary_embedding_cases(draw):
    dtype = draw(st.sampled_from(["float32", "float16"]))
    batch, sequence, heads, size = 2, draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.sampled_from([4, 8]))
    turned = draw(st.sampled_from([0, size // 2]))
    half = (turned or size) // 2
    flat = draw(st.booleans())
    x = draw(tensors(dtype, shape=(batch, sequence, heads * size) if flat else (batch, heads, sequence, size)))
    positions, rows = None, (batch, sequence, half)
    if draw(st.booleans()):
        positions = draw(tensors("int64", shape=(batch, sequence), min_value=0, max_value=5))
        rows = (6, half)
    angles = draw(tensors("float32", shape=rows))
    attributes = {"interleaved": draw(st.integers(0, 1)), "rotary_embedding_dim": turned}
    if flat or turned:
        attributes["num_heads"] = heads
    return call(x, np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype), positions, **attributes)
