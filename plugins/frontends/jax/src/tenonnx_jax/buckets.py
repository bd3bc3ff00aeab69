"""Padding of dynamic sizes to buckets, so that one compiled program serves many sizes.

A dim is *stretchable* if rows of the results do not depend on padding rows after them. This is derived from traces at
two sizes: every operation has to keep rows separate, or to read only earlier ones, and no number may depend on the
size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

#: Axes of an array whose size differs between the two traces.
Varying = frozenset[int]


def bucket(size: int) -> int:
    """The next power of two, or three quarters of it: at most a third of the rows is padding."""
    power = 1 << max(size - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and size <= power * 3 // 4 else power


def padded(array: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """An array padded by repeating its last rows, which are valid inputs of every operation."""
    if array.shape == tuple(shape):
        return array
    return np.pad(array, [(0, wanted - have) for have, wanted in zip(array.shape, shape, strict=True)], mode="edge")


def is_stretchable(one: ClosedJaxpr, other: ClosedJaxpr) -> bool:
    """Whether rows do not depend on padding, by two traces of one function at a size and a larger one."""
    return _same_constants(one.consts, other.consts) and _is_apart(one.jaxpr, other.jaxpr)


def _same_constants(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether the smaller constants are prefixes of the larger ones."""
    return len(one) == len(other) and all(
        _begins(np.asarray(a), np.asarray(b)) for a, b in zip(one, other, strict=True)
    )


