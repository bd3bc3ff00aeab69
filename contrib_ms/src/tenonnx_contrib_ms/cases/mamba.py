"""Cases of state-space models. onnxruntime implements these on GPUs only: see tests/test_formulas_of_gpus.py."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.mamba import mamba2_verify
from tenonnx_testing import call, cases, shapes, tensors


@cases(mamba2_verify, gradient=False)
def mamba2_verify_cases(draw):
    rows, slots, groups, size, width = draw(shapes(5, 5, 1, 3))
    heads = groups * draw(st.integers(1, 2))
    inner, channels = heads * size, heads * size + 2 * groups * width

    def drawn(*shape, dtype="float32", low=-1.0, high=1.0):
        return draw(tensors(dtype, shape=shape, min_value=low, max_value=high))

    narrow = {"dtype": "bfloat16"}
    weight = draw(st.sampled_from([(channels, 4), (channels, 1, 4)]))
    return call(
        drawn(rows, inner + channels + heads, **narrow),
        drawn(slots, channels, 3, **narrow),
        drawn(slots, heads, width, size),
        drawn(*weight, **narrow),
        drawn(channels, **narrow),
        drawn(heads),
        drawn(heads, low=-1, high=-0.1),
        drawn(heads),
        drawn(inner, low=0.5, high=2),
        np.array([draw(st.integers(0, slots - 1))], np.int32),
        d_state=width,
        head_dim=size,
        heads=heads,
        n_groups=groups,
        epsilon=1e-2,
        time_step_min=draw(st.sampled_from([1e-3, 0.5])),
        _outputs=5,
    )
