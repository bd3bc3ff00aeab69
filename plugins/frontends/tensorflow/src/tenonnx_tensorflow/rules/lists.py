"""Lists of tensors, and TensorArrays of TensorFlow 1: rows of one tensor, stacked by a loop."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant, static
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.loops import RowsApart, Slot
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.shapes import LAST
from tenonnx_tensorflow.tracked_values import TensorList, as_dtype, int64, number, scalar


def _shape(value: Value) -> list[int | None] | None:
    found = static(value)
    if found is None or not np.ndim(found):
        return None
    return [int(n) if n >= 0 else None for n in np.asarray(found)]


def _rows(tensor_list: Any, node: Any, like: Value | None = None) -> Value:
    """The rows of a list; zeros for a reserved list whose row shape is known."""
    if isinstance(tensor_list, Slot):
        raise RowsApart("a loop reads the list that it fills", given=node.title)
    if tensor_list.rows is not None:
        rows: Value = tensor_list.rows
        return rows
    shape = tensor_list.shape
    if like is not None:
        inner: Value = ops.shape(like)
    elif shape is not None and all(n is not None for n in shape):
        inner = constant(np.asarray(shape, np.int64))
    else:
        raise NotRepresentable("the elements of a list that is read have an unknown shape", given=node.title)
    size = ops.reshape(int64(tensor_list.size), [1])
    return ops.expand(constant(np.zeros((), tensor_list.dtype.numpy)), ops.concat(size, inner, axis=0))


@rule("TensorListReserve", "EmptyTensorList")
def reserve(node: Any, shape: Value, size: Value) -> TensorList:
    count = size if node.op == "TensorListReserve" else constant(np.asarray(0, np.int32))
    return TensorList(dtype_of(node["element_dtype"]), None, count, _shape(shape))


@rule("TensorListFromTensor")
def from_tensor(node: Any, x: Value, shape: Value) -> TensorList:
    return TensorList(x.dtype, x, ops.gather(ops.shape(x), constant(np.asarray(0))), _shape(shape))


@rule("TensorListStack", outputs="tensor")
def stack(node: Any, tensor_list: Any, shape: Value) -> Value:
    if isinstance(tensor_list, TensorList) and tensor_list.rows is None:
        tensor_list = TensorList(tensor_list.dtype, None, tensor_list.size, tensor_list.shape or _shape(shape))
    return _rows(tensor_list, node)


@rule("TensorListGetItem")
def get_item(node: Any, tensor_list: Any, index: Value, shape: Value) -> Value:
    return ops.gather(_rows(tensor_list, node), scalar(int64(index)), axis=0)


@rule("TensorListSetItem")
def set_item(node: Any, tensor_list: Any, index: Value, item: Value) -> Any:
    if isinstance(tensor_list, Slot):
        return _written(tensor_list, index, item, node)
    rows = _rows(tensor_list, node, item)
    if node.get("resize_if_index_out_of_bounds", False):
        least = ops.add(ops.reshape(int64(index), [1]), constant(np.asarray([1])))
        rows = _resized(rows, ops.maximum(least, ops.slice_(ops.shape(rows), [0], [1], [0])))
        tensor_list = TensorList(tensor_list.dtype, rows, None, tensor_list.shape)
    updated = ops.scatter_nd(rows, ops.reshape(int64(index), [1, 1]), ops.unsqueeze(item, [0]))
    return TensorList(tensor_list.dtype, updated, tensor_list.size, tensor_list.shape)


def _written(slot: Slot, index: Value | None, item: Value, node: Any) -> Slot:
    """Record the element that a loop adds to a list in this iteration."""
    if slot.source.shape is None and item.shape is not None:
        slot.source.shape = [n if isinstance(n, int) else None for n in item.shape]
    if slot.row is not None:
        raise RowsApart("a loop writes several rows of a list in an iteration", given=node.title)
    return Slot(slot.source, index, item)


@rule("TensorListLength")
def length(node: Any, tensor_list: Any) -> Value:
    if isinstance(tensor_list, Slot):
        tensor_list = tensor_list.source
    if tensor_list.rows is None:
        result: Value = tensor_list.size
        return result
    return ops.cast(ops.gather(ops.shape(tensor_list.rows), constant(np.asarray(0))), to=DType.int32)


@rule("TensorListPushBack")
def push(node: Any, tensor_list: Any, item: Value) -> Any:
    if isinstance(tensor_list, Slot):
        return _written(tensor_list, None, item, node)
    row = ops.unsqueeze(item, [0])
    if (
        isinstance(tensor_list, TensorList)
        and tensor_list.rows is None
        and static(tensor_list.size) is not None
        and not static(tensor_list.size)
    ):
        return TensorList(tensor_list.dtype, row, None, tensor_list.shape)
    return TensorList(
        tensor_list.dtype, ops.concat(_rows(tensor_list, node, item), row, axis=0), None, tensor_list.shape
    )


@rule("TensorListPopBack", outputs="output_handle tensor")
def pop(node: Any, tensor_list: Any, shape: Value) -> list[Any]:
    rows = _rows(tensor_list, node)
    last = ops.gather(rows, constant(np.asarray(-1)), axis=0)
    return [TensorList(tensor_list.dtype, ops.slice_(rows, [0], [-1], [0]), None, tensor_list.shape), last]


@rule("TensorListGather")
def gather(node: Any, tensor_list: Any, indices: Value, shape: Value) -> Value:
    return ops.gather(_rows(tensor_list, node), int64(indices), axis=0)


@rule("TensorListScatterV2", "TensorListScatter")
def scatter(node: Any, x: Value, indices: Value, shape: Value, size: Value | None = None) -> TensorList:
    """A list of rows at these indices, with zeros elsewhere."""
    places = int64(indices)
    least = ops.add(ops.reduce_max(places, keepdims=1), constant(np.asarray([1])))
    count = least if size is None else ops.maximum(ops.reshape(int64(size), [1]), least)
    whole = ops.concat(count, ops.slice_(ops.shape(x), [1], [LAST], [0]), axis=0)
    rows = ops.scatter_nd(ops.expand(number(0, x), whole), ops.unsqueeze(places, [1]), x)
    return TensorList(x.dtype, rows, None, _shape(shape))


@rule("TensorListScatterIntoExistingList")
def scatter_into(node: Any, tensor_list: Any, x: Value, indices: Value) -> TensorList:
    places = int64(indices)
    row = ops.gather(x, constant(np.asarray(0)), axis=0)
    least = ops.add(ops.reduce_max(places, keepdims=1), constant(np.asarray([1])))
    rows = _rows(tensor_list, node, row)
    rows = _resized(rows, ops.maximum(least, ops.slice_(ops.shape(rows), [0], [1], [0])))
    return TensorList(x.dtype, ops.scatter_nd(rows, ops.unsqueeze(places, [1]), x), None, tensor_list.shape)


@rule("TensorListConcatV2", "TensorListConcat", outputs="tensor lengths")
def concat(node: Any, tensor_list: Any, *_: Value) -> list[Value]:
    rows = _rows(tensor_list, node)
    sizes = ops.shape(rows)
    rest = ops.slice_(sizes, [2], [LAST], [0])
    flat = ops.reshape(rows, ops.concat(constant(np.asarray([-1])), rest, axis=0) if rows.ndim > 2 else [-1])
    return [flat, ops.expand(ops.slice_(sizes, [1], [2], [0]), ops.slice_(sizes, [0], [1], [0]))]


@rule("TensorListResize")
def resize(node: Any, tensor_list: Any, size: Value) -> TensorList:
    if isinstance(tensor_list, TensorList) and tensor_list.rows is None:
        return TensorList(tensor_list.dtype, None, size, tensor_list.shape)
    rows = _rows(tensor_list, node)
    wanted = ops.reshape(int64(size), [1])
    return TensorList(tensor_list.dtype, ops.slice_(_resized(rows, wanted), [0], wanted, [0]), size, tensor_list.shape)


def _resized(rows: Value, wanted: Value) -> Value:
    """Pad rows by zeros to at least this number."""
    missing = ops.maximum(ops.sub(wanted, ops.slice_(ops.shape(rows), [0], [1], [0])), constant(np.asarray([0])))
    zeros = constant(np.zeros(rows.ndim, np.int64))
    ends = [missing, constant(np.zeros(rows.ndim - 1, np.int64))] if rows.ndim > 1 else [missing]
    return ops.pad(rows, ops.concat(zeros, *ends, axis=0))


@rule("TensorListElementShape")
def element_shape(node: Any, tensor_list: Any) -> Value:
    return as_dtype(
        ops.shape(ops.gather(_rows(tensor_list, node), constant(np.asarray(0)), axis=0)), dtype_of(node["shape_type"])
    )


# ----- TensorFlow 1: the flow value represents the array --------------------------------------------------------------


@rule("TensorArrayV3", outputs="handle flow")
def array(node: Any, size: Value) -> list[Any]:
    tensor_list = TensorList(dtype_of(node["dtype"]), None, size, node.get("element_shape"))
    return [tensor_list, tensor_list]


@rule("TensorArrayScatterV3")
def array_scatter(node: Any, handle: Any, indices: Value, x: Value, flow: Any) -> TensorList:
    """Write all rows of an empty array."""
    order = static(indices)
    contents = indices.symbolic_contents
    plain = order is not None and np.array_equal(np.asarray(order), np.arange(np.size(order)))
    if not plain and contents is None and indices.producer is not None and indices.producer.op_type == "Range":
        plain = True
    if plain and isinstance(flow, TensorList) and flow.rows is None:
        return TensorList(x.dtype, x, flow.size, flow.shape)
    return scatter(node, x, indices, constant(np.asarray(-1)))


@rule("TensorArrayReadV3")
def array_read(node: Any, handle: Any, index: Value, flow: Any) -> Value:
    return ops.gather(_rows(flow, node), scalar(int64(index)), axis=0)


@rule("TensorArrayWriteV3")
def array_write(node: Any, handle: Any, index: Value, item: Value, flow: Any) -> Any:
    return set_item(node, flow, index, item)


@rule("TensorArrayGatherV3")
def array_gather(node: Any, handle: Any, indices: Value, flow: Any) -> Value:
    return ops.gather(_rows(flow, node), int64(indices), axis=0)


@rule("TensorArraySizeV3")
def array_size(node: Any, handle: Any, flow: Any) -> Value:
    return length(node, flow)


@rule("TensorArrayConcatV3", outputs="value lengths")
def array_concat(node: Any, handle: Any, flow: Any) -> list[Value]:
    return concat(node, flow)


@rule("TensorArrayCloseV3")
def array_close(node: Any, *_: Any) -> list[Any]:
    return []
