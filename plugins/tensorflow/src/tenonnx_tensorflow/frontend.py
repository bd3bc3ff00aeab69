"""The front end: ``tx.load`` of what comes from TensorFlow, Keras and their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import Graph, InvalidCall, Registry
from tenonnx.extend.checks import Allowed, Verification
from tenonnx_frontends import chosen_names, named_axes, read_dims, unknown_dims
from tenonnx_tensorflow import table
from tenonnx_tensorflow.building import graph_of
from tenonnx_tensorflow.forms import Forms
from tenonnx_tensorflow.frozen import read_frozen
from tenonnx_tensorflow.keras_files import loaded
from tenonnx_tensorflow.model import Input, Model
from tenonnx_tensorflow.options import Options
from tenonnx_tensorflow.other_backends import backend_of, call_of
from tenonnx_tensorflow.saved_model import read_saved_model


def read(
    source: Any,
    *examples: Any,
    registry: Registry | None = None,
    output_names: Sequence[str] | None = None,
    verify: bool | float = True,
    atol: float | None = None,
    rtol: float | None = None,
    **options: Any,
) -> Graph:
    """What a model computes: a folder or file of TensorFlow or Keras, or a model, function or module.

    A model of Keras on JAX or PyTorch is traced there, by the front end of that package, and compared with it.
    ``options`` are those of ``Options``. A Keras model needs no examples where its inputs are declared; a function
    does, arrays or ``tf.TensorSpec``. Complex numbers are pairs of floats along a last axis. Variables are initializers
    by their names; those that a call assigns are inputs with a default, and outputs ``<name>_next``.

    Raises ``NotRepresentable`` naming every op without a rule, ``InvalidCall`` for what does not fit the source,
    ``VerificationFailed`` where the graph does not compute what TensorFlow does at several sizes, unless ``verify`` is
    False or the source cannot be run: a file where TensorFlow is not installed.
    """
    allowed = Allowed.of(verify, atol, rtol)
    source, chosen = loaded(source), Options.of(options)
    if backend_of(source) is not None:
        call = call_of(source, examples, chosen)
        graph = call.read(registry=registry, output_names=output_names)
        if allowed is not None:
            call.verifier()(graph, allowed.absolute, allowed.relative).raise_if_failed()
        return graph
    model = model_of(source, examples, chosen)
    graph = graph_of(model, registry, output_names)
    if allowed is not None and model.run is not None:
        from tenonnx_tensorflow.verification import verify_against

        verify_against("TensorFlow", model.run, graph, allowed, _feeds(model, examples)).raise_if_failed()
    return graph


def verifier(
    source: Any,
    *examples: Any,
    output_names: Sequence[str] | None = None,
    verify: bool | float = True,
    atol: float | None = None,
    rtol: float | None = None,
    **options: Any,
) -> Callable[..., Verification] | None:
    """What compares a graph with ``source``, called with the options of ``read``; None where it cannot be run."""
    source, chosen = loaded(source), Options.of(options)
    if backend_of(source) is not None:
        return call_of(source, examples, chosen).verifier()
    model = model_of(source, examples, chosen)
    run = model.run
    if run is None:
        return None
    from tenonnx_tensorflow.verification import verify_against

    def compared(graph: Graph, atol: float | None = None, rtol: float | None = None) -> Verification:
        return verify_against("TensorFlow", run, graph, Allowed(atol, rtol), _feeds(model, examples))

    return compared


def model_of(source: Any, examples: Sequence[Any] = (), options: Options | None = None) -> Model:
    """The model of a source, with its inputs named and shaped as the options say."""
    options = options or Options()
    table.load_rules_of_packages()
    model = _read(source, examples, options)
    ranked = {each.name: each.shape or () for each in model.inputs}
    axes, others = named_axes(read_dims(options.dims, options.dynamic_axes), ranked)
    shapes = options.shapes or {}
    wrong = [name for name in (*others, *shapes) if name not in ranked]
    if wrong:
        raise unknown_dims(wrong[0], list(ranked))
    given = [_shaped(each, shapes.get(each.name), axes.get(each.name), options.dynamic_batch) for each in model.inputs]
    old = [each.name for each in given]
    chosen = chosen_names("inputs", options.input_names, old)
    run = model.run
    if run is not None and chosen != old:
        model.run = lambda feeds: run({o: feeds[n] for o, n in zip(old, chosen, strict=True)})
    model.forms = Forms(options.forms)
    model.inputs = [replace(each, name=name) for each, name in zip(given, chosen, strict=True)]
    return model


def _read(source: Any, examples: Sequence[Any], options: Options) -> Model:
    if not isinstance(source, str | os.PathLike):
        _needs_tensorflow(type(source).__qualname__)
        from tenonnx_tensorflow.functions import read_function

        return read_function(source, examples, options.signature, options.training)
    path = Path(source)
    if path.name == "saved_model.pb":
        path = path.parent
    if path.is_dir():
        model = read_saved_model(path, options.signature, options.tags)
        if find_spec("tensorflow") is not None:
            from tenonnx_tensorflow.originals import saved_model_runner

            model.run = saved_model_runner(path, options.signature, options.tags, model)
        return _batched(model)
    model = read_frozen(path, options.inputs, options.outputs)
    if find_spec("tensorflow") is not None:
        from tenonnx_tensorflow.originals import frozen_runner

        model.run = frozen_runner(path, model)
    return model


def _needs_tensorflow(what: str) -> None:
    if find_spec("tensorflow") is None:
        raise InvalidCall(
            "a function or module is traced by TensorFlow, which must be installed",
            given=what,
            do="pip install tensorflow, or give a SavedModel, a frozen graph or a .tflite file, which need none",
        )


def _batched(model: Model) -> Model:
    """The first axis of every input of a signature is the batch, where none of them has a size."""
    ranked = [each for each in model.inputs if each.shape]
    if ranked and all(each.shape is not None and each.shape[0] is None for each in ranked):
        model.inputs = [replace(each, axes={0: "batch", **each.axes}) if each.shape else each for each in model.inputs]
    return model


def _shaped(given: Input, shape: Any, dims: Any, batched: bool) -> Input:
    if shape is not None:
        if given.shape is not None and len(given.shape) != len(shape):
            raise InvalidCall(f'"{given.name}" must have {len(given.shape)} axes', given=f"{list(shape)}")
        names = {k: n for k, n in enumerate(shape) if isinstance(n, str)}
        given = replace(
            given, shape=tuple(n if isinstance(n, int) else None for n in shape), axes={**given.axes, **names}
        )
    if batched and given.shape:
        given = replace(given, shape=(None, *given.shape[1:]), axes={0: "batch", **given.axes})
    if dims:
        sizes = tuple(None if k in dims else n for k, n in enumerate(given.shape or ()))
        given = replace(given, shape=sizes, axes={**given.axes, **dims})
    return given


def _feeds(model: Model, examples: Sequence[Any]) -> dict[str, Any] | None:
    """The examples as feeds, where they are arrays."""
    flat = [np.asarray(each) for each in examples if isinstance(each, np.ndarray)]
    if not flat or len(flat) != len(examples) or len(flat) != len(model.inputs):
        return None
    return {given.name: array for given, array in zip(model.inputs, flat, strict=True)}
