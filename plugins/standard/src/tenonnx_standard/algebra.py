"""Normal form of sums, products and clips: where constants and common factors stand.

A factor that two terms of a sum share is moved outside of it, so that polynomials become Horner's form. A constant
inside a factor moves outside of the product, except where a clip then has simple bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator

import numpy as np

from tenonnx.extend import TensorType, Value
from tenonnx_standard.activation import hard_sigmoid, relu, sigmoid
from tenonnx_standard.math import add, clip, exp, maximum, minimum, mul, reciprocal, sqrt
from tenonnx_standard.symbolic_ints import fixed, is_most, spread
from tenonnx_standard.trigonometry import tanh

#: Maximum steps when searching the producers of a value or the factors of a product.
MOST_STEPS = 12

#: Relative tolerance within which an element type must represent a number.
_DIGITS = 2.0**-7


def is_float(x: Value) -> bool:
    return isinstance(x.type, TensorType) and x.type.dtype.is_float


def number_of(x: Value) -> float | None:
    """The value of a float constant with one element that is not trainable; else None."""
    contents = fixed(x) if is_float(x) else None
    return float(contents.reshape(-1)[0]) if contents is not None and contents.size == 1 else None


def constant_operand(x: Value) -> tuple[Value, float] | None:
    """The operand and the number, if one operand of ``x``'s producer is a number that adds no axes; else None."""
    uses = () if x.producer is None else x.producer.uses
    for one, other in itertools.permutations(uses) if len(uses) == 2 else ():
        number = number_of(other)
        if number is not None:
            return (one, number) if one.rank == x.rank else None
    return None


def parts_of_product(x: Value, whole: Container[Value] = ()) -> tuple[Value, float]:
    """A product without its constant factors, and their product; values in ``whole`` are not taken apart."""
    number = 1.0
    while x not in whole and x.producer is not None and x.producer.op is mul:
        found = constant_operand(x)
        if found is None:
            break
        x, number = found[0], number * found[1]
    return x, number


def _represents(x: Value, *numbers: float) -> bool:
    """Whether the element type of ``x`` represents these numbers, up to rounding."""
    with np.errstate(all="ignore"):
        rounded = [float(np.asarray(number).astype(x.dtype.numpy)) for number in numbers]
    return all(math.isclose(*pair, rel_tol=_DIGITS) for pair in zip(numbers, rounded, strict=True))


# ----- common factors -------------------------------------------------------------------------------------------------


def _factors(x: Value, steps: int = MOST_STEPS) -> Iterator[Value]:
    """A value and its factors, products before their factors."""
    pending = [x]
    for _ in range(steps):
        if not pending:
            return
        factor = pending.pop(0)
        yield factor
        if factor.producer is not None and factor.producer.op is mul:
            pending += factor.producer.uses


def _cofactor(x: Value, factor: Value) -> Value | None:
    """``x`` divided by one of its factors; None if nothing remains."""
    if x is factor or x.producer is None:
        return None
    for one, other in itertools.permutations(x.producer.uses):
        if factor in _factors(one):
            rest = _cofactor(one, factor)
            return other if rest is None else rest * other
    return None


def by_common_factor(A: Value, B: Value) -> Value | None:
    """Factor out a common, non-constant factor of two terms; None if there is none."""
    for one, other in ((A, B), (B, A)):
        nested = list(itertools.permutations(other.producer.uses)) if _is_sum(other) and other.producer else []
        for term, rest in [(other, None), *nested]:
            if one.data is not None or term.data is not None:
                continue
            theirs = set(_factors(term))
            factor = next((f for f in _factors(one) if f in theirs and f.data is None), None)
            if factor is None:
                continue
            left, right = _cofactor(one, factor), _cofactor(term, factor)
            if all(v is None or number_of(v) is not None for v in (left, right)):
                continue
            total = left + right if left is not None and right is not None else (left or right) + 1.0  # type: ignore[operator]
            return total * factor if rest is None else total * factor + rest
    return None


def _is_sum(x: Value) -> bool:
    return x.producer is not None and x.producer.op is add


# ----- numbers --------------------------------------------------------------------------------------------------------


def _without_numbers(x: Value, whole: Container[Value], steps: int = MOST_STEPS) -> tuple[Value, float]:
    """A product without its constant factors at any depth, and their product."""
    inner, number = parts_of_product(x, whole)
    if inner in whole or inner.producer is None or inner.producer.op is not mul or not steps:
        return inner, number
    (left, one), (right, other) = (_without_numbers(v, whole, steps - 1) for v in inner.producer.uses)
    return (left * right, number * one * other) if one * other != 1 else (inner, number)


def _bounded(x: Value) -> tuple[Value, float, float] | None:
    """The clipped value and its two constant bounds; None if ``x`` is no clip."""
    high = constant_operand(x) if x.producer is not None and x.producer.op is minimum else None
    inner = None if high is None else high[0]
    low = constant_operand(inner) if inner is not None and inner.producer and inner.producer.op is maximum else None
    return None if low is None or high is None else (low[0], low[1], high[1])


