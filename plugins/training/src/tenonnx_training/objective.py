"""The objective: loss and metrics as part of a graph."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall, TenonnxError, TensorType, UnknownType, Value, did_you_mean
from tenonnx.extend.transforms import Builder, interpreting
from tenonnx_standard.casting import cast
from tenonnx_training.distillation import Teacher
from tenonnx_training.losses import LOSSES, FunctionLoss, Loss, NegativeLogLikelihood, NoLoss
from tenonnx_training.measuring import LABELS, PREDICTIONS, ArrayMetric, Measurement, Scalar, Sum
from tenonnx_training.metrics import METRICS, Metric, OfClasses
from tenonnx_training.predictions import before, prediction_of


@dataclass(frozen=True)
class Objective:
    """Training objective: a ``loss`` of the value ``output`` and a graph input ``labels``, or a value of the file.

    ``output`` is by default the first float output of the graph; if a loss includes the activation that produces it,
    the loss reads the input of that. ``sample_weights`` is a graph input with a weight for each sample: the loss is
    their weighted mean. With a ``loss`` for each of several outputs, labels and metrics are by output, too, and the
    total is their sum by ``loss_weights``. A ``teacher`` adds its distance to each loss.
    """

    loss: str | Loss | Callable[[Value, Value], Value] | Mapping[str, Any]
    output: str | None = None
    labels: str | Mapping[str, str] = "labels"
    metrics: Sequence[str | Metric] | Mapping[str, Sequence[str | Metric]] = ()
    sample_weights: str | None = None
    loss_weights: Mapping[str, float] | None = None
    teacher: Teacher | None = None

    @property
    def label_names(self) -> list[str]:
        """The graph inputs for labels, in the order of the losses."""
        return [each.labels for each in self.parts.values()] if self.parts else [str(self.labels)]  # type: ignore[misc]

    @property
    def parts(self) -> dict[str, Objective]:
        """The objectives by output; empty where there is a single loss."""
        if not isinstance(self.loss, Mapping):
            return {}
        named = self.labels if isinstance(self.labels, Mapping) else {}
        metrics = self.metrics if isinstance(self.metrics, Mapping) else {}
        return {
            output: Objective(
                loss,
                output,
                named.get(output, f"{output}/labels"),
                metrics.get(output, ()),
                self.sample_weights,
                teacher=self.teacher,
            )
            for output, loss in self.loss.items()
        }


@dataclass
class Measured:
    """Outputs of a graph with an objective: ``scalars``, of which the loss is the first, and ``metrics`` of arrays.

    Array metrics read the output ``predicted``. ``labels`` is the graph input for the labels, ``prediction`` the type
    of the value that the loss reads, and ``cost`` the loss object, None where the file computes it. ``also`` are losses
    among the metrics. ``parts`` are the objectives of several outputs; then the total has no labels of its own.
    """

    scalars: list[Scalar] = field(default_factory=list)
    metrics: list[ArrayMetric] = field(default_factory=list)
    predicted: str | None = None
    labels: str | None = None
    prediction: TensorType | None = None
    cost: Loss | None = None
    also: list[Loss] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parts: dict[str, Measured] = field(default_factory=dict)

    @property
    def loss(self) -> str:
        return self.scalars[0].value

    @property
    def label_names(self) -> list[str]:
        """The graph inputs for labels."""
        if self.parts:
            return [str(part.labels) for part in self.parts.values()]
        return [] if self.labels is None else [self.labels]

    @property
    def outputs(self) -> list[str]:
        """Names of all graph outputs that are read."""
        more = [part.predicted for part in self.parts.values() if part.predicted is not None]
        return list(dict.fromkeys([*self._own_outputs, *more]))

    @property
    def _own_outputs(self) -> list[str]:
        read = [name for scalar in self.scalars for name in (scalar.value, scalar.count) if name is not None]
        return read if self.predicted is None else [*read, self.predicted]

    def given(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the labels of a batch to the form that the loss compares."""
        named, convert = dict(batch), getattr(self.cost, "labels_given", None)
        for output, part in self.parts.items():
            if part.labels not in named and output in named:
                named[str(part.labels)] = named.pop(output)  # labels by the name of the output, as in Keras
            named = part.given(named)
        if convert is not None and self.prediction is not None and self.labels in named:
            labels = np.asarray(named[self.labels])
            named[self.labels] = convert(self.prediction, labels)
        return named

    def check(self, batch: Mapping[str, Any]) -> None:
        """Raise ``InvalidFeed`` for labels with invalid contents."""
        for part in self.parts.values():
            if part.labels in batch:
                part.check(batch)
        for loss in (*self.also, *([] if self.cost is None else [self.cost])):
            if self.prediction is not None:
                loss.check(self.prediction, np.asarray(batch[str(self.labels)]))

    def measurement(self, results: Mapping[str, Any], batch: Mapping[str, Any], samples: int) -> Measurement:
        """Measurement of a ``batch`` of ``samples`` samples from ``results`` of the graph."""
        sums: dict[str, Sum] = {}
        for scalar in self.scalars:
            value = float(np.reshape(results[scalar.value], ()))
            weight = float(samples) if scalar.count is None else float(np.reshape(results[scalar.count], ()))
            if scalar.summed:
                sums[scalar.name] = value, None if scalar.count is None else weight
            else:
                sums[scalar.name] = value * weight, weight
        arrays: dict[str, Any] = {}
        for output, part in (self.parts or {"": self}).items():
            if (check := getattr(part.cost, "check_loss", None)) is not None:
                check(float(np.reshape(results[part.loss], ())))
            if part.predicted is not None:
                arrays[PREDICTIONS + output] = np.asarray(results[part.predicted])
                arrays[LABELS + output] = np.asarray(batch[str(part.labels)])
        return Measurement(sums, arrays)


