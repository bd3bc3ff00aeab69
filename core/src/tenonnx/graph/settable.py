"""What of values, nodes and graphs can be set: the rest refuses, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from tenonnx.errors import InvalidCall
from tenonnx.graph.late_bindings import late
from tenonnx.graph.names import near_names
from tenonnx.graph.training import TrainingState

Class = TypeVar("Class", bound=type)
Read = TypeVar("Read", covariant=True)
Given = TypeVar("Given", contravariant=True)

#: What of a graph can be set, and to what.
_PARTS: Final[Mapping[str, Any]] = {
    "name": str, "doc": str, "opsets": dict, "metadata": dict, "ir_version": int | None,
    "inputs": Sequence, "outputs": list, "nodes": list, "variables": list, "all_inputs": list, "captures": list,
    "training_state": TrainingState | None, "functions": dict, "value_types": Mapping, "fixed": str, "retyped": bool,
    "parent": object, "origin": object, "registry": object, "_names": dict | None,
}  # fmt: skip


class EditedPart(Generic[Read, Given]):
    """To type checkers, what is read as one type and set as another."""

    def __get__(self, instance: Any, owner: Any = None) -> Read: ...  # type: ignore[empty-body]

    def __set__(self, instance: Any, given: Given) -> None: ...


def part(name: str) -> Any:
    """A part of a value, which is set as an edit of its graph; where it is read no function of Python's is called."""

    def edit(self: Any, given: Any) -> None:
        if self.graph is None:
            self.become(**{name: given})
        else:
            late("set_part")(self.graph, self, name, given)

    return property(attrgetter(f"_{name}"), edit)


def settled(**instead: str) -> Callable[[Class], Class]:
    """Let these properties of a class refuse to be set, as they follow from others, with what to do instead."""

    def mark(cls: Class) -> Class:
        for name, do in instead.items():
            setattr(cls, name, getattr(cls, name).setter(_refused(f"the {name} of a {cls.__name__.lower()}", do)))
        return cls

    return mark


def _refused(what: str, do: str) -> Callable[[Any, Any], None]:
    def refuse(self: Any, given: Any) -> None:
        raise InvalidCall(f"{what} follows from its other parts", given=repr(given)[:200], do=do)

    return refuse


class Settable:
    """A graph of which nothing is set but its parts, each to what it can be."""

    def __setattr__(self, name: str, given: Any) -> None:
        kind = _PARTS.get(name)
        if kind is None or not isinstance(given, kind):
            near = ", ".join(near_names(name, [part for part in _PARTS if not part.startswith("_")]))
            what = f"must be of type {getattr(kind, '__name__', kind)}" if kind else "is no part of it that can be set"
            raise InvalidCall(f'"{name}" of a graph {what}', given=repr(given)[:200], available=near)
        if kind is list:
            check_kinds(name, given)
        super().__setattr__(name, given)


def check_kinds(part: str, held: Sequence[object]) -> None:
    """Raise ``InvalidCall`` where a list of a graph holds something else than nodes, or values."""
    mark, kind = ("op_type", "nodes") if part == "nodes" else ("producer", "values")
    strange = [each for each in held if not hasattr(each, mark)]
    if strange:
        do = 'graph["name"] is a value, and .producer its node; graph.input, variable, output and insert add to lists'
        raise InvalidCall(f"the {part} of a graph must be {kind}", given=repr(strange[0])[:200], do=do)
