"""Convolutions, and reductions over windows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, TensorType, Value, constant, subgraph
from tenonnx_jax.associativity import is_associative
from tenonnx_jax.dims import as_type, is_static
from tenonnx_jax.promotion import SIXTEEN_BITS, scalar, widened
from tenonnx_jax.rules import rule
from tenonnx_jax.rules.elementwise import converted
from tenonnx_jax.rules.reductions import _limit
from tenonnx_jax.rules.shapes import padded, reshaped, transposed


@rule("conv_general_dilated")
def conv_general_dilated_rule(
    equation: Any,
    x: Value,
    w: Value,
    *,
    dimension_numbers: Any,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    feature_group_count: int,
    batch_group_count: int,
    **_: Any,
) -> Value:
    dtype = equation.dtype
    wide = dtype if dtype.is_float else DType.float64
    if not dtype.is_float and (x.dtype.bits > 16 or w.dtype.bits > 16):
        raise NotRepresentable(
            "a convolution is neither of floats nor of integers of up to 16 bits", given=str(x.dtype)
        )
    x_perm, w_perm, out_perm = (tuple(map(int, p)) for p in dimension_numbers)
    shape = [equation.ins[0].shape[axis] for axis in x_perm]
    kernel = [int(equation.ins[1].shape[axis]) for axis in w_perm]
    out = [equation.shape[axis] for axis in out_perm]
    x, w = transposed(converted(x, wide), x_perm), transposed(converted(w, wide), w_perm)
    groups = int(feature_group_count)
    if batch_group_count > 1:  # batch groups become channel groups
        count, (n, c, *spatial) = int(batch_group_count), shape
        x = reshaped(equation, x, [count, n // count, c, *spatial])
        x = transposed(x, [1, 0, *range(2, len(shape) + 1)])
        x = reshaped(equation, x, [n // count, count * c, *spatial])
        groups *= count
    rank = len(kernel) - 2
    if not rank:
        x, w, kernel = ops.unsqueeze(x, [2]), ops.unsqueeze(w, [2]), [*kernel, 1]
        found = ops.squeeze(ops.conv(x, w, group=groups), [2])
        return converted(transposed(found, np.argsort(out_perm)), dtype)
    pads: list[Any] = [tuple(pair) for pair in padding]
    outside = [(0, 0)] * rank
    if any(int(d) != 1 for d in lhs_dilation) or not all(is_static(p) and min(p) >= 0 for p in pads):
        config = [(0, 0, 0)] * 2 + [(*pair, int(d) - 1) for pair, d in zip(pads, lhs_dilation, strict=True)]
        x, pads = padded(equation, x, scalar(0, x), config), outside
    found = ops.conv(
        x,
        w,
        group=groups,
        kernel_shape=kernel[2:],
        strides=[int(s) for s in window_strides],
        dilations=[int(d) for d in rhs_dilation],
        pads=[int(p[0]) for p in pads] + [int(p[1]) for p in pads],
    )
    del out
    return converted(transposed(found, np.argsort(out_perm)), dtype)


def _window(params: Any) -> tuple[list[int], list[int], list[tuple[Any, Any]], list[int], list[int]]:
    sizes = [int(n) for n in params["window_dimensions"]]
    rank = len(sizes)
    strides = [int(n) for n in params.get("window_strides") or [1] * rank]
    base = [int(n) for n in params.get("base_dilation") or [1] * rank]
    dilations = [int(n) for n in params.get("window_dilation") or [1] * rank]
    return sizes, strides, [tuple(pair) for pair in params["padding"]], base, dilations


def _pooled(equation: Any, x: Value, op: Any, params: Any, **attributes: Any) -> Value | None:
    """Pool by an ONNX op, if the window spans one to three axes of a float tensor."""
    sizes, strides, padding, base, apart = _window(params)
    if x.dtype not in (DType.float32, DType.float64, DType.float16, DType.bfloat16) or any(n != 1 for n in base):
        return None
    spatial = [k for k in range(len(sizes)) if sizes[k] != 1 or strides[k] != 1 or tuple(padding[k]) != (0, 0)]
    if not spatial or len(spatial) > 3 or not all(is_static(padding[k]) for k in spatial):
        return None
    if any(min(padding[k]) < 0 or max(padding[k]) > (sizes[k] - 1) * apart[k] for k in spatial):
        return None
    others = [k for k in range(len(sizes)) if k not in spatial]
    shape = [equation.ins[0].shape[k] for k in (*others, *spatial)]
    order = [0, others[1], *spatial] if len(others) == 2 and others[0] == 0 else [*others, *spatial]
    moved = transposed(x, order)
    if len(others) != 2:
        moved = reshaped(equation, moved, [1, _size(shape[: len(others)]), *shape[len(others) :]])
    if op is ops.average_pool and any(apart[k] != 1 for k in spatial):
        return None
    if op is ops.max_pool:
        attributes["dilations"] = [apart[k] for k in spatial]
    found = op(
        moved,
        kernel_shape=[sizes[k] for k in spatial],
        strides=[strides[k] for k in spatial],
        pads=[int(padding[k][0]) for k in spatial] + [int(padding[k][1]) for k in spatial],
        **attributes,
    )
    found = found[0] if isinstance(found, tuple) else found
    if len(others) != 2:
        found = reshaped(equation, found, [equation.shape[k] for k in (*others, *spatial)])
    return transposed(found, np.argsort(order))


def _size(dims: Sequence[Any]) -> Any:
    result: Any = 1
    for dim in dims:
        result = result * dim
    return result


def views(equation: Any, x: Value, neutral: float, params: Any) -> list[tuple[tuple[int, ...], Value]]:
    """One slice of the operand for each position in the window."""
    sizes, strides, padding, base, apart = _window(params)
    if int(np.prod(sizes)) > 4096:
        raise NotRepresentable("a window has more than 4096 elements", given=str(sizes))
    config = [(*pair, d - 1) for pair, d in zip(padding, base, strict=True)]
    wide = padded(equation, x, scalar(neutral, x), config)
    count = [equation.sizes.size(dim) for dim in equation.shape]
    axes = list(range(len(sizes)))
    result = []
    for place in itertools.product(*map(range, sizes)):
        starts = [p * d for p, d in zip(place, apart, strict=True)]
        ends = [start + (n - 1) * step + 1 for start, n, step in zip(starts, count, strides, strict=True)]
        result.append((place, ops.slice_(wide, starts, equation.sizes.sizes(ends), axes, strides)))
    return result


def _folded(equation: Any, x: Value, combine: Any, neutral: float, params: Any) -> Value:
    """Reduce one axis after another, since windows are products of ranges."""
    windows = views(equation, x, neutral, params)
    result = windows[0][1]
    for _, view in windows[1:]:
        result = combine(result, view)
    return result


@rule("reduce_window_sum")
def reduce_window_sum_rule(equation: Any, x: Value, **params: Any) -> Value:
    if any(pair != (0, 0) for pair in map(tuple, params["padding"])):
        pooled = _pooled(equation, x, ops.average_pool, params, count_include_pad=1)
    else:
        pooled = _pooled(equation, x, ops.average_pool, params)
    if pooled is not None:
        return ops.mul(pooled, scalar(float(np.prod([int(n) for n in params["window_dimensions"]])), pooled))
    return _folded(equation, x, ops.add, 0, params)


@rule("reduce_window_max")
def reduce_window_max_rule(equation: Any, x: Value, **params: Any) -> Value:
    pooled = _pooled(equation, x, ops.max_pool, params)
    return (
        _folded(equation, x, partial(widened, ops.maximum, SIXTEEN_BITS), _limit(-1)(x.dtype), params)
        if pooled is None
        else pooled
    )


@rule("reduce_window_min")
def reduce_window_min_rule(equation: Any, x: Value, **params: Any) -> Value:
    if x.dtype.is_float:
        pooled = _pooled(equation, ops.neg(x), ops.max_pool, params)
        if pooled is not None:
            return ops.neg(pooled)
    return _folded(equation, x, partial(widened, ops.minimum, SIXTEEN_BITS), _limit(1)(x.dtype), params)


@rule("reduce_window")
def reduce_window_rule(equation: Any, *values: Value, jaxpr: Any, consts: Any, **params: Any) -> Any:
    """Windows of any associative function: combine the positions of the window in turn."""
    count = len(values) // 2
    columns = []
    for x, start in zip(values[:count], values[count:], strict=True):
        neutral = _known(start, equation.name)
        columns.append([view for _, view in views(equation, x, neutral, params)])
    result: list[Any] = [column[0] for column in columns]
    result = _combined(
        equation,
        jaxpr,
        consts,
        [ops.expand(s, ops.shape(f)) for s, f in zip(values[count:], result, strict=True)],
        result,
    )
    for row in list(zip(*columns, strict=True))[1:]:
        result = _combined(equation, jaxpr, consts, result, list(row))
    return result


def _known(value: Value, name: str) -> Any:
    from tenonnx.extend import static

    contents = static(value)
    if contents is None:
        raise NotRepresentable(f"the start of {name} is not a constant", given=value.name)
    return contents


def _combined(equation: Any, jaxpr: Any, consts: Any, left: Sequence[Value], right: Sequence[Value]) -> list[Any]:
    """Evaluate a function of two scalars elementwise: ops apply to tensors as to scalars."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    constants = getattr(jaxpr, "consts", consts)
    return list(equation.interpreter.evaluate(inner, list(constants), [*left, *right]))


