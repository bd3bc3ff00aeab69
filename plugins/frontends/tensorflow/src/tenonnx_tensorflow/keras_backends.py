"""Keras models on JAX and PyTorch, read by the front ends of these, with paths of layers as names."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, NotRepresentable, import_optional
from tenonnx_frontends import named_axes, read_dims, unknown_dims
from tenonnx_optimize import channels_first, fuse, simplify
from tenonnx_tensorflow.options import Options

#: Sizes of dynamic dims in generated examples: the batch, and others.
_BATCH, _OTHERS = 2, 5


def backend_of(source: Any) -> str | None:
    """``jax`` or ``torch`` for a Keras model or layer with that backend, else None."""
    keras = sys.modules.get("keras")  # imported if the source is a Keras model
    if keras is None or not isinstance(source, keras.Layer) or keras.backend.backend() == "tensorflow":
        return None
    return str(keras.backend.backend())


def backend_to_import() -> str:
    """The backend of Keras: that of the imported Keras, or the one that it will choose when it is imported."""
    if (keras := sys.modules.get("keras")) is not None:
        return str(keras.backend.backend())
    if "KERAS_BACKEND" in os.environ:
        return os.environ["KERAS_BACKEND"]
    folder = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return str(json.loads(Path(folder, "keras.json").read_text("utf-8")).get("backend", "tensorflow"))
    return "tensorflow"


#: A function of trainable variables, other variables and inputs, to the outputs and new values of the other variables.
Called = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]


@dataclass(frozen=True)
class Call:
    """A front end, with the source and the options with which it reads a model.

    ``compute`` returns the results of the model for arrays in the order of its inputs.
    """

    frontend: Any
    source: Any
    examples: Sequence[Any]
    options: dict[str, Any]
    names: Mapping[str, str]
    compute: Callable[[Sequence[Any]], list[Any]]

    @property
    def feeds(self) -> dict[str, Any]:
        """The examples as arrays, by the names of the inputs."""
        return dict(zip(self.options["input_names"], map(np.asarray, self.examples), strict=True))

    def refusal(self) -> str:
        """Empty: models built in this process may run."""
        return ""

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Results of the model as arrays."""
        return self.compute([feeds[name] for name in self.options["input_names"]])

    def read(self, **options: Any) -> Graph:
        graph: Graph = self.frontend.read(self.source, *self.examples, verify=False, **self.options, **options)
        for value in graph.variables:
            value.name = self.names.get(value.name, value.name)
        return fuse(simplify(channels_first(simplify(graph))))

    def verifier(self) -> Callable[..., Any]:
        result: Callable[..., Any] = self.frontend.verifier(self.source, *self.examples, **self.options)
        return result


def call_of(model: Any, examples: Sequence[Any], options: Options) -> Call:
    """The call of the front end for a model's backend, with examples or declared inputs."""
    import keras

    name = str(keras.backend.backend())
    if name not in _FRONT_ENDS:
        raise NotRepresentable("a model of Keras computes neither on TensorFlow, JAX nor PyTorch", given=f"on {name}")
    otherwise = "set KERAS_BACKEND=tensorflow and load the model anew"
    import_optional(f"tenonnx_{name}", f"read a model of Keras on the backend {name}", otherwise=otherwise)
    structure, names, varying = _examples(model, examples, options.shapes, options.dynamic_batch)
    arrays = keras.tree.flatten(structure)
    ranked = {key: np.shape(array) for key, array in zip(names, arrays, strict=True)}
    named, others = named_axes(read_dims(options.dims, options.dynamic_axes), ranked)
    if others:
        raise unknown_dims(next(iter(others)), names)
    axes = {key: {**varying.get(key, {}), **named.get(key, {})} for key in names}
    chosen = list(options.input_names) if options.input_names else names
    if len(chosen) == len(names):  # otherwise the front end raises an error
        axes = {new: axes[old] for old, new in zip(names, chosen, strict=True)}
    given = {"dims": {key: symbols for key, symbols in axes.items() if symbols}, "input_names": chosen}

    def called(trained: Sequence[Any], kept: Sequence[Any], leaves: Sequence[Any]) -> Any:
        """Results of the model, and the new values of the variables that are not trainable."""
        arguments = keras.tree.pack_sequence_as(structure, list(leaves))
        return model.stateless_call(trained, kept, *arguments, training=options.training)

    return _FRONT_ENDS[name](model, called, arrays, given, options.training)