def add_objective(graph: Graph, objective: Objective) -> Measured:
    """Add the loss and the metrics to ``graph``, with a graph input for their labels."""
    if isinstance(objective.loss, Mapping):
        return _add_several(graph, objective)
    if isinstance(objective.metrics, Mapping) or objective.loss_weights or not isinstance(objective.labels, str):
        raise InvalidCall(
            "labels, metrics or loss_weights are given for each output, and one loss for all",
            given=f"loss={objective.loss!r}"[:80],
            do='loss={"output": "mean_squared_error"}',
        )
    return _add_one(graph, objective, objective.metrics, "")


def _add_several(graph: Graph, objective: Objective) -> Measured:
    """Add a loss for each of several outputs, and their weighted sum."""
    given = objective.parts
    floats = [v.name for v in graph.outputs if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    if not isinstance(objective.metrics, Mapping) and objective.metrics:
        do = f'metrics={{"{next(iter(given), "output")}": [...]}}'
        raise InvalidCall(
            "metrics of several outputs are not named by output", given=repr(objective.metrics)[:80], do=do
        )
    for what, named in (("loss", given), *((n, getattr(objective, n)) for n in ("labels", "metrics", "loss_weights"))):
        names = [value.name for value in graph.values()] if what == "loss" else list(given)
        unknown = [name for name in named or () if name not in names] if isinstance(named, Mapping) else []
        if unknown or (what == "loss" and not given):
            raise InvalidCall(
                f'{what} names "{unknown[0]}", which is not an output with a loss'
                if unknown
                else "no output has a loss",
                available=", ".join(floats if what == "loss" else given),
            )
    weights = {output: float((objective.loss_weights or {}).get(output, 1.0)) for output in given}
    if wrong := next((f"{name}: {weight}" for name, weight in weights.items() if not 0 <= weight < math.inf), None):
        raise InvalidCall("a weight of a loss is negative or not finite", given=wrong)
    shared = _weights(graph, objective.sample_weights, prediction_of(graph, next(iter(given))))
    parts = {
        name: _add_one(graph, part, part.metrics, f"{name}/", shared)  # type: ignore[arg-type]
        for name, part in given.items()
    }
    values = {value.name: value for value in graph.values()}
    with interpreting(Builder(graph, prefix="loss")):
        costs = [cast(values[part.loss], to=DType.float32) * weights[name] for name, part in parts.items()]
        total = graph.output(free_name(graph, "loss"), functools.reduce(operator.add, costs)).name
    shares = tuple((part.scalars[0].name, weights[name]) for name, part in parts.items())
    scalars = [Scalar(total, total, terms=shares), *(each for part in parts.values() for each in part.scalars)]
    metrics = [replace(each, output=name) for name, part in parts.items() for each in part.metrics]
    notes = [f"{name}: {note}" for name, part in parts.items() for note in part.notes]
    return Measured(scalars, metrics, notes=notes, parts=parts)


def _add_one(
    graph: Graph, objective: Objective, metrics: Sequence[str | Metric], prefix: str, shared: Value | None = None
) -> Measured:
    """Add one loss and its metrics, with a prefix for names; ``shared`` are sample weights of several losses."""
    values = {value.name: value for value in graph.values()}
    if isinstance(objective.loss, str) and objective.loss in values:
        _check_scalar(values[objective.loss])
        if metrics:
            raise InvalidCall(
                "metrics are given without a loss of a prediction and labels", given="a loss that the model computes"
            )
        if objective.sample_weights is not None:
            raise InvalidCall(
                "sample_weights are given without a loss of a prediction and labels",
                given="a loss that the model computes",
            )
        if objective.teacher is not None:
            raise InvalidCall(
                "a teacher is given without a loss of a prediction and labels", given="a loss that the model computes"
            )
        return Measured([Scalar(objective.loss, objective.loss)])
    loss = as_loss(objective.loss, graph)  # type: ignore[arg-type]
    prediction = prediction_of(graph, objective.output)
    reads = before(graph, prediction, loss.includes)
    _refuse_probabilities(graph, loss, reads)
    weights = _weights(graph, objective.sample_weights, reads) if shared is None else shared
    labels = graph.input(str(objective.labels), loss.labels_type(reads.tensor))
    measured = Measured(labels=labels.name, prediction=reads.tensor, cost=loss)
    if reads is not prediction:
        measured.notes.append(
            f'the loss reads "{reads.name}", because it includes the {loss.includes} that computes "{prediction.name}"'
        )
    with interpreting(Builder(graph, prefix="loss")):
        costs, count = _cost(loss, reads, labels, weights)
        if objective.teacher is not None:
            costs = objective.teacher.blended(costs, loss, reads, labels, weights, objective.output)
        cost = graph.output(free_name(graph, f"{prefix}loss"), costs)
        weight = None if count is None else graph.output(free_name(graph, f"{prefix}loss/count"), count).name
        measured.scalars.append(Scalar(cost.name, cost.name, weight, summed=getattr(loss, "reduction", "") == "sum"))
        scores = _gives_scores(loss, reads, prediction)
        for name, metric in zip(metric_names(metrics), metrics, strict=True):
            _add_metric(graph, measured, f"{prefix}{name}", metric, prediction, labels, scores)
        if measured.metrics:
            measured.predicted = graph.output(free_name(graph, f"{prefix}prediction"), prediction).name
    return measured


def _weights(graph: Graph, name: str | None, prediction: Value) -> Value | None:
    """The graph input for sample weights, None without a name."""
    if name is None:
        return None
    shape = prediction.tensor.shape
    return graph.input(name, TensorType(DType.float32, None if shape is None else shape[:1]))


def _refuse_probabilities(graph: Graph, loss: Loss, prediction: Value) -> None:
    """Raise ``InvalidCall`` for a loss of log-probabilities that would read probabilities."""
    if isinstance(loss, NegativeLogLikelihood) and before(graph, prediction, "Softmax") is not prediction:
        raise InvalidCall(
            "negative_log_likelihood reads probabilities instead of their logarithms",
            given=f'"{prediction.name}", which a Softmax gives',
            do="softmax_cross_entropy includes the Softmax that the model ends in",
        )


def _gives_scores(loss: Loss, reads: Value, prediction: Value) -> bool | None:
    """Whether a prediction of one column has scores rather than probabilities; None without a loss."""
    if isinstance(loss, NoLoss):
        return False if before(prediction.graph, prediction, "Sigmoid") is not prediction else None  # type: ignore[arg-type]
    return loss.includes == "Sigmoid" and reads is prediction


def _cost(loss: Loss, prediction: Value, labels: Value, weights: Value | None) -> tuple[Value, Value | None]:
    """The loss of a batch, and its weight in the mean over batches; None for the number of samples, or a sum."""
    try:
        if hasattr(loss, "batch"):
            cost, count = loss.batch(prediction, labels, weights)
        elif weights is None:
            cost, count = loss(prediction, labels), None
        else:
            raise InvalidCall(
                "the custom loss does not take sample weights", given="sample_weights", available=", ".join(LOSSES)
            )
    except (TenonnxError, AttributeError, TypeError, ValueError) as error:
        by_numpy = not isinstance(error, TenonnxError) or isinstance(error, UnknownType)
        if isinstance(error, TenonnxError) and not (by_numpy and isinstance(loss, FunctionLoss)):
            error.do = wanted_labels(loss) or error.do
        if not by_numpy or not isinstance(loss, FunctionLoss):
            raise
        raise InvalidCall(
            "the custom loss uses numpy, and cannot be traced",
            given=f"{type(error).__name__}: {error}",
            do="use Python's operators and ops: import tenonnx_standard as ops; ops.reduce_mean(x, keepdims=0)",
        ) from error
    _check_scalar(cost)
    return cost, count


def wanted_labels(loss: Loss | None) -> str:
    """Advice for labels of a user-defined loss whose type is not that of the prediction."""
    if not isinstance(loss, FunctionLoss) or loss.labels is not None:
        return ""
    return (
        "declare the type of the labels, by default that of the prediction: "
        "tt.FunctionLoss(function, labels=tx.TensorType(tx.DType.int64, ('batch',)))"
    )


def _add_metric(
    graph: Graph,
    measured: Measured,
    name: str,
    given: str | Metric,
    prediction: Value,
    labels: Value,
    scores: bool | None,
) -> None:
    """Add a metric called ``name``: as ops if its function accepts values, else as a function of arrays."""
    metric: Any = beside(given, measured.cost, scores=scores)
    reads = before(graph, prediction, getattr(metric, "includes", ""))
    is_loss = hasattr(metric, "batch")
    try:
        found = metric.batch(reads, labels) if is_loss else metric(reads, labels)
    except UnknownType:  # numpy asked for the contents of a value
        found = None
    except TenonnxError:
        raise
    except Exception:  # numpy functions fail on values in various ways
        found = None
    found = tuple(part for part in found if part is not None) if is_loss and isinstance(found, tuple) else found
    parts = found if isinstance(found, tuple) and all(isinstance(part, Value) for part in found) else (found,)
    if not isinstance(parts[0], Value):
        measured.metrics.append(ArrayMetric(name, metric))
        return
    for part in parts:
        _check_scalar(part, f'the metric "{name}"')
    value = graph.output(free_name(graph, name), parts[0]).name
    count = graph.output(free_name(graph, f"{name}/count"), parts[1]).name if len(parts) > 1 else None
    summed = metric.reduction == "sum" if is_loss else count is not None
    measured.also += [metric] if is_loss else []
    measured.scalars.append(Scalar(value, value, count, summed, getattr(metric, "finish", float)))


def beside(given: str | Metric, loss: Any, *, scores: bool | None = None) -> Metric:
    """A metric with unset options taken from the loss, see ``OfClasses.with_defaults_of``."""
    _, metric = as_metric(given)
    return metric.with_defaults_of(loss, scores=scores) if isinstance(metric, OfClasses) else metric


def free_name(graph: Graph, name: str) -> str:
    """``name``, with a number appended where the graph has it already."""
    free = graph.unique_name(name)
    graph.names().pop(free)
    return free


def as_loss(loss: str | Loss | Callable[[Value, Value], Value], graph: Graph) -> Loss:
    """A loss by name, an object, or a user-defined function."""
    if loss is None:
        raise InvalidCall("no loss is given", available=", ".join(LOSSES), do="loss= (--loss NAME)")
    if isinstance(loss, str):
        if loss not in LOSSES:
            outputs = ", ".join(value.name for value in graph.outputs)
            raise InvalidCall(
                f'no loss and no value of the graph is called "{loss}"',
                available=f"{', '.join(LOSSES)}; graph outputs: {outputs}",
                do=did_you_mean(loss, LOSSES),
            )
        return LOSSES[loss]()
    if isinstance(loss, type) or not callable(loss):
        suggestion = f"tt.{loss.__name__}()" if isinstance(loss, type) else ""
        raise InvalidCall(
            "the loss is neither a name nor a function", given=repr(loss), available=", ".join(LOSSES), do=suggestion
        )
    return loss if hasattr(loss, "labels_type") else FunctionLoss(loss)  # type: ignore[return-value]


def as_metric(metric: str | Metric) -> tuple[str, Metric]:
    """A metric and its name, from a name or a user-defined function."""
    if isinstance(metric, str):
        if metric not in METRICS and metric not in LOSSES:
            known = ", ".join(dict.fromkeys([*METRICS, *LOSSES]))
            raise InvalidCall(
                f'no metric is called "{metric}"', available=known, do=did_you_mean(metric, (*METRICS, *LOSSES))
            )
        return metric, METRICS[metric] if metric in METRICS else LOSSES[metric]()
    if isinstance(metric, type) or not callable(metric):
        raise InvalidCall("a metric is neither a name nor a function", given=repr(metric), available=", ".join(METRICS))
    return str(getattr(metric, "name", getattr(metric, "__name__", "metric"))), metric


def metric_names(metrics: Sequence[str | Metric]) -> list[str]:
    """A unique name for each metric: equal ones get the settings in which they differ, or a number."""
    plain = [as_metric(metric) for metric in metrics]
    result: list[str] = []
    for name, metric in plain:
        full_name = name + _settings_of(metric, [other for its, other in plain if its == name])
        free, number = full_name, 1
        while free in result:
            free, number = f"{full_name}_{number + 1}", number + 1
        result.append(free)
    return result


def _settings_of(metric: Metric, others: Sequence[Metric]) -> str:
    """The settings in which a metric differs from others of its name, in brackets."""
    if not is_dataclass(metric):
        return ""
    mine = {each.name: getattr(metric, each.name) for each in fields(metric)}
    settings = [f"{k}={v}" for k, v in mine.items() if any(getattr(other, k, v) != v for other in others)]
    return f"({', '.join(settings)})" if settings else ""


def _check_scalar(loss: Value, what: str = "a loss") -> None:
    kind = getattr(loss, "type", None)
    scalar = isinstance(kind, TensorType) and kind.dtype.is_float and kind.shape is not None
    if not scalar or any(dim != 1 for dim in kind.shape or ()):  # type: ignore[union-attr]
        raise InvalidCall(
            f"{what} is not one floating-point number",
            given=repr(loss),
            do="reduce it to its mean",
        )
