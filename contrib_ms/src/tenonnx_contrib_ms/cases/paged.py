"""Cases of PagedAttention, which onnxruntime has for GPUs alone: see tests/test_attention_formulas.py."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.paged import paged_attention
from tenonnx_testing import call, cases, tensors


@cases(paged_attention, gradient=["query", "key", "value", "head_sink", "q_norm_weight", "k_norm_weight"])
def _(draw):
    groups, size, block, columns = draw(st.integers(1, 2)), 16, 4, 3
    heads, batch = groups * draw(st.integers(1, 2)), draw(st.integers(1, 3))
    past = draw(tensors("int32", shape=(batch,), min_value=0, max_value=6))
    new = draw(tensors("int32", shape=(batch,), min_value=1, max_value=3))
    sums, tokens = np.concatenate([[0], np.cumsum(new)]).astype(np.int32), int(new.sum())
    table = np.arange(batch * columns, dtype=np.int32)[::-1].reshape(batch, columns).copy()
    dtype = draw(st.sampled_from(["float32", "float16"]))

    def drawn(*shape, low=-1):
        return draw(tensors(dtype, shape=shape, min_value=low, max_value=1))

    parts = [drawn(tokens, n * size) for n in (heads, groups, groups)]
    latent = groups == 1 and draw(st.booleans())
    if latent:
        parts[2] = None
    elif draw(st.booleans()):
        parts = [np.concatenate(parts, axis=1), None, None]
    held = [drawn(batch * columns, block, groups, size) for _ in range(2)]
    more = [None] * 6
    attributes = {"num_heads": heads, "kv_num_heads": groups}
    if latent:
        held[1] = None
        attributes |= {"kv_cache_layout": "LATENT", "v_head_size": 12}
    if draw(st.booleans()):
        more[:2] = [drawn(16, 4), drawn(16, 4)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": draw(st.integers(0, 1)), "rotary_offset": 8}
    if draw(st.booleans()):
        more[3] = drawn(heads)
    if draw(st.booleans()):
        more[4:] = [drawn(size, low=0.5), drawn(size, low=0.5)]
        attributes["qk_norm_epsilon"] = 1e-5
    others = [{}, {"local_window_size": 2}, {"scale": 0.3, "softcap": 1.5}, {"is_causal": 0}]
    attributes |= draw(st.sampled_from(others))
    return call(*parts, *held, sums, past, table, *more, **attributes, _outputs=2 if latent else 3)
