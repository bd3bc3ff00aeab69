"""Cases of padding."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.cases.shapes import integers
from tenonnx_standard.padding import center_crop_pad, pad, pad_unwrapped
from tenonnx_testing import Gap, call, cases, tensors

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "bool", "string", "complex64"]


def padding(draw, mode, *, axes=False, dtypes=DTYPES):
    """Pads of a tensor, some negative, on all or some axes; reflection happens at most once per side.

    Constant padding may be cropped again.
    """
    x = draw(tensors(dtypes, max_rank=3, min_rank=1))
    chosen = draw(st.lists(st.sampled_from(range(x.ndim)), unique=True, min_size=1)) if axes else range(x.ndim)
    pads = []
    for axis in chosen:
        side = x.shape[axis]
        before = draw(st.integers(1 - side, side - 1)) if side > 1 else 0
        low, high = (min(before, 0) - side + 1, side + min(before, 0) - 1)
        low = -side - before if mode == "constant" else max(low, 1 - side - min(before, 0))
        pads.append((before, draw(st.integers(low, max(high, 0)))))
    value = draw(tensors(x.dtype.name if x.dtype != object else "string", shape=())) if draw(st.booleans()) else None
    if value is not None and "float" in x.dtype.name:
        value = value.astype(np.float32).astype(x.dtype)  # below this version it is a float attribute
    numbers = integers(*(before for before, _ in pads), *(after for _, after in pads))
    listed = integers(*(axis - draw(st.sampled_from([0, x.ndim])) for axis in chosen)) if axes else None
    return call(x, numbers, value if mode == "constant" else None, listed, mode=mode)


def is_string(call):
    return call.inputs[0].dtype == object


def is_string_without_value(call):
    return is_string(call) and call.inputs[2] is None and call.inputs[1].max() > 0


def gathers_rows_of_strings(call):
    """Whether Pad, unavailable for strings or for that mode, is expanded to a Gather of several strings."""
    x, pads, _, axes = call.inputs
    mode, places = call.attributes["mode"], range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    added = np.maximum(pads.reshape(2, -1), 0).sum(0)
    rows = any(number and np.prod(x.shape[axis + 1 :]) > 1 for axis, number in zip(places, added, strict=True))
    return rows and is_string(call) and mode != "constant" and call.version < (19 if mode == "wrap" else 13)


WITH_0 = "it pads strings with the number 0"
FIRST_STRING = "onnxruntime: Gather takes the first string of each slice alone"


@cases(pad, gaps=[Gap("reference", WITH_0, is_string_without_value)])
def pad_cases(draw):
    return padding(draw, "constant", axes=draw(st.booleans()))


@cases(pad, gaps=[Gap("export", FIRST_STRING, gathers_rows_of_strings)])
def pad_cases_2(draw):
    return padding(draw, draw(st.sampled_from(["reflect", "edge", "wrap"])), axes=draw(st.booleans()))


@cases(
    pad_unwrapped,
    gaps=[Gap("reference", WITH_0, is_string_without_value), Gap("export", FIRST_STRING, gathers_rows_of_strings)],
)
def pad_unwrapped_cases(draw):
    return padding(draw, draw(st.sampled_from(["constant", "reflect", "edge"])))


def is_longer_string(call):
    x, wanted = call.inputs
    sides = x.shape if call.attributes["axes"] is None else [x.shape[axis] for axis in call.attributes["axes"]]
    return is_string(call) and np.any(wanted > sides)


@cases(center_crop_pad, gaps=[Gap("reference", WITH_0, is_longer_string)])
def center_crop_pad_cases(draw):
    x = draw(tensors(DTYPES, min_rank=1))
    chosen = draw(st.one_of(st.none(), st.lists(st.sampled_from(range(x.ndim)), unique=True, min_size=1)))
    wanted = [draw(st.integers(1, 8)) for _ in (range(x.ndim) if chosen is None else chosen)]
    return call(x, np.asarray(wanted, draw(st.sampled_from([np.int64, np.int32]))), axes=chosen)
