"""Functions, modules and Keras models traced by TensorFlow."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tenonnx
from tenonnx.extend import InvalidCall, NotRepresentable, TenonnxError, did_you_mean, listing
from tenonnx_frontends.lines import UserLines
from tenonnx_tensorflow.attributes import RESOURCE, VARIANT
from tenonnx_tensorflow.graphs import Library, Reference
from tenonnx_tensorflow.messages import parse
from tenonnx_tensorflow.model import Input, Model
from tenonnx_tensorflow.tracked_values import Held, Table, Variable


@dataclass(frozen=True)
class Source:
    """A TensorFlow function, with how to trace and how to run it.

    ``trace`` returns a concrete function for argument types; ``call`` is the user's callable, or None if that is the
    concrete function itself. ``frozen`` returns the ids of handles of frozen variables. ``batched``: the first axis of
    every input is the batch.
    """

    name: str
    trace: Callable[..., Any]
    call: Callable[..., Any] | None = None
    frozen: Callable[[], Container[int]] = frozenset
    batched: bool = False
    names_lines: bool = True


def read_function(source: Any, examples: Sequence[Any], signature: str | None) -> Model:
    """The model of a function or module, for examples or its declared types."""
    function = _function_of(source, signature)
    name = getattr(source, "__name__", None) or type(source).__name__

    def trace(*arguments: Any, **options: Any) -> Any:
        return concrete_of(_anew(function), arguments, options)

    call = None if _is_concrete(function) else _untraced(function)
    return model_of(Source(name, trace, call), [spec_of(each) for each in examples])


def model_of(source: Source, arguments: Sequence[Any], options: Mapping[str, Any] | None = None) -> Model:
    """The model of a source for arguments and options of these types."""
    return _of_concrete(source.trace(*arguments, **(options or {})), source)


def _untraced(function: Any) -> Callable[..., Any]:
    """The function as the user calls it; traced for the exact sizes if it does not run eagerly."""

    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except RuntimeError:  # for instance, tf.gradients works only in graphs
            return tf.function(function)(*arguments, **options)

    if not _is_traced_anew(function):
        return function if hasattr(function, "get_concrete_function") else call

    def call_anew(*arguments: Any, **options: Any) -> Any:
        def as_it_is(*arguments: Any, **options: Any) -> Any:  # TensorFlow warns of frequent traces of one function
            return function.python_function(*arguments, **options)

        return tf.function(as_it_is, autograph=getattr(function, "_autograph", True))(*arguments, **options)

    return call_anew


def _is_traced_anew(function: Any) -> bool:
    return hasattr(function, "python_function") and getattr(function, "input_signature", None) is None


def _anew(function: Any) -> Any:
    """A ``tf.function`` without its traces: TensorFlow would reuse one with fixed sizes if it fits."""
    if not _is_traced_anew(function):
        return function
    return tf.function(function.python_function, autograph=getattr(function, "_autograph", True))


def _is_concrete(function: Any) -> bool:
    return hasattr(function, "captured_inputs") and hasattr(function, "structured_outputs")


def _function_of(source: Any, signature: str | None) -> Any:
    if isinstance(source, tf.Module) and not callable(source):
        signature = signature or "serve"
    if signature is not None:
        signatures = getattr(source, "signatures", {})
        result = signatures.get(signature) if hasattr(signatures, "get") else None
        result = result or getattr(source, signature, None)
        if result is None:
            what, do = f'the model has no signature "{signature}"', did_you_mean(signature, signatures)
            raise InvalidCall(what, available=listing(signatures), do=do)
        return result
    if isinstance(source, tf.Module) and hasattr(source.__call__, "get_concrete_function"):
        return source.__call__
    return source


def concrete_of(function: Any, arguments: Sequence[Any], options: Mapping[str, Any] | None = None) -> Any:
    """The trace of a function for arguments of these types. Raises ``InvalidCall`` with TensorFlow's message."""
    if _is_concrete(function):
        return function
    traced = function if hasattr(function, "get_concrete_function") else tf.function(function)
    try:
        return traced.get_concrete_function(*arguments, **(options or {}))
    except TenonnxError:
        raise
    except Exception as error:
        lines = [line for line in str(error).split("\n") if line.strip()]
        bold = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in lines if line.startswith("\x1b[1m")]
        lines += bold[:1]  # Keras prints the reason in bold, and arguments after it
        raise InvalidCall(
            f"TensorFlow cannot trace {getattr(function, '__name__', 'the function')} for these types",
            given=f"{_listed(arguments)}: {type(error).__name__}: {lines[-1].strip()[:300]}"
            if lines
            else type(error).__name__,
            do="give an example of each argument, tx.load(function, *examples), or a tf.TensorSpec with None for sizes "
            "that vary",
        ) from error


