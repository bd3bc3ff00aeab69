"""Building a graph from a model of TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, InvalidCall, NotRepresentable, Registry, TenonnxError, Value, constant
from tenonnx.extend.transforms import prune, retarget, retarget_to, target_for
from tenonnx_extensions.checks import DOMAIN as TEXT
from tenonnx_frontends import chosen_names
from tenonnx_optimize import channels_first, fuse, simplify
from tenonnx_tensorflow.attributes import dtype_of, is_complex
from tenonnx_tensorflow.interpreter import Interpreter, check_ops
from tenonnx_tensorflow.model import Input, Model
from tenonnx_tensorflow.quantized_moves import moved_quantized
from tenonnx_tensorflow.state import State, build_until_stable
from tenonnx_tensorflow.tracked_values import Complex, Held
from tenonnx_tensorflow.verification import array_of

#: Opset version of the rules, and of the resulting graphs; ``tx.export`` converts them to any other.
WRITTEN, OPSET = 26, 21


def graph_of(model: Model, registry: Registry | None, names: Sequence[str] | None = None) -> Graph:
    """The unverified graph of a model.

    Raises ``NotRepresentable`` naming every op without a rule, or the node without an ONNX equivalent.
    """
    check_ops(model.library, [reference.node for _, reference in model.outputs], model.line_of, model.forms)
    try:
        state = build_until_stable(lambda mutable: _built(model, registry, names, mutable))
    except TenonnxError as error:
        raise with_place(error) from error
    return tidied(state)


def with_place(error: TenonnxError) -> TenonnxError:
    """The error with its node in the message."""
    notes = getattr(error, "__notes__", [])
    if not notes or not isinstance(error, NotRepresentable):
        return error
    return NotRepresentable(error.what, given=error.given, available=error.available, do=error.do, also=notes[0])


def _built(model: Model, registry: Registry | None, names: Sequence[str] | None, mutable: frozenset[str]) -> State:
    graph = Graph(_plain(model.name), opsets={"ai.onnx": WRITTEN})
    graph.registry = registry
    size = None if model.is_traced else model.library.size
    state = State(graph, mutable, model.restored, model.asset, size)
    state.names_by_key, state.forms = model.names_by_key, model.forms
    chosen = _output_names(model, names)
    state.reserved = frozenset(chosen)
    with graph.building():
        _build(graph, state, model, chosen)
    return state


def _build(graph: Graph, state: State, model: Model, names: Sequence[str]) -> None:
    fed: dict[str, list[Held]] = {given.node: [_input(graph, given)] for given in model.inputs}
    interpreter = Interpreter(model.library, state)
    for name, contents in model.contents.items():
        state.initial[name] = contents
    if model.prepared:
        known_values = {node: [constant(np.asarray(path, object))] for node, path in model.assets.items()}
        interpreter.evaluate([], known_values, model.prepared)
    state.is_running = True
    given_files = {node: [constant(np.asarray(path, object))] for node, path in model.assets.items()}
    captured = {node: [_captured(state, node, known_values)] for node, known_values in model.captured.items()}
    results = interpreter.evaluate([reference for _, reference in model.outputs], {**given_files, **captured, **fed})
    for name, result in zip(names, results, strict=True):
        graph.output(name, _output(graph, name, result))
    state.add_outputs()


def _captured(state: State, name: str, content: Held) -> Held:
    """A constant that a function captures; float arrays, which may be trained, become variables."""
    if not isinstance(content, np.ndarray):
        return content
    if content.dtype.kind == "c":
        return Complex(*(constant(np.ascontiguousarray(part)) for part in (content.real, content.imag)))
    if content.dtype == object:
        return constant(array_of(content))
    return state.variable(name, content) if content.dtype.kind in "fV" and content.size > 1 else constant(content)


def _input(graph: Graph, given: Input) -> Held:
    if given.shape is None:
        raise InvalidCall(
            "the rank of an input is not known",
            given=f'"{given.name}"',
            do='give its shape, shapes={"' + given.name + '": ["batch", 224, 224, 3]}',
        )
    dims = [given.axes.get(k, size) if size is None else size for k, size in enumerate(given.shape)]
    dims = [f"{_plain(given.name)}_{k}" if n is None else n for k, n in enumerate(dims)]
    if is_complex(given.dtype):
        whole = graph.input(given.name, dtype_of(given.dtype), (*dims, 2))
        rank = len(dims)
        return Complex(*(ops.gather(whole, constant(np.asarray(k)), axis=rank) for k in range(2)))
    return graph.input(given.name, dtype_of(given.dtype), tuple(dims))


def _output(graph: Graph, name: str, result: Held) -> Value:
    if isinstance(result, Complex):
        rank = result.real.ndim
        return ops.concat(*(ops.unsqueeze(part, [rank]) for part in result), axis=rank)
    if not isinstance(result, Value):
        raise NotRepresentable("an output is not a tensor", given=f'"{name}" is a {type(result).__name__.lower()}')
    taken = any(result is each for each in (*graph.all_inputs, *graph.variables, *graph.outputs))
    return ops.identity(result) if taken or result.is_constant else result


def _output_names(model: Model, names: Sequence[str] | None) -> list[str]:
    taken = {given.name for given in model.inputs}
    found = []
    for name, _ in model.outputs:
        unique = name if name not in taken else f"{name}_output"
        taken.add(unique)
        found.append(unique)
    return chosen_names("outputs", names, found, [i.name for i in model.inputs])


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "graph"


def tidied(state: State) -> Graph:
    """The simplified graph, in channels-first layout and with named weights."""
    moved = _text_lowered(retarget(prune(state.graph), OPSET))
    result = fuse(simplify(moved_quantized(channels_first(simplify(moved)))))
    state.add_defaults(result)
    return result


def _text_lowered(graph: Graph) -> Graph:
    """The graph with string ops replaced by those of ``ai.onnx``, where possible."""
    domains = [domain for domain in graph.opsets if domain != TEXT]
    if len(domains) == len(graph.opsets):
        return graph
    return retarget_to(graph, target_for(graph, OPSET, domains), refuse=False).graph
