"""Cases of RotaryEmbedding."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.rotary import gemma_rotary_embedding, m_rotary_embedding, rms_norm_rotary, rotary_embedding
from tenonnx_testing import call, cases, shapes, tensors

POSITIONS = 9
#: Attributes without effect.
IDLE = [{}, {"scale": 2.0, "is_packed_batching": 1}]


@cases(rotary_embedding, gradient=["input", "cos_cache", "sin_cache"])
def rotary_embedding_cases(draw):
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
    attributes = {"interleaved": draw(st.integers(0, 1))} | draw(st.sampled_from(IDLE))
    if part < half:
        attributes |= {"rotary_embedding_dim": 2 * part, "num_heads": heads}
    elif flat and draw(st.booleans()):
        attributes |= {"num_heads": heads}
    return call(x, positions, *caches, **attributes)


@cases(m_rotary_embedding, gradient=["input", "cos_cache", "sin_cache"])
def m_rotary_embedding_cases(draw):
    batch, length, heads, half = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 2)), 8
    sections = draw(st.sampled_from([[4, 2, 2], [3, 3, 2], [8, 0, 0]]))
    part = draw(st.sampled_from([{}, {"rotary_embedding_dim": 16}]))
    size = 20 if part else 16
    shape = (batch, length, heads * size) if draw(st.booleans()) else (batch, heads, length, size)
    x = draw(tensors(["float32", "float16"], shape=shape))
    caches = [draw(tensors(x.dtype.name, shape=(POSITIONS, half), min_value=-1, max_value=1)) for _ in range(2)]
    positions = draw(tensors("int64", shape=(3, batch, length), min_value=0, max_value=POSITIONS - 1))
    attributes = {"interleaved": draw(st.integers(0, 1)), "mrope_layout": draw(st.integers(0, 1)), "num_heads": heads}
    attributes |= draw(st.sampled_from(IDLE))
    return call(x, positions, *caches, mrope_section=sections, **attributes, **part)


@cases(gemma_rotary_embedding, gradient=["q", "q_rot", "k", "k_rot"])
def gemma_rotary_embedding_cases(draw):
    """onnxruntime implements it on GPUs only: see tests/test_attention_formulas.py."""
    batch, length, size = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    angles = draw(tensors(shape=(batch, length, size)))
    counts = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    dtype = draw(st.sampled_from(["float16", "float32"]))
    turned = [draw(tensors(dtype, shape=(batch, count, length, size))) for count in counts for _ in range(2)]
    return call(angles, *turned)


@cases(rms_norm_rotary, gradient=False)
def rms_norm_rotary_cases(draw):
    """onnxruntime implements it on GPUs only: see tests/test_formulas_of_gpus.py."""
    batch, length, heads = draw(shapes(3, 3, 1, 3))
    half, start, behind, rest = draw(st.integers(1, 3)), *(draw(st.integers(0, 2)) for _ in range(3))
    width = 2 * half + rest
    x = draw(tensors(["float16", "bfloat16"], shape=(batch, length, heads, start + width + behind)))
    kind = draw(st.sampled_from(["float32", "bfloat16"]))
    tables = [draw(tensors(kind, shape=(POSITIONS, half), min_value=-1, max_value=1)) for _ in range(2)]
    shape = draw(st.sampled_from([(1,), (batch, length)]))
    positions = draw(tensors("int64", shape=shape, min_value=0, max_value=POSITIONS - 4))
    scale = draw(tensors(shape=(width,), min_value=0.5, max_value=2))
    prefill = draw(st.sampled_from([None, np.array(0, np.int32), np.array(1, np.int32)]))
    attributes = {"input_start": start, "input_width": width} if start or behind else {}
    attributes |= {"flatten_batch": draw(st.integers(0, 1)), "output_fp16": draw(st.integers(0, 1)), "epsilon": 1e-2}
    attributes |= {"use_fp32_arithmetic": draw(st.integers(0, 1)), "rotary_embedding_dim": 2 * half}
    return call(x, scale, positions, *tables, prefill, **attributes)
