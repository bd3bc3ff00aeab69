"""Gathers, scatters, segments and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx_tensorflow.attributes import count_of, dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.shapes import LAST, strided_slice
from tenonnx_tensorflow.tracked_values import as_dtype, axis_of, int64, integers, number, scalar, where


@rule("GatherV2", "Gather")
def gather(node: Any, x: Value, indices: Value, axis: Value | None = None) -> Value:
    place = 0 if axis is None else axis_of(integers(axis, "the axis of a gather")[0], x)
    batched = int(node.get("batch_dims", 0)) % (indices.ndim + 1)
    if not batched:
        return ops.gather(x, int64(indices), axis=place)
    return _gather_in_batches(x, int64(indices), place, batched)


def _gather_in_batches(x: Value, indices: Value, axis: int, batched: int) -> Value:
    """Gather with batch axes, by GatherND over the axes up to the gathered one."""
    order = [*range(batched), axis, *(k for k in range(batched, x.ndim) if k != axis)]
    moved = ops.transpose(x, perm=order) if order != list(range(x.ndim)) else x
    result = ops.gather_nd(moved, ops.unsqueeze(indices, [indices.ndim]), batch_dims=batched)
    added = indices.ndim - batched
    between = axis - batched
    if not between:
        return result
    rank = result.ndim
    middle = list(range(batched + added, batched + added + between))
    target = [*range(batched), *middle, *range(batched, batched + added), *range(batched + added + between, rank)]
    return ops.transpose(result, perm=target)


@rule("GatherNd")
def gather_nd(node: Any, x: Value, indices: Value) -> Value:
    return ops.gather_nd(x, int64(indices))


@rule("ResourceGather", interpreter=True)
def resource_gather(interpreter: Any, node: Any, variable: Any, indices: Value) -> Value:
    return gather(node, interpreter.state.read(variable), indices)


@rule("ResourceGatherNd", interpreter=True)
def resource_gather_nd(interpreter: Any, node: Any, variable: Any, indices: Value) -> Value:
    return gather_nd(node, interpreter.state.read(variable), indices)


@rule("OneHot")
def one_hot(node: Any, indices: Value, depth: Value, on: Value, off: Value) -> Value:
    """One-hot vectors without wrapping: negative indices are out of range, and have no hot element."""
    axis = int(node.get("axis", -1))
    axis = indices.ndim if axis == -1 else axis
    row = ops.range_(number(0, depth), scalar(depth), number(1, depth))
    shape = [1] * (indices.ndim + 1)
    shape[axis] = -1
    places = ops.reshape(as_dtype(row, DType.int64), shape)
    chosen = ops.equal(ops.unsqueeze(int64(indices), [axis]), places)
    return where(chosen, on, off)


# ----- scatters -------------------------------------------------------------------------------------------------------

_REDUCTIONS = {"Add": "add", "Sub": "add", "Max": "max", "Min": "min", "Update": "none", "Mul": "mul", "Div": "mul"}


def _updates(name: str, updates: Value) -> Value:
    if name == "Sub":
        return ops.neg(updates)
    return ops.reciprocal(updates) if name == "Div" else updates


@rule("ScatterNd")
def scatter_nd(node: Any, indices: Value, updates: Value, shape: Value) -> Value:
    """Scatter into zeros; repeated updates add up."""
    zeros = ops.expand(number(0, updates), int64(shape))
    if updates.dtype is DType.bool:
        counted = scatter_nd(node, indices, ops.cast(updates, to=DType.int32), shape)
        return ops.cast(counted, to=DType.bool)
    return _scatter_nd(zeros, int64(indices), updates, "add")


def _scatter_nd(x: Value, indices: Value, updates: Value, reduction: str) -> Value:
    if reduction == "none":
        return ops.scatter_nd(x, indices, updates)
    return ops.scatter_nd(x, indices, updates, reduction=reduction)


@rule("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin")
def tensor_scatter(node: Any, x: Value, indices: Value, updates: Value) -> Value:
    name = node.op.removeprefix("TensorScatter")
    return _scatter_nd(x, int64(indices), _updates(name, updates), _REDUCTIONS[name])


def _resource_scatter(
    interpreter: Any, node: Any, variable: Any, indices: Value, updates: Value, name: str
) -> list[Any]:
    x = interpreter.state.read(variable)
    found = _scatter_nd(x, indices, _updates(name, updates), _REDUCTIONS[name])
    interpreter.state.assign(variable, found)
    return []


@rule(*(f"ResourceScatter{name}" for name in _REDUCTIONS), interpreter=True)
def resource_scatter(interpreter: Any, node: Any, variable: Any, indices: Value, updates: Value) -> list[Any]:
    """Scatter into rows of a variable; a scalar update applies to all of their elements."""
    x = interpreter.state.read(variable)
    rows = ops.unsqueeze(int64(indices), [indices.ndim])
    shape = ops.concat(ops.shape(indices), ops.slice_(ops.shape(x), [1], [LAST], [0]), axis=0)
    return _resource_scatter(
        interpreter, node, variable, rows, ops.expand(updates, shape), node.op.removeprefix("ResourceScatter")
    )


@rule(*(f"ResourceScatterNd{name}" for name in ("Add", "Sub", "Max", "Min", "Update")), interpreter=True)
def resource_scatter_nd(interpreter: Any, node: Any, variable: Any, indices: Value, updates: Value) -> list[Any]:
    name = node.op.removeprefix("ResourceScatterNd")
    return _resource_scatter(interpreter, node, variable, int64(indices), updates, name)


@rule("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(node: Any, *values: Value) -> Value:
    """Rows at the positions of their indices, where later inputs overwrite earlier ones."""
    count = len(values) // 2
    places, data = values[:count], values[count:]
    rows, order = [], []
    for index, each in zip(places, data, strict=True):
        order.append(ops.reshape(int64(index), [-1]))
        rest = ops.slice_(ops.shape(each), [index.ndim], [LAST], [0])
        minus = constant(np.asarray([-1]))
        rows.append(ops.reshape(each, ops.concat(minus, rest, axis=0) if each.ndim > index.ndim else [-1]))
    indices = ops.concat(*order, axis=0) if count > 1 else order[0]
    updates = ops.concat(*rows, axis=0) if count > 1 else rows[0]
    last = ops.add(ops.reduce_max(indices, keepdims=1), constant(np.asarray([1])))
    shape = ops.concat(last, ops.slice_(ops.shape(updates), [1], [LAST], [0]), axis=0) if updates.ndim > 1 else last
    return ops.scatter_nd(ops.expand(number(0, updates), shape), ops.unsqueeze(indices, [1]), updates)


@rule("DynamicPartition", outputs="outputs")
def dynamic_partition(node: Any, x: Value, partitions: Value) -> list[Value]:
    result = []
    for k in range(count_of(node, "num_partitions")):
        mask = ops.equal(partitions, number(k, partitions))
        places = ops.transpose(ops.non_zero(mask), perm=[1, 0])
        result.append(ops.gather_nd(x, places))
    return result


# ----- segments -------------------------------------------------------------------------------------------------------


def _segments(x: Value, ids: Value, count: Value, reduction: str, empty: Any) -> Value:
    """Reduce rows by id, skipping rows with negative ids; ids without rows get ``empty``."""
    flat = ops.reshape(int64(ids), [-1])
    inner = x.ndim - ids.ndim
    rest = ops.slice_(ops.shape(x), [ids.ndim], [LAST], [0])
    rows = ops.reshape(x, ops.concat(constant(np.asarray([-1])), rest, axis=0) if inner else [-1])
    size = ops.reshape(int64(count), [1])
    # skipped rows go to an extra row at the end, which is cut off
    place = ops.where(ops.less(flat, constant(np.asarray(0))), size, flat)
    wide = ops.add(size, constant(np.asarray([1])))
    start = ops.expand(number(empty, x), ops.concat(wide, rest, axis=0) if inner else wide)
    summed = ops.scatter_nd(start, ops.unsqueeze(place, [1]), rows, reduction=reduction)
    return ops.slice_(summed, [0], [-1], [0])


def _extreme(x: Value, low: bool) -> Any:
    kind = x.dtype.numpy
    if kind.kind in "iu":
        return np.iinfo(kind).min if low else np.iinfo(kind).max
    return (
        float(np.finfo(kind).min if low else np.finfo(kind).max) if kind.kind == "f" else (-np.inf if low else np.inf)
    )


@rule("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def unsorted_segment(node: Any, x: Value, ids: Value, count: Value) -> Value:
    kind = node.op.removeprefix("UnsortedSegment")
    reduction, empty = {
        "Sum": ("add", 0),
        "Max": ("max", _extreme(x, True)),
        "Min": ("min", _extreme(x, False)),
        "Prod": ("mul", 1),
    }[kind]
    return _segments(x, ids, count, reduction, empty)


@rule(
    "SegmentSum",
    "SegmentMax",
    "SegmentMin",
    "SegmentProd",
    "SegmentMean",
    "SegmentSumV2",
    "SegmentMaxV2",
    "SegmentMinV2",
    "SegmentProdV2",
)
def segment(node: Any, x: Value, ids: Value, count: Value | None = None) -> Value:
    """Reduce sorted segments; ids without rows give zero, or one for products."""
    kind = node.op.removeprefix("Segment").removesuffix("V2")
    segments = int64(ids)
    if count is None:
        last = ops.slice_(segments, [-1], [LAST], [0])
        both = ops.concat(constant(np.asarray([-1])), last, axis=0)
        count = ops.add(ops.reduce_max(both, keepdims=1), constant(np.asarray([1])))
    if kind == "Mean":
        total = _segments(x, segments, count, "add", 0)
        ones = ops.expand(number(1, x), ops.shape(segments))
        sizes = ops.maximum(_segments(ones, segments, count, "add", 0), number(1, x))
        return ops.div(total, ops.unsqueeze(sizes, list(range(1, x.ndim))) if x.ndim > 1 else sizes)
    if kind in ("Sum", "Prod"):
        return _segments(x, segments, count, "add" if kind == "Sum" else "mul", 0 if kind == "Sum" else 1)
    found = _segments(x, segments, count, kind.lower(), _extreme(x, kind == "Max"))
    ones = ops.expand(constant(np.asarray(1, np.int32)), ops.shape(segments))
    is_present = ops.greater(_segments(ones, segments, count, "add", 0), constant(np.asarray(0, np.int32)))
    is_present = ops.unsqueeze(is_present, list(range(1, x.ndim))) if x.ndim > 1 else is_present
    return ops.where(is_present, found, number(0, x))


@rule(
    "SparseSegmentSum",
    "SparseSegmentMean",
    "SparseSegmentSqrtN",
    "SparseSegmentSumWithNumSegments",
    "SparseSegmentMeanWithNumSegments",
    "SparseSegmentSqrtNWithNumSegments",
)
def sparse_segment(node: Any, x: Value, indices: Value, ids: Value, count: Value | None = None) -> Value:
    rows, segments = ops.gather(x, int64(indices), axis=0), int64(ids)
    kind = node.op.removeprefix("SparseSegment").removesuffix("WithNumSegments")
    if count is None:
        both = ops.concat(constant(np.asarray([-1])), ops.slice_(segments, [-1], [LAST], [0]), axis=0)
        count = ops.add(ops.reduce_max(both, keepdims=1), constant(np.asarray([1])))
    total = _segments(rows, segments, count, "add", 0)
    if kind == "Sum":
        return total
    ones = ops.expand(number(1, x), ops.shape(segments))
    sizes = ops.maximum(_segments(ones, segments, count, "add", 0), number(1, x))
    sizes = ops.sqrt(sizes) if kind == "SqrtN" else sizes
    return ops.div(total, ops.unsqueeze(sizes, list(range(1, x.ndim))) if x.ndim > 1 else sizes)


@rule("Bincount", "DenseBincount")
def bincount(node: Any, x: Value, size: Value, weights: Value) -> Value:
    """Counts of each number below ``size``, or sums of weights."""
    if node.get("binary_output", False):
        return ops.minimum(_counted(node, x, size, weights), number(1, weights))
    return _counted(node, x, size, weights)


def _counted(node: Any, x: Value, size: Value, weights: Value) -> Value:
    wanted = dtype_of(node["T"]) if node.op == "Bincount" else weights.dtype
    counted = weights.shape is not None and 0 in weights.shape
    rows = ops.expand(number(1, wanted), ops.shape(x)) if counted else weights
    numbers = int64(x)
    if x.ndim == 2 and node.op == "DenseBincount":
        high = int64(size)
        shape = ops.shape(numbers)
        batch = ops.range_(constant(np.asarray(0)), scalar(ops.gather(shape, [0])), constant(np.asarray(1)))
        inside = ops.less(numbers, scalar(high))
        flat = ops.add(numbers, ops.mul(ops.unsqueeze(batch, [1]), scalar(high)))
        flat = ops.where(inside, flat, constant(np.asarray(-1)))
        total = ops.mul(ops.gather(shape, [0]), ops.reshape(high, [1]))
        found = _segments(ops.reshape(rows, [-1]), ops.reshape(flat, [-1]), total, "add", 0)
        return ops.reshape(found, ops.concat(ops.gather(shape, [0]), ops.reshape(high, [1]), axis=0))
    flat = ops.reshape(numbers, [-1])
    flat = ops.where(ops.less(flat, scalar(int64(size))), flat, constant(np.asarray(-1)))
    return _segments(ops.reshape(rows, [-1]), flat, size, "add", 0)


@rule("HistogramFixedWidth")
def histogram(node: Any, x: Value, bounds: Value, count: Value) -> Value:
    """Counts in ``count`` equal intervals of a range; numbers outside count in the first or last."""
    wanted, size = dtype_of(node.get("dtype", 3)), as_dtype(scalar(count), DType.float64)
    low, high = (ops.cast(ops.gather(bounds, constant(np.asarray(k))), to=DType.float64) for k in (0, 1))
    place = ops.mul(ops.div(ops.sub(ops.cast(x, to=DType.float64), low), ops.sub(high, low)), size)
    place = ops.clip(ops.floor(place), number(0, size), ops.sub(size, number(1, size)))
    flat = ops.reshape(ops.cast(place, to=DType.int64), [-1])
    return _segments(ops.expand(number(1, wanted), ops.shape(flat)), flat, count, "add", 0)


# ----- orders ---------------------------------------------------------------------------------------------------------


@rule("TopK", "TopKV2", outputs="values indices")
def top_k(node: Any, x: Value, k: Value | None = None) -> list[Value]:
    count = constant(np.asarray([int(node["k"])])) if k is None else ops.reshape(int64(k), [1])
    values, indices = ops.top_k(x, count, axis=-1, largest=1, sorted=1)
    return [values, as_dtype(indices, dtype_of(node.get("index_type", 3)))]


@rule("NthElement")
def nth_element(node: Any, x: Value, n: Value) -> Value:
    (place,) = integers(n, "which element")
    values, _ = ops.top_k(x, [place + 1], axis=-1, largest=int(node.get("reverse", False)), sorted=1)
    return ops.squeeze(ops.slice_(values, [-1], [LAST], [-1]), [x.ndim - 1])


@rule("InTopK", "InTopKV2")
def in_top_k(node: Any, predictions: Value, targets: Value, k: Value | None = None) -> Value:
    """Whether fewer than ``k`` predictions exceed the target's; false for non-finite ones and invalid targets."""
    count = number(int(node["k"]), DType.int64) if k is None else int64(k)
    wanted = ops.unsqueeze(int64(targets), [1])
    classes = ops.slice_(ops.shape(predictions), [1], [2], [0])
    zero = constant(np.asarray(0))
    inside = ops.and_(ops.greater_or_equal(wanted, zero), ops.less(wanted, classes))
    own = ops.gather_elements(predictions, ops.where(inside, wanted, zero), axis=1)
    larger = ops.cast(ops.greater(predictions, own), to=DType.int64)
    strange = ops.cast(ops.or_(ops.isnan(predictions), ops.isinf(predictions)), to=DType.int64)
    found = ops.less(ops.reduce_sum(larger, [1], keepdims=1), count)
    finite = ops.less(ops.reduce_sum(strange, [1], keepdims=1), constant(np.asarray(1)))
    return ops.squeeze(ops.and_(ops.and_(found, finite), inside), [1])


