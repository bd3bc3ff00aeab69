"""Drawn calls as one line of Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, Op
from tenonnx_testing.cases import Call

#: Longer arrays of equal elements are written as ``np.full``.
FEW = 16

#: Number of characters of the longest call that a note shows as a whole, and of the beginning of a longer one.
LONGEST, CUT = 1000, 300


def one_line(op: Op, drawn: Call) -> str:
    """One-line program that executes the call."""
    arguments = [_text(v) for v in drawn.inputs]
    arguments += [f"{name}={_text(value)}" for name, value in drawn.attributes.items()]
    if drawn.outputs is not None:
        arguments.append(f"_outputs={drawn.outputs}")
    text = f"{op.__name__}({', '.join(arguments)})"
    imports = "import numpy as np; " * ("np." in text) + "from tenonnx import DType; " * ("DType." in text)
    return f"{imports}from {op.__module__} import {op.__name__}; print({text})"


def note_line(op: Op, drawn: Call) -> str:
    """``one_line`` for a note; cut where it is long, because the line "reproduce" runs the call, too."""
    text = one_line(op, drawn)
    return text if len(text) <= LONGEST else f"{text[:CUT]} ... (a call of {len(text):,} characters)"


def replay_line(check: str, op: Op, drawn: Call, case: int, turn: int) -> str:
    """One-line program that runs a check on the call again, with all changed calls that the check derives."""
    imports, _, text = one_line(op, drawn).rpartition("; print(")
    arguments = text.removeprefix(f"{op.__name__}(").removesuffix("))")
    places = [f"_{name}={number}" for name, number in (("case", case), ("turn", turn)) if number]
    given = ", ".join(filter(None, [f'"{check}"', op.__name__, arguments, *places]))
    return f"{imports}; from tenonnx_testing import replay; replay({given})"


def _text(value: Any) -> str:
    if isinstance(value, Graph):
        return f"<{value!r}>"
    if isinstance(value, DType):
        return f"DType.{value}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(v) for v in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_text(v)}" for k, v in value.items()) + "}"
    if hasattr(value, "array"):
        return _array(value.array())
    return repr(value)


def _array(array: np.ndarray[Any, Any]) -> str:
    dtype = DType.of(array.dtype)
    if dtype is DType.string:
        return f"np.array({array.tolist()!r}, object)" if array.size else f"np.empty({array.shape}, object)"
    plain = array.dtype.isbuiltin == 1
    name = f'"{dtype}"' if plain else f"DType.{dtype}.numpy"
    if not array.size:
        return f"np.empty({array.shape}, {name})"
    if array.size > FEW and plain and (array == array.reshape(-1)[0]).all():
        return f"np.full({array.shape}, {_text(array.reshape(-1)[0].item())}, {name})"
    shown = array if plain else array.astype(np.float64 if dtype.is_float else np.int64)
    text = repr(shown.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    return f"np.array({text}, {name})"
