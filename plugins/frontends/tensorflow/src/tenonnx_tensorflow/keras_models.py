"""Keras models and layers on TensorFlow, traced with named inputs and a dynamic batch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from tenonnx.extend import InvalidCall, NotRepresentable
from tenonnx_tensorflow.functions import Source, concrete_of, model_of, read_function, spec_of
from tenonnx_tensorflow.model import Model


def read_traced(source: Any, examples: Sequence[Any], signature: str | None, training: bool) -> Model:
    """The model of a Keras model, function or module, for examples or its declared inputs."""
    if isinstance(source, keras.Layer):
        return _read_keras(source, examples, training)
    return read_function(source, examples, signature)


def _read_keras(model: Any, examples: Sequence[Any], training: bool) -> Model:
    inputs = getattr(model, "_inputs_struct", None)
    if len(examples) > 1 and len(examples) == len(tf.nest.flatten(inputs)):  # a functional model takes one structure
        examples = [keras.tree.pack_sequence_as(inputs, list(examples))]
    structure = _structure_of_examples(model, examples) if examples else _structure_of(model)
    if structure is None:
        raise InvalidCall(
            f'the shapes of the inputs of "{model.name}" are unknown',
            given=f"{type(model).__name__}, which declares no inputs and was never called",
            do="give an example of each input: tx.load(model, *examples)",
        )
    _check_names(structure)

    def called(*arguments: Any) -> Any:
        try:
            return model(*arguments, training=training)
        except TypeError as error:
            if "training" not in str(error):
                raise
            return model(*arguments)

    def trace(*arguments: Any) -> Any:
        with _steps_at_once():
            return concrete_of(tf.function(called, autograph=False), arguments)

    # layers have no lines of the user's code
    source = Source(model.name, trace, called, lambda: _frozen(model), not examples, names_lines=False)
    if examples or not _is_fixed_by_a_call(model):
        return model_of(source, structure)
    return model_of(source, tf.nest.map_structure(_of_any_batch, structure))


def _structure_of_examples(model: Any, examples: Sequence[Any]) -> list[Any]:
    """Types of examples, named by the declared inputs, else by the parameters of ``call``."""
    structure = [spec_of(each) for each in examples]
    flat = tf.nest.flatten(structure)
    declared = [tensor.name for tensor in _declared_inputs(model) or []]
    if len(declared) != len(flat):
        declared = []
    parameters = _parameters(model)
    if not declared and all(isinstance(each, tf.TensorSpec) for each in structure):
        declared = parameters[: len(structure)]
    if len(declared) != len(flat) or not all(isinstance(each, tf.TensorSpec) for each in flat):
        return structure
    named = [
        each if each.name else tf.TensorSpec(each.shape, each.dtype, name)
        for each, name in zip(flat, declared, strict=True)
    ]
    return list(tf.nest.pack_sequence_as(structure, named))


def _parameters(model: Any) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, each in inspect.signature(model.call).parameters.items() if each.kind in kinds]


def _declared_inputs(model: Any) -> Any:
    return getattr(model, "inputs", None) if getattr(model, "built", False) else None


def _structure_of(model: Any) -> list[Any] | None:
    """Types of a model's inputs: declared, recorded from a call on ``keras.Input``, or from ``build``."""
    declared = _declared_inputs(model)
    if declared:
        structure = getattr(model, "_inputs_struct", None)
        structure = model.inputs if structure is None else structure
        single = structure[0] if isinstance(structure, list | tuple) and len(structure) == 1 else structure
        return [tf.nest.map_structure(_declared, single)]
    for node in model._inbound_nodes:
        arguments = node.arguments.args
        if all(isinstance(each, keras.KerasTensor) for each in keras.tree.flatten(arguments)):
            return _named_by_parameters(model, keras.tree.map_structure(_declared, arguments))
    return _built_with(model)


def _built_with(model: Any) -> list[Any] | None:
    """Types from the shapes with which a model was built, with a dynamic batch."""
    shapes = getattr(model, "_build_shapes_dict", None) or {}
    if not shapes or not all(_is_shape(shape) for shape in shapes.values()):
        return None
    return _named_by_parameters(
        model, [tf.TensorSpec((None, *shape[1:]), model.input_dtype) for shape in shapes.values()]
    )


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple | list) and bool(shape) and all(isinstance(n, int | None) for n in shape)


def _named_by_parameters(model: Any, arguments: Sequence[Any]) -> list[Any]:
    names = _parameters(model)
    if len(names) < len(arguments) or not all(isinstance(each, tf.TensorSpec) for each in arguments):
        return list(arguments)
    return [tf.TensorSpec(each.shape, each.dtype, name) for each, name in zip(arguments, names, strict=False)]


def _is_fixed_by_a_call(model: Any) -> bool:
    """Whether the declared batch may be that of the first call: Sequential models accept any batch.

    Keras does not distinguish it from a batch size declared by the user, and drops it in its own exports.
    """
    layers = getattr(model, "layers", [])
    return isinstance(model, keras.Sequential) and not any(getattr(layer, "stateful", False) for layer in layers)


def _of_any_batch(spec: Any) -> Any:
    return tf.TensorSpec((None, *spec.shape[1:]), spec.dtype, spec.name) if spec.shape.rank else spec


def _frozen(model: Any) -> set[int]:
    """Handles of weights of layers that are not trainable, which TensorFlow does not know."""
    trained = {id(weight.value.handle) for weight in model.trainable_weights}
    return {id(weight.value.handle) for weight in model.weights} - trained


@contextmanager
def _steps_at_once() -> Iterator[None]:
    """Make ``TimeDistributed`` call its layer once, for the steps of all rows.

    Keras calls it for each step, or, for an unknown number of steps, as many times as there are rows.
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


def _declared(tensor: Any) -> Any:
    if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False):
        raise NotRepresentable("an input is not a dense tensor", given=f'"{tensor.name}"')
    return tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name)


def _check_names(structure: Any) -> None:
    """Raise an error for duplicate names, which TensorFlow would change silently."""
    names = [each.name for each in tf.nest.flatten(structure) if isinstance(each, tf.TensorSpec) and each.name]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidCall("two inputs have the same name", given=twice[0])
