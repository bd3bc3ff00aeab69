"""Parser of ``.tflite`` files, with the schema of the package ``tflite``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import tflite
from flatbuffers.number_types import Int32Flags

from tenonnx.extend import InvalidModel, NotRepresentable
from tenonnx_tensorflow.attributes import text_of
from tenonnx_tensorflow.state import BROKEN

#: Element types by their number in the schema. The resource types have no numpy type.
_DTYPES: dict[int, Any] = {
    0: np.float32,
    1: np.float16,
    2: np.int32,
    3: np.uint8,
    4: np.int64,
    5: object,
    6: np.bool_,
    7: np.int16,
    8: np.complex64,
    9: np.int8,
    10: np.float64,
    11: np.complex128,
    12: np.uint64,
    15: np.uint32,
    16: np.uint16,
    17: ml_dtypes.int4,
    18: ml_dtypes.bfloat16,
}

_RESOURCES = (13, 14)

#: Metadata key for the result of the verification after writing.
VERIFICATION = "tenonnx.verification"

_OPERATORS = {number: name for name, number in vars(tflite.BuiltinOperator).items() if isinstance(number, int)}
_OPTIONS_2 = {number: name for name, number in vars(tflite.BuiltinOptions2).items() if isinstance(number, int)}
_OPTIONS = {number: name for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)}


#: Offsets of table fields that the package ``tflite`` does not read: the operator code (it reads the deprecated 8-bit
#: field), and the type tag and fields of blockwise quantization.
_BUILTIN_CODE, _BLOCKWISE, _BLOCK_SCALES, _BLOCK_ZERO_POINTS, _BLOCK_SIZE = 10, 2, 4, 6, 8


def _field(table: Any, place: int) -> int:
    """A 32-bit field, 0 if absent."""
    offset = table.Offset(place)
    return int(table.Get(Int32Flags, offset + table.Pos)) if offset else 0


@dataclass(frozen=True)
class Quantization:
    """Quantization parameters: real = ``scale * (quantized - zero_point)``, per tensor or per channel along ``axis``.

    Blockwise scales have the rank of the tensor: one for every ``block`` elements along ``axis``.
    """

    scales: np.ndarray[Any, Any]
    zero_points: np.ndarray[Any, Any]
    axis: int
    block: int = 0

    def is_as(self, other: Quantization | None) -> bool:
        return (
            other is not None
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.zero_points, other.zero_points)
        )


@dataclass(frozen=True)
class Tensor:
    """A tensor of a subgraph. Dynamic dims are None; ``contents`` is None unless it is a constant."""

    name: str
    dtype: Any
    shape: tuple[int | None, ...] | None
    contents: np.ndarray[Any, Any] | None
    quantization: Quantization | None
    is_variable: bool


@dataclass(frozen=True)
class Operator:
    """An operator. Inputs, outputs and intermediates are tensor indices; -1 means absent."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    intermediates: Sequence[int]
    options: Any
    custom: bytes
    index: int

    @property
    def title(self) -> str:
        return f"{self.name} (operator {self.index})"

    def option(self, name: str, default: Any = None) -> Any:
        """A field of the options; vectors as lists. Raises ``InvalidModel`` if its offset is outside the file."""
        if self.options is None:
            return default
        listed = getattr(self.options, f"{name}AsNumpy", None)
        read = getattr(self.options, name, None)
        try:
            if listed is not None:
                vector = listed()
                return [] if isinstance(vector, int) else np.asarray(vector).tolist()
            return default if read is None else read()
        except BROKEN as error:
            raise InvalidModel(
                f"cannot read an option of {self.title}", given=f"{name}: {type(error).__name__}: {error}"
            ) from error


@dataclass(frozen=True)
class Subgraph:
    name: str
    tensors: Sequence[Tensor]
    inputs: Sequence[int]
    outputs: Sequence[int]
    operators: Sequence[Operator]


