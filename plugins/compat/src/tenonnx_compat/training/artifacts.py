"""``generate_artifacts``: writes the training, optimizer and evaluation models, and the initial checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import ArrayConstant, Graph, InvalidCall, TensorType, Value
from tenonnx.extend.formats import TrainingState, export
from tenonnx.extend.transforms import Builder, copy_graph, interpreting
from tenonnx_training.losses import Loss
from tenonnx_training.objective import Objective
from tenonnx_training.optimizers import SGD, AdamW, Optimizer
from tenonnx_training.recipe import Recipe
from tenonnx_training.step_graph import Differentiated, differentiated, evaluation_graph
from tenonnx_training.unmarked_state import adopt
from tenonnx_training.updates import COUNT, SEED, Updates, fill

if TYPE_CHECKING:
    import onnx

#: Names of the files, and of inputs and outputs that the files add to the model's.
TRAINING, EVALUATION, OPTIMIZER = "training_model.onnx", "eval_model.onnx", "optimizer_model.onnx"
CHECKPOINT = "checkpoint"
RESET, BUFFER, GATHERED, GRADIENT = "lazy_reset_grad", "_grad.accumulation.buffer", "_grad.accumulation.out", "_grad"

#: Name of the input with the number of batches so far, which seeds random ops.
BATCHES = "training__batches"

#: Metadata key whose JSON value maps state inputs to the outputs with their next values.
STATE = "tenonnx.state"

#: Minimum opset: the first with Scatter reductions, which the gradients of Gather use.
_OLDEST = 16


class LossType(Enum):
    """Losses, as onnxruntime-training names them. CrossEntropyLoss adds an input ``labels``, the others ``target``."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(Enum):
    """Optimizers, as onnxruntime-training names them, with its default settings."""

    AdamW = 1
    SGD = 2


_LOSSES = {
    LossType.MSELoss: ("mean_squared_error", "target"),
    LossType.CrossEntropyLoss: ("softmax_cross_entropy", "labels"),
    LossType.BCEWithLogitsLoss: ("binary_cross_entropy", "target"),
    LossType.L1Loss: ("mean_absolute_error", "target"),
}


@dataclass(frozen=True)
class _AdamW(AdamW):
    """AdamW of onnxruntime-training, which adds epsilon before the bias correction of the moments."""

    name: ClassVar[str] = "adamw"

    def scalars(self, rate: Value, step: Value) -> Mapping[str, Value]:
        return {**super().scalars(rate, step), "epsilon": rate * 0.0 + self.epsilon}


_OPTIMIZERS = {OptimType.AdamW: _AdamW(epsilon=1e-6, weight_decay=0.0), OptimType.SGD: SGD(1e-3)}