@rule("ArgMax", "ArgMin")
def arg(node: Any, x: Value, axis: Value) -> Value:
    (place,) = integers(axis, "the axis")
    widened = ops.cast(x, to=DType.int32) if x.dtype is DType.bool else x
    found = (ops.argmax if node.op == "ArgMax" else ops.argmin)(widened, axis=axis_of(place, x), keepdims=0)
    return as_dtype(found, dtype_of(node.get("output_type", 9)))


@rule("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", outputs="y idx count")
def unique(node: Any, x: Value, axis: Value | None = None) -> list[Value]:
    """Unique elements in order of first occurrence; integers as int64, for which runtimes have a kernel."""
    narrow = x.dtype if x.dtype in (DType.int32, DType.int16, DType.uint8) else None
    x = x if narrow is None else ops.cast(x, to=DType.int64)
    along = None if axis is None else integers(axis, "the axis of unique elements")
    if along and (x.ndim > 1):
        y, _, inverse, counts = ops.unique(x, axis=axis_of(along[0], x), sorted=0)
    else:
        y, _, inverse, counts = ops.unique(x, sorted=0)
    kind = dtype_of(node.get("out_idx", 3))
    result = [y if narrow is None else ops.cast(y, to=narrow), as_dtype(inverse, kind)]
    return [*result, as_dtype(counts, kind)] if "Counts" in node.op else result


