"""The update of every parameter, as part of a graph that has the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tenonnx.extend import ArrayConstant, Constant, DType, Graph, TensorType, Value, constant
from tenonnx_standard.casting import cast
from tenonnx_standard.math import maximum, sqrt
from tenonnx_standard.reduction import reduce_sum
from tenonnx_training.objective import free_name
from tenonnx_training.optimizers import Optimizer

#: Names of what a step graph has beside the inputs and variables of the model.
RATE, COUNT, SEED = "learning_rate", "training__step", "training__seed"


class Updates:
    """Adds the update of every parameter to a graph that has the gradients.

    ``state`` maps every input that training changes to the output that replaces it, ``slots`` are the optimizer's.
    ``contents`` are what these inputs hold at first. They get them last, so that nothing is folded.
    """

    def __init__(self, graph: Graph, source: Graph, optimizer: Optimizer) -> None:
        self.graph, self.optimizer = graph, optimizer
        self.state: dict[str, str] = {}
        self.slots: list[str] = []
        self.contents = {v.name: v.data for v in source.variables}
        self.all_inputs = {v.name: v for v in graph.all_inputs}

    def run(self, gradients: Mapping[str, Value], clip_norm: float | None, loss_scale: float) -> None:
        count = self._input(COUNT, TensorType(DType.int64, ()))
        following = count + 1
        self.replace(COUNT, following)
        rate = self._input(RATE, TensorType(DType.float32, ()))
        double = self.optimizer.scalars(cast(rate, to=DType.float64), cast(following, to=DType.float64))
        wide = {name: _as(g, _stage(self.all_inputs[name].dtype)) for name, g in gradients.items()}
        factor = _factor(list(wide.values()), clip_norm, loss_scale)
        scalars: dict[DType, dict[str, Value]] = {}
        for name, gradient in wide.items():
            parameter, stage = self.all_inputs[name], gradient.dtype
            if stage not in scalars:
                scalars[stage] = {key: _as(value, stage) for key, value in double.items()}
            scaled = gradient if factor is None else gradient * _as(factor, stage)
            slots = [self._slot(parameter, slot, stage) for slot in self.optimizer.slots]
            moved, *others = self.optimizer.update(_as(parameter, stage), scaled, slots, scalars[stage])
            self.replace(name, _as(moved, parameter.dtype))
            for slot, value in zip(slots, others, strict=True):
                self.replace(slot.name, value)

    def replace(self, name: str, value: Value) -> None:
        """Let ``value`` be the next contents of the input of that name."""
        self.state[name] = self.graph.output(free_name(self.graph, f"{name}/next"), value).name

    def fill(self) -> None:
        """Give every input that is a variable its first contents."""
        fill(self.graph, {name: contents for name, contents in self.contents.items() if name != RATE})

    def _input(self, name: str, kind: TensorType, first: float = 0) -> Value:
        """The graph input of that name, which is filled with a number at first."""
        if name not in self.all_inputs or name == RATE:  # noise reads the count, too
            self.all_inputs[name] = self.graph.input(name, kind)
        self.contents[name] = ArrayConstant(np.full(kind.shape or (), first, kind.dtype.numpy), kind.dtype)
        return self.all_inputs[name]

    def _slot(self, parameter: Value, slot: str, dtype: DType) -> Value:
        name = slot_name(parameter.name, self.optimizer, slot)
        self.slots.append(name)
        return self._input(name, parameter.tensor.with_dtype(dtype), self.optimizer.initial(slot))


def fill(graph: Graph, contents: Mapping[str, Constant | None]) -> None:
    """Make variables of the graph inputs that are named, with these contents."""
    listed = {value.name for value in graph.variables}
    for value in graph.all_inputs:
        if value.name in contents:
            value.data = contents[value.name]
            graph.variables += [value] if value.name not in listed else []


def _stage(dtype: DType) -> DType:
    """The dtype in which a parameter is updated."""
    return DType.float32 if dtype.bits < 32 else dtype


def slot_name(parameter: str, optimizer: Optimizer, slot: str) -> str:
    """What a slot is called in files."""
    return f"{parameter}__{optimizer.name}_{slot}"


def _as(value: Value, dtype: DType) -> Value:
    return value if value.dtype is dtype else cast(value, to=dtype)


def _factor(gradients: Sequence[Value], clip_norm: float | None, loss_scale: float) -> Value | None:
    """What all gradients are multiplied by, None for 1: clipping by their common norm (Pascanu et al. 2013)."""
    unscaled = None if loss_scale == 1.0 else constant(1.0 / loss_scale, "float32")
    if clip_norm is None:
        return unscaled
    squares = [cast(reduce_sum(g * g, keepdims=0), to=DType.float32) for g in gradients]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    norm = sqrt(total) * (1.0 / loss_scale)
    return clip_norm / maximum(norm, constant(clip_norm, "float32")) * (1.0 / loss_scale)  # type: ignore[no-any-return]
