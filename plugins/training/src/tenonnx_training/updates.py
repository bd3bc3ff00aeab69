"""Adding the optimizer updates to a graph with gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import ArrayConstant, Constant, DType, Graph, TensorType, Value, constant, subgraph
from tenonnx_standard.casting import cast
from tenonnx_standard.control_flow import if_
from tenonnx_standard.logic import and_, equal, greater, less_or_equal, or_, where
from tenonnx_standard.math import exp, log, maximum, minimum, sqrt
from tenonnx_standard.reduction import reduce_sum
from tenonnx_training.objective import free_name
from tenonnx_training.optimizers import Optimizer
from tenonnx_training.parameters import grouped
from tenonnx_training.recipe import Group, Recipe
from tenonnx_training.scales import scales_of

#: Names of inputs that a step graph has in addition to the inputs and variables of the model.
RATE, COUNT, SEED = "learning_rate", "training__step", "training__seed"

#: More of these: number of updates, loss scale, and number of finite updates in a row.
UPDATES, SCALE, ROW = "training__updates", "training__scale", "training__row"

#: More of these: batches accumulated since the last update, and whether a batch is the last one of an epoch.
GATHERED, LAST = "training__batches", "training__last"

#: Initial loss scale, and the number of finite updates after which it doubles.
_FIRST_SCALE, _PATIENCE = 2.0**16, 2000

#: Maximum change of the logarithm of a quantization scale in an update.
_FARTHEST = 1.0


class Updates:
    """Adds the update of every parameter to a graph with gradients.

    ``state`` maps every input that training changes to the output that replaces it; ``slots`` are those that are
    neither parameters nor statistics. ``contents`` are the initial contents of these inputs. They are assigned last, so
    that nothing is folded.
    """

    def __init__(self, graph: Graph, source: Graph, optimizer: Optimizer, recipe: Recipe) -> None:
        self.graph, self.optimizer, self.recipe = graph, optimizer, recipe
        self.state: dict[str, str] = {}
        self.slots: list[str] = []
        self.contents = {v.name: v.data for v in source.variables}
        self.all_inputs = {v.name: v for v in graph.all_inputs}
        self._groups = grouped(source, recipe.groups)
        #: Factor of accumulated gradients where fewer than ``accumulate`` batches were accumulated.
        self._share: Value | None = None
        self._scales = scales_of(source)
        self._rows = {v.name: v.role.fixed_rows for v in source.variables if v.role is not None and v.role.fixed_rows}

    def run(self, gradients: Mapping[str, Value]) -> None:
        count = self._input(COUNT, TensorType(DType.int64, ()))
        self._input(RATE, TensorType(DType.float32, ()))
        following = count + 1
        self.replace(COUNT, following)
        wide = {name: _as(g, _stage(self.all_inputs[name].dtype)) for name, g in gradients.items()}
        wide = {name: self._with_fixed_rows(name, constant(0.0, g.dtype), g) for name, g in wide.items()}
        wide = {name: g * self._wide(name) if name in self._scales else g for name, g in wide.items()}
        finite = _finite(list(wide.values())) if self.recipe.scales else None
        due = finite
        if self.recipe.accumulate > 1:
            wide = {name: self._gathered(name, gradient, finite) for name, gradient in wide.items()}
            batches = self._extra(GATHERED, TensorType(DType.int64, ())) + 1
            full = or_(equal(batches, self.recipe.accumulate), self._input(LAST, TensorType(DType.bool, ())))
            self.replace(GATHERED, where(full, 0, batches))
            self._share = float(self.recipe.accumulate) / cast(batches, to=DType.float32)
            due = full if finite is None else and_(full, finite)
        number = following
        if due is not None:
            number = self._extra(UPDATES, TensorType(DType.int64, ())) + 1
        kept = {name: [self._slot(name, slot, g.dtype) for slot in self.optimizer.slots] for name, g in wide.items()}
        averages = {name: self._average(name, g.dtype) for name, g in wide.items()} if self.recipe.average else {}

        def moved() -> dict[str, Value]:
            return self._moved(wide, kept, averages, number)

        if due is None:
            changed = moved()
        else:
            changed = self._where(due, lambda: {UPDATES: number, **self._reset_gathered(wide), **moved()}, wide)
        for name, value in changed.items():
            self.replace(name, value)
        if finite is not None:
            self._scale(finite)

    def _moved(
        self,
        gradients: Mapping[str, Value],
        kept: Mapping[str, Sequence[Value]],
        averages: Mapping[str, Value],
        number: Value,
    ) -> dict[str, Value]:
        """Parameters, slots and averages after update ``number``, by name."""
        whole = self._share
        if whole is not None:
            gradients = {name: gradient * _as(whole, gradient.dtype) for name, gradient in gradients.items()}
        factor, result, shared = self._factor(list(gradients.values())), {}, _Shared(self.all_inputs[RATE], number)
        for name, gradient in gradients.items():
            parameter, stage, group = self.all_inputs[name], gradient.dtype, self._groups.get(name, Group(""))
            scaled = gradient if factor is None else gradient * _as(factor, stage)
            if self.recipe.clip_value is not None:
                bound = constant(self.recipe.clip_value, stage)
                scaled = minimum(maximum(scaled, -bound), bound)
            optimizer = self.optimizer
            if group.weight_decay is not None:
                optimizer = replace(optimizer, weight_decay=group.weight_decay)  # type: ignore[type-var]
            wide, scalars = _as(parameter, stage), shared.scalars(optimizer, group.rate, stage)
            if name in self._scales:
                after, *others = self._scale_of_quantized(parameter, scaled, kept[name], optimizer, scalars)
            else:
                after, *others = optimizer.update(wide, scaled, kept[name], scalars)
            after = self._with_fixed_rows(name, wide, after)
            result[name] = _as(after, parameter.dtype)
            result.update({slot.name: value for slot, value in zip(kept[name], others, strict=True)})
            if name in averages:
                share = self.recipe.average or 0.0
                result[averages[name].name] = averages[name] * share + after * (1.0 - share)
        return result

    def _wide(self, name: str) -> Value:
        """A parameter in the dtype in which it is updated."""
        return _as(self.all_inputs[name], _stage(self.all_inputs[name].dtype))

    def _scale_of_quantized(
        self,
        parameter: Value,
        gradient: Value,
        slots: Sequence[Value],
        optimizer: Optimizer,
        scalars: Mapping[str, Value],
    ) -> tuple[Value, ...]:
        """Update the logarithm of a scale, so that it stays positive; ``gradient`` is that of the logarithm.

        One update changes it at most by a factor of e. A scale of 0 or infinity stays, and there is no weight decay,
        which would pull the scale to 1.
        """
        before, narrow = self._wide(parameter.name), parameter.dtype is DType.float16
        ends: Any = np.finfo(np.float16 if narrow else np.float32)
        least, greatest = (constant(float(end), before.dtype) for end in (ends.tiny, ends.max / 2))
        sound = and_(greater(before, 0.0), less_or_equal(before, greatest))
        logarithm = log(where(sound, before, 1.0))
        if getattr(optimizer, "weight_decay", 0.0):
            optimizer = replace(optimizer, weight_decay=0.0)  # type: ignore[type-var]
        after, *others = optimizer.update(logarithm, where(sound, gradient, 0.0), slots, scalars)
        moved = before * exp(minimum(maximum(after - logarithm, -_FARTHEST), _FARTHEST))
        return where(sound, minimum(maximum(moved, least), greatest), before), *others

    def _with_fixed_rows(self, name: str, before: Value, after: Value) -> Value:
        """``after`` with the frozen rows of a parameter taken from ``before``."""
        if name not in self._rows:
            return after
        sizes = [dim for dim in self.all_inputs[name].shape if isinstance(dim, int)]
        mask = np.zeros([sizes[0], *[1] * (len(sizes) - 1)], bool)
        mask[[row for row in self._rows[name] if -sizes[0] <= row < sizes[0]]] = True
        return where(constant(mask), before, after)  # type: ignore[no-any-return]

    def _where(self, due: Value, moved: Callable[[], dict[str, Value]], wide: Mapping[str, Value]) -> dict[str, Value]:
        """Result of ``moved`` where an update is ``due``; otherwise nothing changes, and gradients are accumulated."""
        names: list[str] = []

        def update() -> list[Value]:
            changed = moved()
            names.extend(changed)
            return list(changed.values())

        def rest() -> list[Value]:
            gathered = {gathered_name(name): value for name, value in wide.items()}
            return [gathered.get(name, self.all_inputs[name]) for name in names]

        branches = {"then_branch": subgraph(update, name="update"), "else_branch": subgraph(rest, name="rest")}
        found = if_(due, **branches)
        return dict(zip(names, found, strict=True))

    def _gathered(self, name: str, gradient: Value, finite: Value | None) -> Value:
        """The accumulated gradient of a parameter, divided by ``accumulate``; non-finite gradients are skipped."""
        gathered = self._extra(gathered_name(name), gradient.tensor.with_shape(self.all_inputs[name].tensor.shape))
        more = gathered + gradient / float(self.recipe.accumulate)
        return more if finite is None else where(finite, more, gathered)

    def _reset_gathered(self, wide: Mapping[str, Value]) -> dict[str, Value]:
        gathered = wide if self.recipe.accumulate > 1 else ()
        return {gathered_name(name): ops.zeros_like(wide[name]) for name in gathered}

    def _average(self, name: str, dtype: DType) -> Value:
        parameter = self.all_inputs[name]
        value = self._extra(average_name(name), parameter.tensor.with_dtype(dtype))
        data = self.contents[name]
        assert data is not None
        self.contents[value.name] = ArrayConstant(data.array().astype(dtype.numpy), dtype)
        return value

    def _scale(self, finite: Value) -> None:
        """Double the loss scale after enough finite updates in a row, halve it after a non-finite one."""
        scale = self.all_inputs[SCALE]
        self.contents[SCALE] = ArrayConstant(np.asarray(_FIRST_SCALE, np.float32))
        self.slots.append(SCALE)
        row = where(finite, self._extra(ROW, TensorType(DType.int64, ())) + 1, 0)
        grown = equal(row, _PATIENCE)
        self.replace(SCALE, where(finite, where(grown, scale * 2.0, scale), maximum(scale * 0.5, 1.0)))
        self.replace(ROW, where(grown, 0, row))

    def _factor(self, gradients: Sequence[Value]) -> Value | None:
        """Factor of all gradients, None for 1: loss scale, and clipping by the common norm (Pascanu et al. 2013)."""
        unscaled: Any = 1.0 / self.recipe.loss_scale
        if self.recipe.scales:
            unscaled = 1.0 / self.all_inputs[SCALE]
        if self.recipe.clip_norm is None:
            plain = not isinstance(unscaled, Value) and unscaled == 1.0
            return None if plain else _number(unscaled)
        squares = [cast(reduce_sum(g * g, keepdims=0), to=DType.float32) for g in gradients]
        total = squares[0]
        for square in squares[1:]:
            total = total + square
        bound = self.recipe.clip_norm
        norm = sqrt(total) * unscaled
        small = constant(1e-6, "float32")  # as PyTorch
        return bound / maximum(norm + small, constant(bound, "float32")) * unscaled  # type: ignore[no-any-return]

    def replace(self, name: str, value: Value) -> None:
        """Replace the contents of the input of that name by ``value`` after each step."""
        self.state[name] = self.graph.output(free_name(self.graph, f"{name}/next"), value).name

    def fill(self) -> None:
        """Assign the initial contents of all inputs that are variables."""
        fill(self.graph, {name: contents for name, contents in self.contents.items() if name != RATE})

    def _input(self, name: str, kind: TensorType, first: float = 0) -> Value:
        """The graph input of that name, initially filled with a number."""
        if name not in self.all_inputs or name == RATE:  # random ops read the count, too
            self.all_inputs[name] = self.graph.input(name, kind)
        self.contents[name] = ArrayConstant(np.full(kind.shape or (), first, kind.dtype.numpy), kind.dtype)
        return self.all_inputs[name]

    def _extra(self, name: str, kind: TensorType) -> Value:
        """An input of that name, initially zero, that is stored in files."""
        self.slots.append(name)
        return self._input(name, kind)

    def _slot(self, parameter: str, slot: str, dtype: DType) -> Value:
        name = slot_name(parameter, self.optimizer, slot)
        self.slots.append(name)
        kind = self.all_inputs[parameter].tensor.with_dtype(dtype)
        return self._input(name, kind, self.optimizer.initial(slot))


class _Shared:
    """Cache of numbers that parameters share in an update: one entry for each optimizer, rate and dtype."""

    def __init__(self, rate: Value, number: Value) -> None:
        self._rate, self._number = cast(rate, to=DType.float64), cast(number, to=DType.float64)
        self._double: dict[Any, Mapping[str, Value]] = {}
        self._cast: dict[Any, dict[str, Value]] = {}

    def scalars(self, optimizer: Optimizer, factor: float, dtype: DType) -> Mapping[str, Value]:
        if factor not in self._double:
            rate = self._rate if factor == 1.0 else self._rate * factor
            self._double[factor] = optimizer.scalars(rate, self._number)
        if (factor, dtype) not in self._cast:
            self._cast[factor, dtype] = {key: _as(value, dtype) for key, value in self._double[factor].items()}
        return self._cast[factor, dtype]


def fill(graph: Graph, contents: Mapping[str, Constant | None]) -> None:
    """Turn the named graph inputs into variables with these contents."""
    listed = {value.name for value in graph.variables}
    for value in graph.all_inputs:
        if value.name in contents:
            value._replace_fields(data=contents[value.name])
            graph.variables += [value] if value.name not in listed else []


def _stage(dtype: DType) -> DType:
    """The dtype in which a parameter is updated."""
    return DType.float32 if dtype.bits < 32 else dtype


def average_name(parameter: str) -> str:
    """Name of the moving average of a parameter in files."""
    return f"{parameter}__average"


def gathered_name(parameter: str) -> str:
    """Name of the accumulated gradient of a parameter in files."""
    return f"{parameter}__gathered"


def slot_name(parameter: str, optimizer: Optimizer, slot: str) -> str:
    """Name of a slot in files."""
    return f"{parameter}__{optimizer.name}_{slot}"


def _as(value: Value, dtype: DType) -> Value:
    return value if value.dtype is dtype else cast(value, to=dtype)


def _number(number: Any) -> Value:
    return number if isinstance(number, Value) else constant(number, "float32")


def _finite(gradients: Sequence[Value]) -> Value:
    """Whether all are finite: only finite numbers times zero are zero."""
    total = cast(reduce_sum(gradients[0] * 0.0, keepdims=0), to=DType.float32)
    for gradient in gradients[1:]:
        total = total + cast(reduce_sum(gradient * 0.0, keepdims=0), to=DType.float32)
    return equal(total, 0.0)  # type: ignore[no-any-return]