def generate_artifacts(
    model: onnx.ModelProto | Graph | str | os.PathLike[str],
    requires_grad: Sequence[str] | None = None,
    frozen_params: Sequence[str] | None = None,
    loss: LossType | Loss | Callable[..., Any] | None = None,
    optimizer: OptimType | Optimizer | None = None,
    artifact_directory: str | os.PathLike[str] | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: Any = None,
    additional_output_names: Sequence[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: Sequence[str] | None = None,
) -> None:
    """Write ``training_model.onnx``, ``eval_model.onnx``, ``optimizer_model.onnx`` and ``checkpoint`` to a folder.

    The trainable variables are ``requires_grad``, by default all floating-point variables that are not scalars; those
    of ``frozen_params`` are excluded. The loss reads the first of ``loss_input_names``, by default the first float
    output. Without ``loss``, that output is the loss. Losses and optimizers of tenonnx-training are accepted, too.

    All files are plain ONNX. The training model takes the model's inputs, the labels, every trainable variable ``p``,
    its accumulated gradient ``p_grad.accumulation.buffer``, and ``lazy_reset_grad``, which resets the gradients. It
    returns the loss, the additional outputs and ``p_grad.accumulation.out``. The optimizer model takes ``p``,
    ``p_grad``, ``learning_rate`` and its own state. The metadata ``tenonnx.state`` maps state inputs to the outputs
    with their next values. The checkpoint is the model with its training state.

    Raises ``InvalidCall`` for unsupported arguments and unknown names of values.
    """
    _refuse(
        {"ort_format": ort_format, "custom_op_library": custom_op_library, "nominal_checkpoint": nominal_checkpoint}
    )
    graph = model if isinstance(model, Graph) else tx.load(model)
    graph = copy_graph(graph).infer()
    adopt(graph)
    graph.training_state = None
    folder, more = Path(artifact_directory or "."), list(additional_output_names or ())
    if unknown := [name for name in more if name not in {value.name for value in graph.values()}]:
        raise InvalidCall("unknown additional outputs", given=", ".join(unknown))
    chosen = [*(requires_grad or ()), *(f"!{name}" for name in frozen_params or ())] or None
    recipe, objective = Recipe(trainable=chosen), _objective(graph, loss, loss_input_names)
    step = differentiated(graph, objective, recipe)
    _write(_evaluation_model(graph, step, objective, more), folder / f"{prefix}{EVALUATION}")
    _write(_training_model(step, more), folder / f"{prefix}{TRAINING}")
    if optimizer is not None:
        _write(_optimizer_model(graph, step.parameters, optimizer), folder / f"{prefix}{OPTIMIZER}")
    graph.training_state = TrainingState({}, {"requires_grad": step.parameters, "properties": {}})
    export(graph, folder / f"{prefix}{CHECKPOINT}", include_training_state=True)


def _refuse(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value:
            raise InvalidCall(
                f"generate_artifacts does not support {name}: artifacts are plain ONNX files with initializers",
                given=f"{name}={value!r}"[:80],
                do=f"leave out {name}",
            )


def _objective(graph: Graph, loss: Any, names: Sequence[str] | None) -> Objective:
    if unknown := [name for name in names or () if name not in {value.name for value in graph.values()}]:
        raise InvalidCall("unknown inputs of a loss", given=", ".join(unknown))
    output = names[0] if names else None
    if loss is None:
        floats = [v.name for v in graph.outputs if isinstance(v.type, TensorType) and v.type.dtype.is_float]
        return Objective(output or next(iter(floats), ""))
    kind, labels = _LOSSES[loss] if isinstance(loss, LossType) else (loss, "labels")
    return Objective(kind, output, labels)


def _training_model(step: Differentiated, more: Sequence[str]) -> Graph:
    """The graph of the loss, and of the gradients accumulated since the last reset."""
    graph, state = step.graph, dict[str, str]()
    values = {value.name: value for value in graph.values()}
    graph.outputs = []
    with interpreting(Builder(graph, prefix="gradients")):
        for name in (step.measured.loss, *more):
            graph.output(name, values[name])
        reset = graph.input(RESET, "bool", ())
        for name in step.parameters:
            gradient = values[f"{name}/grad"]
            accumulated = graph.input(f"{name}{BUFFER}", values[name].tensor)
            total = ops.where(reset, gradient, accumulated + gradient)
            state[accumulated.name] = graph.output(f"{name}{GATHERED}", total).name
        for name, after in step.statistics.items():
            state[name] = graph.output(f"{name}/next", values[after]).name
        if step.seeded:
            graph.rename(values[COUNT], BATCHES)
            state[BATCHES] = graph.output(f"{BATCHES}/next", values[COUNT] + 1).name
    fill(graph, {SEED: ArrayConstant(np.asarray(0, np.int64))})
    graph.metadata[STATE] = json.dumps(state)
    return graph


def _evaluation_model(graph: Graph, step: Differentiated, objective: Objective, more: Sequence[str]) -> Graph:
    used, measured = evaluation_graph(graph, objective, [*step.parameters, *step.statistics], more)
    used = used.extract([value.name for value in used.all_inputs if value.data is None], [measured.loss, *more])
    fill(used, {name: ArrayConstant(np.asarray(0, np.int64)) for name in (SEED, COUNT)})
    return used


def _optimizer_model(source: Graph, parameters: Sequence[str], optimizer: Any) -> Graph:
    optimizer = _OPTIMIZERS[optimizer] if isinstance(optimizer, OptimType) else optimizer
    graph = Graph("optimizer", opsets=dict(source.opsets))
    kinds = {value.name: value.tensor for value in source.variables}
    gradients = {}
    for name in parameters:
        graph.input(name, kinds[name])
        gradients[name] = graph.input(f"{name}{GRADIENT}", kinds[name])
    with interpreting(Builder(graph, prefix="update", fold=True)):
        updates = Updates(graph, source, optimizer, Recipe())
        updates.run(gradients)
    initial = {name: updates.contents[name] for name in updates.slots}
    fill(graph, {name: data for name, data in initial.items() if data is not None and np.any(data.array())})
    graph.metadata[STATE] = json.dumps(updates.state)
    rate = optimizer.learning_rate
    graph.metadata["tenonnx.learning_rate"] = str(1e-3 if callable(rate) else rate)
    return graph


def _write(graph: Graph, path: Path) -> None:
    graph.training_state = None
    export(graph, path, opset_version=max(graph.opsets.get("ai.onnx", 0), _OLDEST))
