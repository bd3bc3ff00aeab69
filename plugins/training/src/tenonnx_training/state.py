"""Training state: transfer between programs, graphs and files."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from tenonnx.extend import ArrayConstant, Graph, InvalidCall
from tenonnx.extend.formats import PARAMETERS, TrainingState
from tenonnx.extend.transforms import copy_graph
from tenonnx.tools import listing
from tenonnx_training.optimizers import Optimizer
from tenonnx_training.scales import biases_of, following
from tenonnx_training.step_graph import StepGraph
from tenonnx_training.updates import COUNT, average_name

Array = np.ndarray[Any, Any]

#: Compare this many bytes first: different arrays mostly differ there.
_FIRST = 4096

#: Key of the results of earlier epochs in the settings of a state.
HISTORY = "history"


def write_back(
    graph: Graph,
    step_graph: StepGraph,
    optimizer: Optimizer,
    program_state: Mapping[str, Any],
    progress: Mapping[str, Any],
    measured: Mapping[str, Array],
) -> Graph:
    """Write the contents of a program back to ``graph``: parameters, statistics, and training state; return the graph.

    The state includes ``progress`` and the ``measured`` arrays.
    """
    contents = {name: np.asarray(program_state[name]) for name in (*step_graph.parameters, *step_graph.statistics)}
    assign_changed(graph, {**contents, **following(graph, step_graph.biases, contents)})
    tensors = {name: ArrayConstant(np.asarray(program_state[name])) for name in (*step_graph.slots, COUNT)}
    tensors |= {name: ArrayConstant(array) for name, array in measured.items()}
    graph.training_state = TrainingState(tensors, settings_of(step_graph, optimizer, progress))
    return graph


def settings_of(step_graph: StepGraph, optimizer: Optimizer, progress: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a training state, without its tensors."""
    named = {"name": optimizer.name, **optimizer.settings()}
    return {"optimizer": named, PARAMETERS: list(step_graph.parameters), **progress}


def assign_changed(graph: Graph, contents: Mapping[str, Array]) -> None:
    """Assign contents to variables, except where they are unchanged: these keep the form that their file has."""
    before = {value.name: value.data.array() for value in graph.variables if value.data is not None}
    graph.assign({name: a for name, a in contents.items() if name not in before or not _equal(before[name], a)})


def _equal(one: Array, other: Array) -> bool:
    """Whether two arrays are bitwise equal."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype == object:
        return bool(one.tolist() == other.tolist())
    first, second = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return bool(np.array_equal(first[:_FIRST], second[:_FIRST]) and np.array_equal(first, second))


def not_finite(graph: Graph, step_graph: StepGraph, state: Mapping[str, Any]) -> list[str]:
    """The trained variables that are finite in ``graph`` but not in a program."""
    variables = {value.name: value.data for value in graph.variables}
    result = []
    for name in (*step_graph.parameters, *step_graph.statistics):
        before = variables[name]
        if not np.isfinite(state[name]).all() and before is not None and np.isfinite(before.array()).all():
            result.append(name)
    return result


def restore(
    graph: Graph, step_graph: StepGraph, optimizer: Optimizer, program_state: MutableMapping[str, Any]
) -> dict[str, Any]:
    """Load the training state of ``graph``, if any, into a program; returns its settings.

    Raises ``InvalidCall`` for the state of another optimizer, a missing parameter or another shape, and for invalid
    settings.
    """
    state = graph.training_state
    if state is None:
        return {}
    forget = "start anew: no --resume / graph.training_state = None"
    for key in ("epoch", "samples", "seed"):
        if not (type(number := state.settings.get(key, 0)) is int and 0 <= number < 2**63):
            raise InvalidCall(f'"{key}" of the training state is not a count', given=repr(number)[:50], do=forget)
    if not _are_sums(sums := state.settings.get("sums", {})):
        raise InvalidCall('invalid "sums" in the training state', given=repr(sums)[:50], do=forget)
    if not _are_epochs(epochs := state.settings.get(HISTORY, [])):
        raise InvalidCall(f'invalid "{HISTORY}" in the training state', given=repr(epochs)[:50], do=forget)
    named = state.settings.get("optimizer")
    name = named.get("name") if isinstance(named, Mapping) else named
    if name != optimizer.name:
        raise InvalidCall(
            f"the graph was trained with {name}, whose state {optimizer.name} cannot go on from",
            do=f"take the optimizer {name}, or {forget}",
        )
    missing = [slot for slot in (*step_graph.slots, COUNT) if slot not in state.tensors]
    if missing:
        raise InvalidCall(
            "the training state lacks trainable parameters",
            given=f"no {listing(missing, 5)}",
            available=listing(state.tensors),
            do=f"train the parameters that it was made for, or {forget}",
        )
    formals = {value.name: value for value in step_graph.graph.all_inputs}
    for slot in (*step_graph.slots, COUNT):
        found, wanted = state.tensors[slot].type, formals[slot].type
        if found != wanted:
            raise InvalidCall(
                f'the training state belongs to another model: "{slot}" is not {wanted}', given=str(found), do=forget
            )
    for slot in (*step_graph.slots, COUNT):
        program_state[slot] = state.tensors[slot].array()
    return dict(state.settings)


def _are_sums(sums: Any) -> bool:
    """Whether ``sums`` maps names to pairs of total and weight."""
    pairs = sums.values() if isinstance(sums, dict) else [None]
    return all(isinstance(p, list) and len(p) == 2 and all(type(n) in (int, float) for n in p) for p in pairs)


def _are_epochs(epochs: Any) -> bool:
    """Whether ``epochs`` is a list of mappings of names to numbers."""
    rows = epochs if isinstance(epochs, list) else [None]
    return all(isinstance(row, dict) and all(type(n) in (int, float) for n in row.values()) for row in rows)


def averaged(graph: Graph) -> Graph:
    """A copy of ``graph`` whose parameters are the moving averages that its training recorded (``average=``)."""
    tensors = {} if graph.training_state is None else graph.training_state.tensors
    variables = {value.name: value.tensor.dtype for value in graph.variables}
    found = {name: tensors[kept] for name in variables if (kept := average_name(name)) in tensors}
    if not found:
        raise InvalidCall("the training state has no moving average", do="train with average=0.999")
    copy = copy_graph(graph)
    copy.training_state = None
    contents = {name: content.array().astype(variables[name].numpy, copy=False) for name, content in found.items()}
    copy.assign({**contents, **following(graph, biases_of(graph), contents)})
    return copy
