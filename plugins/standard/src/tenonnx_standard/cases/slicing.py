"""Cases of ops that select elements by index."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cases.shapes import ANY
from tenonnx_standard.slicing import compress, gather, gather_elements, gather_nd, non_zero, slice_
from tenonnx_testing import Gap, axis_of, call, cases, tensors

index_dtypes = st.sampled_from([np.int64, np.int32])


def indices(draw, shape, size):
    """Indices into an axis, some of them negative."""
    return draw(tensors(["int64", "int32"], shape=shape, min_value=-size, max_value=size - 1))


@cases(slice_)
def slice_cases(draw):
    x, dtype = draw(tensors(ANY, min_rank=1)), draw(index_dtypes)
    chosen = draw(st.lists(st.sampled_from(range(x.ndim)), unique=True, min_size=1))
    starts, ends, steps = [], [], []
    last = np.iinfo(dtype)
    for axis in chosen:
        side, step = x.shape[axis], draw(st.sampled_from([1, 1, 2, -1, -2]))
        starts.append(draw(st.integers(-side, side)))
        ends.append(draw(st.one_of(st.integers(-side, side), st.just(last.max if step > 0 else last.min))))
        steps.append(step)
    axes = [axis - draw(st.sampled_from([0, x.ndim])) for axis in chosen]
    given = steps if any(step != 1 for step in steps) or draw(st.booleans()) else None
    return call(x, *(None if v is None else np.asarray(v, dtype) for v in (starts, ends, axes, given)))


@cases(slice_)
def slice_cases_2(draw):
    x = draw(tensors(ANY, min_rank=1))
    count = draw(st.integers(1, x.ndim))
    starts, ends = ([draw(st.integers(-side, side)) for side in x.shape[:count]] for _ in range(2))
    return call(x, np.asarray(starts, np.int64), np.asarray(ends, np.int64))


def takes_rows_of_strings(call):
    """Whether Gather takes slices of several strings."""
    x, axis = call.inputs[0], call.attributes["axis"]
    return x.dtype == object and np.prod(x.shape[axis % x.ndim + 1 :]) > 1


FIRST_STRING = "it takes the first string of each slice alone"


@cases(
    gather,
    gaps=[
        Gap("onnxruntime", FIRST_STRING, takes_rows_of_strings),
        Gap("export", f"onnxruntime: {FIRST_STRING}", takes_rows_of_strings),
    ],
)
def gather_cases(draw):
    x = draw(tensors(ANY, min_rank=1, max_rank=3))
    axis = draw(axis_of(x))
    return call(x, indices(draw, draw(st.lists(st.integers(1, 3), max_size=2)), x.shape[axis]), axis=axis)


@cases(gather_elements)
def gather_elements_cases(draw):
    x = draw(tensors(ANY, min_rank=1, max_rank=3))
    axis = draw(axis_of(x))
    shape = [draw(st.integers(1, 6 if k == axis % x.ndim else side)) for k, side in enumerate(x.shape)]
    return call(x, indices(draw, shape, x.shape[axis]), axis=axis)


@cases(gather_nd)
def gather_nd_cases(draw):
    x = draw(tensors(ANY, min_rank=1))
    batch = draw(st.integers(0, min(2, x.ndim - 1)))
    depth = draw(st.integers(1, x.ndim - batch))
    lead = [*x.shape[:batch], *draw(st.lists(st.integers(1, 3), max_size=2))]
    places = [draw(tensors("int64", shape=lead, min_value=-s, max_value=s - 1)) for s in x.shape[batch : batch + depth]]
    return call(x, np.stack(places, -1), batch_dims=batch)


@cases(non_zero)
def non_zero_cases(draw):
    return call(draw(tensors(["float32", "int32", "int64", "bool", "uint8"], min_rank=1, min_value=-1, max_value=1)))


@cases(compress)
def compress_cases(draw):
    x = draw(tensors(ANY, min_rank=1))
    axis = draw(st.one_of(st.none(), axis_of(x)))
    longest = x.size if axis is None else x.shape[axis]
    return call(x, draw(tensors("bool", shape=(draw(st.integers(0, longest)),))), axis=axis)
