"""Decorators of transforms: the step that they follow, and the changes that they intend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, get_args

Transform = TypeVar("Transform", bound=Callable[..., Any])

#: What may change: the numbers of outputs, or which inputs and outputs there are and of what types.
What = Literal["numbers", "interface"]

_MARKS = "__tenonnx_marks__"


class Marks(NamedTuple):
    """The step that a transform comes behind; whether it takes the conversion, too, and gives its changes; and what of
    the model beside its form it is meant to change.
    """

    behind: str = "read"
    is_step: bool = False
    changes: What | None = None


def marks_of(transform: Callable[..., Any]) -> Marks:
    """Markers of a transform."""
    found: Marks = getattr(transform, _MARKS, Marks())
    return found


def _marking(**said: Any) -> Callable[[Transform], Transform]:
    def mark(transform: Transform) -> Transform:
        setattr(transform, _MARKS, marks_of(transform)._replace(**said))
        return transform

    return mark


def behind(step: str) -> Callable[[Transform], Transform]:
    """A decorator for a transform that a conversion applies behind ``step``, such as ``dims`` or ``retarget``.

    Without it, a transform comes behind ``read``.
    """
    return _marking(behind=step)


def step_behind(step: str) -> Callable[[Transform], Transform]:
    """A decorator for a step of a conversion: a function of the graph and the ``Conversion`` to a graph and changes.

    It comes behind ``step``, and may read the options and the target of the conversion.
    """
    return _marking(behind=step, is_step=True)


def changing(what: What) -> Callable[[Transform], Transform]:
    """A decorator for a transform that is meant to change the ``numbers`` of a model, or its ``interface``.

    A conversion is then held to what the transform left, and the difference from the file as it was read is shown
    beside. Without it, a transform is held to the numbers of the file.
    """
    if what not in get_args(What):
        raise ValueError(f'changing is neither "numbers" nor "interface": {what!r}')
    return _marking(changes=what)
