"""Inputs, outputs and attributes as containers whose modification is validated as an edit of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from tenonnx.errors import InvalidCall

Item = TypeVar("Item", covariant=True)
Thing = TypeVar("Thing")


class Named(Protocol):
    """Object with a name, such as a value."""

    @property
    def name(self) -> str: ...


class Operator(Protocol):
    """The part of an operator that graphs need."""

    @property
    def name(self) -> str: ...

    @property
    def domain(self) -> str: ...


def _refused(name: str) -> Callable[..., Any]:
    def refuse(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise InvalidCall(self.what, given=f"{name} of {self!r}"[:200], do=self.do)

    return refuse


def _as_edit(name: str) -> Callable[..., Any]:
    def edit(self: Any, *arguments: Any, **keywords: Any) -> Any:
        plain = dict(self)
        result = getattr(plain, name)(*arguments, **keywords)
        self._node.attributes = plain
        return result

    return edit


class Attributes(dict[str, Any]):
    """The attributes of a node; assignment is an edit of the graph. Lists in it are immutable."""

    __slots__ = ("_node",)

    def __init__(self, node: Any, attributes: Mapping[str, Any]) -> None:
        if attributes:
            super().__init__(attributes if type(attributes) is Attributes else fixed(attributes))
        self._node = node

    __setitem__, __delitem__, update, setdefault, pop, popitem, clear = map(
        _as_edit, ("__setitem__", "__delitem__", "update", "setdefault", "pop", "popitem", "clear")
    )

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self

    def replace_all(self, attributes: Mapping[str, Any]) -> None:
        """Set the attributes without validation."""
        new = fixed(attributes)
        super().clear()
        super().update(new)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class Fixed(list[Any]):
    """An immutable list in the attributes of a node."""

    __slots__ = ()
    what = "a list among the attributes of a node is replaced, not changed"
    do = 'node.attributes["name"] = [...]'

    append, extend, insert, remove, pop, clear, sort, reverse = map(
        _refused, ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse")
    )
    __setitem__, __delitem__, __iadd__, __imul__ = map(_refused, ("a new item", "del", "+=", "*="))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (tuple(self),)


def fixed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with immutable lists."""
    return {name: Fixed(v) if type(v) is list else v for name, v in attributes.items()}


class Places(tuple[Item, ...]):
    """The inputs or outputs of a node, in order."""

    __slots__ = ()
    what = "the inputs of a node are replaced all at once"
    do = "node.inputs = [...], or graph.replace(old, new)"

    __setitem__, __delitem__ = map(_refused, ("a new item", "del"))


def _edited(name: str) -> Callable[..., Any]:
    def edit(self: Any, *arguments: Any, **keywords: Any) -> Any:
        plain = list(self)
        result = getattr(plain, name)(*arguments, **keywords)
        self._graph.inputs = plain
        list.__setitem__(self, slice(None), plain)
        return self if result is plain else result

    return edit


class Inputs(list[Thing]):
    """The inputs of a graph as a list; removing or reordering its items changes the graph."""

    __slots__ = ("_graph",)

    def __init__(self, values: Sequence[Thing], graph: Any) -> None:
        super().__init__(values)
        self._graph = graph

    append, extend, insert, remove, pop, clear, sort, reverse = map(
        _edited, ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse")
    )
    __setitem__, __delitem__, __iadd__, __imul__ = map(_edited, ("__setitem__", "__delitem__", "__iadd__", "__imul__"))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (tuple(self),)
