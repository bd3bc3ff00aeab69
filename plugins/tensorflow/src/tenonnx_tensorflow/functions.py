"""Keras models, functions and modules of TensorFlow, traced by TensorFlow itself."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tenonnx
from tenonnx.extend import InvalidCall, NotRepresentable, TenonnxError
from tenonnx_frontends.lines import UserLines
from tenonnx_tensorflow.attributes import RESOURCE, VARIANT
from tenonnx_tensorflow.graphs import Library, Reference
from tenonnx_tensorflow.held import Held, Table, Variable
from tenonnx_tensorflow.messages import parse
from tenonnx_tensorflow.model import Input, Model


def read_function(source: Any, examples: Sequence[Any], signature: str | None, training: bool) -> Model:
    """What a model, function or module computes for examples, or for the types that it was declared with."""
    if isinstance(source, keras.Layer):
        return _of_keras(source, examples, training)
    function = _function_of(source, signature)
    specs = [_spec(each) for each in examples]
    return _of_concrete(_concrete(function, specs), getattr(source, "__name__", None) or type(source).__name__)


def _function_of(source: Any, signature: str | None) -> Any:
    if isinstance(source, tf.Module) and not callable(source):
        signature = signature or "serve"
    if signature is not None:
        held = getattr(source, "signatures", {})
        found = held.get(signature) if hasattr(held, "get") else None
        found = found or getattr(source, signature, None)
        if found is None:
            raise InvalidCall("a signature must be a function of the model", given=signature, available=", ".join(held))
        return found
    if isinstance(source, tf.Module) and hasattr(source.__call__, "get_concrete_function"):
        return source.__call__
    return source


def _concrete(function: Any, specs: Sequence[Any]) -> Any:
    if hasattr(function, "captured_inputs") and hasattr(function, "structured_outputs"):
        return function
    traced = function if hasattr(function, "get_concrete_function") else tf.function(function)
    try:
        return traced.get_concrete_function(*specs)
    except TenonnxError:
        raise
    except Exception as error:
        lines = [line for line in str(error).split("\n") if line.strip()]
        raise InvalidCall(
            "a function must be one that TensorFlow traces for these examples",
            given=f"{type(error).__name__}: {lines[-1].strip()[:300]}" if lines else type(error).__name__,
            do="give an example of each argument, tx.load(function, *examples), or a tf.TensorSpec with None for sizes "
            "that vary",
        ) from error


def _spec(example: Any) -> Any:
    if isinstance(example, tf.TensorSpec):
        return example
    if isinstance(example, tf.Tensor):
        return tf.TensorSpec(example.shape, example.dtype)
    if isinstance(example, np.ndarray | np.generic):
        kind = tf.string if np.asarray(example).dtype.kind in "OUS" else tf.as_dtype(np.asarray(example).dtype)
        return tf.TensorSpec(np.shape(example), kind)
    if isinstance(example, Mapping):
        return {key: _spec(each) for key, each in example.items()}
    if isinstance(example, list | tuple):
        return type(example)(_spec(each) for each in example)
    return example


def _of_keras(model: Any, examples: Sequence[Any], training: bool) -> Model:
    """A functional or sequential model has inputs of its own; another one wants examples."""
    declared = getattr(model, "inputs", None) if getattr(model, "built", False) else None
    if examples:
        structure: Any = [_spec(each) for each in examples]
    elif declared:
        structure = [tf.nest.map_structure(_declared, _structure_of(model))]
    else:
        raise InvalidCall(
            "a model without declared inputs needs examples", given=type(model).__name__,
            do="tx.load(model, *examples), or call the model once on keras.Input",
        )  # fmt: skip
    _named(structure)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def called(*arguments: Any) -> Any:
        try:
            return model(*arguments, training=training)
        except TypeError as error:
            if "training" not in str(error):
                raise
            return model(*arguments)

    def outputs(given: Sequence[Any]) -> Any:
        return called.python_function(*tf.nest.pack_sequence_as(structure, given))

    # It is compared with what the model gives, not with its trace, which a layer may have made for some sizes alone.
    is_plain = all(isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(structure))
    with _steps_at_once():
        traced = _concrete(called, structure)
    found = _of_concrete(traced, model.name, not examples, outputs if is_plain else None, _frozen(model))
    found.line_of = None  # layers are no lines of the user's
    return found


def _frozen(model: Any) -> set[int]:
    """The handles of weights of layers that are not trainable, which Keras knows and TensorFlow does not."""
    trained = {id(weight.value.handle) for weight in model.trainable_weights}
    return {id(weight.value.handle) for weight in model.weights} - trained


@contextmanager
def _steps_at_once() -> Iterator[None]:
    """Let ``TimeDistributed`` call its layer once, for the steps of all rows.

    Keras calls it for each step, and for as many as there are rows where their number is not known while it is traced.
    """
    layer, by_steps = keras.layers.TimeDistributed, keras.layers.TimeDistributed.call

    def call(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        inner = inputs.shape[2:]
        if mask is not None or training or None in inner:
            return by_steps(self, inputs, training=training, mask=mask)
        given = {"training": training} if self.layer._call_has_training_arg else {}
        found = self.layer.call(keras.ops.reshape(inputs, (-1, *inner)), **given)
        return keras.ops.reshape(found, (*keras.ops.shape(inputs)[:2], *found.shape[1:]))

    layer.call = call
    try:
        yield
    finally:
        layer.call = by_steps


def _structure_of(model: Any) -> Any:
    held = getattr(model, "_inputs_struct", None)
    if held is None:
        held = model.inputs
    return held[0] if isinstance(held, list | tuple) and len(held) == 1 else held


def _declared(tensor: Any) -> Any:
    if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False):
        raise NotRepresentable("inputs must be dense tensors", given=f'"{tensor.name}"')
    return tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name)


def _named(structure: Any) -> None:
    """Raise for names that are given twice, which TensorFlow would change in silence."""
    names = [each.name for each in tf.nest.flatten(structure) if isinstance(each, tf.TensorSpec) and each.name]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidCall("inputs must have different names", given=twice[0])


def _of_concrete(
    function: Any,
    name: str,
    batched: bool = False,
    call: Callable[[Sequence[Any]], Any] | None = None,
    frozen: Container[int] = (),
) -> Model:
    """``call`` gives the outputs that it is compared with, by default the function itself.

    ``frozen`` are the ids of the handles of variables that are to stay as they are, whatever TensorFlow says of them.
    """
    graph = function.graph
    _check_dense(function)
    library = Library.of(parse("GraphDef", graph.as_graph_def().SerializeToString(), f'the graph of "{name}"'))
    captured, contents = _captured(function, frozen)
    inner = {placeholder.op.name for _, placeholder in graph.captures}
    flat = [tensor for tensor in function.inputs if tensor.op.name not in inner]
    structure = tf.nest.flatten(function.structured_input_signature)
    labels = [each.name for each in structure if isinstance(each, tf.TensorSpec)]
    if len(labels) != len(flat) or None in labels or len(set(labels)) != len(labels):
        labels = [tensor.op.name for tensor in flat]
    inputs = [
        Input(
            label, tensor.op.name, tensor.dtype.as_datatype_enum, _shape(tensor.shape), {0: "batch"} if batched else {}
        )
        for label, tensor in zip(labels, flat, strict=True)
    ]
    outputs = _outputs(function)
    call = call or functools.partial(_flat_call, function)

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        given = [
            tf.constant(_complex(feeds[label]) if tensor.dtype.is_complex else feeds[label], dtype=tensor.dtype)
            for label, tensor in zip(labels, flat, strict=True)
        ]
        with unchanged(function.graph.variables):
            results = tf.nest.flatten(call(given))
            found = [np.asarray(each) for each in results if each is not None]
        for tensor, array in zip(function.outputs, found, strict=False):
            if not tensor.shape.is_compatible_with(
                array.shape
            ):  # a convolution of too few places gives its input, by oneDNN
                raise ValueError(f"an output has the shape {array.shape}, where TensorFlow infers {tensor.shape}")
        return found

    return Model(name, library, inputs, outputs, captured, contents, run=run, line_of=functools.partial(_line, graph))


#: Tensors of which TensorFlow holds several in the place of one.
_SEVERAL = (tf.RaggedTensorSpec, tf.RaggedTensor, tf.SparseTensorSpec, tf.SparseTensor)


def _check_dense(function: Any) -> None:
    """What a function takes and gives has one shape."""
    dense = ".to_tensor() of a ragged tensor, tf.sparse.to_dense() of a sparse one"
    for what, structure, advice in (
        ("input", function.structured_input_signature, f"give {dense}, with a mask or lengths beside it"),
        ("output", function.structured_outputs, f"return {dense}"),
    ):
        found = next((each for each in tf.nest.flatten(structure) if isinstance(each, _SEVERAL)), None)
        if found is not None:
            raise NotRepresentable(f"each {what} must be a dense tensor", given=str(found)[:200], do=advice)


#: Code that is not the user's.
_USER = UserLines(
    (tf.__file__, keras.__file__, tenonnx.__file__, __file__), ("/autograph/", "__autograph_generated_file")
)


def _line(graph: Any, name: str) -> str:
    """The line of the user's code that made a node, or nothing."""
    try:
        frames = graph.get_operation_by_name(name).traceback
    except (KeyError, ValueError):  # it is in a function that the graph calls
        return ""
    return _USER.first((f.filename, f.lineno, f.name) for f in reversed(frames))


