"""Cases of state replay. onnxruntime implements it on GPUs only: see tests/test_formulas_of_gpus.py."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.state_replay import conv_state_replay, gated_delta_net_state_replay
from tenonnx_testing import call, cases, shapes, tensors


def backing(draw, dtype, size):
    """Draw a buffer with ``size`` elements from an offset on, and the offset."""
    offset, behind = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    return draw(tensors(dtype, shape=(offset + size + behind,), min_value=-2, max_value=2)), offset


@cases(conv_state_replay, gradient=False)
def conv_state_replay_cases(draw):
    batch, channels, history, capacity = draw(shapes(4, 4, 1, 3))
    dtype = draw(st.sampled_from(["float32", "float16"]))
    state = batch * channels * history
    source, destination, capture = (backing(draw, dtype, n) for n in (state, state, batch * channels * capacity))
    width = np.dtype(dtype).itemsize
    metadata = [source[1] * width, destination[1] * width, capture[1] * width, batch, channels, history, capacity]
    metadata = np.array([*metadata, draw(st.integers(0, capacity))])
    return call(source[0], capture[0], destination[0], metadata)


@cases(gated_delta_net_state_replay, gradient=["source_backing", "capsule_backing", "destination_backing"])
def gated_delta_net_state_replay_cases(draw):
    groups, times, values, keys = draw(shapes(4, 4, 1, 2))
    capacity, heads = draw(st.integers(1, 3)), groups * times
    wide = draw(st.sampled_from([1, keys]))
    sizes = [capacity * n for n in (heads * wide, groups * keys, heads * values)]
    source, destination, capsule = (
        backing(draw, "float32", n) for n in (heads * values * keys, heads * values * keys, sum(sizes))
    )
    parts = capsule[1] + np.cumsum([0, *sizes[:2]])
    kept = draw(st.integers(1, capacity))
    metadata = np.array([source[1], destination[1], *parts, heads, values, keys, groups, capacity, kept])
    return call(source[0], capsule[0], destination[0], metadata)