@rule("reduce")
def reduce_rule(equation: Any, *values: Value, jaxpr: Any, dimensions: Any, consts: Any = (), **_: Any) -> Any:
    """Reduce by any function, in the order of the elements: pair by pair if it is associative, else one by one."""
    count = len(values) // 2
    found, shape = list(values[:count]), list(equation.ins[0].shape)
    known = all(isinstance(shape[axis], int) and shape[axis] for axis in dimensions)
    if not known or consts or not is_associative(jaxpr, [out.dtype for out in equation.outs]):
        return _reduced_in_steps(equation, values, jaxpr, dimensions, consts)
    for axis in sorted(map(int, dimensions), reverse=True):
        length = shape[axis]
        while length > 1:
            even = length - length % 2
            rows = [[ops.slice_(x, [k], [even], [axis], [2]) for x in found] for k in range(2)]
            rest = [ops.slice_(x, [even], [length], [axis]) for x in found] if length % 2 else None
            found = _combined(equation, jaxpr, consts, *rows)
            if rest is not None:
                found = [ops.concat(x, r, axis=axis) for x, r in zip(found, rest, strict=True)]
            length = (length + 1) // 2
        found = [ops.squeeze(x, [axis]) for x in found]
    starts = [ops.expand(s, ops.shape(x)) for s, x in zip(values[count:], found, strict=True)]
    return _combined(equation, jaxpr, consts, starts, found)


