"""Cache of values derived from attributes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")

#: Maximum number of results kept per function, the most recently used ones.
SIZE = 64


def remembered(build: Callable[..., Result]) -> Callable[..., Result]:
    """Cache the results of ``build`` by identity of its arguments, which are long lists that must not change.

    Results for lists without other references are dropped when the next one is built.
    """
    kept: dict[tuple[int, ...], tuple[tuple[Any, ...], Result]] = {}

    def look_up(*arguments: Any) -> Result:
        key = tuple(map(id, arguments))
        found = kept.pop(key, None)  # reinserted as most recent; thread-safe
        if found is None:
            for old, (arrays, _) in list(kept.items()):
                if _is_unreferenced(arrays):
                    kept.pop(old, None)
            found = arguments, build(*arguments)  # a reference to the arguments keeps their ids from being reused
        kept[key] = found
        if len(kept) > SIZE:
            kept.pop(next(iter(kept)), None)
        return found[1]

    return look_up


def _is_unreferenced(arrays: Sequence[Any]) -> bool:
    return any(isinstance(each, list | np.ndarray) and sys.getrefcount(each) <= _ALONE for each in arrays)


def _references(arrays: Sequence[Any]) -> int:
    return next(sys.getrefcount(each) for each in arrays)


#: The reference count of an object that is only in a sequence, as seen from a loop over it.
_ALONE = _references([[]])
