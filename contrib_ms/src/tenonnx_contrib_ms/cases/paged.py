"""Cases of PagedAttention. onnxruntime implements it on GPUs only: see tests/test_attention_formulas.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.paged import paged_attention
from tenonnx_testing import call, cases, tensors


@dataclass
class Pages:
    """Packed sequences, and the cache blocks with their past."""

    groups: int
    heads: int
    past: Any
    new: Any
    table: Any
    drawn: Callable[..., Any]
    size: int = 16
    block: int = 4

    @property
    def sums(self):
        return np.concatenate([[0], np.cumsum(self.new)]).astype(np.int32)

    @property
    def tokens(self):
        return int(self.new.sum())

    @property
    def cache(self):
        return self.table.size, self.block, self.groups, self.size

    def slots(self):
        """Cache slots of the new tokens; the first token has none (-1)."""
        sequence = np.repeat(range(len(self.new)), self.new)
        position = np.concatenate([p + np.arange(n) for p, n in zip(self.past, self.new, strict=True)])
        slots = self.table[sequence, position // self.block] * self.block + position % self.block
        slots[0] = -1
        return slots.astype(np.int32)


def drawn_pages(draw):
    groups, columns, batch = draw(st.integers(1, 2)), 3, draw(st.integers(1, 3))
    heads = groups * draw(st.integers(1, 2))
    past = draw(tensors("int32", shape=(batch,), min_value=0, max_value=6))
    new = draw(tensors("int32", shape=(batch,), min_value=1, max_value=3))
    table = np.arange(batch * columns, dtype=np.int32)[::-1].reshape(batch, columns).copy()
    dtype = draw(st.sampled_from(["float32", "float16"]))

    def drawn(*shape, low=-1):
        return draw(tensors(dtype, shape=shape, min_value=low, max_value=1))

    return Pages(groups, heads, past, new, table, drawn)


def drawn_int8(draw, pages):
    """Draw int8 caches, their scales and the attributes for them."""
    kind = draw(st.sampled_from(["PER_TENSOR", "PER_CHANNEL"]))
    sizes = (1,) if kind == "PER_TENSOR" else (pages.groups, 1, pages.size)
    scales = [draw(tensors(shape=sizes, min_value=0.01, max_value=0.02)) for _ in range(2)]
    caches = [draw(tensors("int8", shape=pages.cache)) for _ in range(2)]
    return caches, scales, {"k_quant_type": kind, "v_quant_type": kind}


@cases(paged_attention, gradient=["query", "key", "value", "head_sink", "q_norm_weight", "k_norm_weight"])
def paged_attention_cases(draw):
    return _drawn_call(draw, int8=False)


@cases(paged_attention, gradient=False)
def paged_attention_cases_2(draw):
    return _drawn_call(draw, int8=True)


def _drawn_call(draw, int8):
    """Draw a call; with int8, without rotation and normalization, whose rounding would change quantized values."""
    pages = drawn_pages(draw)
    heads, groups, size, drawn = pages.heads, pages.groups, pages.size, pages.drawn
    parts = [drawn(pages.tokens, n * size) for n in (heads, groups, groups)]
    latent = not int8 and groups == 1 and draw(st.booleans())
    if latent:
        parts[2] = None
    elif draw(st.booleans()):
        parts = [np.concatenate(parts, axis=1), None, None]
    caches = [drawn(*pages.cache) for _ in range(2)]
    more = [None] * 6
    attributes = {"num_heads": heads, "kv_num_heads": groups}
    if latent:
        caches[1] = None
        attributes |= {"kv_cache_layout": "LATENT", "v_head_size": 12}
    if not int8 and draw(st.booleans()):
        more[:2] = [drawn(16, 4), drawn(16, 4)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": draw(st.integers(0, 1)), "rotary_offset": 8}
    if draw(st.booleans()):
        more[3] = drawn(heads)
    if not int8 and draw(st.booleans()):
        more[4:] = [drawn(size, low=0.5), drawn(size, low=0.5)]
        attributes["qk_norm_epsilon"] = 1e-5
    if draw(st.booleans()):
        more[2] = pages.slots()
    metadata = np.array([3, 9], np.int32) if draw(st.booleans()) else None
    if int8:
        caches, scales, quantized = drawn_int8(draw, pages)
        more += [*scales, metadata]
        attributes |= quantized | draw(st.sampled_from([{}, {"k_cache_dtype": "int8", "v_cache_dtype": "int8"}]))
    else:
        more += [None, None, metadata]
    others = [{}, {"local_window_size": 2}, {"scale": 0.3, "softcap": 1.5}, {"is_causal": 0}]
    attributes |= draw(st.sampled_from(others))
    return call(*parts, *caches, pages.sums, pages.past, pages.table, *more, **attributes, _outputs=2 if latent else 3)
