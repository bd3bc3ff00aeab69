"""The protocol of compiled programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol


class Program(Protocol):
    """A compiled graph, called with feeds. ``state`` holds the inputs that live in the program, by name."""

    @property
    def backend(self) -> str: ...

    @property
    def state(self) -> MutableMapping[str, Any]: ...

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, as arrays that belong to the caller.

        Raises ``InvalidFeed`` for a feed that is missing, unknown, or not of the input's type.
        """
        ...

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        """A call that is repeated: it reads the same arrays each time, whose contents may be replaced in between."""
        ...


class Bindable:
    """``bind`` of a program that prepares nothing for calls that are repeated."""

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        program: Any = self
        return functools.partial(program, feeds)