@rule("SearchSorted", "LowerBound", "UpperBound")
def search_sorted(node: Any, sequence: Value, values: Value) -> Value:
    """Number of elements of a sorted row that are smaller than a value, or not larger for UpperBound."""
    rows, wanted = ops.unsqueeze(sequence, [1]), ops.unsqueeze(values, [2])
    compared = ops.less_or_equal(rows, wanted) if node.op == "UpperBound" else ops.less(rows, wanted)
    counts = ops.reduce_sum(ops.cast(compared, to=DType.int64), [2], keepdims=0)
    return as_dtype(counts, dtype_of(node.get("out_type", 3)))


@rule("Bucketize")
def bucketize(node: Any, x: Value) -> Value:
    """Number of boundaries less than or equal to an element."""
    boundaries = np.asarray(node.get("boundaries", []), np.float32)
    if not boundaries.size:
        return ops.zeros_like(ops.cast(x, to=DType.int32))
    widened = as_dtype(x, DType.float64 if x.dtype in (DType.float64, DType.int64, DType.int32) else DType.float32)
    row = constant(boundaries.astype(widened.dtype.numpy))
    above = ops.greater_or_equal(ops.unsqueeze(widened, [x.ndim]), row)
    return ops.reduce_sum(ops.cast(above, to=DType.int32), [x.ndim], keepdims=0)


