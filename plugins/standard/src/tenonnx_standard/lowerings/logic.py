"""Lowerings of logic, comparison and casts to each other."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, constant
from tenonnx_standard.lowerings.registry import like, lowering, numbers, of_floats, unless


def _number(value):
    return ops.cast(value, to=DType.float32)


def _zero():
    return constant(0.0, DType.float32)


@lowering(ops.and_)
def and_by_or(A, B):
    return ops.not_(ops.or_(ops.not_(A), ops.not_(B)))


@lowering(ops.and_)
def and_by_mul(A, B):
    return ops.cast(ops.mul(_number(A), _number(B)), to=DType.bool)


@lowering(ops.and_)
def and_by_where(A, B):
    return ops.where(A, B, constant(False))


@lowering(ops.and_)
def and_by_minimum(A, B):
    return ops.cast(ops.minimum(_number(A), _number(B)), to=DType.bool)


@lowering(ops.and_)
def and_by_comparison(A, B):
    return ops.greater(ops.mul(_number(A), _number(B)), _zero())


@lowering(ops.or_)
def or_by_and(A, B):
    return ops.not_(ops.and_(ops.not_(A), ops.not_(B)))


@lowering(ops.or_)
def or_by_add(A, B):
    return ops.cast(ops.add(_number(A), _number(B)), to=DType.bool)


@lowering(ops.or_)
def or_by_where(A, B):
    return ops.where(A, constant(True), B)


@lowering(ops.or_)
def or_by_comparison(A, B):
    return ops.greater(ops.add(_number(A), _number(B)), _zero())


@lowering(ops.or_)
def or_by_maximum(A, B):
    return ops.cast(ops.maximum(_number(A), _number(B)), to=DType.bool)


@lowering(ops.xor)
def xor_by_and_or_not(A, B):
    return ops.and_(ops.or_(A, B), ops.not_(ops.and_(A, B)))


@lowering(ops.xor)
def xor_by_two_ands(A, B):
    return ops.or_(ops.and_(A, ops.not_(B)), ops.and_(ops.not_(A), B))


@lowering(ops.xor)
def xor_by_equal(A, B):
    return ops.not_(ops.equal(A, B))


@lowering(ops.xor)
def xor_by_sub(A, B):
    return ops.cast(ops.sub(_number(A), _number(B)), to=DType.bool)


@lowering(ops.xor)
def xor_by_where(A, B):
    return ops.where(A, ops.not_(B), B)


@lowering(ops.not_)
def not_by_xor(X):
    return ops.xor(X, constant(True))


@lowering(ops.not_)
def not_by_sub(X):
    return ops.cast(ops.sub(constant(1.0, DType.float32), _number(X)), to=DType.bool)


@lowering(ops.not_)
def not_by_where(X):
    return ops.where(X, constant(False), constant(True))


@lowering(ops.not_)
def not_by_less(X):
    return ops.less(_number(X), constant(0.5, DType.float32))


@lowering(ops.equal)
def equal_of_truth_by_xor(A, B):
    unless(A.dtype is not DType.bool)
    return ops.not_(ops.xor(A, B))


@lowering(ops.equal)
def equal_by_two_comparisons(A, B):
    unless(not (A.dtype.is_float or A.dtype.is_integer))
    return ops.and_(ops.greater_or_equal(A, B), ops.less_or_equal(A, B))


@lowering(ops.equal, "finite")
def equal_by_less_and_greater(A, B):
    unless(not A.dtype.is_float)
    return ops.not_(ops.or_(ops.less(A, B), ops.greater(A, B)))


@lowering(ops.equal)
def equal_of_integers(A, B):
    unless(A.dtype not in (DType.int32, DType.int64))
    return ops.not_(ops.or_(ops.less(A, B), ops.greater(A, B)))


@lowering(ops.equal, "finite")
def equal_by_sub(A, B):
    of_floats(A)
    return ops.not_(ops.cast(ops.sub(A, B), to=DType.bool))


@lowering(ops.greater)
def greater_by_less(A, B):
    return ops.less(B, A)


@lowering(ops.less)
def less_by_greater(A, B):
    return ops.greater(B, A)


@lowering(ops.greater_or_equal)
def greater_or_equal_by_less_or_equal(A, B):
    return ops.less_or_equal(B, A)


@lowering(ops.less_or_equal)
def less_or_equal_by_greater_or_equal(A, B):
    return ops.greater_or_equal(B, A)


@lowering(ops.greater)
def greater_by_greater_or_equal(A, B):
    return ops.and_(ops.greater_or_equal(A, B), ops.not_(ops.equal(A, B)))


@lowering(ops.greater)
def greater_by_two_comparisons(A, B):
    return ops.and_(ops.greater_or_equal(A, B), ops.not_(ops.greater_or_equal(B, A)))


@lowering(ops.greater_or_equal, "finite")
def greater_or_equal_by_less(A, B):
    return ops.not_(ops.less(A, B))


@lowering(ops.less_or_equal, "finite")
def less_or_equal_by_greater(A, B):
    return ops.not_(ops.greater(A, B))


@lowering(ops.less, "finite")
def less_by_relu(A, B):
    of_floats(A)
    return ops.cast(ops.relu(ops.sub(B, A)), to=DType.bool)


@lowering(ops.greater, "finite")
def greater_by_not_less_or_equal(A, B):
    return ops.not_(ops.less_or_equal(A, B))


@lowering(ops.less, "finite")
def less_by_not_greater_or_equal(A, B):
    return ops.not_(ops.greater_or_equal(A, B))


@lowering(ops.where, "finite")
def where_by_products(condition, X, Y):
    of_floats(X)
    chosen = ops.cast(condition, to=X.dtype)
    return ops.add(ops.mul(X, chosen), ops.mul(Y, ops.sub(like(X, 1), chosen)))


@lowering(ops.where, "finite")
def where_by_two_casts(condition, X, Y):
    of_floats(X)
    chosen, other = (ops.cast(each, to=X.dtype) for each in (condition, ops.not_(condition)))
    return ops.add(ops.mul(X, chosen), ops.mul(Y, other))


@lowering(ops.where, "finite")
def where_of_zeros_by_mul(condition, X, Y):
    of_floats(X)
    if Y.data is not None and not np.any(numbers(Y)):
        return ops.mul(X, ops.cast(condition, to=X.dtype))
    unless(np.any(numbers(X)))
    return ops.mul(Y, ops.cast(ops.not_(condition), to=X.dtype))


@lowering(ops.where, "finite")
def where_by_difference(condition, X, Y):
    of_floats(X)
    return ops.add(Y, ops.mul(ops.cast(condition, to=X.dtype), ops.sub(X, Y)))


@lowering(ops.where)
def where_of_truth(condition, X, Y):
    unless(X.dtype is not DType.bool)
    return ops.or_(ops.and_(condition, X), ops.and_(ops.not_(condition), Y))


@lowering(ops.cast)
def cast_of_truth_by_where(input, *, to, saturate, round_mode):
    kind = DType(to)
    unless(input.dtype is not DType.bool or not (kind.is_float or kind.is_integer))
    return ops.where(input, constant(1, kind), constant(0, kind))


@lowering(ops.cast)
def cast_to_truth_by_equal(input, *, to, saturate, round_mode):
    unless(DType(to) is not DType.bool or input.dtype is DType.bool or input.dtype is DType.string)
    return ops.not_(ops.equal(input, like(input, 0)))


@lowering(ops.isnan)
def isnan_by_equal(X):
    return ops.not_(ops.equal(X, X))


@lowering(ops.isinf)
def isinf_by_absolute(X, *, detect_negative, detect_positive):
    unless(not (detect_negative and detect_positive))
    return ops.equal(ops.absolute(X), like(X, np.inf))
