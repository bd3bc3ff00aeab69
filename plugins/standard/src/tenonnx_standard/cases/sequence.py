"""Cases of sequences and optionals."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import DType, SequenceType, TensorType, subgraph
from tenonnx_standard.sequence import (
    concat_from_sequence,
    optional,
    optional_get_element,
    optional_has_element,
    optional_has_element_of,
    sequence_at,
    sequence_construct,
    sequence_empty,
    sequence_erase,
    sequence_insert,
    sequence_length,
    sequence_map,
    split_to_sequence,
)
from tenonnx_testing import Gap, axis_of, call, cases, tensors

DTYPES = ["float32", "int64", "bool"]


def sequence(draw, *, least=1):
    """A sequence of tensors of one dtype and shape."""
    first = draw(tensors(DTYPES, min_rank=1, max_rank=3))
    count = draw(st.integers(least, 3))
    return [draw(tensors(first.dtype.name, shape=first.shape)) for _ in range(count)]


def position(draw, length):
    return np.asarray(draw(st.integers(-length, length - 1)), draw(st.sampled_from([np.int32, np.int64])))


@cases(sequence_construct, gradient=False)
def sequence_construct_cases(draw):
    return call(*sequence(draw))


@cases(sequence_empty, gradient=False)
def sequence_empty_cases(draw):
    return call(dtype=int(draw(st.sampled_from([DType.float32, DType.int64, DType.bool]))))


@cases(sequence_insert, gradient=False)
def sequence_insert_cases(draw):
    elements = sequence(draw)
    where = draw(st.sampled_from([None, position(draw, len(elements))]))
    return call(elements, draw(tensors(elements[0].dtype.name, shape=elements[0].shape)), where)


@cases(sequence_erase, gradient=False)
def sequence_erase_cases(draw):
    elements = sequence(draw, least=2)
    return call(elements, draw(st.sampled_from([None, position(draw, len(elements))])))


@cases(sequence_at, gradient=False)
def sequence_at_cases(draw):
    elements = sequence(draw)
    return call(elements, position(draw, len(elements)))


@cases(sequence_length, gradient=False)
def sequence_length_cases(draw):
    return call(sequence(draw))


@cases(split_to_sequence, gradient=False)
def split_to_sequence_cases(draw):
    x = draw(tensors(["float32", "int64"], min_rank=1, min_side=2))
    axis = draw(axis_of(x))
    length = x.shape[axis]
    split = draw(st.sampled_from([None, np.asarray(2, np.int64), np.asarray([1, length - 1], np.int64)]))
    return call(x, split, axis=axis, keepdims=draw(st.integers(0, 1)) if split is None else 1)


@cases(concat_from_sequence, gradient=False)
def concat_from_sequence_cases(draw):
    elements = sequence(draw)
    return call(elements, axis=draw(axis_of(elements[0])), new_axis=draw(st.integers(0, 1)))


@cases(sequence_map, gradient=False)
def sequence_map_cases(draw):
    elements = [draw(tensors(shape=(2, 3))) for _ in range(draw(st.integers(1, 3)))]
    formals = [("element", TensorType(DType.float32, (2, 3))), ("other", TensorType(DType.float32, (3,)))]
    body = subgraph(lambda element, other: element + other, formals)
    return call(elements, draw(tensors(shape=(3,))), body=body, _outputs=1)


LISTED = Gap("reference", "it wraps the contents of an optional in a list")


@cases(optional, gradient=False, gaps=[LISTED])
def optional_cases(draw):
    kind = TensorType(DType.float32, (2,))
    given = draw(st.sampled_from(["tensor", "sequence", "none"]))
    if given == "none":
        return call(None, type=draw(st.sampled_from([kind, SequenceType(kind)])))
    return call(draw(tensors()) if given == "tensor" else sequence(draw))


@cases(optional_get_element)
def optional_get_element_cases(draw):
    return call(draw(tensors(DTYPES)))


@cases(optional_has_element, gradient=False)
def optional_has_element_cases(draw):
    return call(draw(st.sampled_from([None, draw(tensors(DTYPES)), sequence(draw)])))


@cases(optional_has_element_of, gradient=False)
def optional_has_element_of_cases(draw):
    return call(draw(st.sampled_from([draw(tensors(DTYPES)), sequence(draw)])))
