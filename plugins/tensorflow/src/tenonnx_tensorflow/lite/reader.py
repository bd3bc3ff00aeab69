"""What a ``.tflite`` file holds, by the schema of the package ``tflite``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import tflite

from tenonnx.extend import InvalidModel, NotRepresentable
from tenonnx_tensorflow.attributes import text_of

#: Element types by their number in the schema.
_DTYPES: dict[int, Any] = {
    0: np.float32, 1: np.float16, 2: np.int32, 3: np.uint8, 4: np.int64, 5: object, 6: np.bool_, 7: np.int16,
    8: np.complex64, 9: np.int8, 10: np.float64, 11: np.complex128, 12: np.uint64, 15: np.uint32, 16: np.uint16,
    17: ml_dtypes.int4, 18: ml_dtypes.bfloat16,
}  # fmt: skip

_RESOURCES = (13, 14)

_OPERATORS = {number: name for name, number in vars(tflite.BuiltinOperator).items() if isinstance(number, int)}
_OPTIONS = {number: name for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)}


@dataclass(frozen=True)
class Quantization:
    """Real numbers are ``scale * (code - zero_point)``, for each place along ``axis`` where there are several."""

    scales: np.ndarray[Any, Any]
    zero_points: np.ndarray[Any, Any]
    axis: int

    def is_as(self, other: Quantization | None) -> bool:
        return (
            other is not None
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.zero_points, other.zero_points)
        )


@dataclass(frozen=True)
class Tensor:
    """A tensor of a subgraph: sizes are None where they vary, ``contents`` None where it is computed."""

    name: str
    dtype: Any
    shape: tuple[int | None, ...] | None
    contents: np.ndarray[Any, Any] | None
    quantization: Quantization | None
    is_variable: bool


@dataclass(frozen=True)
class Operator:
    """One call: inputs and outputs are numbers of tensors, -1 where one is absent; so are those that it has inside."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    intermediates: Sequence[int]
    options: Any
    custom: bytes
    place: int

    @property
    def title(self) -> str:
        return f"{self.name} (operator {self.place})"

    def option(self, name: str, default: Any = None) -> Any:
        """A field of the options; lists as lists."""
        if self.options is None:
            return default
        listed = getattr(self.options, f"{name}AsNumpy", None)
        if listed is not None:
            found = listed()
            return [] if isinstance(found, int) else np.asarray(found).tolist()
        read = getattr(self.options, name, None)
        return default if read is None else read()


@dataclass(frozen=True)
class Subgraph:
    name: str
    tensors: Sequence[Tensor]
    inputs: Sequence[int]
    outputs: Sequence[int]
    operators: Sequence[Operator]


@dataclass(frozen=True)
class File:
    """The subgraphs of a file, the first of which is the model, and by signature the names of what they take."""

    subgraphs: Sequence[Subgraph]
    signatures: Mapping[str, tuple[int, Mapping[int, str], Mapping[int, str]]]


def read_file(path: Path) -> File:
    contents = path.read_bytes()
    if len(contents) < 8 or contents[4:8] != b"TFL3":
        raise InvalidModel(f'"{path}" must be a model of TFLite', given="a file without its mark TFL3")
    try:
        model = tflite.Model.GetRootAsModel(contents, 0)
        graphs = [_subgraph(model, model.Subgraphs(k), contents) for k in range(model.SubgraphsLength())]
        signatures = dict(_signature(model.SignatureDefs(k)) for k in range(model.SignatureDefsLength()))
    except (IndexError, TypeError, ValueError, AttributeError, OverflowError, UnicodeDecodeError) as error:
        raise InvalidModel(
            f'"{path}" must be a whole model of TFLite', given=f"{type(error).__name__}: {error}"
        ) from error
    except Exception as error:
        if type(error).__module__ == "struct":
            raise InvalidModel(f'"{path}" must be a whole model of TFLite', given=str(error)) from error
        raise
    if not graphs:
        raise InvalidModel(f'"{path}" must hold a graph', given="none")
    return File(graphs, signatures)


def _signature(found: Any) -> tuple[str, tuple[int, dict[int, str], dict[int, str]]]:
    inputs = {found.Inputs(k).TensorIndex(): found.Inputs(k).Name().decode() for k in range(found.InputsLength())}
    outputs = {found.Outputs(k).TensorIndex(): found.Outputs(k).Name().decode() for k in range(found.OutputsLength())}
    key = found.SignatureKey()
    return (key.decode() if key else ""), (found.SubgraphIndex(), inputs, outputs)


