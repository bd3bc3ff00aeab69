"""Comparison, logic and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, Value, broadcast_types, elementwise

Array = np.ndarray[Any, Any]


# ----- comparison -----------------------------------------------------------------------------------------------------


@elementwise("Equal", result=DType.bool, selects=True)
def equal(A, B):
    """Whether elements are equal; NaN equals nothing."""


equal.numpy(np.equal)


@elementwise("Less", result=DType.bool, selects=True)
def less(A, B):
    """Whether A < B."""


less.numpy(np.less)


@elementwise("Greater", result=DType.bool, selects=True)
def greater(A, B):
    """Whether A > B."""


greater.numpy(np.greater)


@elementwise("LessOrEqual", since=12, result=DType.bool, selects=True)
def less_or_equal(A, B):
    """Whether A <= B."""


less_or_equal.numpy(np.less_equal)


@elementwise("GreaterOrEqual", since=12, result=DType.bool, selects=True)
def greater_or_equal(A, B):
    """Whether A >= B."""


greater_or_equal.numpy(np.greater_equal)

for _comparison in (equal, less, greater, less_or_equal, greater_or_equal):
    _comparison.vjp(lambda g, y, A, B: (None, None))


# ----- logic ----------------------------------------------------------------------------------------------------------


@elementwise("And", result=DType.bool)
def and_(A, B):
    """Whether both hold."""


@elementwise("Or", result=DType.bool)
def or_(A, B):
    """Whether one or both hold."""


@elementwise("Xor", result=DType.bool)
def xor(A, B):
    """Whether exactly one holds."""


@elementwise("Not", result=DType.bool)
def not_(X):
    """Whether X does not hold."""


and_.numpy(np.logical_and)
or_.numpy(np.logical_or)
xor.numpy(np.logical_xor)
not_.numpy(np.logical_not)


@elementwise("Where", since=9, mixed=("condition",), selects=True)
def where(condition, X, Y):
    """X where ``condition`` holds, Y elsewhere."""


where.numpy(np.where)


@where.vjp
def _(g: Value, y: Value, condition: Value, X: Value, Y: Value) -> tuple[None, Value, Value]:
    return None, where(condition, g, 0), where(condition, 0, g)


# ----- bits -----------------------------------------------------------------------------------------------------------


@elementwise("BitwiseAnd", since=18)
def bitwise_and(A, B):
    """The bits that are set in both."""


@elementwise("BitwiseOr", since=18)
def bitwise_or(A, B):
    """The bits that are set in one or both."""


@elementwise("BitwiseXor", since=18)
def bitwise_xor(A, B):
    """The bits that are set in exactly one."""


@elementwise("BitwiseNot", since=18)
def bitwise_not(X):
    """Every bit flipped."""


bitwise_and.numpy(np.bitwise_and)
bitwise_or.numpy(np.bitwise_or)
bitwise_xor.numpy(np.bitwise_xor)
bitwise_not.numpy(np.bitwise_not)
