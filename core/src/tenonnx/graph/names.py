"""Unique names of values and nodes."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from tenonnx.errors import InvalidCall


def unique_name(names: MutableMapping[str, int], wanted: str) -> str:
    """The first of ``wanted``, ``wanted_1``, ``wanted_2`` ... that is not in ``names``; it is added there."""
    name, count = wanted, names.get(wanted, 0)
    while name in names:
        count += 1
        name = f"{wanted}_{count}"
    names[wanted] = count
    names.setdefault(name, 0)
    return name


class Names:
    """The names in a graph and its nested subgraphs, which share one set."""

    root: Any
    name: str
    _names: dict[str, int] | None

    def names(self) -> dict[str, int]:
        """Names in use, each with a counter for further ones."""
        if self.root._names is None:
            names: dict[str, int] = {}
            for graph in self.root.nested():
                names.update(dict.fromkeys([value.name for value in graph._values()], 0))
                names.update(dict.fromkeys([node.name for node in graph.nodes], 0))
            self.root._names = names  # assigned when complete, as another thread may read it
        return self.root._names  # type: ignore[no-any-return]

    def unique_name(self, wanted: str) -> str:
        """``wanted``, or ``wanted_1``, ``wanted_2`` ...: the first unused in the whole graph, which is reserved."""
        return unique_name(self.names(), wanted)

    def forget_names(self) -> None:
        """Drop the cached set of names after values were renamed."""
        self.root._names = None

    def reserve(self, names: Mapping[str, int]) -> None:
        """Reserve names for values that will be added."""
        self._names = dict(names)

    def _claim(self, name: str) -> str:
        if not isinstance(name, str) or name in self.names():
            reason = f'already used in graph "{self.name}"' if isinstance(name, str) else "no string"
            raise InvalidCall(f'name "{name}" is {reason}')
        self.names()[name] = 0
        return name
