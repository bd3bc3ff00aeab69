"""Where the transform of a package stands in a conversion, said where it is defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Transform = TypeVar("Transform", bound=Callable[..., Any])

_BEHIND, _STEP = "__tenonnx_behind__", "__tenonnx_step__"

#: Behind which step a transform comes that says nothing else.
FIRST = "read"


def behind(step: str) -> Callable[[Transform], Transform]:
    """A decorator for a transform that a conversion applies behind ``step``, such as ``dims`` or ``retarget``.

    Without it, a transform comes behind ``read``.
    """

    def mark(transform: Transform) -> Transform:
        setattr(transform, _BEHIND, step)
        return transform

    return mark


def step_behind(step: str) -> Callable[[Transform], Transform]:
    """A decorator for a step of a conversion: a function of the graph and the ``Conversion`` to a graph and changes.

    It comes behind ``step``, and may read the options and the target of the conversion.
    """

    def mark(transform: Transform) -> Transform:
        setattr(transform, _STEP, True)
        return behind(step)(transform)

    return mark


def placed_behind(transform: Callable[..., Any]) -> str:
    """Behind which step a transform comes."""
    return str(getattr(transform, _BEHIND, FIRST))


def is_step(transform: Callable[..., Any]) -> bool:
    """Whether a transform takes the conversion, too, and gives its changes."""
    return bool(getattr(transform, _STEP, False))
