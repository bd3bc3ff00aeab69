"""Training state: from a program into a graph and its files, and back."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from tenonnx.errors import InvalidCall
from tenonnx.extend import Graph
from tenonnx.graph.training import TrainingState
from tenonnx.graph.values import ArrayConstant
from tenonnx_training.optimizers import Optimizer
from tenonnx_training.step import COUNT, StepGraph


def write_back(
    graph: Graph, made: StepGraph, optimizer: Optimizer, held: Mapping[str, Any], progress: Mapping[str, Any]
) -> None:
    """Give ``graph`` the contents that a program holds: parameters, statistics, and the state to go on from."""
    graph.assign({name: np.asarray(held[name]) for name in (*made.parameters, *made.statistics)})
    tensors = {name: ArrayConstant(np.asarray(held[name])) for name in (*made.slots, COUNT)}
    settings = {"optimizer": {"name": optimizer.name, **optimizer.settings()}, **progress}
    graph.training_state = TrainingState(tensors, settings)


def restore(graph: Graph, made: StepGraph, optimizer: Optimizer, held: MutableMapping[str, Any]) -> dict[str, Any]:
    """Go on from the training state of ``graph``, if it has one; returns its settings.

    Raises ``InvalidCall`` for state of another optimizer, or that lacks a parameter or has it in another shape.
    """
    state = graph.training_state
    if state is None:
        return {}
    name = state.settings.get("optimizer", {}).get("name")
    forget = "start anew: graph.training_state = None"
    if name != optimizer.name:
        raise InvalidCall(
            f"the graph was trained with {name}, whose state {optimizer.name} cannot go on from",
            do=f"take the optimizer {name}, or {forget}",
        )
    missing = [slot for slot in (*made.slots, COUNT) if slot not in state.tensors]
    if missing:
        raise InvalidCall(
            "the training state must cover every trainable parameter",
            given=f"no {', '.join(missing[:5])}" + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""),
            available=", ".join(list(state.tensors)[:10]),
            do=f"train the parameters that it was made for, or {forget}",
        )
    formals = {value.name: value for value in made.graph.formals}
    for slot in (*made.slots, COUNT):
        found, wanted = state.tensors[slot].type, formals[slot].type
        if found != wanted:
            raise InvalidCall(
                f'the training state belongs to another model: "{slot}" must be {wanted}', given=str(found), do=forget
            )
    for slot in (*made.slots, COUNT):
        held[slot] = state.tensors[slot].array()
    return dict(state.settings)
