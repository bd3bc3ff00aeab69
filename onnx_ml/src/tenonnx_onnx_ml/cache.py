"""What is made of attributes once and used at every call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

#: So many results are kept, the ones used last.
SIZE = 64


def remembered(build: Callable[..., Result]) -> Callable[..., Result]:
    """``build`` with its results kept by the identity of the arguments: long lists, which nobody may change."""
    kept: OrderedDict[tuple[int, ...], tuple[tuple[Any, ...], Result]] = OrderedDict()

    def look_up(*arguments: Any) -> Result:
        key = tuple(map(id, arguments))
        found = kept.get(key)
        if found is None:
            found = arguments, build(*arguments)  # holding the arguments keeps their identities from being reused
            kept[key] = found
            while len(kept) > SIZE:
                kept.popitem(last=False)
        return found[1]

    return look_up
