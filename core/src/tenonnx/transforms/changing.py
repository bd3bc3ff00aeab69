"""What a transform is meant to change beside the form of a model, said where it is defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

Transform = TypeVar("Transform", bound=Callable[..., Any])

#: What may change: the numbers of outputs, or which inputs and outputs there are and of what types.
What = Literal["numbers", "interface"]

_MARK = "__tenonnx_changes__"


def changing(what: What) -> Callable[[Transform], Transform]:
    """A decorator for a transform that is meant to change the ``numbers`` of a model, or its ``interface``.

    A conversion is then held to what the transform left, and the difference from the file as it was read is shown
    beside. Without it, a transform is held to the numbers of the file.
    """
    if what not in ("numbers", "interface"):
        raise ValueError(f'changing must be "numbers" or "interface", not {what!r}')

    def mark(transform: Transform) -> Transform:
        setattr(transform, _MARK, what)
        return transform

    return mark


def changed_by(transform: Callable[..., Any]) -> What | None:
    """What a transform is meant to change, None where it says nothing."""
    found: What | None = getattr(transform, _MARK, None)
    return found
