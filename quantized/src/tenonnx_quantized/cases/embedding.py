"""Cases of QEmbedLayerNormalization."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_quantized.embedding import qembed_layer_normalization
from tenonnx_testing import call, cases, tensors


@cases(qembed_layer_normalization, gradient=False)
def qembed_layer_normalization_cases(draw):
    kind, batch, length, hidden = draw(st.sampled_from(["int8", "uint8"])), *(draw(st.integers(1, 4)) for _ in range(3))
    segmented = draw(st.booleans())

    def quantized(*shape):
        return draw(tensors(kind, shape=shape, min_value=-100, max_value=100))

    def ids(limit):
        return draw(tensors("int32", shape=(batch, length), min_value=0, max_value=limit - 1))

    names = ["word", "position", "segment", "gamma", "beta"]
    scales = {n: draw(tensors("float32", shape=(), min_value=0.01, max_value=0.1)) for n in names}
    zero_points = {n: quantized() for n in names}
    if not segmented:
        scales["segment"] = zero_points["segment"] = None
    return call(
        ids(6),
        ids(2) if segmented else None,
        quantized(6, hidden),
        quantized(length + 1, hidden),
        quantized(2, hidden) if segmented else None,
        quantized(hidden),
        quantized(hidden),
        ids(2) if draw(st.booleans()) else None,
        *scales.values(),
        *zero_points.values(),
        epsilon=draw(st.sampled_from([1e-12, 1e-3])),
    )