def _listed(arguments: Sequence[Any]) -> str:
    specs = [each for each in tf.nest.flatten(arguments) if isinstance(each, tf.TensorSpec)]
    return ", ".join(f"{each.dtype.name}{list(each.shape)}" for each in specs if each.shape.rank is not None)


def spec_of(example: Any) -> Any:
    if isinstance(example, tf.TensorSpec):
        return example
    if isinstance(example, tf.Tensor):
        return tf.TensorSpec(example.shape, example.dtype)
    if isinstance(example, np.ndarray | np.generic):
        kind = tf.string if np.asarray(example).dtype.kind in "OUS" else tf.as_dtype(np.asarray(example).dtype)
        return tf.TensorSpec(np.shape(example), kind)
    if isinstance(example, Mapping):
        return {key: spec_of(each) for key, each in example.items()}
    if isinstance(example, list | tuple):
        return type(example)(spec_of(each) for each in example)
    return example


def _of_concrete(function: Any, source: Source) -> Model:
    graph = function.graph
    _check_dense(function)
    library = Library.of(parse("GraphDef", graph.as_graph_def().SerializeToString(), f'the graph of "{source.name}"'))
    captured, contents = _captured(function, source.frozen())
    inner = {placeholder.op.name for _, placeholder in graph.captures}
    flat = [tensor for tensor in function.inputs if tensor.op.name not in inner]
    structure = tf.nest.flatten(function.structured_input_signature)
    labels = [each.name for each in structure if isinstance(each, tf.TensorSpec)]
    matched = len(labels) == len(flat)
    if not matched or None in labels or len(set(labels)) != len(labels):
        labels = [tensor.op.name for tensor in flat]
    axes = {0: "batch"} if source.batched else {}
    inputs = [
        Input(label, tensor.op.name, tensor.dtype.as_datatype_enum, _shape(tensor.shape), axes)
        for label, tensor in zip(labels, flat, strict=True)
    ]

    def arguments(leaves: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments and options of a call, with these leaves as tensors."""
        rest = iter(leaves)
        filled = [next(rest) if isinstance(each, tf.TensorSpec) else each for each in structure]
        packed: tuple[Any, Any] = tf.nest.pack_sequence_as(function.structured_input_signature, filled)
        return packed

    def trace(shapes: Sequence[Any]) -> Any:
        """The trace for other shapes of the inputs."""
        named = [each for each in structure if isinstance(each, tf.TensorSpec)]
        specs = [tf.TensorSpec(s, e.dtype, e.name) for s, e in zip(shapes, named, strict=True)]
        positional, options = arguments(specs)
        return source.trace(*positional, **options)

    can_trace = matched and source.call is not None
    varies_inside = any(None in (each.shape or ())[1:] for each in inputs)
    pools = varies_inside and any("Pool" in node.op for node in library.all_nodes(list(library.nodes)))

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        given = [
            tf.constant(_complex(feeds[label]) if tensor.dtype.is_complex else feeds[label], dtype=tensor.dtype)
            for label, tensor in zip(labels, flat, strict=True)
        ]
        if can_trace and pools:
            _check_windows(trace([each.shape for each in given]))
        with unchanged(function.graph.variables):
            if can_trace and source.call is not None:
                positional, options = arguments(given)
                results = tf.nest.flatten(source.call(*positional, **options))
            else:
                results = tf.nest.flatten(_flat_call(function, given))
            result = [np.asarray(each) for each in results if each is not None]
        if not _fits(function, result) and not (can_trace and _fits(trace([each.shape for each in given]), result)):
            # oneDNN returns the input of a convolution that is smaller than its kernel
            raise ValueError(f"TensorFlow infers other shapes than {[array.shape for array in result]} for the outputs")
        return result

    return Model(
        source.name,
        library,
        inputs,
        _outputs(function),
        captured,
        contents,
        run=run,
        line_of=functools.partial(_line, graph) if source.names_lines else None,
        retrace=(lambda shapes: _of_concrete(trace(shapes), source)) if can_trace else None,
        is_traced=True,
    )


def _check_windows(function: Any) -> None:
    """Raise ``ValueError`` for pooling with empty results, where TensorFlow crashes by division by zero."""
    for op in function.graph.get_operations():
        if "Pool" in op.type and any(0 in (_shape(each.shape) or ()) for each in op.outputs):
            raise ValueError(f"{op.type} gives no elements, as its window is larger than the image")


def _fits(function: Any, found: Sequence[Any]) -> bool:
    """Whether arrays have the shapes that TensorFlow infers for the outputs of a trace."""
    pairs = zip(function.outputs, found, strict=False)
    return all(tensor.shape.is_compatible_with(array.shape) for tensor, array in pairs)


#: Composite tensors, which consist of several tensors.
_SEVERAL = (tf.RaggedTensorSpec, tf.RaggedTensor, tf.SparseTensorSpec, tf.SparseTensor)


def _check_dense(function: Any) -> None:
    """Raise an error for ragged and sparse inputs and outputs of a function."""
    dense = ".to_tensor() of a ragged tensor, tf.sparse.to_dense() of a sparse one"
    for what, structure, advice in (
        ("input", function.structured_input_signature, f"give {dense}, with a mask or lengths beside it"),
        ("output", function.structured_outputs, f"return {dense}"),
    ):
        found = next((each for each in tf.nest.flatten(structure) if isinstance(each, _SEVERAL)), None)
        if found is not None:
            raise NotRepresentable(f"an {what} is not a dense tensor", given=str(found)[:200], do=advice)


#: Files other than the user's.
_USER = UserLines(
    (tf.__file__, keras.__file__, tenonnx.__file__, __file__), ("/autograph/", "__autograph_generated_file")
)


def _line(graph: Any, name: str) -> str:
    """The user's line that created a node, empty if unknown."""
    try:
        frames = graph.get_operation_by_name(name).traceback
    except (KeyError, ValueError):  # it belongs to a called function
        return ""
    return _USER.first((f.filename, f.lineno, f.name) for f in reversed(frames))


def _complex(array: Any) -> Any:
    """Convert pairs along the last axis to complex numbers."""
    return array if np.asarray(array).dtype.kind == "c" else np.asarray(array)[..., 0] + 1j * np.asarray(array)[..., 1]


@contextmanager
def unchanged(variables: Sequence[Any]) -> Iterator[None]:
    """Restore variables after a call."""
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
    """Values of the placeholders of captures: variables, tables, and arrays."""
    by_handle = {id(v.handle): v for v in function.graph.variables if hasattr(v, "handle")}
    captures: dict[str, Held] = {}
    contents: dict[Held, Any] = {}
    for outer, placeholder in function.graph.captures:
        node = placeholder.op.name
        variable = by_handle.get(id(outer))
        if variable is not None:
            kind = "frozen" if id(outer) in frozen else "parameter"
            new_variable = Variable(_name(variable), role=kind if variable.trainable else "buffer")
            captures[node], contents[new_variable] = new_variable, variable.numpy()
        elif outer.dtype.as_datatype_enum in (RESOURCE, VARIANT):
            captures[node] = Table(node, contents=_exporter(outer))
        else:
            captures[node] = np.asarray(outer)
    return captures, contents


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name.split(":")[0])


def _exporter(handle: Any) -> Callable[[int, int], tuple[Any, Any]]:
    """A function that reads a table, given the types of its keys and values."""

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
