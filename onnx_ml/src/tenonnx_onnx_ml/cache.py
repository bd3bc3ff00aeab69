"""A cache of values derived from attributes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")

#: So many results of a function are kept at most: those that were asked for last.
SIZE = 64


def remembered(build: Callable[..., Result]) -> Callable[..., Result]:
    """``build`` with its results kept by the identity of the arguments: long lists, which nobody may change.

    Results for lists that nothing else holds any longer are given up when the next one is built.
    """
    kept: dict[tuple[int, ...], tuple[tuple[Any, ...], Result]] = {}

    def look_up(*arguments: Any) -> Result:
        key = tuple(map(id, arguments))
        found = kept.pop(key, None)  # and behind the others again, also where several threads look up
        if found is None:
            for old, (held, _) in list(kept.items()):
                if _is_given_up(held):
                    kept.pop(old, None)
            found = arguments, build(*arguments)  # holding the arguments keeps their identities from being reused
        kept[key] = found
        if len(kept) > SIZE:
            kept.pop(next(iter(kept)), None)
        return found[1]

    return look_up


def _is_given_up(held: Sequence[Any]) -> bool:
    return any(isinstance(each, list | np.ndarray) and sys.getrefcount(each) <= _ALONE for each in held)


def _references(held: Sequence[Any]) -> int:
    return next(sys.getrefcount(each) for each in held)


#: The references to something that only a sequence holds, seen from a loop over it.
_ALONE = _references([[]])
