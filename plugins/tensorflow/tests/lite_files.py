"""Files of TFLite that its converter does not make: operators, types and scales as a test tells them."""

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
        np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
        np.bool_, np.complex64, ml_dtypes.bfloat16,
    )
}  # fmt: skip


@dataclass(frozen=True)
class T:
    """A tensor: of contents, or of a shape and a type; codes have a scale and a zero point, one or a row of each."""

    contents: Any = None
    shape: Sequence[int] = ()
    dtype: Any = np.float32
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    is_variable: bool = False


@dataclass(frozen=True)
class Op:
    """An operator: tensors by number, -1 for one that is absent, and its options by their names in the schema.

    One that is ``custom`` has a name of its own, and its options as bytes.
    """

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: tuple[str, Mapping[str, Any]] | None = None
    intermediates: Sequence[int] = field(default_factory=list)
    version: int = 1
    custom: tuple[str, bytes] | None = None


def built(tensors: Sequence[T], operators: Sequence[Op], inputs: Sequence[int], outputs: Sequence[int]) -> Path:
    """A path to a file of one graph."""
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers = 3, [schema.BufferT()]
    graph.tensors = [_tensor(model, each, place) for place, each in enumerate(tensors)]
    graph.inputs, graph.outputs, graph.operators = list(inputs), list(outputs), []
    model.operatorCodes = []
    for each in operators:
        code = schema.OperatorCodeT()
        number = getattr(schema.BuiltinOperator, each.name)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), each.version
        made = schema.OperatorT()
        if each.custom is not None:
            code.customCode, made.customOptions = each.custom[0].encode(), np.frombuffer(each.custom[1], np.uint8)
        made.opcodeIndex, made.inputs, made.outputs = len(model.operatorCodes), list(each.inputs), list(each.outputs)
        made.intermediates = list(each.intermediates)
        if each.options is not None:
            kind, given = each.options
            made.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            made.builtinOptions = getattr(schema, f"{kind}T")()
            for name, content in given.items():
                assert hasattr(made.builtinOptions, name), name
                setattr(made.builtinOptions, name, content)
        model.operatorCodes.append(code)
        graph.operators.append(made)
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path = Path(tempfile.mkdtemp()) / "model.tflite"
    path.write_bytes(bytes(builder.Output()))
    return path


def _tensor(model: Any, given: T, place: int) -> Any:
    made = schema.TensorT()
    contents = None if given.contents is None else np.asarray(given.contents)
    made.name, made.isVariable = f"tensor_{place}".encode(), given.is_variable
    made.shape = list(given.shape if contents is None else contents.shape)
    made.type = _TYPES[np.dtype(given.dtype) if contents is None else contents.dtype]
    made.hasRank = True
    if contents is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(contents).tobytes(), np.uint8)
        made.buffer = len(model.buffers)
        model.buffers.append(buffer)
    if given.scale is not None:
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale = np.atleast_1d(np.asarray(given.scale, np.float32))
        points = np.broadcast_to(np.asarray(given.zero, np.int64), made.quantization.scale.shape)
        made.quantization.zeroPoint = np.array(points)
        made.quantization.quantizedDimension = given.axis
    return made