def _complex(array: Any) -> Any:
    """Pairs of parts along the last axis as complex numbers."""
    return array if np.asarray(array).dtype.kind == "c" else np.asarray(array)[..., 0] + 1j * np.asarray(array)[..., 1]


@contextmanager
def unchanged(variables: Sequence[Any]) -> Iterator[None]:
    """Let a call leave variables as they are."""
    before = [variable.numpy().copy() for variable in variables]
    yield
    for variable, content in zip(variables, before, strict=True):
        if not np.array_equal(variable.numpy(), content):
            variable.assign(content)


def _flat_call(function: Any, given: Sequence[Any]) -> Any:
    if hasattr(function, "flat_call"):
        return function.flat_call([*given, *function.captured_inputs])
    return function._call_flat(given, function.captured_inputs)


def _shape(shape: Any) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _captured(function: Any, frozen: Container[int]) -> tuple[dict[str, Held], dict[Held, Any]]:
    """What placeholders of captures stand for: variables, tables, and arrays."""
    by_handle = {id(v.handle): v for v in function.graph.variables if hasattr(v, "handle")}
    held: dict[str, Held] = {}
    contents: dict[Held, Any] = {}
    for outer, placeholder in function.graph.captures:
        node = placeholder.op.name
        variable = by_handle.get(id(outer))
        if variable is not None:
            kind = "frozen" if id(outer) in frozen else "parameter"
            made = Variable(_name(variable), kind=kind if variable.trainable else "buffer")
            held[node], contents[made] = made, variable.numpy()
        elif outer.dtype.as_datatype_enum in (RESOURCE, VARIANT):
            held[node] = Table(node, contents=_exporter(outer))
        else:
            held[node] = np.asarray(outer)
    return held, contents


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name.split(":")[0])


