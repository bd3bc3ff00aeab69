"""Parameter and buffer roles in the metadata of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidModel
from tenonnx.graph.graph import Graph
from tenonnx.graph.training import Role

if TYPE_CHECKING:
    import onnx

#: Key in ``metadata_props``: variable names by kind, and by name the fixed rows, permutations and sources.
KEY = "tenonnx.variables"

_KINDS = ("parameter", "frozen", "buffer")


def add_roles(roles: Mapping[str, Role], model: onnx.ModelProto) -> None:
    """Record the roles of initializers in the metadata of ``model``."""
    entries: dict[str, Any] = {}
    for name, role in roles.items():
        if role.kind:
            entries.setdefault(role.kind, []).append(name)
        if role.fixed_rows:
            entries.setdefault("fixed_rows", {})[name] = list(role.fixed_rows)
        if role.permutation is not None:
            entries.setdefault("permutation", {})[name] = list(role.permutation)
        if role.made_of:
            entries.setdefault("made_of", {})[name] = list(role.made_of)
    if entries:
        model.metadata_props.add(key=KEY, value=json.dumps(entries, sort_keys=True))


def take_roles(graph: Graph) -> None:
    """Set the roles of the variables of ``graph`` from its metadata. Raises ``InvalidModel`` if that is invalid.

    Names of variables that no longer exist are ignored.
    """
    text = graph.metadata.pop(KEY, None)
    if text is None:
        return
    try:
        entries = json.loads(text)
        rows, permutations, made_of = (dict(entries.get(key, {})) for key in ("fixed_rows", "permutation", "made_of"))
        roles = {
            str(name): Role(
                kind,
                tuple(map(int, rows.get(name, ()))),
                _axes(permutations.get(name)),
                tuple(map(str, _names(made_of.get(name, [])))),
            )
            for kind in _KINDS
            for name in _names(entries.get(kind, []))
        }
        for name in permutations:
            roles.setdefault(name, Role("", permutation=_axes(permutations[name])))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        what = f'the metadata entry "{KEY}" does not list names of initializers by {", ".join(_KINDS)}'
        raise InvalidModel(what, given=text[:200], do="remove the entry") from error
    for value in graph.variables:
        value.role = roles.get(value.name)


def _names(entry: Any) -> list[Any]:
    if not isinstance(entry, list):
        raise TypeError("no list")
    return entry


def _axes(entry: Any) -> tuple[int, ...] | None:
    return None if entry is None else tuple(map(int, entry))