@rule("ListDiff", outputs="out idx")
def list_diff(node: Any, x: Value, y: Value) -> list[Value]:
    found = ops.equal(ops.unsqueeze(x, [1]), ops.unsqueeze(y, [0]))
    counts = ops.reduce_sum(ops.cast(found, to=DType.int32), [1], keepdims=0)
    places = ops.squeeze(ops.non_zero(ops.equal(counts, constant(np.asarray(0, np.int32)))), [0])
    return [ops.gather(x, places), as_dtype(places, dtype_of(node.get("out_idx", 3)))]


@rule("SparseToDense")
def sparse_to_dense(node: Any, indices: Value, shape: Value, values: Value, default: Value) -> Value:
    base = ops.expand(default, int64(shape))
    places = int64(indices)
    if indices.ndim < 2:
        places = ops.reshape(places, [-1, 1])
    count = ops.slice_(ops.shape(places), [0], [1], [0])
    return ops.scatter_nd(base, places, ops.expand(values, count))


@rule("RaggedRange", outputs="rt_nested_splits rt_dense_values")
def ragged(node: Any, *_: Value) -> list[Value]:
    raise NotRepresentable("the graph has ragged tensors", given=node.title, do="use dense tensors and masks")


@rule("TensorStridedSliceUpdate", interpreter=False)
def strided_slice_update(node: Any, x: Value, begin: Value, end: Value, strides: Value, values: Value) -> Value:
    """Assign to a slice, whose positions are found by slicing the indices of all elements."""
    whole = ops.shape(x)
    count = ops.size(x)
    numbers = ops.reshape(ops.range_(constant(np.asarray(0)), count, constant(np.asarray(1))), whole)
    places = strided_slice(node, numbers, begin, end, strides)
    flat = ops.reshape(x, [-1])
    rows = ops.reshape(ops.expand(values, ops.shape(places)), [-1])
    return ops.reshape(ops.scatter_elements(flat, ops.reshape(places, [-1]), rows), whole)
