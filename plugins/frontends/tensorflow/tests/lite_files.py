"""TFLite files with operators, types and scales that the converter does not produce."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import ml_dtypes
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

_NAMES = {"bool_": "BOOL"}
_TYPES: dict[Any, int] = {
    np.dtype(kind): getattr(schema.TensorType, _NAMES.get(kind.__name__, kind.__name__.upper()))
    for kind in (
        np.float32,
        np.float16,
        np.float64,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.uint8,
        np.uint16,
        np.uint32,
        np.bool_,
        np.complex64,
        ml_dtypes.bfloat16,
        ml_dtypes.int4,
    )
}


@dataclass(frozen=True)
class T:
    """A tensor with contents, or with a shape and a dtype; quantized ones have scales and zero points."""

    contents: Any = None
    shape: Sequence[int] = ()
    dtype: Any = np.float32
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    is_variable: bool = False
    #: Index of the tensor of blockwise scales along the last axis, and the block size.
    blocks: tuple[int, int] | None = None


@dataclass(frozen=True)
class Op:
    """An operator: tensors by index, -1 for an absent one, and options by their names in the schema.

    A ``custom`` one has a custom name, and its options as bytes.
    """

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: tuple[str, Mapping[str, Any]] | None = None
    intermediates: Sequence[int] = field(default_factory=list)
    version: int = 1
    custom: tuple[str, bytes] | None = None
    options_2: tuple[str, Mapping[str, Any]] | None = None


#: Tensors, operators, inputs and outputs of a graph.
Graph = tuple[Sequence[T], Sequence[Op], Sequence[int], Sequence[int]]


def built(
    tensors: Sequence[T],
    operators: Sequence[Op],
    inputs: Sequence[int],
    outputs: Sequence[int],
    *others: Graph,
    has_old_codes: bool = True,
) -> Path:
    """Path to a file of one graph, and of others that it calls.

    Without ``has_old_codes`` operator codes are only in the field of newer writers.
    """
    model = schema.ModelT()
    model.version, model.buffers, model.operatorCodes = 3, [schema.BufferT()], []
    graphs = [(tensors, operators, inputs, outputs), *others]
    model.subgraphs = [_graph(model, *each, has_old_codes) for each in graphs]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path = Path(tempfile.mkdtemp()) / "model.tflite"
    path.write_bytes(bytes(builder.Output()))
    return path


def _graph(
    model: Any,
    tensors: Sequence[T],
    operators: Sequence[Op],
    inputs: Sequence[int],
    outputs: Sequence[int],
    has_old_codes: bool,
) -> Any:
    graph = schema.SubGraphT()
    graph.tensors = [_tensor(model, each, place) for place, each in enumerate(tensors)]
    graph.inputs, graph.outputs, graph.operators = list(inputs), list(outputs), []
    for each in operators:
        code = schema.OperatorCodeT()
        number = getattr(schema.BuiltinOperator, each.name)
        code.builtinCode, code.version = number, each.version
        code.deprecatedBuiltinCode = min(number, 127) if has_old_codes else 0
        made = schema.OperatorT()
        if each.custom is not None:
            code.customCode, made.customOptions = each.custom[0].encode(), np.frombuffer(each.custom[1], np.uint8)
        made.opcodeIndex, made.inputs, made.outputs = len(model.operatorCodes), list(each.inputs), list(each.outputs)
        made.intermediates = list(each.intermediates)
        if each.options is not None:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, each.options[0])
            made.builtinOptions = _options(*each.options)
        if each.options_2 is not None:
            made.builtinOptions2Type = getattr(schema.BuiltinOptions2, each.options_2[0])
            made.builtinOptions2 = _options(*each.options_2)
        model.operatorCodes.append(code)
        graph.operators.append(made)
    return graph


def _options(kind: str, given: Mapping[str, Any]) -> Any:
    made = getattr(schema, f"{kind}T")()
    for name, content in given.items():
        assert hasattr(made, name), name
        setattr(made, name, content)
    return made


def _tensor(model: Any, given: T, place: int) -> Any:
    made = schema.TensorT()
    contents = None if given.contents is None else np.asarray(given.contents)
    made.name, made.isVariable = f"tensor_{place}".encode(), given.is_variable
    made.shape = list(given.shape if contents is None else contents.shape)
    made.type = _TYPES[np.dtype(given.dtype) if contents is None else contents.dtype]
    made.hasRank = True
    if contents is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(_bytes(contents), np.uint8)
        made.buffer = len(model.buffers)
        model.buffers.append(buffer)
    if given.blocks is not None:
        made.quantization = schema.QuantizationParametersT()
        made.quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
        scales, size = given.blocks
        made.quantization.details = _options("BlockwiseQuantization", {"scales": scales, "blockSize": size})
    if given.scale is not None:
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale = np.atleast_1d(np.asarray(given.scale, np.float32))
        points = np.broadcast_to(np.asarray(given.zero, np.int64), made.quantization.scale.shape)
        made.quantization.zeroPoint = np.array(points)
        made.quantization.quantizedDimension = given.axis
    return made


def _bytes(contents: Any) -> bytes:
    """The bytes of an array; int4 values are packed in pairs."""
    if contents.dtype != ml_dtypes.int4:
        return np.ascontiguousarray(contents).tobytes()
    quantized = contents.astype(np.int8).astype(np.uint8).reshape(-1) & 15
    return (quantized[::2] | quantized[1::2] << 4).astype(np.uint8).tobytes()
