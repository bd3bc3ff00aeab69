"""Cases of ops that move elements between axes, or along one."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cases.shapes import ANY
from tenonnx_standard.cases.slicing import FIRST_STRING
from tenonnx_standard.rearrangement import depth_to_space, reverse_sequence, space_to_depth
from tenonnx_testing import Gap, call, cases, tensors

modes = st.sampled_from(["DCR", "CRD"])


@cases(depth_to_space)
def depth_to_space_cases(draw):
    block, sides = draw(st.integers(1, 3)), [draw(st.integers(1, 3)) for _ in range(4)]
    x = draw(tensors(ANY, shape=(sides[0], sides[1] * block * block, *sides[2:])))
    return call(x, blocksize=block, mode=draw(modes))


@cases(space_to_depth)
def space_to_depth_cases(draw):
    block, sides = draw(st.integers(1, 3)), [draw(st.integers(1, 3)) for _ in range(4)]
    x = draw(tensors(ANY, shape=(*sides[:2], sides[2] * block, sides[3] * block)))
    return call(x, blocksize=block, mode=draw(modes))


def has_rows_of_strings(call):
    return call.inputs[0].dtype == object and np.prod(call.inputs[0].shape[2:]) > 1


@cases(reverse_sequence, gaps=[Gap("export", f"onnxruntime's Gather: {FIRST_STRING}", has_rows_of_strings)])
def reverse_sequence_cases(draw):
    x, batch = draw(tensors(ANY, min_rank=2)), draw(st.integers(0, 1))
    lengths = [draw(st.integers(1, x.shape[1 - batch])) for _ in range(x.shape[batch])]
    return call(x, np.asarray(lengths, np.int64), batch_axis=batch, time_axis=1 - batch)
