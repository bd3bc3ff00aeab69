"""Cases of ops that occur in models but not in the specification."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard import nonstandard as ops
from tenonnx_standard.cases.convolution import deformable, window
from tenonnx_testing import broadcastable, call, cases, tensors

FLOATS = ["float32", "float64", "float16"]
NUMBERS = st.sampled_from([0.5, 1.0, 2.0, -1.5])


def sizes(draw, rank=2):
    return [draw(st.integers(2, 6)) for _ in range(rank)]


def images(draw, **also):
    return draw(tensors(FLOATS, shape=(draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes(draw)), **also))


@cases(ops.affine)
def affine_cases(draw):
    return call(draw(tensors(FLOATS)), alpha=draw(NUMBERS), beta=draw(NUMBERS))


@cases(ops.scale)
def scale_cases(draw):
    return call(draw(tensors(FLOATS)), scale=draw(NUMBERS))


for _op in (ops.scaled_tanh, ops.parametric_softplus):
    cases(_op)(lambda draw: call(draw(tensors(FLOATS)), alpha=draw(NUMBERS), beta=draw(NUMBERS)))


@cases(ops.image_scaler)
def image_scaler_cases(draw):
    x = images(draw)
    return call(x, bias=[draw(NUMBERS) for _ in range(x.shape[1])], scale=draw(NUMBERS))


@cases(ops.crop)
def crop_cases(draw):
    x = images(draw)
    left, top = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    if draw(st.booleans()):
        return call(x, border=[left, top, 0, 0], scale=[x.shape[2] - top, x.shape[3] - left])
    return call(x, border=[left, top, 1 - left, 1 - top])


@cases(ops.dynamic_slice)
def dynamic_slice_cases(draw):
    x = draw(tensors(["float32", "int64", "uint8"], min_rank=1, min_side=2))
    axes = draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, max_size=x.ndim, unique=True))
    starts, ends = ([draw(st.sampled_from(choice)) for _ in axes] for choice in ([0, 1, -2], [2, -1, 1000]))
    if axes == list(range(x.ndim)) and draw(st.booleans()):
        return call(x, starts, ends)
    return call(x, starts, ends, axes)


for _op in (ops.memcpy_from_host, ops.memcpy_to_host):
    cases(_op)(lambda draw: call(draw(tensors([*FLOATS, "int64", "bool"]))))


@cases(ops.bitshift_alias, gradient=False)
def bitshift_alias_cases(draw):
    x, y = draw(broadcastable(2, ["uint8", "uint32", "int16"], min_value=0, max_value=100))
    return call(x, y % 8, direction=draw(st.sampled_from(["LEFT", "RIGHT"])))


@cases(ops.deformable_conv)
def deformable_conv_cases(draw):
    return deformable(draw)


for _op in (ops.adaptive_average_pool, ops.adaptive_max_pool):

    @cases(_op)
    def op_cases(draw):
        shape = sizes(draw, draw(st.integers(1, 3)))
        counts = [draw(st.integers(1, 7)) for _ in shape]
        x = draw(tensors(FLOATS, shape=(draw(st.integers(1, 2)), 2, *shape), distinct=True))
        return call(x, output_size=counts if draw(st.booleans()) else counts[0])


@cases(ops.im2col)
def im2col_cases(draw):
    attributes, shape = window(draw, same=False)
    attributes.pop("auto_pad", None)
    dtype = draw(st.sampled_from([*FLOATS, "int64"]))
    return call(draw(tensors(dtype, shape=(draw(st.integers(1, 2)), 2, *shape))), **attributes)


@cases(ops.ctc_greedy_decoder, gradient=["inputs"])
def ctc_greedy_decoder_cases(draw):
    steps, batch, classes = draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(2, 3))
    x = draw(tensors(["float32", "float64"], shape=(steps, batch, classes), distinct=True))
    lengths = np.asarray([draw(st.integers(1, steps)) for _ in range(batch)], np.int32)
    blank = draw(st.integers(-classes, classes - 1))
    return call(x, lengths, blank_index=blank, merge_repeated=draw(st.integers(0, 1)))
