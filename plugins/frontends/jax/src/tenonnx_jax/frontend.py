"""The front end: ``tx.load(function, *examples)`` reads a JAX function as a graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import jax
import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, NotRepresentable, Registry, TenonnxError, Value, constant
from tenonnx.extend.formats import Role
from tenonnx.extend.frontends import Allowed, Verification
from tenonnx_frontends import Dims, chosen_names, output_names
from tenonnx_jax.dims import Sizes, as_dim
from tenonnx_jax.examples import Examples
from tenonnx_jax.interpreter import Interpreter, as_value, check_primitives
from tenonnx_jax.lines import USER
from tenonnx_jax.rules import (  # noqa: F401 - what they are imported for is their rules
    bits,
    complexes,
    control,
    elementwise,
    fourier,
    indexing,
    linear,
    randomness,
    reductions,
    shapes,
    special,
    windows,
)
from tenonnx_jax.sources import Source, source_of
from tenonnx_jax.tidying import tidied
from tenonnx_jax.types import Held, Parts, dtype_of, is_complex, is_key, parts_of
from tenonnx_jax.verification import verify_against

#: Opset version of the graphs; ``tx.export`` converts them to any other.
OPSET = 21


def read(
    source: Any,
    *examples: Any,
    registry: Registry | None = None,
    keywords: Mapping[str, Any] | None = None,
    variables: Any = None,
    method: str | None = None,
    mutable: Sequence[str] | str = (),
    dims: Dims | str | os.PathLike[str] | None = None,
    dynamic_axes: Dims | str | os.PathLike[str] | None = None,
    dynamic_batch: bool = False,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    verify: bool | float = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> Graph:
    """Read ``source`` as a graph, by example arguments and ``keywords`` of one call.

    ``source`` is a function, or a module of Flax (nnx, or linen bound to its ``variables``) or Equinox; ``method``
    selects a method other than ``__call__``. Arrays in a module are initializers, named by their path in the tree.
    Arrays that a call changes, such as batch statistics or key counters, are inputs with defaults, and their new
    contents are outputs ``<path>_next``; in linen, these are the collections in ``mutable``. ``dims`` (or
    ``dynamic_axes``) names the dynamic axes, ``{"x": {0: "batch"}}``, and may be JSON or a JSON file; ``dynamic_batch``
    names the first axis of every input "batch". Complex numbers are float pairs along a last axis, and keys are their
    words. Raises ``NotRepresentable`` naming unsupported primitives and lines of the user's code, ``InvalidCall`` for
    invalid examples, dims and names, and ``VerificationFailed`` where the outputs of the graph differ from JAX's, at
    the sizes given, at others or at 1, unless ``verify`` is False.
    """
    allowed = Allowed.of(verify, atol, rtol)
    function_source = source_of(source, variables, method, mutable)
    given = Examples.of(function_source, examples, keywords, dims, dynamic_axes, dynamic_batch, input_names)
    graph = graph_of(function_source, given, registry, output_names)
    if allowed is not None:
        verify_against(function_source, given, graph, allowed).raise_if_failed()
    return graph


def verifier(
    source: Any,
    *examples: Any,
    variables: Any = None,
    method: str | None = None,
    mutable: Sequence[str] | str = (),
    keywords: Mapping[str, Any] | None = None,
    dims: Any = None,
    dynamic_axes: Any = None,
    dynamic_batch: bool = False,
    input_names: Sequence[str] | None = None,
    **_: Any,
) -> Callable[..., Verification]:
    """A function that verifies a graph against ``source``; takes the options of ``read``, and ``atol`` and ``rtol``."""
    function_source = source_of(source, variables, method, mutable)
    given = Examples.of(function_source, examples, keywords, dims, dynamic_axes, dynamic_batch, input_names)
    return lambda graph, atol=None, rtol=None: verify_against(function_source, given, graph, Allowed(atol, rtol))


def graph_of(source: Source, examples: Examples, registry: Registry | None, names: Sequence[str] | None) -> Graph:
    """The unverified graph of a call."""
    types = examples.types()
    closed, (structure, changed) = traced(source, examples, types)
    check_primitives(closed)
    graph = Graph(source.name, opsets={"ai.onnx": OPSET})
    graph.registry = registry
    try:
        with graph.building():
            paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(structure)[0]]
            outputs = chosen_names("outputs", names, output_names(paths, examples.names), examples.names)
            _build(graph, source, examples, types, closed, [*outputs, *(f"{name}_next" for name in sorted(changed))])
    except TenonnxError as error:
        notes = getattr(error, "__notes__", [])
        if notes and isinstance(error, NotRepresentable):
            raise NotRepresentable(
                error.what, given=error.given, available=error.available, do=error.do, also=notes[0]
            ) from error
        raise
    result = tidied(graph, list(source.parameters))
    for value in result.variables:
        if value.name in source.parameters:
            value.role = Role("buffer" if value.name in source.buffers else "parameter")
    result.all_inputs += [value for value in result.variables if value.name in changed]
    return result


def traced(source: Source, examples: Examples, types: Sequence[Any]) -> tuple[Any, Any]:
    """The jaxpr of a call with parameters and arguments, and the pytree of its result."""

    def function(state: Any, arrays: Any) -> Any:
        arguments, keywords = examples.arguments(arrays)
        return source.call(state, arguments, keywords)

    structures = [jax.ShapeDtypeStruct(np.shape(p), p.dtype) for p in source.parameters.values()]
    try:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(structures, list(types))
    except TenonnxError:
        raise
    except Exception as error:
        where = "\n".join(USER.of_error(error)[-3:])
        said = str(error).strip().split("\n\n")[0].replace("\n", " ")[:500]
        raise NotRepresentable(
            f"JAX cannot trace {source.name} for these examples and dims",
            given=where or f"{type(error).__name__}: {said}",
            also=f"{type(error).__name__}: {said}",
            do="compute with sizes of inputs (x.shape[0]) and jax.numpy; branches that depend on contents are "
            "jax.lax.cond or jax.numpy.where, those that depend on a dim that varies leave it out of dims",
        ) from error
    return closed, shape


def _build(graph: Graph, source: Source, examples: Examples, types: Any, closed: Any, names: Sequence[str]) -> None:
    inputs, symbols = [], {}
    for name, kind in zip(examples.names, types, strict=True):
        value = graph.input(name, dtype_of(kind), (*map(as_dim, kind.shape), *_last_axis(kind)))  # type: ignore[arg-type]
        inputs.append(value)
        for axis, dim in examples.dims.get(name, {}).items():
            if dim not in symbols:
                symbols[dim] = (value, axis)
    sizes = Sizes({name: _size_of(*where) for name, where in symbols.items()})
    parameters = [_variable(graph, name, array) for name, array in source.parameters.items()]
    consts = [_constant(graph, array) for array in closed.consts]
    given = [_apart(value, kind) for value, kind in zip(inputs, types, strict=True)]
    interpreter = Interpreter(sizes, frozenset(graph.variables))
    results = interpreter.evaluate(closed.jaxpr, consts, [*parameters, *given])
    for name, result, aval in zip(names, results, closed.out_avals, strict=True):
        value = _whole(as_value(result), aval)
        known = set(graph.names())
        if (
            value.name in known and any(value is each for each in (*graph.all_inputs, *graph.variables, *graph.outputs))
        ) or value.is_constant:
            value = ops.identity(value)
        graph.output(name, value)


def _size_of(value: Value, axis: int) -> Value:
    return ops.reshape(ops.shape(value, start=axis, end=axis + 1), constant(np.zeros(0, np.int64)))


def _last_axis(kind: Any) -> tuple[int, ...]:
    return (2,) if is_key(kind.dtype) or is_complex(kind.dtype) else ()


def _apart(value: Value, kind: Any) -> Any:
    """An input in the interpreter's form: as parts, if its last axis has them."""
    if not _last_axis(kind):
        return value
    return Parts(ops.gather(value, constant(np.asarray(k, np.int64)), axis=value.ndim - 1) for k in range(2))


def _whole(value: Any, aval: Any) -> Value:
    if not isinstance(value, Parts):
        result: Value = value
        return result
    rank = len(aval.shape)
    return ops.concat(*(ops.unsqueeze(part, [rank]) for part in value), axis=rank)


def _variable(graph: Graph, name: str, array: Any) -> Held:
    parts = parts_of(array)
    if isinstance(parts, Parts):
        return Parts(graph.variable(f"{name}.{k}", part) for k, part in enumerate(parts))
    return graph.variable(name, parts)


def _constant(graph: Graph, array: Any) -> Held:
    """A constant that a function captures; float arrays, which may be trained, become variables."""
    parts = parts_of(array)
    if isinstance(parts, Parts) or parts.ndim == 0 or parts.dtype.kind in "iub" or parts.size < 2:
        return parts
    taken = graph.names()
    return graph.variable(next(name for k in count() if (name := f"constant_{k}") not in taken), parts)


__all__ = ["graph_of", "read", "verifier"]
