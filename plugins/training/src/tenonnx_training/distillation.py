"""Knowledge distillation: a loss that includes the distance from a teacher's prediction (Hinton et al. 2015)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import tenonnx as tx
from tenonnx.extend import Graph, InvalidCall, Value, inline
from tenonnx.extend.transforms import inline_functions, unify_types
from tenonnx_standard.activation import sigmoid
from tenonnx_standard.axis_activation import log_softmax
from tenonnx_standard.math import exp
from tenonnx_standard.reduction import reduce_sum
from tenonnx_training.classes import axis_of_classes, counts, spread, wide
from tenonnx_training.losses import (
    BinaryCrossEntropy,
    Dice,
    Focal,
    Huber,
    KullbackLeibler,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    NegativeLogLikelihood,
    SoftmaxCrossEntropy,
    weighted_mean,
)
from tenonnx_training.modes import evaluation_form
from tenonnx_training.predictions import before, prediction_of

#: Losses by the kind of distance: class probabilities, independent labels, and numbers.
_CLASSES = (SoftmaxCrossEntropy, NegativeLogLikelihood)
_LABELS = (BinaryCrossEntropy, Focal, Dice)
_NUMBERS = (MeanSquaredError, MeanAbsoluteError, Huber)


@dataclass(frozen=True)
class Teacher:
    """A model that a student imitates. ``inputs`` maps the inputs of ``graph`` to names of the student's inputs.

    The loss is ``(1 - weight) * loss + weight * distance``. The distance is, for losses of classes, the
    Kullback-Leibler divergence of both softmaxes of ``scores / temperature``; for ``Sigmoid`` losses the binary
    cross-entropy of both sigmoids, each times ``temperature ** 2``; for losses of numbers the loss with the teacher's
    prediction as labels.
    """

    graph: Graph
    inputs: Mapping[str, str]
    temperature: float = 2.0
    weight: float = 0.5

    def note(self) -> str:
        """A line about the teacher for the notes of a training."""
        return f"the loss is {1 - self.weight:g} by labels and {self.weight:g} by the teacher"

    def blended(
        self, cost: Value, loss: Loss, reads: Value, labels: Value, weights: Value | None, output: str | None
    ) -> Value:
        """The loss ``cost`` of ``reads`` by labels, blended with the distance from the teacher's prediction."""
        if not isinstance(loss, (*_CLASSES, *_LABELS, *_NUMBERS, KullbackLeibler)):
            available = ", ".join(each.name for each in (*_CLASSES, *_LABELS, *_NUMBERS, KullbackLeibler))
            given = str(getattr(loss, "name", type(loss).__name__))
            raise InvalidCall("distillation: unsupported loss", given=given, available=available)
        prediction = self._prediction(loss, reads, output)
        heat = self.temperature
        if isinstance(loss, _NUMBERS):
            distance = loss.batch(reads, prediction, weights)[0]
        elif isinstance(loss, _LABELS):
            like = BinaryCrossEntropy(loss.reduction)
            distance = like.batch(reads / heat, sigmoid(prediction / heat), weights)[0] * heat**2
        else:
            distance = self._divergence(loss, reads / heat, prediction / heat, labels, weights) * heat**2
        return cost * (1.0 - self.weight) + distance * self.weight

    def _divergence(
        self, loss: Any, scores: Value, teacher_scores: Value, labels: Value, weights: Value | None
    ) -> Value:
        """The Kullback-Leibler divergence of softmaxes, over the labels that the loss does not ignore."""
        of_classes = isinstance(loss, _CLASSES)
        axis = axis_of_classes(scores.tensor, loss.class_axis) if of_classes else scores.ndim - 1
        known = log_softmax(teacher_scores, axis=axis)
        each = wide(reduce_sum(exp(known) * (known - log_softmax(scores, axis=axis)), [axis], keepdims=0))
        count = counts(labels, None, loss.ignore_index) if of_classes else counts(each, None, None)
        share = count if weights is None else count * spread(weights, each)
        return weighted_mean(each, share, share, loss.reduction)[0]

    def _prediction(self, loss: Loss, reads: Value, output: str | None) -> Value:
        """The teacher's value that corresponds to ``reads``, added to the graph of the student."""
        outputs = {value.name for value in self.graph.outputs}
        found = prediction_of(self.graph, output if output in outputs or len(outputs) > 1 else None)
        includes = "Softmax" if isinstance(loss, _CLASSES) else loss.includes
        source = before(self.graph, found, includes)
        try:
            unify_types(source.tensor, reads.tensor)
        except ValueError as error:
            raise InvalidCall(
                "predictions of teacher and student differ in type",
                given=f"teacher {source.name}: {source.type}, student {reads.name}: {reads.type}",
                do="output= (--of) names what is compared",
            ) from error
        part = self.graph.extract([value.name for value in self.graph.inputs], [source.name])
        student: Any = reads.graph
        values = {value.name: value for value in student.all_inputs}
        (prediction,) = inline(part, [values[self.inputs[value.name]] for value in part.all_inputs])
        return prediction  # type: ignore[return-value]


def teacher_of(
    given: Graph | str | os.PathLike[str] | None, student: Graph, temperature: float | None, weight: float | None
) -> Teacher | None:
    """The teacher of ``student``, a graph or a file. Raises ``InvalidCall`` for inputs that the student does not have.

    Settings without a teacher raise it too, since they belong to a resumed training, whose state omits the teacher.
    """
    if given is None:
        if weight != 0 and not (temperature is None and weight is None):
            raise InvalidCall(
                "the teacher is missing, with temperature or teacher_weight given",
                given="no teacher; training state does not hold it",
                do="give it (again): teacher= (--teacher), or go on without: teacher_weight=0 (--teacher-weight 0)",
            )
        return None
    heat, weight = 2.0 if temperature is None else temperature, 0.5 if weight is None else weight
    if not (_is_number(heat) and heat > 0) or not (_is_number(weight) and 0 <= weight <= 1):
        raise InvalidCall(
            "invalid temperature or teacher_weight",
            given=f"temperature={heat!r}, teacher_weight={weight!r}",
            do="temperature is above 0, and teacher_weight is from 0 to 1",
        )
    graph = evaluation_form(inline_functions(given if isinstance(given, Graph) else tx.load(given))).infer()
    theirs, ours = [value.name for value in graph.inputs], [value.name for value in student.inputs]
    inputs = {name: name for name in theirs if name in ours}
    if len(theirs) == len(ours) == 1:
        inputs = {theirs[0]: ours[0]}
    if missing := [name for name in theirs if name not in inputs]:
        raise InvalidCall(
            "the teacher has inputs that the model lacks",
            given=", ".join(missing),
            available=", ".join(ours),
            do="rename them: graph.rename / tenonnx rename",
        )
    return Teacher(graph, inputs, float(heat), float(weight))


def _is_number(number: object) -> bool:
    return isinstance(number, Real) and math.isfinite(number)