def _examples(model: Any, given: Sequence[Any], shapes: Any, batched: bool) -> tuple[tuple[Any, ...], list[str], Any]:
    """Arrays for a call, their names, and the names of their dynamic axes."""
    import keras

    declared = getattr(model, "inputs", None) if getattr(model, "built", False) else None
    if not given and not declared:
        raise InvalidCall(
            f'the shapes of the inputs of "{model.name}" are unknown',
            given=f"{type(model).__name__}, which declares no inputs",
            do="give an example of each input: tx.load(model, *examples)",
        )
    labels = [tensor.name for tensor in declared or []]
    if given:
        arrays = tuple(keras.tree.map_structure(np.asarray, each) for each in given)
        count = len(keras.tree.flatten(arrays))
        labels = labels if len(labels) == count else [f"input_{k}" if k else "input" for k in range(count)]
        return arrays, labels, {label: {0: "batch"} for label in labels} if batched else {}
    varying: dict[str, dict[int, str]] = {}

    def made(tensor: Any) -> Any:
        # the declared batch of a Sequential may be that of its first call
        own = (None, *tensor.shape[1:]) if isinstance(model, keras.Sequential) and tensor.shape else tensor.shape
        sizes = list((shapes or {}).get(tensor.name, own))
        axes = {k: n or ("batch" if k == 0 else f"{tensor.name}_{k}") for k, n in enumerate(sizes) if not _is_size(n)}
        varying[tensor.name] = axes
        sizes = [n if _is_size(n) else _OTHERS if k else _BATCH for k, n in enumerate(sizes)]
        return _drawn(sizes, keras.backend.standardize_dtype(tensor.dtype))

    unknown = [name for name in shapes or {} if name not in labels]
    if unknown:
        raise unknown_dims(unknown[0], labels)
    struct = getattr(model, "_inputs_struct", None)
    struct = declared if struct is None else struct
    single = struct[0] if isinstance(struct, list | tuple) and len(struct) == 1 else struct
    return (keras.tree.map_structure(made, single),), [each.name for each in keras.tree.flatten(single)], varying


def _is_size(n: Any) -> bool:
    return isinstance(n, int)


def _drawn(sizes: Sequence[int], dtype: str) -> Any:
    random = np.random.default_rng(list(sizes))
    if dtype == "string":
        raise NotRepresentable("a model on a backend other than TensorFlow has string inputs")
    if dtype.startswith("float"):
        return random.normal(size=sizes).astype(dtype)
    return random.integers(0, 2, sizes).astype(dtype)


def _paths(variables: Sequence[Any]) -> list[str]:
    """Paths of variables, made unique by numbers."""
    result: list[str] = []
    for variable in variables:
        times = sum(path.partition(".")[0] == variable.path for path in result)
        result.append(f"{variable.path}.{times}" if times else variable.path)
    return result


def _on_jax(model: Any, called: Called, arrays: Sequence[Any], options: dict[str, Any], training: bool) -> Call:
    import jax

    from tenonnx_jax import frontend
    from tenonnx_jax.sources import Source

    trained, kept = list(model.trainable_variables), list(model.non_trainable_variables)
    paths = _paths([*trained, *kept])
    later = paths[len(trained) :]

    def call(variables: Sequence[Any], arguments: Sequence[Any], keywords: Any) -> tuple[Any, Mapping[str, Any]]:
        before = variables[len(trained) :]
        result, after = called(variables[: len(trained)], before, arguments)
        changed = zip(later, before, after, strict=True)
        return result, {path: new for path, old, new in changed if new is not old}

    parameter = inspect.Parameter("arguments", inspect.Parameter.VAR_POSITIONAL)
    parameters = dict(zip(paths, (variable.value for variable in (*trained, *kept)), strict=True))
    source = Source(model.name, inspect.Signature([parameter]), parameters, call, frozenset(later))

    def compute(given: Sequence[Any]) -> list[Any]:
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(source(*given)[0])]

    return Call(frontend, source, arrays, options, {}, compute)


def _on_torch(model: Any, called: Called, arrays: Sequence[Any], options: dict[str, Any], training: bool) -> Call:
    import torch
    from torch.utils import _pytree as pytree

    from tenonnx_torch import frontend
    from tenonnx_torch.examples import to_numpy, to_tensor
    from tenonnx_torch.verification import called as called_in_torch

    if training:
        raise NotRepresentable(
            "cannot read a Keras model on PyTorch in training mode",
            given="training=True",
            do="set KERAS_BACKEND=tensorflow or jax, and load the model anew",
        )
    trained, kept = list(model.trainable_variables), list(model.non_trainable_variables)

    class Stateless(torch.nn.Module):
        """The model as a function of parameters that PyTorch's exporter can track."""

        def __init__(self) -> None:
            super().__init__()
            for k, variable in enumerate(trained):
                self.register_parameter(f"trained_{k}", torch.nn.Parameter(variable.value.detach().clone()))
            for k, variable in enumerate(kept):
                self.register_buffer(f"kept_{k}", variable.value.detach().clone())

        def forward(self, *arguments: Any) -> Any:
            first = [getattr(self, f"trained_{k}") for k in range(len(trained))]
            second = [getattr(self, f"kept_{k}") for k in range(len(kept))]
            return called(first, second, arguments)[0]

    tensors = [torch.from_numpy(array) for array in arrays]
    attributes = [*(f"trained_{k}" for k in range(len(trained))), *(f"kept_{k}" for k in range(len(kept)))]
    names = dict(zip(attributes, _paths([*trained, *kept]), strict=True))
    module = Stateless().eval()

    def compute(given: Sequence[Any]) -> list[Any]:
        result = called_in_torch(module, tuple(map(to_tensor, given)), {}, 0)
        return [to_numpy(leaf) for leaf in pytree.tree_leaves(result)]

    return Call(frontend, module, tensors, options, names, compute)


_FRONT_ENDS: Mapping[str, Callable[..., Call]] = {"jax": _on_jax, "torch": _on_torch}
