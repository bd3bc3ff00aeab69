"""Shapes, and ops that move elements: slices, gathers, concatenations."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_tensorflow.attributes import count_of, dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import Complex, as_dtype, axis_of, int64, integers, known, number, scalar, vector

#: Slice bounds beyond the end and the start of any axis.
LAST, FIRST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@rule("Const", "HostConst", interpreter=True)
def const(interpreter: Any, node: Any) -> Any:
    """A constant; float arrays that may be weights become variables with the name of the node."""
    array = node["value"]
    if array.dtype.kind == "c":
        return Complex(constant(np.ascontiguousarray(array.real)), constant(np.ascontiguousarray(array.imag)))
    is_float = array.dtype.kind in "fV" and array.dtype != object
    if is_float and array.ndim and array.size > 1 and interpreter.state.is_running:
        constants = interpreter.state.constants
        if id(node) not in constants:
            constants[id(node)] = interpreter.state.variable(node.name, array)
        return constants[id(node)]
    return constant(array)


@rule("Shape")
def shape(node: Any, x: Any) -> Value:
    found = ops.shape(x.real if isinstance(x, Complex) else x)
    return as_dtype(found, dtype_of(node.get("out_type", 3)))


@rule("ShapeN", outputs="output")
def shapes(node: Any, *values: Any) -> list[Value]:
    return [shape(node, x) for x in values]


@rule("Size")
def size(node: Any, x: Value) -> Value:
    return as_dtype(ops.size(x), dtype_of(node.get("out_type", 3)))


@rule("Rank")
def rank(node: Any, x: Value) -> Value:
    return constant(np.asarray(x.ndim, np.int32))


@rule("Reshape")
def reshape(node: Any, x: Value, shape: Value) -> Value:
    return ops.reshape(x, int64(shape), allowzero=1 if _may_be_empty(shape) else 0)


def _may_be_empty(shape: Value) -> bool:
    """Whether a size may be 0, which requires ``allowzero``; that excludes -1."""
    found = static(shape)
    if found is not None:
        return 0 in np.asarray(found)
    contents = shape.symbolic_contents
    return contents is None or not any(isinstance(n, int) and n == -1 for n in np.asarray(contents).reshape(-1))


@rule("Squeeze")
def squeeze(node: Any, x: Value) -> Value:
    axes = node.get("squeeze_dims", []) or node.get("axis", [])
    if axes:
        return ops.squeeze(x, [axis_of(int(axis), x) for axis in axes])
    shape = x.shape
    if shape is None or any(not isinstance(n, int) for n in shape):
        raise NotRepresentable("sizes are not known, and the axes to squeeze are not named", given=f"{x.type}")
    return ops.squeeze(x, [k for k, n in enumerate(shape) if n == 1]) if 1 in shape else x


@rule("ExpandDims")
def expand_dims(node: Any, x: Value, axis: Value) -> Value:
    (place,) = integers(axis, "the axis of ExpandDims")
    return ops.unsqueeze(x, [place % (x.ndim + 1)])


@rule("Transpose")
def transpose(node: Any, x: Value, perm: Value) -> Value:
    order = integers(perm, "the order of axes")
    return ops.transpose(x, perm=[k % len(order) for k in order]) if order != list(range(len(order))) else x


@rule("InvertPermutation")
def invert_permutation(node: Any, x: Value) -> Value:
    order = static(x)
    if order is not None:
        return constant(np.argsort(np.asarray(order)).astype(x.dtype.numpy))
    count = ops.reshape(ops.shape(x), [])
    return ops.scatter_elements(x, int64(x), as_dtype(ops.range_(0, count, 1), x.dtype))


@rule("ConcatV2", "Concat")
def concat(node: Any, *values: Value) -> Value:
    axis, parts = (values[-1], values[:-1]) if node.op == "ConcatV2" else (values[0], values[1:])
    (place,) = integers(axis, "the axis of a concatenation")
    return ops.concat(*parts, axis=place % parts[0].ndim) if len(parts) > 1 else parts[0]


def _length(x: Value) -> int:
    """Number of elements of a vector."""
    length = x.shape[0] if x.shape else None
    if not isinstance(length, int):
        raise NotRepresentable("the number of axes is not known", given=f'"{x.name}" is {x.type}')
    return length


@rule("ConcatOffset", outputs="offset")
def concat_offset(node: Any, axis: Value, *shapes: Value) -> list[Value]:
    (place,) = integers(axis, "the axis of a concatenation")
    result, total = [], number(0, shapes[0])
    for each in shapes:
        row = [number(0, each)] * _length(each)
        row[place] = total
        result.append(ops.concat(*(vector(n) for n in row), axis=0))
        total = ops.add(total, scalar(ops.gather(each, constant(np.asarray(place)))))
    return result


@rule("Pack")
def pack(node: Any, *values: Value) -> Value:
    axis = int(node.get("axis", 0)) % (values[0].ndim + 1)
    apart = [ops.unsqueeze(value, [axis]) for value in values]
    return ops.concat(*apart, axis=axis) if len(apart) > 1 else apart[0]


@rule("Unpack", outputs="output")
def unpack(node: Any, x: Value) -> list[Value]:
    axis = axis_of(int(node.get("axis", 0)), x)
    return [ops.gather(x, constant(np.asarray(k, np.int64)), axis=axis) for k in range(count_of(node, "num"))]


@rule("Split", outputs="output")
def split(node: Any, axis: Value, x: Value) -> list[Value]:
    (place,) = integers(axis, "the axis of a split")
    return _split(x, count_of(node, "num_split"), axis_of(place, x))


def _split(x: Value, count: int, axis: int) -> list[Value]:
    if count == 1:
        return [x]
    length = x.shape[axis] if x.shape is not None else None
    if isinstance(length, int):
        return list(ops.split(x, [length // count] * count, axis=axis, _outputs=count))
    return list(ops.split(x, axis=axis, num_outputs=count, _outputs=count))


@rule("SplitV", outputs="output")
def split_by_sizes(node: Any, x: Value, sizes: Value, axis: Value) -> list[Value]:
    (place,) = integers(axis, "the axis of a split")
    place %= x.ndim
    count = count_of(node, "num_split")
    if count == 1:
        return [x]
    lengths = static(sizes)
    if lengths is None:
        return list(ops.split(x, int64(sizes), axis=place, _outputs=count))
    found = [int(n) for n in np.asarray(lengths)]
    if -1 in found:
        whole = x.shape[place] if x.shape is not None else None
        if not isinstance(whole, int):
            total = ops.gather(ops.shape(x), [place])
            rest = ops.sub(total, constant(np.asarray([sum(n for n in found if n >= 0)], np.int64)))
            parts = [rest if n < 0 else constant(np.asarray([n], np.int64)) for n in found]
            return list(ops.split(x, ops.concat(*parts, axis=0), axis=place, _outputs=count))
        found[found.index(-1)] = whole - sum(n for n in found if n >= 0)
    return list(ops.split(x, found, axis=place, _outputs=count))


@rule("Slice")
def slice_(node: Any, x: Value, begin: Value, size: Value) -> Value:
    starts, sizes = static(begin), static(size)
    axes = list(range(x.ndim))
    if not axes:
        return x
    if starts is not None and sizes is not None:
        pairs = [(int(s), LAST if n < 0 else int(s) + int(n)) for s, n in zip(starts, sizes, strict=True)]
        sliced = [k for k in axes if pairs[k] != (0, LAST)]
        return ops.slice_(x, [pairs[k][0] for k in sliced], [pairs[k][1] for k in sliced], sliced) if sliced else x
    first, count = int64(begin), int64(size)
    ends = ops.where(ops.less(count, number(0, count)), constant(np.asarray(LAST)), ops.add(first, count))
    return ops.slice_(x, first, ends, axes)


@rule("StridedSlice")
def strided_slice(node: Any, x: Value, begin: Value, end: Value, strides: Value) -> Value:
    """Slice as in numpy; each mask has one bit for each entry of the specification."""
    masks = {m: int(node.get(f"{m}_mask", 0)) for m in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    steps = integers(strides, "the strides of a slice")
    count = len(steps)

    def has(mask: str, place: int) -> bool:
        return bool(masks[mask] >> place & 1)

    consumed = sum(not has("new_axis", k) and not has("ellipsis", k) for k in range(count))
    axis, added, removed = 0, [], []
    sliced: list[tuple[int, int]] = []
    shape_at = 0  # axis of the result
    for place in range(count):
        if has("ellipsis", place):
            skipped = x.ndim - consumed
            axis, shape_at = axis + skipped, shape_at + skipped
        elif has("new_axis", place):
            added.append(shape_at)
            shape_at += 1
        else:
            if axis >= x.ndim:
                raise NotRepresentable("a slice names more axes than there are", given=f"{x.type}")
            sliced.append((axis, place))
            if has("shrink_axis", place):
                removed.append(axis)
            else:
                shape_at += 1
            axis += 1
    result = _sliced(x, begin, end, steps, sliced, has)
    if removed:
        result = ops.squeeze(result, removed)
    return ops.unsqueeze(result, added) if added else result


@rule("TensorStridedSliceUpdate")
def strided_update(node: Any, x: Value, begin: Value, end: Value, strides: Value, content: Value) -> Value:
    """``x`` with a slice replaced by ``content``."""
    sizes = ops.shape(x)
    count = ops.reduce_prod(sizes, keepdims=0)
    places = ops.reshape(ops.range_(constant(np.asarray(0)), count, constant(np.asarray(1))), sizes)
    chosen = strided_slice(node, places, begin, end, strides)
    rows = ops.reshape(ops.expand(content, ops.shape(chosen)), [-1])
    flat = ops.scatter_elements(ops.reshape(x, [-1]), ops.reshape(chosen, [-1]), rows)
    return ops.reshape(flat, sizes)


@rule("ResourceStridedSliceAssign", interpreter=True)
def strided_assign(interpreter: Any, node: Any, variable: Any, *given: Value) -> list[Any]:
    interpreter.state.assign(variable, strided_update(node, interpreter.state.read(variable), *given))
    return []


def _sliced(x: Value, begin: Value, end: Value, steps: list[int], sliced: Any, has: Any) -> Value:
    starts, ends = static(begin), static(end)
    first: list[Any] = []
    last: list[Any] = []
    axes, strides = [], []
    for axis, place in sliced:
        step = 1 if has("shrink_axis", place) else steps[place]
        begins_open = has("begin", place) and not has("shrink_axis", place)
        ends_open = has("end", place) and not has("shrink_axis", place)
        if begins_open and ends_open and step == 1:
            continue
        start = (0 if step > 0 else LAST) if begins_open else _element(starts, begin, place)
        if has("shrink_axis", place):
            stop: Any = LAST if isinstance(start, int) and start == -1 else _next(start)
        else:
            stop = (LAST if step > 0 else FIRST) if ends_open else _element(ends, end, place)
        axes.append(axis)
        strides.append(step)
        first.append(start)
        last.append(stop)
    if not axes:
        return x
    given = (_together(first), _together(last), axes)
    return ops.slice_(x, *given, strides) if any(s != 1 for s in strides) else ops.slice_(x, *given)


def _element(contents: Any, value: Value, place: int) -> Any:
    if contents is not None:
        return int(np.asarray(contents).reshape(-1)[place])
    elements = value.symbolic_contents
    if elements is not None and isinstance(np.asarray(elements).reshape(-1)[place], int):
        return int(np.asarray(elements).reshape(-1)[place])
    return ops.gather(int64(value), [place])


def _next(start: Any) -> Any:
    if isinstance(start, int):
        return start + 1
    following = ops.add(start, constant(np.asarray([1], np.int64)))
    return ops.where(ops.equal(following, constant(np.asarray([0], np.int64))), constant(np.asarray([LAST])), following)


def _together(sizes: list[Any]) -> Any:
    if all(isinstance(n, int) for n in sizes):
        return sizes
    return (
        ops.concat(*(constant(np.asarray([n], np.int64)) if isinstance(n, int) else n for n in sizes), axis=0)
        if (len(sizes) > 1)
        else sizes[0]
    )


@rule("Fill")
def fill(node: Any, dims: Value, value: Value) -> Value:
    return ops.expand(value, int64(dims))


@rule("ZerosLike", "OnesLike")
def alike(node: Any, x: Value) -> Value:
    result: Value = (ops.zeros_like if node.op == "ZerosLike" else ops.ones_like)(x)
    return result


@rule("Empty")
def empty(node: Any, dims: Value) -> Value:
    return ops.expand(constant(np.zeros((), dtype_of(node["dtype"]).numpy)), int64(dims))


@rule("BroadcastTo")
def broadcast_to(node: Any, x: Value, dims: Value) -> Value:
    return ops.expand(x, int64(dims))


@rule("BroadcastArgs")
def broadcast_args(node: Any, a: Value, b: Value) -> Value:
    length = max(_length(a), _length(b))

    def padded(x: Value) -> Value:
        short = length - _length(x)
        return ops.concat(constant(np.ones(short, x.dtype.numpy)), x, axis=0) if short else x

    first, second = padded(a), padded(b)
    return ops.where(ops.equal(first, number(1, first)), second, first)


@rule("Tile")
def tile(node: Any, x: Value, multiples: Value) -> Value:
    return ops.tile(x, int64(multiples))


@rule("Range")
def range_(node: Any, start: Value, limit: Value, delta: Value) -> Value:
    return ops.range_(start, limit, delta)


@rule("LinSpace")
def linspace(node: Any, start: Value, stop: Value, count: Value) -> Value:
    """Evenly spaced numbers; the last one is exactly ``stop``."""
    positions = as_dtype(ops.range_(number(0, count), count, number(1, count)), start.dtype)
    last = as_dtype(ops.sub(count, number(1, count)), start.dtype)
    step = ops.div(ops.sub(stop, start), ops.maximum(last, number(1, start)))
    found = ops.add(start, ops.mul(positions, step))
    at_end = ops.and_(ops.equal(positions, last), ops.greater(last, number(0, start)))
    return ops.where(at_end, stop, found)


@rule("Pad", "PadV2", "MirrorPad")
def pad(node: Any, x: Value, paddings: Value, value: Value | None = None) -> Value:
    mode = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}.get(str(node.get("mode", "")).upper(), "constant")
    rank = x.ndim
    contents = static(paddings)
    if contents is not None:
        amounts = np.asarray(contents).reshape(rank, 2).astype(np.int64)
        pads: Any = constant(np.concatenate([amounts[:, 0], amounts[:, 1]]))
        if not amounts.any():
            return x
        if mode == "symmetric":
            return _symmetric(x, amounts)
    else:
        if mode == "symmetric":
            known(paddings, "the sizes of a symmetric padding")
        pads = ops.reshape(ops.transpose(int64(paddings), perm=[1, 0]), [-1])
    if x.dtype is DType.bool:
        filling = None if value is None else ops.cast(value, to=DType.int32)
        return ops.cast(ops.pad(ops.cast(x, to=DType.int32), pads, filling, mode=mode), to=DType.bool)
    return ops.pad(x, pads, value, mode=mode) if mode == "constant" else ops.pad(x, pads, mode=mode)


def _symmetric(x: Value, amounts: Any) -> Value:
    """Symmetric padding, which ONNX lacks: concatenate reversed slices that include the edge."""
    for axis, (before, after) in enumerate(amounts.tolist()):
        parts = [x]
        if before:
            parts.insert(0, ops.slice_(x, [before - 1], [FIRST], [axis], [-1]))
        if after:
            parts.append(ops.slice_(x, [-1], [-1 - after], [axis], [-1]))
        x = ops.concat(*parts, axis=axis) if len(parts) > 1 else x
    return x


@rule("ReverseV2", "Reverse")
def reverse(node: Any, x: Value, axes: Value) -> Value:
    if node.op == "Reverse":
        places = [k for k, flag in enumerate(known(axes, "the axes to reverse")) if flag]
    else:
        places = [axis_of(k, x) for k in integers(axes, "the axes to reverse")]
    if not places:
        return x
    count = len(places)
    return ops.slice_(x, [-1] * count, [FIRST] * count, places, [-1] * count)


@rule("ReverseSequence")
def reverse_sequence(node: Any, x: Value, lengths: Value) -> Value:
    time, batch = int(node["seq_dim"]), int(node.get("batch_dim", 0))
    order = [time, batch, *(k for k in range(x.ndim) if k not in (time, batch))]
    turned = ops.reverse_sequence(ops.transpose(x, perm=order), int64(lengths), batch_axis=1, time_axis=0)
    return ops.transpose(turned, perm=[order.index(k) for k in range(x.ndim)])


@rule("Roll")
def roll(node: Any, x: Value, shift: Value, axis: Value) -> Value:
    shifts, known_shifts = vector(int64(shift)), static(shift)
    for k, place in enumerate(integers(axis, "the axes to roll")):
        place %= x.ndim
        length = x.shape[place] if x.shape is not None else None
        if isinstance(length, int) and known_shifts is not None:
            cut: Any = [(length - int(np.reshape(known_shifts, -1)[k])) % length] if length else [0]
        else:
            whole, amount = ops.gather(ops.shape(x), [place]), ops.gather(shifts, [k])
            cut = ops.mod(ops.sub(whole, amount), ops.maximum(whole, constant(np.asarray([1]))))
        x = ops.concat(ops.slice_(x, cut, [LAST], [place]), ops.slice_(x, [0], cut, [place]), axis=place)
    return x


@rule("Where")
def where(node: Any, condition: Value) -> Value:
    mask = condition
    if condition.dtype is not DType.bool:
        mask = ops.not_(ops.equal(condition, number(0, condition)))
    return ops.transpose(ops.non_zero(mask), perm=[1, 0])
