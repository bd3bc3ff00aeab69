"""The protocol of compiled programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol


class Program(Protocol):
    """A compiled graph, called with feeds. ``state`` maps names of inputs kept by the program to their contents."""

    @property
    def backend(self) -> str: ...

    @property
    def state(self) -> MutableMapping[str, Any]: ...

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, as arrays owned by the caller.

        Raises ``InvalidFeed`` for a feed that is missing, unknown, or of another type than the input.
        """
        ...

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        """A function for repeated calls on the same arrays, whose contents may change between calls."""
        ...


class Bindable:
    """Default ``bind``, without preparation for repeated calls."""

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        program: Any = self
        return functools.partial(program, feeds)