def _reduced_in_steps(equation: Any, values: Sequence[Value], jaxpr: Any, dimensions: Any, consts: Any) -> list[Any]:
    """Combine elements one by one along axes of any length; several axes are flattened into one.

    It uses Loop, since onnxruntime fails on a Scan without iterations.
    """
    count, rank = len(values) // 2, len(equation.ins[0].shape)
    axes = [int(axis) for axis in dimensions]
    kept = [axis for axis in range(rank) if axis not in axes]
    rows, starts, shape = [], [], ops.shape(values[0])
    outer = ops.gather(shape, constant(np.array(kept, np.int64)))
    steps = ops.reduce_prod(ops.gather(shape, constant(np.array(axes, np.int64))), keepdims=1)
    for x, start in zip(values[:count], values[count:], strict=True):
        rows.append(ops.reshape(transposed(x, [*axes, *kept]), ops.concat(steps, outer, axis=0), allowzero=1))
        starts.append(ops.expand(start, outer))

    def step(number: Value, going: Value, *held: Value) -> list[Value]:
        elements = [ops.gather(x, number) for x in rows]
        return [ops.identity(going), *_combined(equation, jaxpr, consts, held, elements)]

    formals = [("number", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ()))]
    formals += [(f"state_{k}", as_type(out)) for k, out in enumerate(equation.outs)]
    body = subgraph(step, formals)
    found = ops.loop(ops.squeeze(steps, [0]), constant(np.asarray(True)), *starts, body=body)
    return list(found) if count > 1 else [found]


# ----- gradients of windows -------------------------------------------------------------------------------------------


def _spread(equation: Any, parts: list[tuple[tuple[int, ...], Value]], like: Any, params: Any) -> Value:
    """Scatter-add the parts of windows to their positions in the operand."""
    sizes, strides, padding, _, apart = _window(params)
    whole = equation.ins[like].shape
    total = None
    for place, part in parts:
        counts = equation.ins[1 - like if equation.name == "select_and_scatter_add" else 0].shape
        config = []
        for axis, p in enumerate(place):
            low = p * apart[axis]
            covered = low + (counts[axis] - 1) * strides[axis] + 1
            config.append((low, whole[axis] + padding[axis][0] + padding[axis][1] - covered, strides[axis] - 1))
        grown = padded(equation, part, scalar(0, part), config)
        total = grown if total is None else ops.add(total, grown)
    assert total is not None
    cut = [(-int(low), -int(high), 0) for low, high in padding]
    del sizes
    return padded(equation, total, scalar(0, total), cut)


@rule("select_and_scatter_add")
def select_and_scatter_add_rule(
    equation: Any,
    source: Value,
    operand: Value,
    *,
    select_prim: Any,
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    **_: Any,
) -> Value:
    """Add each element of the source at the first extremum of its window."""
    params = {"window_dimensions": window_dimensions, "window_strides": window_strides, "padding": padding}
    largest = select_prim.name == "ge"
    shape = equation.ins[0].shape

    class Windows:  # the windows have the shape of the source
        ins, sizes, name = equation.ins, equation.sizes, equation.name

    Windows.shape = shape  # type: ignore[attr-defined]
    windows = views(Windows, operand, -np.inf if largest else np.inf, params)
    best = windows[0][1]
    for _place, view in windows[1:]:
        best = (ops.maximum if largest else ops.minimum)(best, view)
    taken, parts = None, []
    for place, view in windows:
        hit = ops.equal(view, best)
        first = hit if taken is None else ops.and_(hit, ops.not_(taken))
        taken = hit if taken is None else ops.or_(taken, hit)
        parts.append((place, ops.where(first, source, scalar(0, source))))
    return _spread(equation, parts, 1, params)


@rule("select_and_gather_add")
def select_and_gather_add_rule(
    equation: Any, tangents: Value, operand: Value, *, select_prim: Any, **params: Any
) -> Value:
    """The tangent of the first extremum of each window."""
    largest = select_prim.name == "ge"
    values = views(equation, operand, -np.inf if largest else np.inf, params)
    others = views(equation, tangents, 0, params)
    best, result = values[0][1], others[0][1]
    for (_, value), (_, tangent) in zip(values[1:], others[1:], strict=True):
        better = ops.greater(value, best) if largest else ops.less(value, best)
        best, result = ops.where(better, value, best), ops.where(better, tangent, result)
    return result


__all__ = ["as_type"]
