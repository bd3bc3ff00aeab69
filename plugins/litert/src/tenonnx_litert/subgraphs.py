"""Serialization of subgraphs: tensors, operators and the variables of the state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tflite

from tenonnx.extend import DType, Graph, Node, NotRepresentable, TensorType, Value
from tenonnx_litert.builtins.builtin import OPTIONS
from tenonnx_litert.builtins.recurrent import variable_tensor
from tenonnx_litert.quantized_tensors import quantized_tensors
from tenonnx_litert.state import Signature
from tenonnx_litert.tables import Tables

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

#: Schema enumerations of the string attributes.
_ENUMS = {
    "padding": tflite.Padding,
    "fused_activation_function": tflite.ActivationFunctionType,
    "mode": tflite.MirrorPadMode,
}


#: Ops written as a CAST to the same type: copies of a subgraph's input to its output, and variable tensors.
_COPIES = ("Identity", variable_tensor.name)

#: The tensor type of variable handles.
_HANDLE = tflite.TensorType.RESOURCE
_OPTIONS = {
    "CALL_ONCE": "CallOnceOptions",
    "VAR_HANDLE": "VarHandleOptions",
    "READ_VARIABLE": "ReadVariableOptions",
    "ASSIGN_VARIABLE": "AssignVariableOptions",
}


class Interface(NamedTuple):
    """Inputs and outputs of a subgraph: names and tensor indices."""

    inputs: Sequence[tuple[str, int]] = ()
    outputs: Sequence[tuple[str, int]] = ()


class Subgraph:
    """Writer of one subgraph. ``constants`` maps captured values to the constants of the outer graph."""

    def __init__(self, file: Tables, graph: Graph, constants: Mapping[Value, Value] | None = None) -> None:
        self.file, self.graph, self.constants = file, graph, constants or {}
        self.indices: dict[Value, int] = {}
        self.tensors: list[int] = []
        self.quantized = quantized_tensors(graph)

    def write(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        """Write the subgraph; returns the offset of its table."""
        places = [self.index_of(v) for v in inputs]
        operators = self.operators()
        return self.table(operators, places, [self.index_of(v) for v in outputs])

    def operators(self) -> list[int]:
        return [self.operator(node) for node in self.graph.nodes if node not in self.quantized.dropped]

    def table(self, operators: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> int:
        name = self.file.builder.CreateSharedString(self.graph.name or "main")
        fields = {
            "Tensors": self.file.vector(tflite.SubGraphStartTensorsVector, self.tensors),
            "Inputs": self.file.numbers(inputs),
            "Outputs": self.file.numbers(outputs),
            "Operators": self.file.vector(tflite.SubGraphStartOperatorsVector, operators),
            "Name": name,
        }
        return self.file.table("SubGraph", fields)

    # ----- state ------------------------------------------------------------------------------------------------------

    def written_with_state(self, place: int, signature: Signature) -> Interface:
        """Write the subgraph of a signature: it reads the variables first, and assigns them last."""
        source, state = signature.source, signature.state
        pairs = list(zip(source.inputs, self.graph.inputs, strict=True))
        inputs = [(named.name, self.index_of(value)) for named, value in pairs if named.name not in state]
        operators = self.initialization() if state else []
        handles = {}
        for named, value in pairs:
            if named.name in state:
                handles[named.name] = self.handle(named.name, operators)
                operators.append(self.call("READ_VARIABLE", [handles[named.name]], [self.index_of(value)]))
        operators += self.operators()
        results = {n.name: value for n, value in zip(source.outputs, self.graph.outputs, strict=True)}
        for name, handle in handles.items():
            operators.append(self.call("ASSIGN_VARIABLE", [handle, self.index_of(results[state[name]])], []))
        hidden = set(state.values())
        outputs = [(name, self.index_of(value)) for name, value in results.items() if name not in hidden]
        self.file.subgraphs[place] = self.table(operators, [k for _, k in inputs], [k for _, k in outputs])
        return Interface(inputs, outputs)

    def initialization(self) -> list[int]:
        """The CALL_ONCE operator that initializes the variables before the first call."""
        return [self.call("CALL_ONCE", [], [], {"init_subgraph_index": self.file.first})]

    def assigned(self, first: Mapping[str, np.ndarray[Any, Any]]) -> int:
        """Write the subgraph that initializes the variables; returns the offset of its table."""
        operators: list[int] = []
        for name, array in first.items():
            handle, tensor = self.handle(name, operators), self.index_of(self.graph.variable(f"{name}/first", array))
            operators.append(self.call("ASSIGN_VARIABLE", [handle, tensor], []))
        return self.table(operators, [], [])

    def accessed(self, first: Mapping[str, np.ndarray[Any, Any]], is_read: bool) -> Interface:
        """Write a subgraph that returns the variables if ``is_read``, else one that assigns its inputs to them."""
        operators, tensors = self.initialization(), []
        for name, array in first.items():
            value = self.graph.input(name, DType.of(array.dtype), array.shape)
            handle, tensor = self.handle(name, operators), self.index_of(value)
            operators.append(
                self.call("READ_VARIABLE", [handle], [tensor])
                if is_read
                else self.call("ASSIGN_VARIABLE", [handle, tensor], [])
            )
            tensors.append((name, tensor))
        interface = Interface(outputs=tensors) if is_read else Interface(tensors)
        self.file.subgraphs.append(
            self.table(operators, [k for _, k in interface.inputs], [k for _, k in interface.outputs]),
        )
        return interface

    def handle(self, name: str, operators: list[int]) -> int:
        """Append the VAR_HANDLE operator of a variable to ``operators``; returns the tensor of the handle."""
        builder = self.file.builder
        label = builder.CreateSharedString(name)
        tflite.TensorStart(builder)
        tflite.TensorAddType(builder, _HANDLE)
        tflite.TensorAddName(builder, label)
        tflite.TensorAddHasRank(builder, True)
        self.tensors.append(int(tflite.TensorEnd(builder)))
        place = len(self.tensors) - 1
        operators.append(self.call("VAR_HANDLE", [], [place], {"shared_name": label}))
        return place

    def call(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], fields: Mapping[str, Any] | None = None
    ) -> int:
        """Write an operator on tensors by their indices."""
        table = _OPTIONS[name]
        return self.operator_table(name, inputs, outputs, table, self.options(table, fields or {}))

    # ----- tensors ----------------------------------------------------------------------------------------------------

    def index_of(self, value: Value) -> int:
        """The tensor index of a value."""
        value = self.constants.get(value, value)
        value = self.quantized.instead.get(value, value)
        if value not in self.indices:
            self.indices[value] = len(self.tensors)
            self.tensors.append(self.tensor(value))
        return self.indices[value]

    def tensor(self, value: Value) -> int:
        kind = value.type
        if not isinstance(kind, TensorType) or kind.dtype not in _TYPES:
            raise NotRepresentable(f'the type of "{value.name}" has no form in LiteRT', given=str(kind))
        builder, shape = self.file.builder, kind.shape
        raw = _raw(value) if value.data is not None and value.producer is None else b""
        dims = [] if shape is None else [n if isinstance(n, int) else 1 for n in shape]
        signature = [] if shape is None else [n if isinstance(n, int) else -1 for n in shape]
        name = self.file.text(value.name)
        sizes, open_sizes = self.file.numbers(dims), self.file.numbers(signature) if -1 in signature else None
        buffer = self.file.place_of(raw) if raw else 0
        quantization = self.quantization(value)
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, sizes)
        tflite.TensorAddType(builder, getattr(tflite.TensorType, _TYPES[kind.dtype]))
        tflite.TensorAddBuffer(builder, buffer)
        if name is not None:
            tflite.TensorAddName(builder, name)
        if value.producer is not None and value.producer.op is variable_tensor:
            tflite.TensorAddIsVariable(builder, True)
        if open_sizes is not None:
            tflite.TensorAddShapeSignature(builder, open_sizes)
        if quantization is not None:
            tflite.TensorAddQuantization(builder, quantization)
        tflite.TensorAddHasRank(builder, shape is not None)
        return int(tflite.TensorEnd(builder))

    def quantization(self, value: Value) -> int | None:
        parameters = self.quantized.parameters.get(value)
        if parameters is None:
            return None
        scales = self.file.numbers(parameters.scales, np.float32)
        zero_points = self.file.numbers(parameters.zero_points, np.int64)
        fields = {"Scale": scales, "ZeroPoint": zero_points, "QuantizedDimension": parameters.axis}
        return self.file.table("QuantizationParameters", fields)

    # ----- operators --------------------------------------------------------------------------------------------------

    def operator(self, node: Node) -> int:
        operands, results = self.quantized.operands(node)
        inputs = [-1 if v is None else self.index_of(v) for v in operands]
        outputs = [self.index_of(v) for v in results if v is not None]
        name = self.quantized.names.get(node, node.op_type)
        table = OPTIONS.get(name, "")
        if name in _COPIES:
            name = "CAST"
        if node.subgraphs:
            captured = [k for k, v in enumerate(node.captures) if not self.is_constant(v)]
            inputs += [self.index_of(node.captures[k]) for k in captured]
            if name == "WHILE":  # captured values are loop state
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
        return self.operator_table(name, inputs, outputs, table, options)

    def operator_table(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], table: str, options: int | None
    ) -> int:
        builder = self.file.builder
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
        """A new tensor with the type of a value."""
        self.tensors.append(self.tensor(value))
        return len(self.tensors) - 1

    def nested(self, node: Node, field: str, captured: Sequence[int]) -> int:
        """Write a subgraph of a node, with its captured values as further inputs; returns its index."""
        graph = node.attributes[field]
        constants = {
            inner: self.constants.get(outer, outer)
            for outer, inner in zip(node.captures, graph.captures, strict=True)
            if self.is_constant(outer)
        }
        part = Subgraph(self.file, graph, constants)
        further = [graph.captures[k] for k in captured]
        results = [*graph.outputs, *further] if field == "body" else graph.outputs
        self.file.subgraphs.append(part.write([*graph.inputs, *further], results))
        return len(self.file.subgraphs) - 1

    def options(self, table: str, attributes: Mapping[str, Any]) -> int:
        fields = {}
        for name, value in attributes.items():
            if value is not None:
                field = re.sub(r"(?:^|_)(\w)", lambda match: match[1].upper(), name)
                fields[field] = self.file.numbers(value) if isinstance(value, list) else _field(name, value)
        return self.file.table(table, fields)


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