def _factored_out(x: Value, whole: Container[Value]) -> tuple[Value, float] | None:
    """Factor out of ``x`` the constant that multiplies its value inside a sum or a clip; the rest and the constant."""
    if (bounds := _bounded(x)) is not None:
        inner, low, high = bounds
        found = _factored_out(inner, whole) or parts_of_product(inner, whole)
        if found[1] > 0 and found[1] != 1 and _represents(x, low / found[1], high / found[1]):
            return minimum(maximum(found[0], low / found[1]), high / found[1]), found[1]
        return None
    added = constant_operand(x) if _is_sum(x) else None
    if added is None:
        return None
    inner, number = _without_numbers(added[0], whole)
    known = number not in (0, 1) and math.isfinite(number) and _represents(x, number, added[1] / number)
    return (inner + added[1] / number, number) if known else None


def _depends_on(x: Value, source: Value) -> bool:
    pending, seen = [x], {x}
    for _ in range(MOST_STEPS):
        if not pending:
            return False
        value = pending.pop(0)
        if value is source:
            return True
        inputs = () if value.producer is None else value.producer.uses
        pending += [v for v in inputs if v not in seen and v.data is None]
        seen.update(inputs)
    return False


def with_numbers_placed(A: Value, B: Value) -> Value | None:
    """Move constants in the factors of a product outside of it; scale a clip whose bounds become 0 and 1.

    A value that the other factor also uses stays as it is.
    """
    for one, other in ((A, B), (B, A)):
        number = number_of(other)
        if number is None and (_is_sum(one) or _bounded(one) is not None):
            found = None if _depends_on(other, one) else _factored_out(one, set(_factors(other)))
            if found is not None:
                return found[0] * other * found[1]
        if number is not None and number > 0 and (bounds := _bounded(one)) is not None:
            inner, low, high = bounds
            if other.rank == 0 and low == 0 and math.isclose(high * number, 1, rel_tol=_DIGITS):
                return minimum(maximum(inner * number, 0.0), high * number)  # type: ignore[no-any-return]
    return None


@clip.rule("normal")
def clip_normal(input: Value, min: Value | None, max: Value | None) -> Value | None:
    return clip.function(input, min, max) if is_float(input) else None  # type: ignore[no-any-return]


@relu.rule("normal")
def relu_normal(X: Value) -> Value | None:
    return maximum(X, 0.0) if is_float(X) else None  # type: ignore[no-any-return]


@hard_sigmoid.rule("normal")
def hard_sigmoid_normal(X: Value, *, alpha: float, beta: float) -> Value:
    return hard_sigmoid.function(X, alpha=alpha, beta=beta)  # type: ignore[no-any-return]


@maximum.rule("normal")
def maximum_normal(*data_0: Value) -> Value | None:
    """Constants go last, after an upper bound, and are multiplied before they are added."""
    if len(data_0) != 2 or not is_float(data_0[0]):
        return None
    x, bound = data_0
    low = number_of(bound)
    if low is None:
        return maximum(bound, x) if number_of(x) is not None else None  # type: ignore[no-any-return]
    if bound.rank:
        return None
    above = constant_operand(x) if x.producer is not None and x.producer.op is minimum else None
    if above is not None and low <= above[1]:
        return minimum(maximum(above[0], low), above[1])  # type: ignore[no-any-return]
    total, number = parts_of_product(x)
    added = constant_operand(total) if number != 1 and _is_sum(total) else None
    if added is None or not _represents(x, added[1] * number):
        return None
    inner, factor = parts_of_product(added[0])
    return maximum(inner * (factor * number) + added[1] * number, low)  # type: ignore[no-any-return]


@minimum.rule("normal")
def minimum_normal(*data_0: Value) -> Value | None:
    """The smaller operand if it is known; constants go last."""
    one, other = data_0 if len(data_0) == 2 else (None, None)
    if one is None or other is None:
        return None
    if is_float(one):
        return minimum(other, one) if number_of(one) is not None is number_of(other) else None  # type: ignore[no-any-return]
    for small, large in ((one, other), (other, one)):
        if is_most(small, large):
            return spread(small, large)
    return None


def rectified(x: Value) -> Value | None:
    """The input of a Relu, in normal form."""
    found = constant_operand(x) if x.producer is not None and x.producer.op is maximum else None
    return None if found is None or found[1] != 0 else found[0]


# ----- functions by each other ----------------------------------------------------------------------------------------


@sigmoid.rule("normal")
def sigmoid_normal(X: Value) -> Value:
    return tanh(X * 0.5) * 0.5 + 0.5  # type: ignore[no-any-return]


@reciprocal.rule("normal")
def reciprocal_normal(X: Value) -> Value | None:
    """The reciprocal of 1 + exp(-x) is the sigmoid."""
    added = constant_operand(X) if _is_sum(X) else None
    producer = None if added is None or added[1] != 1 else added[0].producer
    if producer is None or producer.op is not exp:
        return None
    inner, number = parts_of_product(producer.uses[0])
    return sigmoid(inner if number == -1 else inner * -number)  # type: ignore[no-any-return]


@sqrt.rule("normal")
def sqrt_normal(X: Value) -> Value | None:
    inverse = X.producer is not None and X.producer.op is reciprocal
    return reciprocal(sqrt(X.producer.uses[0])) if inverse and X.producer else None  # type: ignore[no-any-return]
