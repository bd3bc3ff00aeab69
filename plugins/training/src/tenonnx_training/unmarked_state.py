"""Training state in files without metadata, as other programs may leave them."""

from __future__ import annotations

from tenonnx.extend import Graph, InvalidCall, TensorType
from tenonnx.extend.formats import PARAMETERS, TrainingState
from tenonnx_training.optimizers import OPTIMIZERS
from tenonnx_training.updates import COUNT, average_name, gathered_name

#: Suffixes of the names of slots in files, by optimizer.
_SLOTS = {f"__{name}_{slot}": name for name, make in OPTIMIZERS.items() for slot in make().slots}
_OTHERS = (average_name(""), gathered_name(""))


def looks_like_state(graph: Graph) -> list[str]:
    """The variables that no node reads and whose names are those of training state, in file order."""
    used = {value.name for nested in graph.nested() for node in nested.nodes for value in node.uses}
    used |= {value.name for value in graph.outputs}
    return [v.name for v in graph.variables if v.name not in used and v.name.endswith((*_SLOTS, *_OTHERS))]


def adopt(graph: Graph) -> list[str]:
    """Convert variables of ``graph`` to training state by name, shape and use; returns notes.

    Raises ``InvalidCall`` where names, shapes and optimizers are inconsistent; such variables are never trained.
    """
    kept = looks_like_state(graph)
    if not kept:
        return []
    variables = {value.name: value for value in graph.variables}
    owners = {name: _owner(name) for name in kept}
    optimizers = sorted({of for name in kept for end, of in _SLOTS.items() if name.endswith(end)})
    problems = []
    if graph.training_state is not None:
        problems.append("the metadata of the file has other training state")
    if len(optimizers) != 1:
        problems.append(f"one optimizer is needed, got {', '.join(optimizers) or 'none'}")
    for name, owner in owners.items():
        if owner not in variables:
            problems.append(f'"{name}" belongs to no initializer "{owner}"')
        elif _shape(variables[name].type) != _shape(variables[owner].type):
            problems.append(f'"{name}" is {variables[name].type}, "{owner}" {variables[owner].type}')
    if COUNT not in variables:
        problems.append(f'there is no "{COUNT}", the number of steps')
    if problems:
        raise InvalidCall(
            "initializers have names of training state, but are not training state",
            given="; ".join(problems[:5]),
            do="leave them out: tenonnx.load(file, training_state=False)",
        )
    names = [name for name in variables if name in owners or name.startswith("training__")]
    tensors = {name: data for name in names if (data := variables[name].data) is not None}
    graph.variables = [value for value in graph.variables if value.name not in tensors]
    graph.all_inputs = [value for value in graph.all_inputs if value.name not in tensors]
    trained = list(dict.fromkeys(owners.values()))
    settings = {"optimizer": {"name": optimizers[0]}, PARAMETERS: trained, "trainable": trained}
    graph.training_state = TrainingState(tensors, settings)
    return [
        f"resumes from the {optimizers[0]} state in the file, which lacks the optimizer's settings: defaults are used"
    ]


def _owner(name: str) -> str:
    return next(name.removesuffix(end) for end in (*_SLOTS, *_OTHERS) if name.endswith(end))


def _shape(kind: object) -> object:
    return kind.shape if isinstance(kind, TensorType) else None
