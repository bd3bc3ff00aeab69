"""What is minimised: the loss of a prediction, and the metrics beside it, as part of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall, TenonnxError, TensorType, UnknownType, Value
from tenonnx.extend.transforms import Builder, interpreting
from tenonnx_standard.shapes import identity
from tenonnx_training.losses import LOSSES, FunctionLoss, Loss, NegativeLogLikelihood, NoLoss
from tenonnx_training.measuring import ArrayMetric, Measurement, Scalar, Sum
from tenonnx_training.metrics import METRICS, Metric, OfClasses


@dataclass(frozen=True)
class Objective:
    """What is minimised: a ``loss`` of the value ``output`` and a graph input ``labels``, or a value of the file.

    ``output`` is by default the first graph output that holds floats; where a loss includes the activation that the
    output ends in, it reads what goes into that. ``sample_weights`` is a graph input with a weight for each sample, by
    which the loss is a weighted mean.
    """

    loss: str | Loss | Callable[[Value, Value], Value]
    output: str | None = None
    labels: str = "labels"
    metrics: Sequence[str | Metric] = ()
    sample_weights: str | None = None


@dataclass
class Measured:
    """What a graph with an objective measures: ``scalars``, of which the loss is the first, and ``metrics`` of arrays.

    These read the output ``predicted``. ``labels`` is the graph input for the labels, ``prediction`` the type of what
    the loss reads, ``cost`` the loss itself: None where the file computes it. ``also`` are losses among the metrics.
    """

    scalars: list[Scalar] = field(default_factory=list)
    metrics: list[ArrayMetric] = field(default_factory=list)
    predicted: str | None = None
    labels: str | None = None
    prediction: TensorType | None = None
    cost: Loss | None = None
    also: list[Loss] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def loss(self) -> str:
        return self.scalars[0].value

    @property
    def outputs(self) -> list[str]:
        """The names of all graph outputs that are read."""
        read = [name for scalar in self.scalars for name in (scalar.value, scalar.count) if name is not None]
        return read if self.predicted is None else [*read, self.predicted]

    def given(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """A batch with its labels as the loss compares them."""
        named, convert = dict(batch), getattr(self.cost, "labels_given", None)
        if convert is not None and self.prediction is not None and self.labels in named:
            labels = np.asarray(named[self.labels])
            named[self.labels] = convert(self.prediction, labels)
        return named

    def check(self, batch: Mapping[str, Any]) -> None:
        """Raise ``InvalidFeed`` for labels with contents that mean nothing."""
        for loss in (*self.also, *([] if self.cost is None else [self.cost])):
            if self.prediction is not None:
                loss.check(self.prediction, np.asarray(batch[str(self.labels)]))

    def measurement(self, results: Mapping[str, Any], labels: Any, samples: int) -> Measurement:
        """What ``results`` of the graph say of a batch of so many samples."""
        sums: dict[str, Sum] = {}
        for scalar in self.scalars:
            value = float(np.reshape(results[scalar.value], ()))
            weight = float(samples) if scalar.count is None else float(np.reshape(results[scalar.count], ()))
            if scalar.summed:
                sums[scalar.name] = value, None if scalar.count is None else weight
            else:
                sums[scalar.name] = value * weight, weight
        if (check := getattr(self.cost, "check_loss", None)) is not None:
            check(float(np.reshape(results[self.loss], ())))
        if self.predicted is None:
            return Measurement(sums)
        return Measurement(sums, np.asarray(results[self.predicted]), np.asarray(labels))


def add_objective(graph: Graph, objective: Objective) -> Measured:
    """Add the loss and the metrics to ``graph``, with the graph input for their labels."""
    values = {value.name: value for value in graph.values()}
    if isinstance(objective.loss, str) and objective.loss in values:
        _check_scalar(values[objective.loss])
        if objective.metrics:
            raise InvalidCall("metrics need a loss of a prediction and labels", given="a loss that the model computes")
        if objective.sample_weights is not None:
            raise InvalidCall(
                "sample weights need a loss of a prediction and labels", given="a loss that the model computes"
            )
        return Measured([Scalar(objective.loss, objective.loss)])
    loss = as_loss(objective.loss, graph)
    prediction = _prediction(graph, objective.output)
    reads = _before(graph, prediction, loss.includes)
    _refuse_probabilities(graph, loss, reads)
    labels = graph.input(objective.labels, loss.labels_type(reads.tensor))
    made = Measured(labels=labels.name, prediction=reads.tensor, cost=loss)
    if reads is not prediction:
        made.notes.append(
            f'the loss reads "{reads.name}", because it includes the {loss.includes} that computes "{prediction.name}"'
        )
    with interpreting(Builder(graph, prefix="loss")):
        costs, count = _cost(loss, reads, labels, _weights(graph, objective, reads))
        cost = graph.output(free_name(graph, "loss"), costs)
        weight = None if count is None else graph.output(free_name(graph, "loss/count"), count).name
        made.scalars.append(Scalar(cost.name, cost.name, weight, summed=getattr(loss, "reduction", "") == "sum"))
        scores = _gives_scores(loss, reads, prediction)
        for metric in objective.metrics:
            _add_metric(graph, made, metric, prediction, labels, scores)
        if made.metrics:
            made.predicted = graph.output(free_name(graph, "prediction"), prediction).name
    return made


def _weights(graph: Graph, objective: Objective, prediction: Value) -> Value | None:
    if objective.sample_weights is None:
        return None
    shape = prediction.tensor.shape
    return graph.input(objective.sample_weights, TensorType(DType.float32, None if shape is None else shape[:1]))


def _refuse_probabilities(graph: Graph, loss: Loss, prediction: Value) -> None:
    """Raise ``InvalidCall`` for a loss of logarithms that would read the probabilities themselves."""
    if isinstance(loss, NegativeLogLikelihood) and _before(graph, prediction, "Softmax") is not prediction:
        raise InvalidCall(
            "negative_log_likelihood must read logarithms of probabilities",
            given=f'"{prediction.name}", which a Softmax gives',
            do="softmax_cross_entropy includes the Softmax that the model ends in",
        )


def _gives_scores(loss: Loss, reads: Value, prediction: Value) -> bool | None:
    """Whether one column of a prediction is of scores, and no probabilities; None where no loss tells."""
    if isinstance(loss, NoLoss):
        return False if _before(prediction.graph, prediction, "Sigmoid") is not prediction else None  # type: ignore[arg-type]
    return loss.includes == "Sigmoid" and reads is prediction


def _cost(loss: Loss, prediction: Value, labels: Value, weights: Value | None) -> tuple[Value, Value | None]:
    """The loss of a batch, and how much it counts among others, None where that is by samples or not at all."""
    try:
        if hasattr(loss, "batch"):
            cost, count = loss.batch(prediction, labels, weights)
        elif weights is None:
            cost, count = loss(prediction, labels), None
        else:
            raise InvalidCall(
                "a custom loss must apply sample weights itself", given="sample_weights", available=", ".join(LOSSES)
            )
    except (TenonnxError, AttributeError, TypeError, ValueError) as error:
        by_numpy = not isinstance(error, TenonnxError) or isinstance(error, UnknownType)
        if isinstance(error, TenonnxError) and not (by_numpy and isinstance(loss, FunctionLoss)):
            error.do = wanted_labels(loss) or error.do
        if not by_numpy or not isinstance(loss, FunctionLoss):
            raise
        raise InvalidCall(
            "a custom loss is traced: it must use ops on graph values, not numpy",
            given=f"{type(error).__name__}: {error}",
            do="use Python's operators and ops: import tenonnx_standard as ops; ops.reduce_mean(x, keepdims=0)",
        ) from error
    _check_scalar(cost)
    return cost, count


def wanted_labels(loss: Loss | None) -> str:
    """What to do where the labels of a user's function are not of the prediction's type, as they are by default."""
    if not isinstance(loss, FunctionLoss) or loss.labels is not None:
        return ""
    return (
        "declare the type of the labels, by default that of the prediction: "
        "tt.FunctionLoss(function, labels=tx.TensorType(tx.DType.int64, ('batch',)))"
    )


def _add_metric(
    graph: Graph, made: Measured, given: str | Metric, prediction: Value, labels: Value, scores: bool | None
) -> None:
    """Add a metric: by ops where its function takes values, else by arrays."""
    name, asked = as_metric(beside(given, made.cost, scores=scores))
    metric: Any = asked
    reads = _before(graph, prediction, getattr(metric, "includes", ""))
    is_loss = hasattr(metric, "batch")
    try:
        found = metric.batch(reads, labels) if is_loss else metric(reads, labels)
    except UnknownType:  # numpy asks for contents
        found = None
    except TenonnxError:
        raise
    except Exception:  # numpy can do little with values
        found = None
    found = tuple(part for part in found if part is not None) if is_loss and isinstance(found, tuple) else found
    parts = found if isinstance(found, tuple) and all(isinstance(part, Value) for part in found) else (found,)
    if not isinstance(parts[0], Value):
        made.metrics.append(ArrayMetric(name, metric))
        return
    for part in parts:
        _check_scalar(part, f'the metric "{name}"')
    value = graph.output(free_name(graph, name), parts[0]).name
    count = graph.output(free_name(graph, f"{name}/count"), parts[1]).name if len(parts) > 1 else None
    summed = metric.reduction == "sum" if is_loss else count is not None
    made.also += [metric] if is_loss else []
    made.scalars.append(Scalar(value, value, count, summed, getattr(metric, "finish", float)))


def beside(given: str | Metric, loss: Any, *, scores: bool | None = None) -> Metric:
    """A metric with what a loss says that it does not say itself, see ``OfClasses.beside``."""
    _, metric = as_metric(given)
    return metric.beside(loss, scores=scores) if isinstance(metric, OfClasses) else metric


def free_name(graph: Graph, name: str) -> str:
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
        if metric not in METRICS and metric not in LOSSES:
            known = ", ".join(dict.fromkeys([*METRICS, *LOSSES]))
            raise InvalidCall(f'no metric is called "{metric}"', available=known)
        return metric, METRICS[metric] if metric in METRICS else LOSSES[metric]()
    if isinstance(metric, type) or not callable(metric):
        raise InvalidCall("a metric must be a name or a function", given=repr(metric), available=", ".join(METRICS))
    return str(getattr(metric, "name", getattr(metric, "__name__", "metric"))), metric


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