def _begins(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.ndim != b.ndim or a.dtype != b.dtype or any(m > n for m, n in zip(a.shape, b.shape, strict=True)):
        return False
    return a.tobytes() == b[tuple(slice(size) for size in a.shape)].tobytes()


def _is_apart(one: Jaxpr, other: Jaxpr) -> bool:
    if len(one.eqns) != len(other.eqns) or len(one.outvars) != len(other.outvars):
        return False
    pairs = zip(one.eqns, other.eqns, strict=True)
    return all(_keeps_apart(a, b) for a, b in pairs) and _same_literals(one.outvars, other.outvars)


def _same_literals(one: Sequence[Any], other: Sequence[Any]) -> bool:
    for a, b in zip(one, other, strict=True):
        if isinstance(a, Literal) != isinstance(b, Literal):
            return False
        if isinstance(a, Literal) and np.asarray(a.val).tobytes() != np.asarray(b.val).tobytes():
            return False
    return True


def _keeps_apart(one: Any, other: Any) -> bool:
    if one.primitive is not other.primitive or len(one.invars) != len(other.invars):
        return False
    if not _same_literals(one.invars, other.invars):
        return False
    pairs = [*zip(one.invars, other.invars, strict=True), *zip(one.outvars, other.outvars, strict=True)]
    if any(len(a.aval.shape) != len(b.aval.shape) for a, b in pairs):
        return False
    axes = [_varying(a, b) for a, b in pairs]
    inputs, outputs = axes[: len(one.invars)], axes[len(one.invars) :]
    name, inner = one.primitive.name, [_inner(each.params) for each in (one, other)]
    if name in _CALLS and inner[0] is not None and inner[1] is not None:
        return is_stretchable(inner[0], inner[1])
    if not any(inputs) and not any(outputs):
        return str(one.params) == str(other.params)
    rule = _RULES.get(name)
    if rule is not None:
        return rule(one, other, inputs)
    shape = one.outvars[0].aval.shape
    given = [v.aval.shape for v in one.invars if v.aval.shape]
    fits = all(len(each) == len(shape) and all(a in (b, 1) for a, b in zip(each, shape, strict=True)) for each in given)
    return name in _ELEMENTWISE and fits


def _varying(a: Any, b: Any) -> Varying:
    one, other = a.aval.shape, b.aval.shape
    return frozenset(axis for axis, (m, n) in enumerate(zip(one, other, strict=True)) if m != n)


def _inner(params: Mapping[str, Any]) -> ClosedJaxpr | None:
    result = next((params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in params), None)
    if isinstance(result, Jaxpr):
        return ClosedJaxpr(result, ())
    return result if isinstance(result, ClosedJaxpr) else None


_CALLS = frozenset(
    {"pjit", "jit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}
)

#: Elementwise operations.
_ELEMENTWISE = frozenset(
    {
        "abs",
        "acos",
        "acosh",
        "add",
        "and",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "bitcast_convert_type",
        "cbrt",
        "ceil",
        "clamp",
        "convert_element_type",
        "copy",
        "copy_p",
        "cos",
        "cosh",
        "digamma",
        "div",
        "eq",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "ge",
        "gt",
        "imag",
        "integer_pow",
        "is_finite",
        "le",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "lt",
        "max",
        "min",
        "mul",
        "ne",
        "neg",
        "nextafter",
        "not",
        "or",
        "population_count",
        "pow",
        "optimization_barrier",
        "real",
        "reduce_precision",
        "rem",
        "round",
        "rsqrt",
        "select_n",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "stop_gradient",
        "sub",
        "tan",
        "tanh",
        "xor",
    }
)


def _always(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    return True


def _product(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    (left, right), _ = one.params["dimension_numbers"]
    return inputs[0].isdisjoint(left) and inputs[1].isdisjoint(right)


def _convolution(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    """Only the batch axis of images is separate."""
    numbers, params = one.params["dimension_numbers"], one.params
    return not inputs[1] and inputs[0] <= {numbers.lhs_spec[0]} and params["batch_group_count"] == 1


def _reduced(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    return all(each.isdisjoint(one.params["axes"]) for each in inputs)


def _in_order(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    return one.params["axis"] not in inputs[0] or not one.params["reverse"]


def _along(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    return all(one.params["dimension"] not in each for each in inputs)


def _sliced(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    """Slices with a constant start up to the end."""
    starts = [each.params["start_indices"] for each in (one, other)]
    strides = one.params["strides"] or (1,) * len(starts[0])
    ends = [(each.params["limit_indices"], each.invars[0].aval.shape) for each in (one, other)]
    to_the_end = all(limits[axis] == shape[axis] for limits, shape in ends for axis in inputs[0])
    return starts[0] == starts[1] and to_the_end and all(strides[axis] == 1 for axis in inputs[0])


def _padded(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    return all(one.params["padding_config"][axis] == (0, 0, 0) for axis in inputs[0])


def _windows(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    params = one.params
    return all(
        params["window_dimensions"][axis] == params["window_strides"][axis] == 1 and params["padding"][axis] == (0, 0)
        for each in inputs
        for axis in each
    )


def _gathers_rows(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    """Rows of a constant table, or one part of each row."""
    own = one.params["dimension_numbers"].operand_batching_dims
    return inputs[0] <= {*own} and one.params["slice_sizes"] == other.params["slice_sizes"]


def _reshaped(one: Any, other: Any, inputs: Sequence[Varying]) -> bool:
    """Whether the varying axis is the outermost of a reshaped group, so that the order of rows is kept."""
    before, after = one.invars[0].aval.shape, one.outvars[0].aval.shape
    results = _varying(one.outvars[0], other.outvars[0])
    if len(results) != len(inputs[0]):
        return False
    for axis, result in zip(sorted(inputs[0]), sorted(results), strict=True):
        outer = int(np.prod(before[:axis], dtype=np.int64)), int(np.prod(after[:result], dtype=np.int64))
        if outer[0] != outer[1]:
            return False
    return True


_RULES: dict[str, Callable[[Any, Any, Sequence[Varying]], bool]] = {
    "broadcast_in_dim": _always,
    "transpose": _always,
    "squeeze": _always,
    "expand_dims": _always,
    "iota": _always,
    "reshape": _reshaped,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "concatenate": _along,
    "sort": _along,
    "slice": _sliced,
    "pad": _padded,
    "gather": _gathers_rows,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _in_order),
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"),
        _reduced,
    ),
    **dict.fromkeys(("reduce_window_max", "reduce_window_min", "reduce_window_sum"), _windows),
}
