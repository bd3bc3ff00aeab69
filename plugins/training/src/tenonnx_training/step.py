"""The training step as one graph: forward, backward, update."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx.errors import InvalidCall, NotDifferentiable
from tenonnx.extend import DType, Graph, TensorType, Value, constant
from tenonnx.graph.values import ArrayConstant, Constant
from tenonnx.op.build import Builder
from tenonnx.op.call import interpreting
from tenonnx.transforms.common_subexpressions import merge_common_subexpressions
from tenonnx.transforms.decompose import refuse_opaque
from tenonnx.transforms.overridable import opened
from tenonnx.transforms.prune import needed_nodes
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_standard.casting import cast
from tenonnx_standard.math import maximum, sqrt
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import identity
from tenonnx_training.losses import LOSSES, FunctionLoss, Loss
from tenonnx_training.metrics import METRICS, Metric
from tenonnx_training.modes import (
    evaluation_form,
    not_for_gradients,
    statistics_of,
    training_form,
    without_functions,
)
from tenonnx_training.noise import seeded
from tenonnx_training.optimizers import Optimizer

#: Names of what a step graph has beside the inputs and variables of the model.
RATE, COUNT, SEED = "learning_rate", "training__step", "training__seed"


@dataclass(frozen=True)
class Objective:
    """What is minimised: a ``loss`` of the value ``output`` and a graph input ``labels``, or a value of the file.

    ``output`` is by default the first graph output that holds floats; where a loss includes the activation that the
    output ends in, it reads what goes into that.
    """

    loss: str | Loss | Callable[[Value, Value], Value]
    output: str | None = None
    labels: str = "labels"
    metrics: Sequence[str | Metric] = ()


@dataclass
class StepGraph:
    """A training step as a plain graph.

    It maps the model's inputs, the labels and the learning rate to the loss and the metrics, and every entry of
    ``state`` from an input to the output that replaces it. All of these inputs have defaults.
    """

    graph: Graph
    objective: Objective
    state: dict[str, str] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    statistics: list[str] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    labels: str | None = None
    prediction: TensorType | None = None
    cost: Loss | None = None
    loss: str = "loss"
    metrics: list[str] = field(default_factory=list)
    seeded: bool = False
    notes: list[str] = field(default_factory=list)


def step_graph(
    graph: Graph,
    objective: Objective,
    optimizer: Optimizer,
    *,
    trainable: str | Sequence[str] | None = None,
    clip_norm: float | None = None,
    loss_scale: float = 1.0,
    frozen_statistics: bool = False,
    without: Collection[str] = (),
) -> StepGraph:
    """The step that minimises ``objective`` of ``graph`` over the variables that match ``trainable``.

    A pattern that begins with ``!`` takes variables out; by default all of floating point are trained but those without
    axes, in which exporters keep constants, and those called ``without``. A BatchNormalization updates its running
    statistics if its scale or shift is trained, by default always, with ``frozen_statistics`` never; otherwise it goes
    by them.

    ``clip_norm`` bounds the norm of all gradients together; ``loss_scale`` keeps small float16 gradients from
    vanishing. Raises ``InvalidCall`` where nothing matches or the loss is no scalar, ``NotDifferentiable`` with every
    node that breaks the path from the loss to a parameter.
    """
    for name, number in (("clip_norm", clip_norm), ("loss_scale", loss_scale)):
        if number is not None and not (isinstance(number, Real) and 0 < number < math.inf):
            raise InvalidCall(f"{name} must be a number above zero", given=repr(number))
    refuse_opaque(graph, "trained")
    plain = without_functions(graph)
    parameters = matching(graph, trainable, but={*not_for_gradients(plain), *without})
    trained = () if frozen_statistics else None if trainable is None else parameters
    notes = _numbers_note(graph, parameters)
    forward = _with_inputs(plain, [*parameters, *statistics_of(plain, trained)])
    form = training_form(forward, trained=trained)
    ready = seeded(form.graph, SEED, COUNT)
    made = StepGraph(ready.graph, objective, parameters=parameters, seeded=ready.used, notes=notes + form.notes)
    updated = {name: value.name for name, value in form.statistics.items()}
    add_objective(made)
    made.notes += _idle_note(made)
    try:
        _add_updates(made, graph, optimizer, clip_norm, loss_scale, updated)
    except NotDifferentiable as error:
        if trainable is not None or set(parameters) <= {*error.names}:
            error.do = 'take out what has none: --trainable / trainable="!name"'
            raise
        scaling: Any = {"loss_scale": loss_scale, "clip_norm": clip_norm, "frozen_statistics": frozen_statistics}
        made = step_graph(graph, objective, optimizer, without={*without, *error.names}, **scaling)
        made.notes.append(f"not trained, since no gradient reaches them: {', '.join(error.names)}")
    return made


def evaluation_graph(graph: Graph, objective: Objective, changing: Sequence[str]) -> StepGraph:
    """The loss and the metrics of ``graph`` as it is used, the variables ``changing`` being inputs.

    What it draws at random is a function of two more inputs, ``SEED`` and ``COUNT``.
    """
    used = evaluation_form(_with_inputs(without_functions(graph), changing))
    made = StepGraph(seeded(used, SEED, COUNT).graph, objective)
    add_objective(made)
    made.graph = made.graph.extract(
        [v.name for v in made.graph.all_inputs if v.data is None], [made.loss, *made.metrics]
    )
    return made


def matching(graph: Graph, patterns: str | Sequence[str] | None, *, but: Collection[str] = ()) -> list[str]:
    """The names of the floating-point variables that ``patterns`` choose, in file order; see ``step_graph``.

    Those of ``but`` are never chosen. Raises ``InvalidCall`` for a pattern that matches none, and if none is left.
    """
    kinds = {v.name: v.tensor for v in graph.variables if isinstance(v.type, TensorType) and v.type.dtype.is_float}
    floats = {name: kind for name, kind in kinds.items() if name not in but}
    given = [patterns] if isinstance(patterns, str) else patterns
    wanted, unwanted = [p for p in given or () if p[:1] != "!"], [p[1:] for p in given or () if p[:1] == "!"]
    for pattern, among in [*((p, floats) for p in wanted), *((p, kinds) for p in unwanted)]:
        if not any(_matches(name, [pattern]) for name in among):
            raise InvalidCall(
                f'trainable "{pattern}" must match a variable that gradients can change',
                available=", ".join(list(floats)[:50]) or "no such variable",
            )
    everything = not wanted and (given is None or bool(unwanted))
    chosen = [n for n, kind in floats.items() if _matches(n, wanted) or (everything and kind.shape)]
    left = [name for name in chosen if not _matches(name, unwanted)]
    if not left:
        raise InvalidCall(
            "there must be a variable to train",
            given=f"trainable={patterns!r}",
            available=", ".join(list(floats)[:50]) or "no floating-point variable",
        )
    return left


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of ``patterns`` is the name, brackets and all, or a pattern of it."""
    return name in patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _numbers_note(graph: Graph, parameters: Sequence[str]) -> list[str]:
    numbers = [v.name for v in graph.variables if v.name in parameters and set(v.tensor.shape or ()) == {1}]
    text = f"trains single numbers, which may be constants of the model (leave out by !name): {', '.join(numbers)}"
    return [text] if numbers else []


