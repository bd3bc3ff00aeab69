"""Cases of position biases. onnxruntime implements these on GPUs only: see tests/test_attention_formulas.py."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.position_bias import relative_position_bias
from tenonnx_testing import call, cases, tensors


@cases(relative_position_bias)
def relative_position_bias_cases(draw):
    """Numbers of buckets for which no distance lies on the edge of a bucket."""
    table = draw(tensors(["float32", "float16"], shape=(draw(st.sampled_from([12, 20])), draw(st.integers(1, 2)))))
    lengths = (np.array([draw(st.integers(1, 9))]) for _ in range(2))
    return call(table, *lengths, max_distance=draw(st.sampled_from([13, 50])), is_bidirectional=draw(st.integers(0, 1)))
