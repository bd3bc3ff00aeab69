"""Cached types are used for equivalent calls, and for no others."""

import math

import numpy as np
import pytest
import tiny

from tenonnx.errors import TypeMismatch
from tenonnx.extend import DType, TensorType, constant, floats, op, static
from tenonnx.graph.constants import ArrayConstant
from tenonnx.graph.graph import Value
from tenonnx.op.infer import infer_call
from tenonnx.op.inference_cache import attributes_key


@op("Holding", domain="tiny")
def holding(x, *, value=None):
    return constant(np.asarray(value))


@op("Signed", domain="tiny")
def signed(x, factors=None, *, alpha=0.0):
    number = alpha if factors is None else static(factors)[0]
    return constant(np.float64(1) if math.copysign(1, number) < 0 else np.float32(1))


def dtype(made, *contents, **attributes):
    x = Value("x", TensorType(DType.float32, ("n",)))
    data = [ArrayConstant(array) for array in contents]
    inputs = [x, *(Value("c", each.type, data=each) for each in data)]
    (known,) = infer_call(made, inputs, made.signature.complete(made.title, attributes))
    return str(known.type.dtype)


@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: [number]])
def test_equal_attributes_of_several_kinds(wrap):
    assert [dtype(holding, value=wrap(v)) for v in (1, True, 1.0, 1)] == ["int64", "bool", "float64", "int64"]


def test_two_zeros():
    assert [dtype(signed, alpha=zero) for zero in (0.0, -0.0)] == ["float32", "float64"]
    assert [dtype(signed, np.float32([zero])) for zero in (0.0, -0.0)] == ["float32", "float64"]


def test_nan_is_cached():
    calls = []

    @op("Asked", domain="tiny")
    def ask(x, factors, *, alpha=0.0):
        calls.append(alpha)
        return tiny.identity(x)

    for _ in range(2):
        dtype(ask, np.full(2, math.nan, "f4"), alpha=float("nan"))
    assert len(calls) == 1


def test_contents_and_lists_that_are_changed_are_others():
    changed, listed = np.float32([0.0]), [1]
    assert dtype(signed, changed) == "float32"
    changed[0] = -1
    assert dtype(signed, changed) == "float64"
    assert dtype(holding, value=listed) == "int64"
    listed[0] = 1.5
    assert dtype(holding, value=listed) == "float64"


def test_a_requirement_added_after_a_call_applies():
    @op("Strict", domain="tiny")
    def strict(x, y=None):
        return tiny.identity(x)

    assert dtype(strict, np.int64([1])) == "float32"
    strict.requires(floats("y"))
    with pytest.raises(TypeMismatch, match='"y" does not hold floats'):
        dtype(strict, np.int64([1]))


def test_equal_numbers_of_other_types_have_one_key():
    one, *others = (attributes_key({"a": number, "b": [number]}) for number in (1, 1.0, True))
    assert others == [one, one]
    assert attributes_key({"a": 0.0}) != attributes_key({"a": -0.0})