@dataclass(frozen=True)
class File:
    """The subgraphs of a file, the first of which is the model, and its signatures.

    A signature has a subgraph index, and the names of inputs and outputs by tensor index.
    """

    subgraphs: Sequence[Subgraph]
    signatures: Mapping[str, tuple[int, Mapping[int, str], Mapping[int, str]]]
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_file(path: Path) -> File:
    """Parse a file. Raises ``InvalidModel`` if it is broken, ``NotRepresentable`` for types that ONNX lacks."""
    contents = path.read_bytes()
    if len(contents) < 8 or contents[4:8] != b"TFL3":
        raise InvalidModel(f'"{path}" is not a model of TFLite', given="a file without its mark TFL3")
    try:
        model = tflite.Model.GetRootAsModel(contents, 0)
        graphs = [_subgraph(model, model.Subgraphs(k), contents) for k in range(model.SubgraphsLength())]
        signatures = dict(_signature(model.SignatureDefs(k)) for k in range(model.SignatureDefsLength()))
        metadata = dict(_texts_of(model))
    except BROKEN as error:
        raise InvalidModel(
            f'"{path}" is broken or not a whole model of TFLite', given=f"{type(error).__name__}: {error}"
        ) from error
    if not graphs:
        raise InvalidModel(f'"{path}" holds no graph')
    return File(graphs, signatures, metadata)


def _texts_of(model: Any) -> Iterator[tuple[str, str]]:
    """Metadata entries that are printable text, since LiteRT's own tools also store flatbuffers there."""
    for place in range(model.MetadataLength()):
        entry = model.Metadata(place)
        buffer = model.Buffers(entry.Buffer())
        raw = buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""
        with suppress(UnicodeDecodeError):
            if (text := raw.decode().strip()) and "".join(text.split()).isprintable():
                yield (entry.Name() or b"").decode(), text


def _signature(definition: Any) -> tuple[str, tuple[int, dict[int, str], dict[int, str]]]:
    inputs = {
        definition.Inputs(k).TensorIndex(): definition.Inputs(k).Name().decode()
        for k in range(definition.InputsLength())
    }
    outputs = {
        definition.Outputs(k).TensorIndex(): definition.Outputs(k).Name().decode()
        for k in range(definition.OutputsLength())
    }
    key = definition.SignatureKey()
    return (key.decode() if key else ""), (definition.SubgraphIndex(), inputs, outputs)


def _subgraph(model: Any, graph: Any, contents: bytes) -> Subgraph:
    tensors = [_tensor(model, graph.Tensors(k), contents) for k in range(graph.TensorsLength())]
    operators = [_operator(model, graph.Operators(k), k) for k in range(graph.OperatorsLength())]
    name = graph.Name()
    tensors = [_with_blocks(model, graph, k, each, tensors) for k, each in enumerate(tensors)]
    inputs, outputs = (
        [int(read(k)) for k in range(count())]
        for read, count in ((graph.Inputs, graph.InputsLength), (graph.Outputs, graph.OutputsLength))
    )
    for place in (
        *inputs,
        *outputs,
        *(i for op in operators for i in (*op.inputs, *op.outputs, *op.intermediates) if i >= 0),
    ):
        if not 0 <= place < len(tensors):
            raise InvalidModel(
                "an operator names a tensor that its graph does not have", given=f"{place} of {len(tensors)}"
            )
    return Subgraph(name.decode() if name else "", tensors, inputs, outputs, operators)