def _subgraph(model: Any, graph: Any, contents: bytes) -> Subgraph:
    tensors = [_tensor(model, graph.Tensors(k), contents) for k in range(graph.TensorsLength())]
    operators = [_operator(model, graph.Operators(k), k) for k in range(graph.OperatorsLength())]
    name = graph.Name()
    inputs, outputs = ([int(read(k)) for k in range(count())] for read, count in (
        (graph.Inputs, graph.InputsLength), (graph.Outputs, graph.OutputsLength)))  # fmt: skip
    for place in (
        *inputs,
        *outputs,
        *(i for op in operators for i in (*op.inputs, *op.outputs, *op.intermediates) if i >= 0),
    ):
        if not 0 <= place < len(tensors):
            raise InvalidModel("operators must name tensors of their graph", given=f"{place} of {len(tensors)}")
    return Subgraph(name.decode() if name else "", tensors, inputs, outputs, operators)


def _operator(model: Any, op: Any, place: int) -> Operator:
    code = model.OperatorCodes(op.OpcodeIndex())
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = _OPERATORS.get(number, f"number {number}")
    custom = b""
    if name == "CUSTOM":
        name = (code.CustomCode() or b"CUSTOM").decode()
        custom = bytes(op.CustomOptionsAsNumpy()) if op.CustomOptionsLength() else b""
    kind = _OPTIONS.get(op.BuiltinOptionsType(), "NONE")
    options = None
    table = op.BuiltinOptions()
    if table is not None and hasattr(tflite, kind):
        options = getattr(tflite, kind)()
        options.Init(table.Bytes, table.Pos)
    inputs = [int(op.Inputs(k)) for k in range(op.InputsLength())]
    outputs = [int(op.Outputs(k)) for k in range(op.OutputsLength())]
    inside = [int(op.Intermediates(k)) for k in range(op.IntermediatesLength())]
    return Operator(name, inputs, outputs, inside, options, custom, place)


def _tensor(model: Any, tensor: Any, whole: bytes) -> Tensor:
    number = tensor.Type()
    kind = None if number in _RESOURCES else _DTYPES.get(number, number)
    if isinstance(kind, int):
        raise NotRepresentable(
            "an element type must have a form in ONNX", given=f"number {kind} of the schema of TFLite"
        )
    sizes = [int(tensor.Shape(k)) for k in range(tensor.ShapeLength())]
    varying = [int(tensor.ShapeSignature(k)) for k in range(tensor.ShapeSignatureLength())] or sizes
    name = tensor.Name()
    label = name.decode(errors="replace") if name else ""
    contents = None if kind is None else _contents(model.Buffers(tensor.Buffer()), kind, sizes, label, whole)
    shape = tuple(None if n < 0 else n for n in varying) if tensor.HasRank() or sizes or contents is not None else ()
    if tensor.Sparsity() is not None:
        raise NotRepresentable("tensors must be dense", given=f'"{label}"')
    return Tensor(label, kind, shape, contents, _quantization(tensor.Quantization(), kind), bool(tensor.IsVariable()))


def _contents(buffer: Any, kind: Any, sizes: Sequence[int], name: str, whole: bytes) -> np.ndarray[Any, Any] | None:
    raw = b""
    if buffer.DataLength():
        raw = buffer.DataAsNumpy().tobytes()
    elif buffer.Offset() > 1:
        raw = whole[buffer.Offset() : buffer.Offset() + buffer.Size()]
    if not raw:
        return None
    if kind is object:
        return _texts(raw).reshape(sizes)
    count = math.prod(sizes)
    if kind is ml_dtypes.int4:
        pairs = np.frombuffer(raw, np.uint8)
        codes = np.stack([pairs & 15, pairs >> 4], -1).reshape(-1)[:count].astype(np.int8)
        return np.where(codes > 7, codes - 16, codes).astype(ml_dtypes.int4).reshape(sizes)
    if len(raw) != count * np.dtype(kind).itemsize:
        raise InvalidModel(
            f'"{name}" must have as many bytes as its shape needs', given=f"{len(raw)} for {list(sizes)}"
        )
    return np.frombuffer(raw, kind).reshape(sizes)


def _texts(raw: bytes) -> np.ndarray[Any, Any]:
    """How many there are, where each begins, and then their bytes."""
    count = int(np.frombuffer(raw, np.int32, 1)[0])
    ends = np.frombuffer(raw, np.int32, count + 1, 4)
    found = np.empty(count, object)
    found[:] = [text_of(raw[a:b]) for a, b in pairwise(ends)]
    return found


def _quantization(found: Any, kind: Any) -> Quantization | None:
    """None for floats, whose ranges some files tell, too."""
    is_code = kind not in (None, object, np.bool_) and (np.dtype(kind).kind in "iu" or kind is ml_dtypes.int4)
    if found is None or not found.ScaleLength() or not is_code:
        return None
    scales = np.asarray(found.ScaleAsNumpy(), np.float32)
    points = np.asarray(found.ZeroPointAsNumpy(), np.int64) if found.ZeroPointLength() else np.zeros(1, np.int64)
    if len(points) != len(scales):
        points = np.repeat(points[:1], len(scales))
    return Quantization(scales, points, int(found.QuantizedDimension()))
