"""What compiling a graph gives."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol


class Program(Protocol):
    """A graph made ready to run. ``state`` holds the inputs that live in the program, by name."""

    @property
    def backend(self) -> str: ...

    @property
    def state(self) -> MutableMapping[str, Any]: ...

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, as arrays that belong to the caller.

        Raises ``InvalidFeed`` for a feed that is missing, unknown, or not of the input's type.
        """
        ...
