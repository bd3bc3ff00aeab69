"""Cases of QAttention."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_quantized.attention import qattention
from tenonnx_quantized.cases.quantize import seven_bits
from tenonnx_testing import call, cases, tensors


def mask_of(draw, batch, length, total):
    """Draw a mask: lengths, or ends and starts, or a mask for all queries or per query, or None."""
    kind = draw(st.sampled_from(["none", "lengths", "ends", "keys", "queries"]))
    if kind == "none":
        return None
    if kind in ("keys", "queries"):
        return draw(tensors("int32", shape=(batch, *([length] * (kind == "queries")), total), min_value=0, max_value=1))
    ends = draw(tensors("int32", shape=(batch,), min_value=1, max_value=total))
    return ends if kind == "lengths" else np.concatenate([ends, np.zeros_like(ends)])


@cases(qattention, gradient=["bias", "past"])
def qattention_cases(draw):
    count, size, inputs = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    batch, length, before = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(0, 2))
    columns, kind = 3 * count * size, draw(st.sampled_from(["int8", "uint8"]))
    shape = draw(st.sampled_from([(), (columns,)]))
    past = draw(tensors("float32", shape=(2, batch, count, before, size))) if before else None
    weight_zero = draw(tensors(kind, shape=shape, min_value=-9, max_value=9)) if draw(st.booleans()) else None
    return call(
        draw(tensors("uint8", shape=(batch, length, inputs), min_value=0, max_value=255)),
        seven_bits(draw(tensors(kind, shape=(inputs, columns), min_value=-200, max_value=200))),
        draw(tensors("float32", shape=(columns,))),
        draw(tensors("float32", shape=(), min_value=0.005, max_value=0.02)),
        draw(tensors("float32", shape=shape, min_value=0.005, max_value=0.02)),
        mask_of(draw, batch, length, before + length),
        draw(tensors("uint8", shape=(), min_value=0, max_value=255)) if draw(st.booleans()) else None,
        weight_zero,
        past,
        num_heads=count,
        unidirectional=draw(st.integers(0, 1)),
        do_rotary=draw(st.integers(0, 1)),
        past_present_share_buffer=0 if before else draw(st.integers(0, 1)),
        _outputs=2 if before else 1,
        **draw(st.sampled_from([{}, {"scale": 0.3}, {"mask_filter_value": -5.0}])),
    )
