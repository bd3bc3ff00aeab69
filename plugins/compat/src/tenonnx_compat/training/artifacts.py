"""Writing the files of a training: the gradients, the optimizer, the evaluation model and the first checkpoint."""

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

#: The names of the files, and of what they have beside the values of the model.
TRAINING, EVALUATION, OPTIMIZER = "training_model.onnx", "eval_model.onnx", "optimizer_model.onnx"
CHECKPOINT = "checkpoint"
RESET, BUFFER, GATHERED, GRADIENT = "lazy_reset_grad", "_grad.accumulation.buffer", "_grad.accumulation.out", "_grad"

#: How many batches there were, which random numbers depend on.
BATCHES = "training__batches"

#: The entry of the metadata that maps inputs to the outputs that replace them.
STATE = "tenonnx.state"

#: The first opset in which a scatter can add, as the gradients of gathers do.
_OLDEST = 16


class LossType(Enum):
    """Losses by the names of onnxruntime-training. That of classes has the input ``labels``, the others ``target``."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(Enum):
    """Optimizers by the names of onnxruntime-training, with the settings that they have there."""

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
    """As onnxruntime-training has it: there epsilon is added before the bias of the moments is corrected."""

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

    Trained are the variables ``requires_grad``, by default all of floating point with axes but ``frozen_params``. The
    loss reads the first of ``loss_input_names``, by default the first output of floats; without a loss, that output is
    the loss. Losses and optimizers of this package will do, too.

    All files are plain ONNX. The training model takes the inputs of the model, the labels, every trained variable
    ``p``, the gradient so far ``p_grad.accumulation.buffer``, and ``lazy_reset_grad``, which tells to forget it; it
    gives the loss, the additional outputs and ``p_grad.accumulation.out``. The optimizer model takes ``p``, ``p_grad``,
    ``learning_rate`` and its own state. The entry ``tenonnx.state`` of their metadata says which output replaces which
    input. The checkpoint is the model itself, with training state. Raises ``InvalidCall`` for missing files.
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
    made = differentiated(graph, objective, recipe)
    _write(_evaluation_model(graph, made, objective, more), folder / f"{prefix}{EVALUATION}")
    _write(_training_model(made, more), folder / f"{prefix}{TRAINING}")
    if optimizer is not None:
        _write(_optimizer_model(graph, made.parameters, optimizer), folder / f"{prefix}{OPTIMIZER}")
    graph.training_state = TrainingState({}, {"requires_grad": made.parameters, "properties": {}})
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


def _training_model(made: Differentiated, more: Sequence[str]) -> Graph:
    """The loss, and the gradients of all batches since they were last forgotten."""
    graph, state = made.graph, dict[str, str]()
    values = {value.name: value for value in graph.values()}
    graph.outputs = []
    with interpreting(Builder(graph, prefix="gradients")):
        for name in (made.measured.loss, *more):
            graph.output(name, values[name])
        reset = graph.input(RESET, "bool", ())
        for name in made.parameters:
            gradient = values[f"{name}/grad"]
            held = graph.input(f"{name}{BUFFER}", values[name].tensor)
            whole = ops.where(reset, gradient, held + gradient)
            state[held.name] = graph.output(f"{name}{GATHERED}", whole).name
        for name, after in made.statistics.items():
            state[name] = graph.output(f"{name}/next", values[after]).name
        if made.seeded:
            graph.rename(values[COUNT], BATCHES)
            state[BATCHES] = graph.output(f"{BATCHES}/next", values[COUNT] + 1).name
    fill(graph, {SEED: ArrayConstant(np.asarray(0, np.int64))})
    graph.metadata[STATE] = json.dumps(state)
    return graph


def _evaluation_model(graph: Graph, made: Differentiated, objective: Objective, more: Sequence[str]) -> Graph:
    used, measured = evaluation_graph(graph, objective, [*made.parameters, *made.statistics], more)
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
    begun = {name: updates.contents[name] for name in updates.slots}
    fill(graph, {name: data for name, data in begun.items() if data is not None and np.any(data.array())})
    graph.metadata[STATE] = json.dumps(updates.state)
    rate = optimizer.learning_rate
    graph.metadata["tenonnx.learning_rate"] = str(1e-3 if callable(rate) else rate)
    return graph


def _write(graph: Graph, path: Path) -> None:
    graph.training_state = None
    export(graph, path, opset_version=max(graph.opsets.get("ai.onnx", 0), _OLDEST))
