"""Graphs as ``torch.nn.Module``, with parameters that PyTorch trains."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import tenonnx as tx
from tenonnx.extend import Graph, InvalidCall, NotRepresentable, TensorType, TypeMismatch, Value, did_you_mean, listing
from tenonnx.extend.transforms import check_made_alike, copy_graph, decompose, infer, opened, trainable_variables
from tenonnx_torch.examples import to_numpy
from tenonnx_torch.kept_calls import has_numpy, is_kept
from tenonnx_torch.plan import Held, Plan, owner_of
from tenonnx_torch.values import NATIVE, to_contents
from tenonnx_torch.whole import Whole, run_whole


def module(graph: Graph, *, trainable: str | Sequence[str] = ()) -> Network:
    """``graph`` as a module of PyTorch, see ``Network``. Later changes of the graph do not reach it."""
    return Network(graph, trainable)


class Network(torch.nn.Module):
    """A graph as a module.

    It is called with one tensor for each graph input, in order or by name, and returns a tensor, or a tuple with one
    for each output. Variables are parameters and buffers of the same names, in the layout of the original module even
    if ``simplify`` transposed them, so that ``state_dict`` has the initializers. Trainable variables, according to the
    source of the graph or to the ops that read them, are parameters; frozen ones are parameters without gradients, and
    others are buffers. ``trainable`` has patterns of names of further parameters. Fixed rows of embeddings get no
    gradient. Ops with a rule ``torch`` run in PyTorch, others by their body. Numpy computes ops without a PyTorch
    kernel (strings, a few integer and eight-bit types, ops such as NonMaxSuppression), possibly without a gradient.
    After ``half()`` or ``double()`` it takes and gives this type, and computes in that of the graph. Raises
    ``UnsupportedOp`` for ops that no package provides.
    """

    def __init__(self, graph: Graph, trainable: str | Sequence[str] = ()) -> None:
        super().__init__()
        self.source = graph
        self._trainable = trainable
        self.input_names = [value.name for value in graph.inputs]
        self.output_names = [value.name for value in graph.outputs]
        self._inputs = {v.name: NATIVE.get(v.type.dtype) for v in graph.inputs if isinstance(v.type, TensorType)}
        known = copy_graph(graph)
        infer(known, strict=False)
        trainable_names = trainable_variables(known)
        chosen = _matching(graph, [trainable] if isinstance(trainable, str) else trainable)
        states = {value.name for value in graph.variables if _is_state(value)}
        parameters = states.intersection([*trainable_names.parameters, *trainable_names.frozen, *chosen])
        plain = _lowered(graph, parameters)
        self._states = [value.name for value in plain.variables if _is_state(value)]
        for value in plain.variables:
            if _is_state(value):
                assert value.data is not None
                tensor = to_contents(_as_made(value, value.data.array()))
                owner, name = owner_of(self, value.name)
                if value.name in parameters:
                    owner._parameters[name] = torch.nn.Parameter(
                        tensor, value.name in chosen or value.name not in trainable_names.frozen
                    )
                else:
                    owner._buffers[name] = tensor
        plan = Plan(plain, Held(set(self._states)), trainable_names.fixed_rows)
        for name, constant in plan.tensors.constants.items():
            owner, name = owner_of(self, name)
            owner.register_buffer(name, constant, persistent=False)
        self._whole = Whole(plan, plain.inputs, graph.outputs)
        self._owners = [owner_of(self, name) for name in plan.tensors.names]
        self._dtypes = [tensor.dtype for tensor in self._current_tensors()]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The outputs for tensors or arrays. Raises ``InvalidFeed`` for feeds that do not match the inputs."""
        if len(inputs) > len(self.input_names) or set(named) - set(self.input_names[len(inputs) :]):
            raise InvalidCall(
                "Network got too many, unknown or repeated inputs",
                given=f"{len(inputs)} in order, {', '.join(named) or 'none'} by name",
                available=", ".join(f"{v.name}: {v.type}" for v in self.source.inputs),
            )
        given = {**dict(zip(self.input_names, inputs, strict=False)), **named}
        tensors = self._current_tensors()
        converted = [t.dtype for t, dtype in zip(tensors, self._dtypes, strict=True) if t.dtype is not dtype]
        if converted:
            tensors = [tensor.to(dtype) for tensor, dtype in zip(tensors, self._dtypes, strict=True)]
            given = {name: _converted(each, converted[0], self._inputs.get(name)) for name, each in given.items()}
        if torch.compiler.is_dynamo_compiling():
            found = run_whole(self._whole.key, given, tensors)
        else:
            found = self._whole(given, tensors)
        if converted:
            found = [each.to(converted[0]) if _is_floating(each) else each for each in found]
        return found[0] if len(found) == 1 else tuple(found)

    def _current_tensors(self) -> list[torch.Tensor]:
        """The parameters and buffers of the plan, in its order."""
        return [owner._parameters.get(name, owner._buffers.get(name)) for owner, name in self._owners]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the ONNX message, the parameters and buffers, and which of these require gradients.

        Constants are in the message; they are pickled as empty tensors that keep only dtype and device.
        """
        flags = {name: parameter.requires_grad for name, parameter in self.named_parameters()}
        message, contents = self.source.to_proto().SerializeToString(), self.state_dict()
        constants = {name: each.new_empty(0) for name, each in self.named_buffers() if name not in contents}
        return _unpickled, (message, self._trainable), (contents, constants, flags, self.training)

    def __setstate__(self, state: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, bool], bool]) -> None:
        contents, constants, flags, training = state
        self.load_state_dict(contents, assign=True)
        for path, like in constants.items():
            owner, name = owner_of(self, path)
            owner._buffers[name] = self.get_buffer(path).to(like)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(flags[name])
        self.train(training)

    def write_back(self, graph: Graph | None = None) -> Graph:
        """Write the parameters and buffers to the variables of the graph, or of another graph with equal variables.

        Raises ``InvalidCall`` for a graph whose variables were merged differently.
        """
        target = self.source if graph is None else graph
        state, values = self.state_dict(), {value.name: value for value in target.variables}
        check_made_alike(self.source, target, self._states)
        target.assign({name: _as_held(values.get(name), to_numpy(state[name])) for name in self._states})
        return target


def _converted(given: Any, converted: torch.dtype, own: torch.dtype | None) -> Any:
    """A tensor of the type that the module was converted to, in the type of its input."""
    is_converted = own is not None and isinstance(given, torch.Tensor) and given.dtype is converted
    return given.to(own) if is_converted else given


def _is_floating(content: Any) -> bool:
    return isinstance(content, torch.Tensor) and content.is_floating_point()


def _unpickled(message: bytes, trainable: str | Sequence[str]) -> Network:
    return Network(tx.load(message), trainable)


def _as_made(value: Value, array: Any) -> Any:
    """Contents of a variable in the layout of the original module."""
    axes = None if value.role is None else value.role.permutation
    return array if axes is None else np.ascontiguousarray(np.transpose(array, np.argsort(axes)))


def _as_held(value: Value | None, array: Any) -> Any:
    """Contents in that layout, converted to the layout of the variable."""
    axes = None if value is None or value.role is None else value.role.permutation
    return array if axes is None else np.ascontiguousarray(np.transpose(array, axes))


def _matching(graph: Graph, patterns: Sequence[str]) -> list[str]:
    """Names of floating-point variables that match. Raises ``InvalidCall`` for a pattern without a match."""
    floats = [v.name for v in graph.variables if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    found = {pattern: fnmatch.filter(floats, pattern) for pattern in patterns}
    if missing := [pattern for pattern, names in found.items() if not names]:
        raise InvalidCall(
            f'trainable "{missing[0]}" matches no variable',
            available=listing(floats),
            do=did_you_mean(missing[0], floats),
        )
    return [name for names in found.values() for name in names]


def _is_state(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in NATIVE


def _lowered(graph: Graph, parameters: Collection[str]) -> Graph:
    """The graph in ops that a plan runs: with a PyTorch rule, else by their body, else with a numpy rule.

    Results that depend on ``parameters`` are not folded, so that gradients reach these.
    """
    free = copy_graph(graph)
    listed = {value.name for value in free.all_inputs}
    free.all_inputs += [v for v in free.variables if v.name in parameters and v.name not in listed]
    free = opened(free, parameters)
    try:
        plain = decompose(free, keep=is_kept)
    except (TypeMismatch, NotRepresentable):  # a body may need types that the file lacks
        plain = decompose(free, keep=lambda call: is_kept(call) or has_numpy(call))
    values = {value.name: value for value in (*plain.variables, *plain.all_inputs)}
    plain.all_inputs = [value for value in plain.all_inputs if value.name in listed]
    plain.variables = [values[value.name] for value in graph.variables]
    for value, source in zip(plain.variables, graph.variables, strict=True):
        value._replace_fields(data=source.data)
    return plain
