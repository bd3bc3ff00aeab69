"""Construction of a graph from a TFLite file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Graph,
    InvalidCall,
    InvalidModel,
    NotRepresentable,
    Registry,
    TenonnxError,
    Value,
    constant,
    counted,
    did_you_mean,
    limits,
    listing,
)
from tenonnx_frontends import chosen_names, named_axes, unknown_dims
from tenonnx_litert.reading import layers, plain, recurrent  # noqa: F401 - what they are imported for is their rules
from tenonnx_litert.reading.calls import LITE_RULES, Call, QuantizedResult, quantized
from tenonnx_litert.reading.reader import VERIFICATION, File, Operator, Subgraph, Tensor
from tenonnx_tensorflow.building import WRITTEN, tidied, with_place
from tenonnx_tensorflow.forms import Forms
from tenonnx_tensorflow.loops import Looping, branched, looped
from tenonnx_tensorflow.rules.control import condition_of
from tenonnx_tensorflow.state import State, build_until_stable
from tenonnx_tensorflow.tracked_values import Variable

#: Operators without a rule: the builder implements them, since they call subgraphs or have state.
_STRUCTURAL = frozenset(
    {"WHILE", "IF", "CALL_ONCE", "STABLEHLO_COMPOSITE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"}
)


def graph_of(
    file: File,
    name: str,
    signature: str | None,
    registry: Registry | None,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    dims: Mapping[str | int, Any],
    forms: Forms,
) -> Graph:
    """Build the graph of a signature of ``file``. Raises ``NotRepresentable`` naming every operator without a rule."""
    number, inputs, outputs = _interface(file, signature, input_names, output_names)
    _check(file, forms)
    subgraph = file.subgraphs[number]
    shapes = {label: subgraph.tensors[k].shape or () for label, k in zip(inputs, subgraph.inputs, strict=True)}
    axes, others = named_axes(dims, shapes)
    if others:
        raise unknown_dims(next(iter(others)), inputs)

    def built(mutable: frozenset[str]) -> State:
        graph = Graph(name, opsets={"ai.onnx": WRITTEN})
        graph.registry = registry
        graph.metadata.update({key: text for key, text in file.metadata.items() if key != VERIFICATION})
        size = sum(len(each.operators) for each in file.subgraphs)
        builder = Builder(State(graph, mutable, nodes=size), file)
        builder.state.forms, builder.state.reserved = forms, frozenset(outputs)
        with graph.building():
            values = [
                _input(graph, label, subgraph.tensors[k], axes.get(label, {}))
                for label, k in zip(inputs, subgraph.inputs, strict=True)
            ]
            builder.state.is_running = True
            results = builder.run(number, values)
            for label, result in zip(outputs, results, strict=True):
                is_source = any(result is each for each in (*graph.all_inputs, *graph.variables, *graph.outputs))
                graph.output(label, ops.identity(result) if is_source or result.is_constant else result)
            builder.state.add_outputs()
        return builder.state

    try:
        state = build_until_stable(built)
    except TenonnxError as error:
        raise with_place(error) from error
    return tidied(state)


def _input(graph: Graph, name: str, tensor: Tensor, dims: dict[int, str]) -> Value:
    shape = tensor.shape or ()
    sizes = [dims.get(k, (f"{name}_{k}" if k else "batch") if n is None else n) for k, n in enumerate(shape)]
    kind = DType.string if tensor.dtype is object else DType.of(np.dtype(tensor.dtype))
    return graph.input(name, kind, tuple(sizes))


def _interface(file: File, signature: str | None, inputs: Any, outputs: Any) -> tuple[int, list[str], list[str]]:
    if signature is not None and signature not in file.signatures:
        raise InvalidCall(
            f'the file has no signature "{signature}"',
            available=listing(file.signatures),
            do=did_you_mean(signature, file.signatures),
        )
    key = signature if signature is not None else next(iter(file.signatures), None)
    number, input_names, output_names = file.signatures[key] if key is not None else (0, {}, {})
    graph = file.subgraphs[number]
    labeled = []
    for kind, names, places, wanted in (
        ("inputs", input_names, graph.inputs, inputs),
        ("outputs", output_names, graph.outputs, outputs),
    ):
        labels = [names.get(k) or graph.tensors[k].name.split(":")[0] or f"tensor_{k}" for k in places]
        labels = chosen_names(kind, wanted, labels) if wanted is not None else labels
        labeled.append(labels)
    used: set[str] = set()
    for labels in labeled:
        for k in range(len(labels)):
            while labels[k] in used:
                labels[k] = f"{labels[k]}_"
            used.add(labels[k])
    return number, labeled[0], labeled[1]


def _check(file: File, forms: Forms) -> None:
    missing: dict[str, list[int]] = {}
    for subgraph in file.subgraphs:
        for operator in subgraph.operators:
            known = operator.name in LITE_RULES or operator.name in _STRUCTURAL
            if not [*forms.of(operator.name)] and not known:
                missing.setdefault(operator.name, []).append(operator.index)
    forms.check_used([operator.name for subgraph in file.subgraphs for operator in subgraph.operators])
    if missing:
        raise NotRepresentable(
            "the model has operators without a rule",
            given="\n".join(f"{n} ({len(p)} operator{'s' * (len(p) > 1)})" for n, p in sorted(missing.items())),
            do='give it one, @tenonnx_litert.reading.lite_rule("NAME"), or convert the model without Flex and custom operators',
        )


class Builder:
    """Runs subgraphs over values of the graph under construction."""

    def __init__(self, state: State, file: File) -> None:
        self.state, self.file = state, file
        self.weights: dict[tuple[int, int], Value] = {}
        self.variables: dict[tuple[int, int], Variable] = {}
        self.tables: dict[str, Value] = {}
        self.subgraph_index = 0

    def run(self, number: int, inputs: Sequence[Any]) -> list[Any]:
        if not 0 <= number < len(self.file.subgraphs):
            raise InvalidModel(
                "an operator names a subgraph that the file does not have",
                given=f"{number} of {len(self.file.subgraphs)}",
            )
        with self.state.calling(f"subgraph {number}"):
            return self._run(number, inputs)

    def _run(self, number: int, inputs: Sequence[Any]) -> list[Any]:
        outer, self.subgraph_index = self.subgraph_index, number
        subgraph = self.file.subgraphs[number]
        if len(inputs) != len(subgraph.inputs):
            raise InvalidModel(
                f"subgraph {number} is not called with {counted(len(subgraph.inputs), 'value')}", given=str(len(inputs))
            )
        values: dict[int, Any] = dict(zip(subgraph.inputs, inputs, strict=True))
        for operator in subgraph.operators:
            try:
                results = self._applied(subgraph, operator, values)
            except TenonnxError as error:
                if not any(operator.title in note for note in getattr(error, "__notes__", ())):
                    error.add_note(f"from {operator.title}")
                raise
            values.update(zip(operator.outputs, results, strict=False))
        results = [self._read(subgraph, values, k) for k in subgraph.outputs]
        self.subgraph_index = outer
        return results

    def _read(self, subgraph: Subgraph, values: dict[int, Any], place: int) -> Any:
        if place in values:
            return values[place]
        tensor = subgraph.tensors[place]
        if tensor.is_variable:
            return self.state.read(self._variable(place, tensor))
        if tensor.contents is None:
            if tensor.shape is not None and 0 in tensor.shape:
                return constant(np.zeros([n or 0 for n in tensor.shape], tensor.dtype))
            raise NotRepresentable("a tensor is read before it is computed", given=f'"{tensor.name}"')
        contents = tensor.contents
        is_weight = (
            contents.dtype != object
            and contents.size > 1
            and (contents.dtype.kind in "fV" or tensor.quantization is not None)
        )
        if not is_weight:
            return constant(contents)
        if (self.subgraph_index, place) not in self.weights:
            self.weights[self.subgraph_index, place] = self.state.variable(tensor.name or "constant", contents)
        return self.weights[self.subgraph_index, place]

    def _variable(self, place: int, tensor: Tensor) -> Variable:
        """The variable of a tensor that keeps its contents between calls, at first zeros (int8: the zero point)."""
        key = (self.subgraph_index, place)
        if key not in self.variables:
            variable = self.variables[key] = Variable(tensor.name or f"state_{place}")
            is_code = tensor.quantization is not None and tensor.dtype is np.int8
            limits.check_elements(tensor.shape or (), f'the variable tensor "{variable.name}"')
            first = tensor.quantization.zero_points[0] if is_code and tensor.quantization is not None else 0
            self.state.initial[variable] = np.full([n or 1 for n in tensor.shape or ()], first, tensor.dtype)
        return self.variables[key]

    def table(self, name: str, contents: Callable[[], Any]) -> Value:
        """The lookup table of a function; all calls of one name share it."""
        if name not in self.tables:
            self.tables[name] = self.state.variable(name, contents())
        return self.tables[name]

    def keep(self, place: int, content: Value) -> None:
        """Assign to a variable tensor of the subgraph, unless an operator writes it in each run."""
        if any(place in operator.outputs for operator in self.file.subgraphs[self.subgraph_index].operators):
            return
        self.state.assign(self._variable(place, self.file.subgraphs[self.subgraph_index].tensors[place]), content)

    def _applied(self, subgraph: Subgraph, operator: Operator, tensors: dict[int, Any]) -> list[Any]:
        values = [self._read(subgraph, tensors, k) if k >= 0 else None for k in operator.inputs]
        with self.state.applying(operator.title):
            call = Call(operator, subgraph.tensors, values, self)
        forms = (form(call) for form in self.state.forms.of(operator.name))
        results = next((result for result in forms if result is not None), None)
        with self.state.applying(operator.title):
            if results is None and operator.name in _STRUCTURAL:
                return self._structural(operator, values)
            if results is None:
                results = LITE_RULES[operator.name](call)
        results = results if isinstance(results, list) else [results]
        return [self._stored(result, subgraph.tensors[k]) for result, k in zip(results, operator.outputs, strict=False)]

    def _stored(self, result: Any, tensor: Tensor) -> Any:
        """A result as its tensor stores it: quantized if the tensor is."""
        if isinstance(result, QuantizedResult):
            return result.value
        if tensor.quantization is not None and isinstance(result, Value) and result.dtype.numpy.kind == "f":
            return quantized(result, tensor)
        return result

    def _structural(self, operator: Operator, values: list[Any]) -> list[Any]:
        name, option = operator.name, operator.option
        if name == "CALL_ONCE":
            self.state.is_running = False
            self.run(option("InitSubgraphIndex"), [])
            self.state.is_running = True
            return []
        if name == "STABLEHLO_COMPOSITE":  # its decomposition defines it
            return self.run(option("DecompositionSubgraphIndex"), values)
        if name == "VAR_HANDLE":
            return [self.state.handle((option("SharedName") or b"variable").decode())]
        if name == "READ_VARIABLE":
            return [self.state.read(values[0])]
        if name == "ASSIGN_VARIABLE":
            self.state.assign(values[0], values[1])
            return []
        if name == "IF":
            then, other = option("ThenSubgraphIndex"), option("ElseSubgraphIndex")
            return branched(
                self.state,
                condition_of(values[0]),
                lambda: self.run(then, values[1:]),
                lambda: self.run(other, values[1:]),
                operator.title,
            )
        cond, body = option("CondSubgraphIndex"), option("BodySubgraphIndex")
        inner = self.file.subgraphs[body]
        fixed = [a == b for a, b in zip(inner.inputs, inner.outputs, strict=True)]
        return looped(
            Looping(
                self.state,
                values,
                lambda state: condition_of(self.run(cond, state)[0]),
                lambda state: self.run(body, state),
                fixed,
                operator.title,
            )
        )