def _idle_note(made: StepGraph) -> list[str]:
    loss = next(v for v in made.graph.values() if v.name == made.loss)
    needed = {v.name for node in needed_nodes(made.graph, [loss]) for v in node.uses}
    idle = [name for name in made.parameters if name not in needed]
    return [f"the loss does not depend on {', '.join(idle)}"] if idle else []


def _with_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """A copy in which these variables are graph inputs without contents, so that nothing is folded away."""
    copy = copy_graph(graph)
    listed = {value.name for value in copy.all_inputs}
    copy.all_inputs += [v for v in copy.variables if v.name in names and v.name not in listed]
    return opened(copy, names)


# ----- the loss -------------------------------------------------------------------------------------------------------


def add_objective(made: StepGraph) -> None:
    """Add the loss and the metrics to the graph, with the graph input for their labels."""
    graph, objective = made.graph, made.objective
    values = {value.name: value for value in graph.values()}
    if isinstance(objective.loss, str) and objective.loss in values:
        made.loss = objective.loss
        _check_scalar(values[made.loss])
        if objective.metrics:
            raise InvalidCall("metrics compare a prediction with labels", given="a loss that the file computes")
        return
    loss = made.cost = as_loss(objective.loss, graph)
    prediction = _prediction(graph, objective.output)
    reads = _before(graph, prediction, loss.includes)
    if reads is not prediction:
        made.notes.append(
            f'the loss reads "{reads.name}", since it includes the {loss.includes} of "{prediction.name}"'
        )
    made.prediction = reads.tensor
    labels = graph.input(objective.labels, loss.labels_type(made.prediction))
    made.labels = labels.name
    with interpreting(Builder(graph, prefix="loss")):
        cost = loss(reads, labels)
        _check_scalar(cost)
        made.loss = graph.output(_free(graph, "loss"), cost).name
        for metric in objective.metrics:
            name, function = as_metric(metric)
            measured = function(prediction, labels)
            _check_scalar(measured, f'the metric "{name}"')
            made.metrics.append(graph.output(_free(graph, name), measured).name)


def _free(graph: Graph, name: str) -> str:
    """``name``, or with a number where the graph has it already."""
    free = graph.unique_name(name)
    graph.names().pop(free)
    return free