def _operator(model: Any, op: Any, place: int) -> Operator:
    code = model.OperatorCodes(op.OpcodeIndex())
    number = max(_field(code._tab, _BUILTIN_CODE), code.DeprecatedBuiltinCode())
    name = _OPERATORS.get(number, f"number {number}")
    custom = b""
    if name == "CUSTOM":
        name = (code.CustomCode() or b"CUSTOM").decode()
        custom = bytes(op.CustomOptionsAsNumpy()) if op.CustomOptionsLength() else b""
    kind = _OPTIONS.get(op.BuiltinOptionsType(), "NONE")
    options = None
    table = op.BuiltinOptions()
    if table is None and op.BuiltinOptions2() is not None:
        table, kind = op.BuiltinOptions2(), _OPTIONS_2.get(op.BuiltinOptions2Type(), "NONE")
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
        raise NotRepresentable("an element type has no form in ONNX", given=f"number {kind} of the schema of TFLite")
    sizes = [int(tensor.Shape(k)) for k in range(tensor.ShapeLength())]
    varying = [int(tensor.ShapeSignature(k)) for k in range(tensor.ShapeSignatureLength())] or sizes
    name = tensor.Name()
    label = name.decode(errors="replace") if name else ""
    contents = None if kind is None else _contents(model.Buffers(tensor.Buffer()), kind, sizes, label, whole)
    shape = tuple(None if n < 0 else n for n in varying) if tensor.HasRank() or sizes or contents is not None else ()
    if tensor.Sparsity() is not None:
        raise NotRepresentable("a tensor is not dense", given=f'"{label}"')
    return Tensor(label, kind, shape, contents, _quantization(tensor.Quantization(), kind), bool(tensor.IsVariable()))


def _with_blocks(model: Any, graph: Any, place: int, tensor: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """``tensor`` with its blockwise quantization, whose scales are another tensor of the graph."""
    quantization = graph.Tensors(place).Quantization()
    if quantization is None or quantization.DetailsType() != _BLOCKWISE or quantization.Details() is None:
        return tensor
    details = quantization.Details()
    scales, points, block = (_field(details, k) for k in (_BLOCK_SCALES, _BLOCK_ZERO_POINTS, _BLOCK_SIZE))
    contents = tensors[scales].contents if 0 <= scales < len(tensors) else None
    if contents is None or tensor.shape is None or contents.size * block != math.prod(n or 0 for n in tensor.shape):
        raise InvalidModel(f'no scales for the blocks of "{tensor.name}"', given=f"tensor {scales}, blocks of {block}")
    blocks = np.asarray(contents, np.float32).reshape(*(n or 0 for n in tensor.shape[:-1]), -1)
    zeros = tensors[points].contents if 0 < points < len(tensors) else None
    zero_points = (
        np.zeros(blocks.shape, np.int64) if zeros is None else np.asarray(zeros, np.int64).reshape(blocks.shape)
    )
    return replace(tensor, quantization=Quantization(blocks, zero_points, len(tensor.shape) - 1, block))


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
        quantized = np.stack([pairs & 15, pairs >> 4], -1).reshape(-1)[:count].astype(np.int8)
        if quantized.size != count:
            raise InvalidModel(f'"{name}" has too few bytes for its shape', given=f"{len(raw)} for {list(sizes)}")
        return np.where(quantized > 7, quantized - 16, quantized).astype(ml_dtypes.int4).reshape(sizes)
    if len(raw) != count * np.dtype(kind).itemsize:
        raise InvalidModel(
            f'"{name}" does not have as many bytes as its shape needs', given=f"{len(raw)} for {list(sizes)}"
        )
    return np.frombuffer(raw, kind).reshape(sizes)


def _texts(raw: bytes) -> np.ndarray[Any, Any]:
    """Decode strings in the layout of TFLite: their number, their start offsets, then their bytes."""
    count = int(np.frombuffer(raw, np.int32, 1)[0])
    ends = np.frombuffer(raw, np.int32, count + 1, 4)
    texts = np.empty(count, object)
    texts[:] = [text_of(raw[a:b]) for a, b in pairwise(ends)]
    return texts


def _quantization(parameters: Any, kind: Any) -> Quantization | None:
    """Quantization parameters of an integer tensor. None for floats, for which some files record ranges."""
    is_integer = kind not in (None, object, np.bool_) and (np.dtype(kind).kind in "iu" or kind is ml_dtypes.int4)
    if parameters is None or not parameters.ScaleLength() or not is_integer:
        return None
    scales = np.asarray(parameters.ScaleAsNumpy(), np.float32)
    points = (
        np.asarray(parameters.ZeroPointAsNumpy(), np.int64) if parameters.ZeroPointLength() else np.zeros(1, np.int64)
    )
    if len(points) != len(scales):
        points = np.repeat(points[:1], len(scales))
    return Quantization(scales, points, int(parameters.QuantizedDimension()))
