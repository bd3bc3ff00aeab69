"""Candidate models with smaller dims, simpler weights and fewer attributes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

#: Dims up to this size are not reduced.
_SMALL = 1


def smaller_models(model: ModelProto) -> Iterator[ModelProto]:
    """Models that are smaller by one change each, the largest changes first."""
    yield from _without_notes(model)
    for size in sorted(_dims(model), reverse=True):
        for less in dict.fromkeys((1, 2, size // 2, size - 1)):
            if _SMALL <= less < size:
                yield _with_dim(model, size, less)
    yield from _with_static_dims(model)
    for number, tensor in enumerate(model.graph.initializer):
        if _is_of_numbers(tensor) and tensor.ByteSize() > 64:
            yield from _with_plain_weight(model, number)
    yield from _without_attributes(model)


def _copy(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _without_notes(model: ModelProto) -> Iterator[ModelProto]:
    """The model without documentation, metadata, node names and value_info."""
    smaller = _copy(model)
    for field in ("doc_string", "metadata_props", "producer_name", "producer_version"):
        smaller.ClearField(field)
    for field in ("doc_string", "metadata_props", "value_info", "quantization_annotation"):
        smaller.graph.ClearField(field)
    for node in smaller.graph.node:
        for field in ("doc_string", "metadata_props", "name"):
            node.ClearField(field)
    if smaller != model:
        yield smaller


def _dims(model: ModelProto) -> set[int]:
    """The distinct static dims of inputs and weights that can be reduced."""
    sizes = {size for tensor in model.graph.initializer for size in tensor.dims}
    for value in model.graph.input:
        sizes |= {dim.dim_value for dim in value.type.tensor_type.shape.dim if dim.HasField("dim_value")}
    return {size for size in sizes if size > _SMALL}


def _with_dim(model: ModelProto, size: int, less: int) -> ModelProto:
    """The model with every occurrence of a size reduced: in inputs, outputs, weights, and int64 vectors of sizes."""
    smaller = _copy(model)
    for value in (*smaller.graph.input, *smaller.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value == size:
                dim.dim_value = less
    smaller.graph.ClearField("value_info")
    for tensor in smaller.graph.initializer:
        if tensor.data_type == TensorProto.STRING:
            continue
        contents = numpy_helper.to_array(tensor)
        part = contents[tuple(slice(less) if length == size else slice(None) for length in contents.shape)]
        if contents.ndim <= 1 and contents.dtype == np.int64:
            part = np.where(part == size, less, part)
        if part.shape != contents.shape or not np.array_equal(part, contents):
            new = numpy_helper.from_array(np.ascontiguousarray(part), tensor.name)
            new.data_type = tensor.data_type
            tensor.CopyFrom(new)
    return smaller


def _with_static_dims(model: ModelProto) -> Iterator[ModelProto]:
    """For each dynamic dim, the model with the dim fixed to 1, and to 2."""
    dims = [d for value in model.graph.input for d in value.type.tensor_type.shape.dim]
    for name in dict.fromkeys(dim.dim_param for dim in dims if dim.dim_param):
        for size in (1, 2):
            smaller = _copy(model)
            smaller.graph.ClearField("value_info")
            for value in (*smaller.graph.input, *smaller.graph.output):
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_param == name:
                        dim.dim_value = size
            yield smaller


def _is_of_numbers(tensor: TensorProto) -> bool:
    return tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def _with_plain_weight(model: ModelProto, number: int) -> Iterator[ModelProto]:
    """The model with one weight replaced by zeros, and by ones."""
    for fill in (0.0, 1.0):
        smaller = _copy(model)
        tensor = smaller.graph.initializer[number]
        contents = numpy_helper.to_array(tensor)
        if not np.all((contents == 0) | (contents == 1)):
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(contents, fill), tensor.name))
            yield smaller


def _without_attributes(model: ModelProto) -> Iterator[ModelProto]:
    for number, node in enumerate(model.graph.node):
        for place in range(len(node.attribute)):
            smaller = _copy(model)
            del smaller.graph.node[number].attribute[place]
            yield smaller
