"""Forms of one call: lowerings of a user's ops, by type or by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tenonnx.extend import InvalidCall, did_you_mean, listing

#: A function of a node and what its inputs hold; None where the rule of the op is to be used.
Form = Callable[..., Any]


class Forms:
    """Functions by the type of an op, or a name of nodes that may have wildcards, which comes first."""

    def __init__(self, given: Mapping[str, Form] | None = None) -> None:
        self._given, self._used = dict(given or {}), set[str]()
        wrong = [key for key, form in self._given.items() if not callable(form)]
        if wrong:
            raise InvalidCall("forms are not functions by the type or name of nodes", given=f'"{wrong[0]}"')

    def of(self, op: str, name: str = "") -> Iterator[Form]:
        """The functions to try for a node, in order."""
        for key in sorted(self._given, key=lambda key: key == op):
            if key == op or (name and fnmatchcase(name, key)):
                self._used.add(key)
                yield self._given[key]

    def check_used(self, available: Sequence[str]) -> None:
        """Raise ``InvalidCall`` for one that was for no node."""
        for key in self._given:
            if key not in self._used:
                raise InvalidCall(
                    "forms: no node that the outputs depend on has this type or name",
                    given=f'"{key}"',
                    available=listing(sorted(set(available))),
                    do=did_you_mean(key, sorted(set(available))),
                )
