"""User-defined lowerings of one call of ``tx.load``, by op type or node name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tenonnx.extend import InvalidCall, did_you_mean, listing

#: A function of a node and its inputs; returns None to use the rule of the op.
Form = Callable[..., Any]


class Forms:
    """Functions by op type, or by name of nodes with wildcards; names take precedence."""

    def __init__(self, given: Mapping[str, Form] | None = None) -> None:
        self._functions, self._used = dict(given or {}), set[str]()
        wrong = [key for key, form in self._functions.items() if not callable(form)]
        if wrong:
            raise InvalidCall("forms are not functions by the type or name of nodes", given=f'"{wrong[0]}"')

    def of(self, op: str, name: str = "") -> Iterator[Form]:
        """The functions to try for a node, in order."""
        for key in sorted(self._functions, key=lambda key: key == op):
            if key == op or (name and fnmatchcase(name, key)):
                self._used.add(key)
                yield self._functions[key]

    def check_used(self, available: Sequence[str]) -> None:
        """Raise ``InvalidCall`` for a function that no node used."""
        for key in self._functions:
            if key not in self._used:
                raise InvalidCall(
                    "forms: no node that the outputs depend on has this type or name",
                    given=f'"{key}"',
                    available=listing(sorted(set(available))),
                    do=did_you_mean(key, sorted(set(available))),
                )
