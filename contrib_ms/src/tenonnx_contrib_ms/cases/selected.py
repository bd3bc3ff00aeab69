"""Cases of attention to selected keys. onnxruntime implements it on GPUs only: see tests/test_selected_formulas.py."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.cases.grouped_query import heads_of, held, projections
from tenonnx_contrib_ms.cases.paged import drawn_int8, drawn_pages
from tenonnx_contrib_ms.dynamic_sparse_attention import dynamic_sparse_attention, sparse_paged_attention
from tenonnx_testing import Gap, call, cases, tensors

STATUS = Gap("outputs", "validation_status is set by a GPU kernel, and its length is undocumented")


def selection(draw, limits, most=4):
    """Draw rows of distinct positions below each limit, padded with -1, and their counts."""
    rows, counts = np.full((len(limits), most), -1, np.int32), np.zeros(len(limits), np.int32)
    seed = draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    for row, limit in enumerate(limits):
        counts[row] = random.integers(0, min(limit, most) + 1)
        rows[row, : counts[row]] = random.permutation(limit)[: counts[row]]
    return rows, counts


@cases(
    dynamic_sparse_attention,
    gradient=["query", "key", "value", "past_key", "past_value", "auxiliary_key"],
    gaps=[Gap("requirements", "an earlier requirement already refuses calls that violate the choice of modes"), STATUS],
)
def dynamic_sparse_attention_cases(draw):
    dtype, batch, size = draw(st.sampled_from(["float32", "float16"])), draw(st.integers(1, 2)), 16
    length, heads = draw(st.integers(1, 3)), heads_of(draw)
    groups = heads["kv_num_heads"]
    lengths = draw(tensors("int32", shape=(batch,), min_value=length, max_value=8))
    lengths[0] = total = 8
    starts = lengths - length
    packed = projections(draw, dtype, batch, length, size, heads)
    past = [held(draw, dtype, (batch, groups, 8, size), starts) for _ in range(2)]
    attributes = heads | draw(st.sampled_from([{}, {"scale": 0.3}, {"smooth_softmax": 1}]))

    def drawn(*shape, low=-1):
        return draw(tensors(dtype, shape=shape, min_value=low, max_value=1))

    auxiliary = [None, None]
    limits = (starts[:, None] + np.arange(length) + 1).ravel()
    if draw(st.booleans()):
        auxiliary = [drawn(batch, groups, 5, size), None if draw(st.booleans()) else drawn(batch, groups, 5, size)]
        attributes |= {"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary"}
        attributes |= {"local_window_size": 2, "auxiliary_kv_shared": int(auxiliary[1] is None)}
        limits = np.full_like(limits, 5)
    more = [None] * 6
    if draw(st.booleans()):
        more[:2] = [drawn(9, 4), drawn(9, 4)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": draw(st.integers(0, 1)), "rotary_offset": 8}
        if draw(st.booleans()):
            more[2] = draw(tensors("int64", shape=(batch, length), min_value=0, max_value=8))
    if draw(st.booleans()):
        more[3:5] = [drawn(size, low=0.5), drawn(size, low=0.5)]
        attributes["qk_norm_epsilon"] = 1e-5
    if draw(st.booleans()):
        more[5] = drawn(heads["num_heads"])
    counts = lengths - 1, np.array([total], np.int32)
    more += [draw(st.sampled_from([None, starts.astype(np.int32)]))]
    attributes |= draw(st.sampled_from([{}, {"output_bf16": 1}])) if dtype == "float16" else {}
    return call(*packed, *past, *auxiliary, *selection(draw, limits), *counts, *more, **attributes)


@cases(dynamic_sparse_attention, gradient=False, gaps=[STATUS])
def dynamic_sparse_attention_cases_2(draw):
    """int8 caches."""
    batch, size, length, heads = 2, 16, draw(st.integers(1, 3)), heads_of(draw)
    groups = heads["kv_num_heads"]
    lengths = np.array([8, draw(st.integers(length, 8))], np.int32)
    starts = lengths - length
    packed = projections(draw, "float32", batch, length, size, heads)
    past = [held(draw, "int8", (batch, groups, 8, size), starts, -128, 127) for _ in range(2)]
    scales = [draw(tensors("float32", shape=(groups * size,), min_value=0.01, max_value=0.02)) for _ in range(2)]
    limits = (starts[:, None] + np.arange(length) + 1).ravel()
    counts = lengths - 1, np.array([8], np.int32)
    return call(*packed, *past, None, None, *selection(draw, limits), *counts, *[None] * 7, *scales, **heads)


@cases(sparse_paged_attention, gradient=["query", "key", "value", "auxiliary_key", "auxiliary_value"])
def sparse_paged_attention_cases(draw):
    return _drawn_call(draw, int8=False)


@cases(sparse_paged_attention, gradient=False)
def sparse_paged_attention_cases_2(draw):
    return _drawn_call(draw, int8=True)


def _drawn_call(draw, int8):
    """Draw a call; with int8, without rotation and normalization, whose rounding would change quantized values."""
    pages = drawn_pages(draw)
    heads, groups, size, drawn = pages.heads, pages.groups, pages.size, pages.drawn
    limits = np.concatenate([p + np.arange(n) + 1 for p, n in zip(pages.past, pages.new, strict=True)])
    attributes = {"num_heads": heads, "kv_num_heads": groups}
    auxiliary = [None] * 3
    if draw(st.booleans()):
        shape = len(pages.past), 5, draw(st.sampled_from([1, groups])), size
        auxiliary[:2] = drawn(*shape), None if draw(st.booleans()) else drawn(*shape)
        attributes |= {"selected_kv_source": "auxiliary", "auxiliary_kv_shared": int(auxiliary[1] is None)}
        limits = np.full_like(limits, 5)
        if draw(st.booleans()):
            auxiliary[2] = draw(tensors("int32", shape=(len(pages.past),), min_value=3, max_value=5))
    if draw(st.booleans()):
        attributes |= {"attention_mode": "local_plus_selected", "local_window_size": draw(st.sampled_from([-1, 2]))}
    parts = [drawn(pages.tokens, n * size) for n in (heads, groups, groups)]
    slots = None
    if draw(st.booleans()):
        slots = pages.slots()
    more = [None] * 5
    if not int8 and draw(st.booleans()):
        more[:2] = [drawn(16, 4), drawn(16, 4)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": draw(st.integers(0, 1)), "rotary_offset": 8}
    if draw(st.booleans()):
        more[2] = drawn(heads)
    if not int8 and draw(st.booleans()):
        more[3:] = [drawn(size, low=0.5), drawn(size, low=0.5)]
        attributes["qk_norm_epsilon"] = 1e-5
    attributes |= draw(st.sampled_from([{}, {"scale": 0.3, "softcap": 1.5}, {"is_causal": 0}]))
    caches = [drawn(*pages.cache) for _ in range(2)]
    if int8:
        caches, scales, quantized = drawn_int8(draw, pages)
        more += scales
        attributes |= quantized
    else:
        more += [None, None]
    more.append(np.array([3, 9, 4, 5, 14], np.int32) if draw(st.booleans()) else None)
    return call(
        *parts,
        *caches,
        pages.sums,
        pages.past,
        pages.table,
        slots,
        *selection(draw, limits),
        *auxiliary,
        *more,
        **attributes,
    )