def as_loss(loss: str | Loss | Callable[[Value, Value], Value], graph: Graph) -> Loss:
    """A loss by name, an object, or a function of the user."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            outputs = ", ".join(value.name for value in graph.outputs)
            raise InvalidCall(
                f'no loss and no value of the graph is called "{loss}"',
                available=f"{', '.join(LOSSES)}; graph outputs: {outputs}",
            )
        return LOSSES[loss]()
    if isinstance(loss, type) or not callable(loss):
        made = f"tt.{loss.__name__}()" if isinstance(loss, type) else ""
        raise InvalidCall("a loss must be a name or a function", given=repr(loss), available=", ".join(LOSSES), do=made)
    return loss if hasattr(loss, "labels_type") else FunctionLoss(loss)  # type: ignore[return-value]


def as_metric(metric: str | Metric) -> tuple[str, Metric]:
    """A metric by name, or a function of the user, which has one."""
    if isinstance(metric, str):
        if metric not in METRICS:
            raise InvalidCall(f'no metric is called "{metric}"', available=", ".join(METRICS))
        return metric, METRICS[metric]
    if isinstance(metric, type) or not callable(metric):
        raise InvalidCall("a metric must be a name or a function", given=repr(metric), available=", ".join(METRICS))
    return getattr(metric, "__name__", "metric"), metric


def _prediction(graph: Graph, name: str | None) -> Value:
    floats = [v for v in graph.outputs if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    if name is None and floats:
        return floats[0]
    found = next((v for v in graph.values() if v.name == name), None)
    if found is None:
        raise InvalidCall(
            "a loss needs a floating-point value to read" if name is None else f'no value "{name}" to train on',
            available=", ".join(f"{v.name}: {v.type}" for v in graph.outputs),
            do="name one: --of / output=",
        )
    return found


def _before(graph: Graph, value: Value, activation: str) -> Value:
    """What goes into the ``activation`` that gives ``value``, or ``value`` itself where another node gives it."""
    node = value.producer
    while node is not None and node.op is identity and node.inputs[0] is not None:
        node = node.inputs[0].producer
    applied = node is not None and bool(activation) and (node.domain, node.op_type) == ("ai.onnx", activation)
    before = node.inputs[0] if applied and node is not None else None
    return value if before is None else before


def _check_scalar(loss: Value, what: str = "a loss") -> None:
    kind = getattr(loss, "type", None)
    scalar = isinstance(kind, TensorType) and kind.dtype.is_float and kind.shape is not None
    if not scalar or any(dim != 1 for dim in kind.shape or ()):  # type: ignore[union-attr]
        raise InvalidCall(
            f"{what} must be one floating-point number, computed by ops",
            given=repr(loss),
            do="reduce it to its mean",
        )


# ----- the update -----------------------------------------------------------------------------------------------------


def _add_updates(
    made: StepGraph,
    source: Graph,
    optimizer: Optimizer,
    clip_norm: float | None,
    loss_scale: float,
    statistics: Mapping[str, str],
) -> None:
    """Let the graph give gradients, and replace every input that training changes."""
    graph = made.graph
    of = made.loss
    if loss_scale != 1.0:
        loss = next(v for v in graph.values() if v.name == of)
        with interpreting(Builder(graph, prefix="loss/scaled")):
            of = graph.output(_free(graph, "loss/scaled"), loss * loss_scale).name
    kept = [made.loss, *made.metrics, *dict.fromkeys(statistics.values())]
    _show(graph, kept)
    graph = made.graph = merge_common_subexpressions(tx.grad(graph, of=of, wrt=made.parameters))
    values = {value.name: value for value in graph.values()}
    gradients = {name: values[f"{name}/grad"] for name in made.parameters}
    graph.outputs = [values[name] for name in (made.loss, *made.metrics)]
    made.statistics = list(statistics)
    with interpreting(Builder(graph, prefix="update", fold=True)):
        updates = _Updates(made, source, optimizer)
        for name, after in statistics.items():
            updates.replace(name, values[after])
        updates.run(gradients, clip_norm, loss_scale)
        updates.fill()


def _show(graph: Graph, names: Sequence[str]) -> None:
    """Keep inner values alive through a transform by making them outputs."""
    shown = {value.name for value in graph.outputs}
    values = {value.name: value for value in graph.values()}
    graph.outputs += [values[name] for name in names if name not in shown]


class _Updates:
    """Adds the update of every parameter to a graph that has the gradients.

    ``contents`` are what the inputs that training changes hold at first. They get them last, so that nothing is folded.
    """

    def __init__(self, made: StepGraph, source: Graph, optimizer: Optimizer) -> None:
        self.made, self.graph, self.optimizer = made, made.graph, optimizer
        self.contents = {v.name: v.data for v in source.variables}
        self.all_inputs = {v.name: v for v in made.graph.all_inputs}

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
        self.made.state[name] = self.graph.output(_free(self.graph, f"{name}/next"), value).name

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
        self.made.slots.append(name)
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
