"""Validation of assignments to properties of values, nodes and graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from tenonnx.errors import InvalidCall, did_you_mean
from tenonnx.graph.training import TrainingState

Class = TypeVar("Class", bound=type)

#: The assignable fields of a graph, and their types.
_FIELDS: Final[Mapping[str, Any]] = {
    "name": str,
    "doc": str,
    "opsets": dict,
    "metadata": dict,
    "ir_version": int | None,
    "inputs": Sequence,
    "outputs": list,
    "nodes": list,
    "variables": list,
    "all_inputs": list,
    "captures": list,
    "training_state": TrainingState | None,
    "functions": dict,
    "value_types": Mapping,
    "fixed": str,
    "retyped": bool,
    "parent": object,
    "origin": object,
    "registry": object,
    "_names": dict | None,
}


def read_only(**instead: str) -> Callable[[Class], Class]:
    """Give read-only properties of a class a setter that raises ``InvalidCall`` with the alternative."""

    def mark(cls: Class) -> Class:
        for name, do in instead.items():
            setattr(cls, name, getattr(cls, name).setter(_refuse(f"{cls.__name__}.{name}", do)))
        return cls

    return mark


def _refuse(name: str, do: str) -> Callable[[Any, Any], None]:
    def refuse(self: Any, given: Any) -> None:
        raise InvalidCall(f"cannot assign {name}", given=repr(given)[:200], do=do)

    return refuse


class CheckedFields:
    """Base class of graphs: assignments to unknown fields, or of wrong types, raise ``InvalidCall``."""

    def __setattr__(self, name: str, given: Any) -> None:
        kind = _FIELDS.get(name)
        if kind is None or not isinstance(given, kind):
            known = [field for field in _FIELDS if not field.startswith("_")]
            reason = f"cannot be {type(given).__name__}" if kind else "is not an attribute that can be assigned"
            expected = str(getattr(kind, "__name__", kind)) if kind else ", ".join(known)
            do = "" if kind else did_you_mean(name, known)
            raise InvalidCall(f'"{name}" of a graph {reason}', given=repr(given)[:200], available=expected, do=do)
        if kind is list:
            check_kinds(name, given)
        super().__setattr__(name, given)


def check_kinds(part: str, items: Sequence[object]) -> None:
    """Raise ``InvalidCall`` if a list of a graph has an item of the wrong type."""
    mark, kind = ("op_type", "nodes") if part == "nodes" else ("producer", "values")
    strange = [each for each in items if not hasattr(each, mark)]
    if strange:
        do = 'graph["name"] is a value, and .producer its node; graph.input, variable, output and insert add to lists'
        raise InvalidCall(f"{part} of the graph hold something other than {kind}", given=repr(strange[0])[:200], do=do)