def _exporter(handle: Any) -> Callable[[int, int], tuple[Any, Any]]:
    """What a table holds, once the types are known by which it is read."""

    def contents(keys: int, values: int) -> tuple[Any, Any]:
        found = tf.raw_ops.LookupTableExportV2(
            table_handle=handle, Tkeys=tf.as_dtype(keys), Tvalues=tf.as_dtype(values)
        )
        return np.asarray(found[0]), np.asarray(found[1])

    return contents


def _outputs(function: Any) -> list[tuple[str, Reference]]:
    flat = list(function.outputs)
    pairs = [path for path, _ in _paths(function.structured_outputs)]
    names = pairs if len(pairs) == len(flat) else [str(k) for k in range(len(flat))]
    if names == [""]:
        names = ["output"]
    names = [name if name and not name.isdigit() else f"output_{name or 0}" for name in names]
    return [(name, Reference(t.op.name, t.value_index)) for name, t in zip(names, flat, strict=True)]


def _paths(structure: Any, before: str = "") -> Any:
    if isinstance(structure, Mapping):
        for key in sorted(structure):
            yield from _paths(structure[key], f"{before}_{key}" if before else str(key))
    elif isinstance(structure, list | tuple):
        labels = getattr(structure, "_fields", itertools.count())
        for key, each in zip(labels, structure, strict=False):
            yield from _paths(each, f"{before}_{key}" if before else str(key))
    elif structure is not None:
        yield before, structure
