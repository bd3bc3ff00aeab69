"""Cases of sparse attention; see tests/test_attention_formulas.py for numpy formulas."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.cases.grouped_query import heads_of, held, projections
from tenonnx_contrib_ms.sparse import longformer_attention, sparse_attention
from tenonnx_testing import Gap, call, cases, tensors

IN_PLACE = Gap("onnxruntime", "its kernel requires past and present to share memory, which a file cannot express")


@cases(sparse_attention, gradient=["query", "key", "value", "past_key", "past_value"], gaps=[IN_PLACE])
def sparse_attention_cases(draw):
    dtype, batch, size = draw(st.sampled_from(["float32", "float16"])), draw(st.integers(1, 2)), 16
    prompt = draw(st.booleans())
    length, blocks = draw(st.integers(1, 20)) if prompt else 1, 2
    heads = heads_of(draw)
    total = length if prompt else draw(st.integers(2, 16 * blocks))
    lengths = draw(tensors("int32", shape=(batch,), min_value=1 if not prompt else length, max_value=total))
    lengths[0] = total
    starts = np.maximum(lengths - length, 0)
    packed = projections(draw, dtype, batch, length, size, heads)
    past = [held(draw, dtype, (batch, heads["kv_num_heads"], 16 * blocks, size), starts) for _ in range(2)]
    layouts = draw(st.sampled_from([1, heads["num_heads"]]))
    seen = [draw(st.sampled_from([[0, 0, 1], [0, 1]])) for _ in range(layouts)]
    columns = np.array([row + [-1] * (3 - len(row)) for row in seen], np.int32)
    rows = np.array([[0, 1, len(row)] for row in seen], np.int32)
    counts = np.array(total, np.int32), lengths
    tables = [None, None]
    attributes = heads | {"sparse_block_size": 16} | draw(st.sampled_from([{}, {"scale": 0.3}]))
    if draw(st.booleans()):
        tables = [draw(tensors(dtype, shape=(16 * blocks, size // 2), min_value=-1, max_value=1)) for _ in range(2)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": draw(st.integers(0, 1))}
    return call(*packed, *past, rows, columns, *counts, *tables, **attributes)


@cases(longformer_attention, gradient=["input", "weight", "bias", "mask", "global_weight", "global_bias"])
def longformer_attention_cases(draw):
    batch, heads, size, width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), 2, 3
    window = draw(st.integers(1, 2))
    length = 2 * window * draw(st.integers(1, 2))
    drawn = [(batch, length, width), (width, 3 * heads * size), (3 * heads * size,), (batch, length)]
    drawn += [(width, 3 * heads * size), (3 * heads * size,)]
    inputs = [draw(tensors(shape=shape, min_value=-1, max_value=1)) for shape in drawn]
    inputs[3] = np.where(inputs[3] < -0.5, np.float32(-20), np.float32(0))
    chosen = draw(tensors("int32", shape=(batch, length), min_value=0, max_value=1))
    return call(*inputs, chosen, num_heads=heads, window=window)
