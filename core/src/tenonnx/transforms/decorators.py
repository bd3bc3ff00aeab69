"""Decorators of transforms: the step after which they run, and the changes that they may make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, get_args

Transform = TypeVar("Transform", bound=Callable[..., Any])

#: Allowed changes: the numbers of outputs, or the inputs and outputs and their types.
What = Literal["numbers", "interface"]

_MARKS = "__tenonnx_marks__"


class Marks(NamedTuple):
    """Declarations of a transform: the step after which it runs; whether it is a step itself, which also takes the
    conversion and returns changes; and what it may change in the model.
    """

    after: str = "read"
    is_step: bool = False
    changes: What | None = None


def marks_of(transform: Callable[..., Any]) -> Marks:
    """Declarations of a transform."""
    result: Marks = getattr(transform, _MARKS, Marks())
    return result


def _marking(**said: Any) -> Callable[[Transform], Transform]:
    def mark(transform: Transform) -> Transform:
        setattr(transform, _MARKS, marks_of(transform)._replace(**said))
        return transform

    return mark


def after(step: str) -> Callable[[Transform], Transform]:
    """Decorator for a transform that a conversion runs after ``step``, such as ``dims`` or ``retarget``.

    The default is after ``read``.
    """
    return _marking(after=step)


def step_after(step: str) -> Callable[[Transform], Transform]:
    """Decorator for a conversion step: a function of the graph and the ``Conversion`` that returns a graph and changes.

    It runs after ``step``, and may read the options and the target of the conversion.
    """
    return _marking(after=step, is_step=True)


def changing(what: What) -> Callable[[Transform], Transform]:
    """Decorator for a transform that changes the ``numbers`` of a model, or its ``interface``.

    A conversion is then compared with the result of the transform, and the difference from the original file is
    reported separately. Without it, a conversion is compared with the original file.
    """
    if what not in get_args(What):
        raise ValueError(f'changing is neither "numbers" nor "interface": {what!r}')
    return _marking(changes=what)
