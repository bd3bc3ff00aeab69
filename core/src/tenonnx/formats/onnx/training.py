"""Optimizer state in a model: its tensors are initializers, its settings an entry of the metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tenonnx.errors import InvalidCall, InvalidModel
from tenonnx.formats.onnx.types import write_type
from tenonnx.graph.graph import OPTIONAL_INPUTS_IR, Graph
from tenonnx.graph.training import TrainingState, is_called_as_state

if TYPE_CHECKING:
    import onnx

    from tenonnx.formats.onnx.tensors import Initializers

#: Key in ``metadata_props`` for the names of the tensors and the settings.
KEY = "tenonnx.training"


def add_training_state(graph: Graph, model: onnx.ModelProto, initializers: Initializers) -> Initializers:
    """``initializers`` with the training state of ``graph``, which is recorded in the metadata of ``model``.

    Raises ``InvalidCall`` if a tensor of the state has the name of a value of the graph.
    """
    state = graph.training_state
    if state is None:
        return initializers
    taken = {value.name for value in graph.values()}
    clashes = [name for name in state.tensors if name in taken]
    if clashes:
        raise InvalidCall(
            "names of the training state are used in the graph", given=", ".join(clashes), do="rename the values"
        )
    text = json.dumps({"tensors": list(state.tensors), "settings": dict(state.settings)}, sort_keys=True)
    model.metadata_props.add(key=KEY, value=text)
    if model.ir_version < OPTIONAL_INPUTS_IR:
        for name, contents in state.tensors.items():
            write_type(contents.type, model.graph.input.add(name=name).type)
    return [*initializers, *state.tensors.items()]


def take_training_state(graph: Graph) -> None:
    """Move the recorded training state of a file from the variables of ``graph`` to ``training_state``.

    Raises ``InvalidModel`` if the metadata is invalid or names tensors that the file does not have.
    """
    text = graph.metadata.pop(KEY, None)
    if text is None:
        return
    try:
        announced = json.loads(text)
        names, settings = dict.fromkeys(announced["tensors"]), dict(announced["settings"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidModel(
            f'the metadata entry "{KEY}" does not list tensors and settings', given=text[:200], do="remove the entry"
        ) from error
    variables = {value.name: value for value in graph.variables}
    missing = [name for name in names if name not in variables]
    if missing:
        raise InvalidModel(
            "the file lacks training state that its metadata lists",
            given=f"no initializer {', '.join(map(repr, missing))}",
            do=f'remove the metadata entry "{KEY}" to load the model without',
        )
    tensors = {name: data for name in names if (data := variables[name].data) is not None}
    graph.variables = [value for value in graph.variables if value.name not in tensors]
    graph.all_inputs = [value for value in graph.all_inputs if value.name not in tensors]
    graph.training_state = TrainingState(tensors, settings)


def drop_training_state(graph: Graph) -> None:
    """Drop the training state of ``graph``, recorded in metadata or not.

    Without metadata these are variables that neither a node nor an output reads, and that are named after a parameter
    (which may be missing), as ``w__adam_m``, or ``training__...``.
    """
    graph.training_state = None
    used = {value.name for nested in graph.nested() for node in nested.nodes for value in node.uses}
    used |= {value.name for value in graph.outputs}
    dropped = {v.name for v in graph.variables if v.name not in used and is_called_as_state(v.name)}
    graph.variables = [value for value in graph.variables if value.name not in dropped]
    graph.all_inputs = [value for value in graph.all_inputs if value.name not in dropped]
