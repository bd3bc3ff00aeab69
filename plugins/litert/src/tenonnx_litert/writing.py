"""Serialization of a graph of builtin operators as a flatbuffer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

from tenonnx.extend import DType, Graph, Node, NotRepresentable, TensorType, Value
from tenonnx_litert.builtins.builtin import OPTIONS
from tenonnx_litert.quantized_tensors import quantized_tensors
from tenonnx_litert.reading.reader import VERIFICATION

#: The version of the schema.
_SCHEMA = 3

#: Bytes to whose multiples contents are aligned.
_ALIGNMENT = 16

_KEY = "serving_default"

#: Bytes of the verdict in the metadata, which are there before it is known.
VERIFICATION_SIZE = 256

#: Versions of operators whose first versions the interpreter does not have.
_VERSIONS = {"BROADCAST_TO": 2}

_TYPES = {
    DType.float32: "FLOAT32",
    DType.float16: "FLOAT16",
    DType.float64: "FLOAT64",
    DType.int4: "INT4",
    DType.int8: "INT8",
    DType.uint8: "UINT8",
    DType.int16: "INT16",
    DType.uint16: "UINT16",
    DType.int32: "INT32",
    DType.uint32: "UINT32",
    DType.int64: "INT64",
    DType.uint64: "UINT64",
    DType.bool: "BOOL",
}

#: The enumerations of attributes that are words.
_ENUMS = {
    "padding": tflite.Padding,
    "fused_activation_function": tflite.ActivationFunctionType,
    "mode": tflite.MirrorPadMode,
}


def contents(graph: Graph, source: Graph) -> bytes:
    """The file of a graph of builtin operators; ``source`` has the names of inputs and outputs.

    Raises ``NotRepresentable`` for an element type that a file cannot hold, and for more than 2 GiB.
    """
    return _File().finished(graph, source)


def with_verification(contents: bytes, verdict: str) -> bytes:
    """The file with a verdict in its metadata, cut to the place that it has there."""
    found = bytearray(contents)
    model = tflite.Model.GetRootAsModel(found, 0)
    for place in range(model.MetadataLength()):
        entry = model.Metadata(place)
        if entry.Name() == VERIFICATION.encode():
            text = verdict.encode()[:VERIFICATION_SIZE].decode(errors="ignore").encode().ljust(VERIFICATION_SIZE)
            model.Buffers(entry.Buffer()).DataAsNumpy()[:] = np.frombuffer(text, np.uint8)
    return bytes(found)


class _File:
    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1 << 16)
        self.buffers: list[int] = []
        self.codes: dict[str, int] = {}
        self.held: dict[bytes, int] = {}
        self.vectors: dict[tuple[str, bytes], int] = {}
        self.data: list[bytes] = [b""]
        self.subgraphs = [0]  # the first is written last

    def finished(self, graph: Graph, source: Graph) -> bytes:
        size = sum(v.data.nbytes for v in graph.variables if v.data is not None)
        if size > 2**31 - 2**20:
            raise NotRepresentable("the model is larger than a LiteRT file can be (2 GiB)", given=f"{size:,} bytes")
        builder = self.builder
        subgraph = _Subgraph(self, graph)
        self.subgraphs[0] = subgraph.written(graph.inputs, graph.outputs)
        subgraphs = self.vector(tflite.ModelStartSubgraphsVector, self.subgraphs)
        signatures = self.vector(tflite.ModelStartSignatureDefsVector, [self.signature(subgraph, source)])
        codes = self.vector(tflite.ModelStartOperatorCodesVector, [self.code(name) for name in self.codes])
        entries = {**source.metadata, VERIFICATION: " " * VERIFICATION_SIZE}
        metadata = self.vector(tflite.ModelStartMetadataVector, [self.entry(*each) for each in entries.items()])
        buffers = self.vector(tflite.ModelStartBuffersVector, [self.buffer(raw) for raw in self.data])
        description = builder.CreateString("tenonnx")
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, _SCHEMA)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, subgraphs)
        tflite.ModelAddDescription(builder, description)
        tflite.ModelAddBuffers(builder, buffers)
        tflite.ModelAddSignatureDefs(builder, signatures)
        tflite.ModelAddMetadata(builder, metadata)
        builder.Finish(tflite.ModelEnd(builder), b"TFL3")
        return bytes(builder.Output())

    # ----- parts ------------------------------------------------------------------------------------------------------

    def vector(self, start: Callable[..., Any], offsets: Sequence[int]) -> int:
        """A vector of tables."""
        start(self.builder, len(offsets))
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def numbers(self, values: Sequence[Any], dtype: Any = np.int32) -> int:
        """A vector of numbers; equal vectors share a place, which zero points of channels make small."""
        array = np.asarray(values, dtype)
        key = array.dtype.str, array.tobytes()
        if key not in self.vectors:
            self.vectors[key] = int(self.builder.CreateNumpyVector(array))
        return self.vectors[key]

    def buffer(self, raw: bytes) -> int:
        builder = self.builder
        place = None
        if raw:
            builder.StartVector(1, len(raw), _ALIGNMENT)
            builder.head -= len(raw)
            builder.Bytes[builder.head : builder.head + len(raw)] = raw
            place = builder.EndVector()
        tflite.BufferStart(builder)
        if place is not None:
            tflite.BufferAddData(builder, place)
        return int(tflite.BufferEnd(builder))

    def entry(self, name: str, text: str) -> int:
        """An entry of the metadata, whose text has a buffer of its own."""
        label = self.builder.CreateString(name)
        self.data.append(text.encode())
        tflite.MetadataStart(self.builder)
        tflite.MetadataAddName(self.builder, label)
        tflite.MetadataAddBuffer(self.builder, len(self.data) - 1)
        return int(tflite.MetadataEnd(self.builder))

    def place_of(self, raw: bytes) -> int:
        """The index of the buffer with these contents; equal contents share a buffer."""
        if raw not in self.held:
            self.held[raw] = len(self.data)
            self.data.append(raw)
        return self.held[raw]

    def code(self, name: str) -> int:
        number = getattr(tflite.BuiltinOperator, name)
        tflite.OperatorCodeStart(self.builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(self.builder, min(number, 127))
        tflite.OperatorCodeAddVersion(self.builder, _VERSIONS.get(name, 1))
        tflite.OperatorCodeAddBuiltinCode(self.builder, number)
        return int(tflite.OperatorCodeEnd(self.builder))

    def number_of(self, name: str) -> int:
        return self.codes.setdefault(name, len(self.codes))

    def signature(self, subgraph: _Subgraph, source: Graph) -> int:
        maps = []
        for start, values, names in (
            (tflite.SignatureDefStartInputsVector, subgraph.graph.inputs, source.inputs),
            (tflite.SignatureDefStartOutputsVector, subgraph.graph.outputs, source.outputs),
        ):
            entries = []
            for value, named in zip(values, names, strict=True):
                label = self.builder.CreateString(named.name)
                tflite.TensorMapStart(self.builder)
                tflite.TensorMapAddName(self.builder, label)
                tflite.TensorMapAddTensorIndex(self.builder, subgraph.places[value])
                entries.append(tflite.TensorMapEnd(self.builder))
            maps.append(self.vector(start, entries))
        key = self.builder.CreateString(_KEY)
        tflite.SignatureDefStart(self.builder)
        tflite.SignatureDefAddInputs(self.builder, maps[0])
        tflite.SignatureDefAddOutputs(self.builder, maps[1])
        tflite.SignatureDefAddSignatureKey(self.builder, key)
        tflite.SignatureDefAddSubgraphIndex(self.builder, 0)
        return int(tflite.SignatureDefEnd(self.builder))


class _Subgraph:
    """The tensors and operators of a graph; ``constants`` are the contents of captured values."""

    def __init__(self, file: _File, graph: Graph, constants: Mapping[Value, Value] | None = None) -> None:
        self.file, self.graph, self.constants = file, graph, constants or {}
        self.places: dict[Value, int] = {}
        self.tensors: list[int] = []
        self.quantized = quantized_tensors(graph)

    def written(self, given: Sequence[Value], results: Sequence[Value]) -> int:
        builder = self.file.builder
        inputs = [self.place(v) for v in given]
        operators = [self.operator(node) for node in self.graph.nodes if node not in self.quantized.dropped]
        outputs = [self.place(v) for v in results]
        name = builder.CreateString(self.graph.name or "main")
        parts = (
            self.file.vector(tflite.SubGraphStartTensorsVector, self.tensors),
            self.file.numbers(inputs),
            self.file.numbers(outputs),
            self.file.vector(tflite.SubGraphStartOperatorsVector, operators),
        )
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, parts[0])
        tflite.SubGraphAddInputs(builder, parts[1])
        tflite.SubGraphAddOutputs(builder, parts[2])
        tflite.SubGraphAddOperators(builder, parts[3])
        tflite.SubGraphAddName(builder, name)
        return int(tflite.SubGraphEnd(builder))

    # ----- tensors ----------------------------------------------------------------------------------------------------

    def place(self, value: Value) -> int:
        """The number of the tensor of a value."""
        value = self.constants.get(value, value)
        value = self.quantized.instead.get(value, value)
        if value not in self.places:
            self.places[value] = len(self.tensors)
            self.tensors.append(self.tensor(value))
        return self.places[value]

    def tensor(self, value: Value) -> int:
        kind = value.type
        if not isinstance(kind, TensorType) or kind.dtype not in _TYPES:
            raise NotRepresentable(f'the type of "{value.name}" has no form in LiteRT', given=str(kind))
        builder, shape = self.file.builder, kind.shape
        raw = _raw(value) if value.data is not None and value.producer is None else b""
        dims = [] if shape is None else [n if isinstance(n, int) else 1 for n in shape]
        signature = [] if shape is None else [n if isinstance(n, int) else -1 for n in shape]
        name = builder.CreateString(value.name)
        sizes, open_sizes = self.file.numbers(dims), self.file.numbers(signature) if -1 in signature else None
        buffer = self.file.place_of(raw) if raw else 0
        quantization = self.quantization(value)
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, sizes)
        tflite.TensorAddType(builder, getattr(tflite.TensorType, _TYPES[kind.dtype]))
        tflite.TensorAddBuffer(builder, buffer)
        tflite.TensorAddName(builder, name)
        if open_sizes is not None:
            tflite.TensorAddShapeSignature(builder, open_sizes)
        if quantization is not None:
            tflite.TensorAddQuantization(builder, quantization)
        tflite.TensorAddHasRank(builder, shape is not None)
        return int(tflite.TensorEnd(builder))

    def quantization(self, value: Value) -> int | None:
        found = self.quantized.parameters.get(value)
        if found is None:
            return None
        builder = self.file.builder
        scales = self.file.numbers(found.scales, np.float32)
        zero_points = self.file.numbers(found.zero_points, np.int64)
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scales)
        tflite.QuantizationParametersAddZeroPoint(builder, zero_points)
        tflite.QuantizationParametersAddQuantizedDimension(builder, found.axis)
        return int(tflite.QuantizationParametersEnd(builder))

    # ----- operators --------------------------------------------------------------------------------------------------

    def operator(self, node: Node) -> int:
        builder = self.file.builder
        given, results = self.quantized.operands(node)
        inputs = [-1 if v is None else self.place(v) for v in given]
        outputs = [self.place(v) for v in results if v is not None]
        name = self.quantized.names.get(node, node.op_type)
        if name == "Identity":  # an output of a subgraph that is an input, too: CAST to the same type copies it
            name = "CAST"
        table = "" if node.op_type == "Identity" else OPTIONS[name]
        if node.subgraphs:
            captured = [k for k, v in enumerate(node.captures) if not self.is_constant(v)]
            inputs += [self.place(node.captures[k]) for k in captured]
            if name == "WHILE":  # what it captures is a part of its state
                outputs += [self.copied(node.captures[k]) for k in captured]
            fields = {
                f"{field.removesuffix('_branch')}_subgraph_index": self.nested(node, field, captured)
                for field in node.attributes
            }
            options = self.options(table, fields)
        else:
            attributes = {**node.op.signature.attributes, **node.attributes}  # type: ignore[attr-defined]
            if node in self.quantized.hybrid and "asymmetric_quantize_inputs" in attributes:
                attributes["asymmetric_quantize_inputs"] = 1
            options = self.options(table, attributes) if table else None
        parts = self.file.numbers(inputs), self.file.numbers(outputs)
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, self.file.number_of(name))
        tflite.OperatorAddInputs(builder, parts[0])
        tflite.OperatorAddOutputs(builder, parts[1])
        if options is not None:
            if hasattr(tflite.BuiltinOptions, table):
                tflite.OperatorAddBuiltinOptionsType(builder, getattr(tflite.BuiltinOptions, table))
                tflite.OperatorAddBuiltinOptions(builder, options)
            else:
                tflite.OperatorAddBuiltinOptions2Type(builder, getattr(tflite.BuiltinOptions2, table))
                tflite.OperatorAddBuiltinOptions2(builder, options)
        return int(tflite.OperatorEnd(builder))

    def is_constant(self, value: Value) -> bool:
        return self.constants.get(value, value).is_constant

    def copied(self, value: Value) -> int:
        """A further tensor of the type of a value."""
        self.tensors.append(self.tensor(value))
        return len(self.tensors) - 1

    def nested(self, node: Node, field: str, captured: Sequence[int]) -> int:
        """The index of a subgraph of a node, which takes what it captures as further inputs."""
        graph = node.attributes[field]
        constants = {
            inner: self.constants.get(outer, outer)
            for outer, inner in zip(node.captures, graph.captures, strict=True)
            if self.is_constant(outer)
        }
        part = _Subgraph(self.file, graph, constants)
        further = [graph.captures[k] for k in captured]
        results = [*graph.outputs, *further] if field == "body" else graph.outputs
        self.file.subgraphs.append(part.written([*graph.inputs, *further], results))
        return len(self.file.subgraphs) - 1

    def options(self, table: str, attributes: Mapping[str, Any]) -> int:
        builder = self.file.builder
        vectors = {k: self.file.numbers(v) for k, v in attributes.items() if isinstance(v, list)}
        getattr(tflite, f"{table}Start")(builder)
        for name, value in attributes.items():
            if value is None:
                continue
            field = re.sub(r"(?:^|_)(\w)", lambda found: found[1].upper(), name)
            add = getattr(tflite, f"{table}Add{field}")
            add(builder, vectors[name] if name in vectors else _field(name, value))
        return int(getattr(tflite, f"{table}End")(builder))


def _field(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name in _ENUMS:
        return getattr(_ENUMS[name], value)
    return getattr(tflite.TensorType, _TYPES[DType[value]])


def _raw(value: Value) -> bytes:
    """Contents as stored in the file: little-endian, two 4-bit elements in a byte."""
    assert value.data is not None
    array = value.data.array()
    if value.dtype is DType.int4:
        flat = np.zeros(-(-array.size // 2) * 2, np.uint8)
        flat[: array.size] = array.reshape(-1).astype(np.int8).view(np.uint8) & 15
        return (flat[::2] | flat[1::2] << 4).tobytes()
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
