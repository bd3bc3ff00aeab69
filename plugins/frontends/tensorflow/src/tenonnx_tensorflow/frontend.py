"""The front end: ``tx.load`` of TensorFlow and Keras models and files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.extend import FallbackWarning, Graph, InvalidCall, Registry
from tenonnx.extend.checks import Allowed, CallFailed, Verification, WorkerEnded
from tenonnx.tools import import_optional
from tenonnx_frontends import (
    chosen_names,
    named_axes,
    not_verified,
    one_line,
    read_dims,
    unknown_dims,
    warn_unverified,
)
from tenonnx_tensorflow import table
from tenonnx_tensorflow.building import graph_of
from tenonnx_tensorflow.forms import Forms
from tenonnx_tensorflow.frozen import read_frozen
from tenonnx_tensorflow.keras_backends import Call, backend_of, backend_to_import, call_of
from tenonnx_tensorflow.keras_files import WITHOUT_TENSORFLOW, is_of_keras, loaded
from tenonnx_tensorflow.model import Input, Model
from tenonnx_tensorflow.options import Options
from tenonnx_tensorflow.original import Original
from tenonnx_tensorflow.saved_model import read_saved_model

if TYPE_CHECKING:
    from tenonnx_tensorflow.reference import FileRunner
    from tenonnx_tensorflow.verification import Runner


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
    """Read a model: a folder or file of TensorFlow or Keras, or a model, function or module.

    A Keras model with the backend JAX or PyTorch is traced by the front end of that package. ``options`` are those of
    ``Options``. A Keras model with declared inputs needs no examples; a function needs arrays or ``tf.TensorSpec``.
    Complex numbers are float pairs along a last axis. Variables are initializers with their names; those that a call
    assigns are inputs with defaults, and their new contents are outputs ``<name>_next``.

    Raises ``NotRepresentable`` naming every op without a rule, ``InvalidCall`` for options that do not suit the source,
    and ``VerificationFailed`` where outputs differ from TensorFlow's at several sizes. Verification is skipped if
    ``verify`` is False or the source cannot run: a file without an installed TensorFlow. Files run in a worker process,
    and only if no op has side effects. An ``UnverifiedWarning`` names such ops, unless ``trust`` is True, and reports a
    file that crashes the process or exceeds the limits ``seconds`` and ``memory``.
    """
    allowed = Allowed.of(verify, atol, rtol)
    chosen = Options.of(options)
    original = None if allowed is None else _original(source, examples, chosen)
    loaded_source, is_apart = loaded(source, chosen.trust)
    if (backend := backend_of(loaded_source)) is not None:
        call = call_of(loaded_source, examples, chosen)
        graph = call.read(registry=registry, output_names=output_names)
        if allowed is not None:
            compare = _verifier_of_call(call, source if is_apart else None, examples, chosen, backend)
            warn_unverified(compare(graph, allowed.absolute, allowed.relative).raise_if_failed())
        return graph
    model = _with_original(model_of(loaded_source, examples, chosen), original if is_apart else None)
    graph = graph_of(model, registry, output_names)
    if allowed is not None and model.run is not None:
        warn_unverified(_compared(model, model.run, graph, allowed, examples).raise_if_failed())
    return graph


def _original(source: Any, examples: Sequence[Any], options: Options) -> Original | None:
    """The original of a file, None if TensorFlow cannot run it."""
    if not isinstance(source, str | os.PathLike) or find_spec("tensorflow") is None or not Path(source).exists():
        return None
    if is_of_keras(source) and backend_to_import() != "tensorflow":
        return None
    path = Path(source)
    return Original(path.parent if path.name == "saved_model.pb" else path, examples, options)


def _verifier_of_call(
    call: Call, path: Any, examples: Sequence[Any], options: Options, backend: str
) -> Callable[..., Verification]:
    """A function that verifies a graph against Keras on another backend, in a worker process for a file at ``path``."""
    if path is None:
        return call.verifier()
    original = Original(Path(path), examples, options, backend)
    feeds = call.feeds if examples else None

    def compared(graph: Graph, atol: float | None = None, rtol: float | None = None) -> Verification:
        from tenonnx_tensorflow.verification import dims_of, verify_against

        allowed, freed = Allowed(atol, rtol), dims_of(graph)
        return verify_against(original.name, original, graph, allowed, feeds, freed=freed)

    return compared


def _with_original(model: Model, original: Original | None) -> Model:
    if original is not None:
        model.run, model.refusal = original, lambda: original.refusal
    return model


def _compared(model: Model, run: Runner, graph: Graph, allowed: Allowed, examples: Sequence[Any]) -> Verification:
    from tenonnx_tensorflow.verification import verify_against

    try:
        reason = model.refusal()
    except (CallFailed, WorkerEnded) as error:
        reason = one_line(error)
    if reason:
        return not_verified("TensorFlow", reason, graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # the comparison concerns the graph, on any backend
        return verify_against("TensorFlow", run, graph, allowed, _feeds(model, examples), freed=model.freed)


def verifier(
    source: Any,
    *examples: Any,
    output_names: Sequence[str] | None = None,
    verify: bool | float = True,
    atol: float | None = None,
    rtol: float | None = None,
    **options: Any,
) -> Callable[..., Verification] | None:
    """A function that verifies a graph against ``source``, with the options of ``read``; None if it cannot run."""
    chosen = Options.of(options)
    original = _original(source, examples, chosen)
    loaded_source, is_apart = loaded(source, chosen.trust)
    if (backend := backend_of(loaded_source)) is not None:
        call = call_of(loaded_source, examples, chosen)
        return _verifier_of_call(call, source if is_apart else None, examples, chosen, backend)
    model = _with_original(model_of(loaded_source, examples, chosen), original if is_apart else None)
    run = model.run
    if run is None:
        return None

    def compared(graph: Graph, atol: float | None = None, rtol: float | None = None) -> Verification:
        return _compared(model, run, graph, Allowed(atol, rtol), examples)

    return compared


def model_of(
    source: Any,
    examples: Sequence[Any] = (),
    options: Options | None = None,
    runner_of: Callable[[Path, Options, Model], FileRunner] | None = None,
) -> Model:
    """The model of a source, with inputs named and shaped by the options.

    ``runner_of`` makes the runner of a SavedModel or a frozen graph; without it they are not run.
    """
    options = options or Options()
    table.load_rules_of_packages()
    model = _read(source, examples, options, runner_of)
    ranked = {each.name: each.shape or () for each in model.inputs}
    axes, others = named_axes(read_dims(options.dims, options.dynamic_axes), ranked)
    shapes = options.shapes or {}
    wrong = [name for name in (*others, *shapes) if name not in ranked]
    if wrong:
        raise unknown_dims(wrong[0], list(ranked))
    given = [_shaped(each, shapes.get(each.name), axes.get(each.name), options.dynamic_batch) for each in model.inputs]
    model = _resized(model, given)
    old = [each.name for each in given]
    chosen = chosen_names("inputs", options.input_names, old)
    run = model.run
    if run is not None and chosen != old:
        model.run = lambda feeds: run({o: feeds[n] for o, n in zip(old, chosen, strict=True)})
    model.forms = Forms(options.forms)
    model.inputs = [replace(each, name=name) for each, name in zip(given, chosen, strict=True)]
    return model


def _resized(model: Model, given: Sequence[Input]) -> Model:
    """The model for inputs of these shapes, traced again if its trace depends on sizes."""
    changed = [
        (old, new, axis)
        for old, new in zip(model.inputs, given, strict=True)
        for axis, (before, after) in enumerate(zip(old.shape or (), new.shape or (), strict=False))
        if before is not None and before != after
    ]
    if not changed:
        return model
    old, new, axis = changed[0]
    where = f'axis {axis} of input "{old.name}" is fixed at {old.shape[axis] if old.shape else 0}'
    if model.retrace is None:
        raise InvalidCall(
            f"{where} in {model.name}",
            given=f"{new.axes.get(axis, new.shape[axis] if new.shape else None)}",
            do="export it again with None for the sizes that vary: tf.TensorSpec([None, ...]), or keras.Input without "
            "batch_size",
        )
    try:
        result = model.retrace([each.shape for each in given])
    except InvalidCall as error:
        raise InvalidCall(
            f"{where} in {model.name}, which TensorFlow cannot trace for other sizes",
            given=error.given,
            do="compute with tf.shape(x) where x.shape is used, or leave the axis out of dims and dynamic_batch",
        ) from error
    for new, traced in zip(given, result.inputs, strict=True):
        if traced.shape != new.shape:
            raise InvalidCall(
                f'the shape of input "{new.name}" is fixed in {model.name}',
                given=str(list(new.shape or ())),
                available=str(list(traced.shape or ())),
            )
    freed = [
        new.axes.get(axis, f"{new.name}_{axis}") for _, new, axis in changed if new.shape and new.shape[axis] is None
    ]
    result.freed = tuple(dict.fromkeys(freed))
    return result


def _read(
    source: Any,
    examples: Sequence[Any],
    options: Options,
    runner_of: Callable[[Path, Options, Model], FileRunner] | None,
) -> Model:
    if not isinstance(source, str | os.PathLike):
        import_optional("tensorflow", "trace a function or module", otherwise=WITHOUT_TENSORFLOW)
        from tenonnx_tensorflow.keras_models import read_traced

        return read_traced(source, examples, options.signature, options.training)
    path = Path(source)
    if path.name == "saved_model.pb":
        path = path.parent
    if path.is_dir():
        model = _batched(read_saved_model(path, options.signature, options.tags))
    else:
        model = read_frozen(path, options.inputs, options.outputs)
    if runner_of is not None:
        runner = model.run = runner_of(path, options, model)
        model.refusal = str if options.trust else lambda: runner.refusal
    return model


def _batched(model: Model) -> Model:
    """Make the first axis of all inputs of a signature the batch, if none of them has a static size."""
    ranked = [each for each in model.inputs if each.shape]
    if ranked and all(each.shape is not None and each.shape[0] is None for each in ranked):
        model.inputs = [replace(each, axes={0: "batch", **each.axes}) if each.shape else each for each in model.inputs]
    return model


def _shaped(given: Input, shape: Any, dims: Any, batched: bool) -> Input:
    if shape is not None:
        if given.shape is not None and len(given.shape) != len(shape):
            raise InvalidCall(
                f'the shape of "{given.name}" does not have {len(given.shape)} axes', given=f"{list(shape)}"
            )
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
    """The examples as feeds, if they are arrays."""
    flat = list(_leaves(examples))
    if not flat or len(flat) != len(model.inputs) or not all(hasattr(each, "__array__") for each in flat):
        return None
    return {given.name: np.asarray(array) for given, array in zip(model.inputs, flat, strict=True)}


def _leaves(examples: Any) -> Iterator[Any]:
    """Examples in the order of inputs; dictionaries are sorted by key, as TensorFlow flattens them."""
    if isinstance(examples, Mapping):
        examples = [examples[key] for key in sorted(examples)]
    for each in examples:
        if isinstance(each, Mapping | list | tuple):
            yield from _leaves(each)
        else:
            yield each
