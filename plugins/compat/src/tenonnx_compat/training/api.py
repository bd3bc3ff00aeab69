"""onnxruntime-training's ``api``: checkpoint state, module, optimizer and scheduler, on the files of ``artifacts``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx.extend import ArrayConstant, Graph, InvalidCall, InvalidModel
from tenonnx.extend.formats import TrainingState, export
from tenonnx.extend.transforms import copy_graph
from tenonnx_compat.training.artifacts import BUFFER, GATHERED, GRADIENT, RESET, STATE
from tenonnx_training.modes import switch_to_inference
from tenonnx_training.updates import RATE

Array = np.ndarray[Any, Any]

Location = str | os.PathLike[str]


class Parameter:
    """A variable of the model: its assignable contents ``data``, and its gradient accumulated since the last reset."""

    def __init__(self, name: str, state: CheckpointState) -> None:
        self.name, self._state = name, state

    def __repr__(self) -> str:
        return f"Parameter({self.name!r}, requires_grad={self.requires_grad})"

    @property
    def data(self) -> Array:
        return self._state.tensors[self.name]

    @data.setter
    def data(self, contents: Array) -> None:
        before, array = self.data, np.asarray(contents)
        if array.dtype != before.dtype or array.shape != before.shape:
            raise InvalidCall(
                f'dtype or shape of "{self.name}" changed',
                given=f"{array.dtype}{list(array.shape)}",
                available=f"{before.dtype}{list(before.shape)}",
            )
        self._state.tensors[self.name] = array

    @property
    def grad(self) -> Array | None:
        return self._state.tensors.get(f"{self.name}{BUFFER}")

    @property
    def requires_grad(self) -> bool:
        return self.name in self._state.trained


class Parameters(Mapping[str, Parameter]):
    """The floating-point variables by name."""

    def __init__(self, state: CheckpointState, names: list[str]) -> None:
        self._state, self._names = state, names

    def __getitem__(self, name: str) -> Parameter:
        if name not in self._names:
            raise KeyError(name)
        return Parameter(name, self._state)

    def __setitem__(self, name: str, contents: Array) -> None:
        self[name].data = contents

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class CheckpointState:
    """The state of a training run: ``parameters``, user ``properties``, and the state of the optimizer.

    A checkpoint is an ONNX file of the model with its training state.
    """

    def __init__(self, graph: Graph) -> None:
        if not isinstance(graph, Graph) or graph.training_state is None:
            raise InvalidCall(
                "CheckpointState: the graph is not from a checkpoint", do="CheckpointState.load_checkpoint(path)"
            )
        self._graph, settings = graph, graph.training_state.settings
        try:
            self.trained = list(map(str, settings.get("requires_grad", [])))
            self.properties: MutableMapping[str, int | float | str] = dict(settings.get("properties", {}))
        except (TypeError, ValueError) as error:
            raise InvalidModel("CheckpointState: the settings are damaged", given=str(error)) from error
        floats = [v for v in graph.variables if v.data is not None and v.tensor.dtype.is_float]
        self.parameters = Parameters(self, [value.name for value in floats])
        self.tensors: dict[str, Array] = {v.name: v.data.array() for v in floats if v.data is not None}
        self.tensors |= {name: data.array() for name, data in graph.training_state.tensors.items()}

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: Location) -> CheckpointState:
        """Read a checkpoint. Raises ``InvalidCall`` for a file that is not a checkpoint."""
        graph = tx.load(checkpoint_uri)
        if graph.training_state is None or "requires_grad" not in graph.training_state.settings:
            raise InvalidCall(
                f'"{os.fspath(checkpoint_uri)}" is not a checkpoint', do="artifacts.generate_artifacts writes one"
            )
        return cls(graph)

    @classmethod
    def save_checkpoint(
        cls, state: CheckpointState, checkpoint_uri: Location, include_optimizer_state: bool = False
    ) -> None:
        """Write a checkpoint, optionally with the state of the optimizer."""
        export(state.model(include_optimizer_state), checkpoint_uri, include_training_state=True)

    def model(self, include_optimizer_state: bool = False) -> Graph:
        """The model with the current contents of its variables."""
        graph = copy_graph(self._graph)
        graph.assign({name: self.tensors[name] for name in self.parameters})
        slots = {
            n: a for n, a in self.tensors.items() if n not in self.parameters and not n.endswith((BUFFER, GATHERED))
        }
        tensors = {name: ArrayConstant(np.asarray(a)) for name, a in slots.items() if include_optimizer_state}
        graph.training_state = TrainingState(
            tensors, {"requires_grad": self.trained, "properties": dict(self.properties)}
        )
        return graph


class _Model:
    """One of the files as a compiled program that reads and updates the tensors of a checkpoint state."""

    def __init__(self, path: Location, **options: Any) -> None:
        graph = tx.load(path)
        self.replaced, self.learning_rate = _metadata(graph, path)
        self.input_types = {value.name: value.tensor for value in graph.inputs}
        self.outputs = [v.name for v in graph.outputs if v.name not in self.replaced.values()]
        self._program = graph.compile(**options)

    def run(self, tensors: MutableMapping[str, Array], feeds: Mapping[str, Any]) -> list[Array]:
        """Run the program and update ``tensors``; returns the outputs that are not state."""
        for name in self.replaced.keys() & self.input_types.keys() - tensors.keys():
            kind = self.input_types[name]
            tensors[name] = np.zeros(kind.shape or (), kind.dtype.numpy)
        known = {**{name: tensors[name] for name in (*self.input_types, *self.replaced) if name in tensors}, **feeds}
        results = self._program(known)
        tensors.update({name: results[after] for name, after in self.replaced.items()})
        return [results[name] for name in self.outputs]


def _metadata(graph: Graph, path: Location) -> tuple[dict[str, str], float]:
    """Outputs that replace an input, by input, and the learning rate. Raises ``InvalidModel`` for other metadata."""
    try:
        replaced = json.loads(graph.metadata.get(STATE, "{}"))
        rate = float(graph.metadata.get("tenonnx.learning_rate", "nan"))
        outputs = {value.name for value in graph.outputs}
        if not isinstance(replaced, dict) or not all(isinstance(each, str) for each in replaced.values()):
            raise TypeError(f"{STATE} does not map inputs to outputs")
        if missing := sorted(set(replaced.values()) - outputs):
            raise ValueError(f'{STATE} names the output "{missing[0]}", which the graph does not have')
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidModel(f'the metadata of "{os.fspath(path)}" is damaged', given=str(error)[:200]) from error
    return replaced, rate


class Module:
    """The training and the evaluation model on one checkpoint state; ``training`` selects the model that calls run.

    With ``session_options``, onnxruntime runs the files with these options; without, the fastest backend does.
    """

    training: bool

    def __init__(
        self,
        train_model_uri: Location,
        state: CheckpointState,
        eval_model_uri: Location | None = None,
        device: str = "cpu",
        session_options: Any = None,
    ) -> None:
        if device != "cpu":
            raise InvalidCall("Module: the device is not the CPU", given=f"device={device!r}", available="cpu")
        if not isinstance(state, CheckpointState):
            raise InvalidCall("Module: state is not a CheckpointState", given=repr(state)[:80])
        self._options: dict[str, Any] = {}
        if session_options is not None:
            self._options = {"backend": "onnxruntime", "session_options": session_options}
        self._state, self.training, self._reset = state, True, True
        self._train = _Model(train_model_uri, **self._options)
        self._eval = None if eval_model_uri is None else _Model(eval_model_uri, **self._options)

    def __call__(self, *user_inputs: Any) -> Any:
        """Run a batch: ``user_inputs`` are the model's inputs and the labels.

        Returns the loss, or a tuple of the loss and the additional outputs. In training mode, gradients accumulate
        until ``lazy_reset_grad``.
        """
        part, names = self._part(), self.input_names()
        if len(user_inputs) != len(names):
            raise InvalidCall(
                "wrong number of arguments of Module",
                given=f"{len(user_inputs)} inputs",
                available=", ".join(names),
            )
        arrays = [array.numpy() if hasattr(array, "numpy") else np.asarray(array) for array in user_inputs]
        feeds = dict(zip(names, arrays, strict=True))
        if self.training:
            feeds[RESET] = np.asarray(self._reset)
            outputs = part.run(self._state.tensors, feeds)
            self._reset = False
        else:
            outputs = part.run(self._state.tensors, feeds)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def train(self, mode: bool = True) -> Module:
        self.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def lazy_reset_grad(self) -> None:
        """Reset the accumulated gradients at the next training step."""
        self._reset = True

    def input_names(self) -> list[str]:
        """Names of the inputs that a call takes, in order."""
        ours = {*self._state.tensors, *self._part().replaced, RESET}
        return [name for name in self._part().input_types if name not in ours]

    def output_names(self) -> list[str]:
        return list(self._part().outputs)

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """Number of elements of the parameters."""
        return sum(math.prod(self._state.tensors[name].shape) for name in self._parameters(trainable_only))

    def get_contiguous_parameters(self, trainable_only: bool = False) -> Array:
        """A copy of all parameters in one vector."""
        return np.concatenate([self._state.tensors[name].reshape(-1) for name in self._parameters(trainable_only)])

    def copy_buffer_to_parameters(self, buffer: Any, trainable_only: bool = True) -> None:
        """Assign the elements of one vector to the parameters. Raises ``InvalidCall`` for a wrong size."""
        vector = buffer.numpy() if hasattr(buffer, "numpy") else np.asarray(buffer)
        size = self.get_parameters_size(trainable_only)
        if vector.shape != (size,):
            raise InvalidCall(f"the buffer is not a vector of {size} numbers", given=str(list(vector.shape)))
        for name in self._parameters(trainable_only):
            old = self._state.tensors[name]
            part, vector = vector[: old.size], vector[old.size :]
            self._state.tensors[name] = part.astype(old.dtype).reshape(old.shape)

    def export_model_for_inferencing(self, inference_model_uri: Location, graph_output_names: list[str]) -> None:
        """Write the model for inference, with these outputs, to a file."""
        graph = self._state.model()
        switch_to_inference(graph)
        export(graph.extract([value.name for value in graph.inputs], list(graph_output_names)), inference_model_uri)

    def _part(self) -> _Model:
        if self.training:
            return self._train
        if self._eval is None:
            raise InvalidCall("Module has no evaluation model", do="Module(training_model, state, eval_model)")
        return self._eval

    def _parameters(self, trainable_only: bool) -> list[str]:
        return [name for name, p in self._state.parameters.items() if p.requires_grad or not trainable_only]


class Optimizer:
    """The optimizer model, on the checkpoint state of a module."""

    def __init__(self, optimizer_uri: Location, module: Module) -> None:
        self._state, self._part = module._state, _Model(optimizer_uri, **module._options)
        self._rate = self._part.learning_rate

    def step(self) -> None:
        """Update the parameters with the accumulated gradients. Raises ``InvalidCall`` if there are none."""
        tensors = self._state.tensors
        missing = [name for name in self._state.trained if f"{name}{BUFFER}" not in tensors]
        if missing:
            raise InvalidCall(
                "no gradients for an optimizer step",
                given=f"none of {missing[0]}",
                do="call the module in training mode first",
            )
        feeds: dict[str, Any] = {f"{name}{GRADIENT}": tensors[f"{name}{BUFFER}"] for name in self._state.trained}
        self._part.run(tensors, {**feeds, RATE: np.asarray(self._rate, np.float32)})

    def set_learning_rate(self, learning_rate: float) -> None:
        self._rate = float(learning_rate)

    def get_learning_rate(self) -> float:
        return self._rate


class LinearLRScheduler:
    """A learning rate with linear warmup for ``warmup_step_count`` steps, then linear decay to 0 at
    ``total_step_count``."""

    def __init__(self, optimizer: Optimizer, warmup_step_count: int, total_step_count: int, initial_lr: float) -> None:
        self._optimizer, self._initial, self._step = optimizer, initial_lr, 0
        self._warmup, self._total = warmup_step_count, total_step_count
        self._set()

    def step(self) -> None:
        self._step += 1
        self._set()

    def _set(self) -> None:
        if self._step < self._warmup:
            share = self._step / self._warmup
        else:
            share = max(0.0, (self._total - self._step) / max(1, self._total - self._warmup))
        self._optimizer.set_learning_rate(self._initial * share)
