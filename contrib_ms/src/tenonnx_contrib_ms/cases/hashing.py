"""Cases of MurmurHash3 and NGramHashMapping."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.hashing import murmur_hash3, ngram_hash_mapping
from tenonnx_testing import call, cases, shapes, tensors


@cases(murmur_hash3, gradient=False)
def murmur_hash3_cases(draw):
    """Floats can be lowered to opsets with BitCast, strings never."""
    dtype = draw(st.sampled_from(["int32", "uint32", "int64", "uint64", "float32", "float64", "string"]))
    x = draw(tensors(dtype, max_rank=2))
    return call(x, positive=draw(st.integers(0, 1)), seed=draw(st.sampled_from([0, 42, 2**31])))


@cases(ngram_hash_mapping, gradient=False)
def ngram_hash_mapping_cases(draw):
    batch, length, heads = draw(shapes(3, 3, 1, 4))
    size, dtype = draw(st.integers(2, 4)), draw(st.sampled_from(["int32", "int64"]))

    def drawn(*shape, kind=dtype, low=0, high=5):
        return draw(tensors(kind, shape=shape, min_value=low, max_value=high))

    ids, multipliers = drawn(batch, length), drawn(size, low=1, high=1000)
    sizes = drawn((size - 1) * heads, low=2, high=100)
    past = draw(st.sampled_from([None, drawn(batch, size - 1)]))
    offsets = draw(st.sampled_from([None, drawn((size - 1) * heads)]))
    end = draw(st.sampled_from([None, np.array(3, dtype)]))
    segments = draw(st.sampled_from([None, np.sort(drawn(batch, length, kind="int32", high=2))]))
    attributes = {"max_ngram_size": size, "n_head_per_ngram": heads, "pad_id": draw(st.integers(0, 2))}
    reset = draw(st.integers(0, 1))
    return call(ids, multipliers, sizes, past, offsets, end, segments, reset_on_eos=reset, **attributes)
