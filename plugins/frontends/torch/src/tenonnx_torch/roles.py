"""Roles of a module's variables: parameters, frozen ones, buffers, and fixed rows."""

from __future__ import annotations

from typing import Any

import torch

from tenonnx.extend import Graph
from tenonnx.extend.formats import Role

_EMBEDDING = torch.ops.aten.embedding.default


def set_roles(graph: Graph, module: torch.nn.Module, program: Any) -> None:
    """Set the role of every constant; those other than parameters, such as literals in the code, are not trained."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    rows = _padding_rows(program, {name: id(parameter) for name, parameter in parameters.items()})
    for value in filter(lambda value: value.is_constant, graph.values()):
        parameter = parameters.get(value.name)
        if parameter is None:
            value.role = Role("buffer")
        else:
            kind = "parameter" if parameter.requires_grad else "frozen"
            value.role = Role(kind, rows.get(id(parameter), ()))


def _padding_rows(program: Any, identities: dict[str, int]) -> dict[int, tuple[int, ...]]:
    """Padding rows of embeddings, by parameter, where nothing else reads the parameter."""
    names = program.graph_signature.inputs_to_parameters
    found: dict[int, set[int | None]] = {}
    for node in program.graph.nodes:
        name = names.get(node.name) if node.op == "placeholder" else None
        if name in identities:
            found.setdefault(identities[name], set()).update(_padding_row(user, node) for user in node.users)
    alone = {key: next(iter(rows)) for key, rows in found.items() if len(rows) == 1}
    return {key: (row,) for key, row in alone.items() if row is not None}


def _padding_row(user: Any, weight: Any) -> int | None:
    """The padding row of an embedding that reads ``weight``; None for no padding row, or for another operation."""
    if user.target is not _EMBEDDING or user.args[0] is not weight:
        return None
    row = user.args[2] if len(user.args) > 2 else user.kwargs.get("padding_idx", -1)
    return int(row) if int(row) >= 0 else None
