"""Nodes computed by numpy within PyTorch, with gradients; straight-through for quantized values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tenonnx.extend import DType, Graph, Node, NotDifferentiable, TensorType, Value, find_rule
from tenonnx.extend.backends import compile_graph
from tenonnx.extend.transforms import Builder, known_op, pullback
from tenonnx_torch.values import NATIVE, to_arrays, to_contents


def stands_in(contents: Any, value: Value | None) -> bool:
    """Whether floats represent the integers of ``value``, since PyTorch has no gradients for integers."""
    kind = None if value is None else value.type
    is_float = isinstance(contents, torch.Tensor) and contents.is_floating_point()
    return is_float and isinstance(kind, TensorType) and NATIVE.get(kind.dtype) is not contents.dtype


def exact(contents: Any, value: Value | None) -> Any:
    """Contents of ``value`` in its own dtype; without a gradient if floats represented integers."""
    return to_contents(_array(contents, value)) if stands_in(contents, value) else contents


def _array(contents: Any, value: Value | None) -> Any:
    array = to_arrays(contents)
    return array.astype(value.tensor.dtype.numpy) if value is not None and stands_in(contents, value) else array


class Slope:
    """Autograd function for a node that numpy computes, with the vjp of its op."""

    def __init__(
        self, node: Node, inputs: Sequence[Value | None], attributes: Mapping[str, Any], opsets: Mapping[str, int]
    ) -> None:
        self._node, self._inputs, self._attributes, self._opsets = node, inputs, attributes, opsets
        self._rule = find_rule(known_op(node), "numpy")
        self._forward: Any = None
        self._backward: dict[tuple[int, ...], Any] = {}

    def __call__(self, arguments: Sequence[Any]) -> Any:
        """The outputs. Raises ``NotDifferentiable`` for an op without a gradient, and for sequences."""
        if any(isinstance(each, list | tuple) for each in arguments):
            raise NotDifferentiable("numpy computes this op, and no gradient passes through sequences")
        trained = tuple(k for k, a in enumerate(arguments) if isinstance(a, torch.Tensor) and a.requires_grad)
        if trained not in self._backward:
            self._backward[trained] = self._gradient_program(trained)
        arrays = [_array(a, value) for a, value in zip(arguments, self._inputs, strict=True)]
        result = _Computed.apply(self, arrays, trained, *(arguments[k] for k in trained))
        return result if len(result) > 1 else result[0]

    def forward(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs for arrays, from the op's numpy rule or its body."""
        if self._rule is not None:
            result = self._rule(*arrays, **self._attributes)
            return result if isinstance(result, tuple) else (result,)
        if self._forward is None:
            graph = self.graph(())
            self._forward = compile_graph(graph, "numpy"), [value.name for value in graph.inputs]
        program, names = self._forward
        return tuple(program({name: arrays[int(name[1:])] for name in names}).values())

    def backward(self, arrays: Sequence[Any], trained: tuple[int, ...], cotangents: Sequence[Any]) -> list[Any]:
        program, dtypes = self._backward[trained]
        feeds = {f"x{k}": array for k, array in enumerate(arrays)}
        feeds |= {
            name: to_arrays(cotangent).astype(dtypes[name])
            for k, cotangent in enumerate(cotangents)
            if (name := f"y{k}/cotangent") in dtypes
        }
        return [to_contents(array) for array in program({name: feeds[name] for name in dtypes}).values()]

    def _gradient_program(self, trained: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
        """A program for the gradients of the inputs ``trained``, and the dtypes of its feeds by name."""
        graph = self.graph(trained)
        places = [value.name for value in graph.all_inputs]
        back = pullback(graph, range(len(graph.outputs)), [places.index(f"x{k}") for k in trained])
        back.outputs = back.outputs[len(graph.outputs) :]
        return compile_graph(back, "numpy"), {value.name: value.dtype.numpy for value in back.inputs}

    def graph(self, trained: Collection[int]) -> Graph:
        """A graph of this node only, whose constants at the positions ``trained`` are inputs."""
        graph = Graph(opsets=self._opsets)
        inputs: list[Value | None] = []
        for k, value in enumerate(self._inputs):
            if value is None:
                inputs.append(None)
            elif value.data is not None and k not in trained:
                inputs.append(graph.variable(f"x{k}", value.data))
            else:
                inputs.append(graph.input(f"x{k}", value.tensor))
        attributes = {name: content for name, content in self._attributes.items() if name != "_outputs"}
        outputs = Builder(graph).call(known_op(self._node), inputs, attributes, len(self._node.outputs))
        for k, output in enumerate(outputs):
            if output is not None:
                output._replace_fields(name=f"y{k}")
                graph.outputs.append(output)
        return graph


def _differentiable(array: Any) -> torch.Tensor:
    """A differentiable tensor with the contents of an array: integers become floats."""
    array = np.asarray(array)
    if DType.of(array.dtype).is_float and DType.of(array.dtype) in NATIVE:
        return torch.as_tensor(to_contents(array))
    return torch.from_numpy(array.astype(np.float64 if array.dtype.itemsize > 2 else np.float32))


class _Computed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, slope: Slope, arrays: list[Any], trained: tuple[int, ...], *tensors: torch.Tensor) -> Any:
        ctx.slope, ctx.arrays, ctx.trained, ctx.dtypes = slope, arrays, trained, [t.dtype for t in tensors]
        return tuple(map(_differentiable, slope.forward(arrays)))

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        found = ctx.slope.backward(ctx.arrays, ctx.trained, cotangents)
        return (None, None, None, *(g.to(dtype) for g, dtype in zip(found, ctx.dtypes, strict=True)))
