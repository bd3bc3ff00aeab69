"""Foreign errors (of Python or numpy) from calls that meet all requirements, and the missing requirement."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx
from tenonnx.extend import DType, Op, TenonnxError
from tenonnx_testing.cases import Call

#: Folder of core, whose errors are not foreign.
_CORE = str(Path(tenonnx.__file__).parent)

#: Names of axes in a suggested requirement.
AXES = ("rows", "columns", "depth", "others")


def foreign_cause(op: Op, error: TenonnxError) -> BaseException | None:
    """Exception of Python or numpy that a rule or the op's own body raised; None for any other error."""
    cause = error.__cause__
    own = str(error).startswith(f"{op.title} cannot be computed from these inputs")  # not an error of an op in its body
    if not own or cause is None or isinstance(cause, TenonnxError):
        return None
    last = traceback.extract_tb(cause.__traceback__)[-1]
    return None if last.filename.startswith(_CORE) else cause  # core raises, for example, if dims do not broadcast


def missing_requirement(op: Op, drawn: Call, changed: Call, error: BaseException | None = None) -> str:
    """Source text of the requirement that would reject the change from a valid call to ``changed``."""
    names = {k: op.signature.input_at(k).name for k in range(len(drawn.inputs))}
    found: list[str] = []
    resized: list[int] = []
    for k, (given, other) in enumerate(zip(drawn.inputs, changed.inputs, strict=False)):
        if given is other or given is None:
            continue
        if not isinstance(given, np.ndarray) or not isinstance(other, np.ndarray):
            found.append(f"a value of {names[k]}, which is optional," if other is None else f"holds({names[k]})")
        elif given.dtype != other.dtype:
            found.append(_dtype_requirement(drawn, names, k))
        elif given.shape != other.shape:
            resized.append(k)
        elif not np.array_equal(given, other):
            found.append(f"holds(a function of {names[k]})")
    if resized:
        found.append(_shape_requirement(drawn, changed, names, resized))
    for name, given in drawn.attributes.items():
        if name in changed.attributes and not _same(changed.attributes[name], given):
            of_axis = isinstance(error, np.exceptions.AxisError)
            found.append(
                f'axis("{name}", of="{names[0]}")' if of_axis and names else _attribute_requirement(name, given)
            )
    return " and ".join(dict.fromkeys(found)) or "holds(...)"


def _shape_requirement(drawn: Call, changed: Call, names: dict[int, str], resized: list[int]) -> str:
    """Suggest ``shapes(...)`` with one name for each size, and ``at_least(...)`` for axes that may not be empty."""
    arrays = {k: v for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray)}
    sizes = list(dict.fromkeys(size for k in resized for size in arrays[k].shape))
    words = {size: AXES[place] if place < len(AXES) else "_" for place, size in enumerate(sizes)}
    shown = [k for k, v in arrays.items() if k in resized or any(size > 1 and size in words for size in v.shape)]
    patterns = (" ".join(words.get(size, "_") for size in arrays[k].shape) for k in shown)
    known = ", ".join(f'{names[k]}="{words}"' for k, words in zip(shown, patterns, strict=True))
    pairs = [(a, b) for k in resized for a, b in zip(arrays[k].shape, changed.inputs[k].shape, strict=False)]
    empty = [words[a] for a, b in pairs if not b and arrays[resized[0]].ndim == changed.inputs[resized[0]].ndim]
    positive = f", at_least({', '.join(f'{word}=1' for word in dict.fromkeys(empty))})" if empty else ""
    return f"shapes({known}){positive}"


def _dtype_requirement(drawn: Call, names: dict[int, str], place: int) -> str:
    """Suggest ``dtypes(...)`` for an input, or ``same_dtype(...)`` with another input of equal dtype."""
    given = drawn.inputs[place]
    beside: Iterator[int] = (k for k in names if k != place and getattr(drawn.inputs[k], "dtype", None) == given.dtype)
    dtype = DType.of(given.dtype)
    kind = "float" if dtype.is_float else "integer" if dtype.is_integer else str(dtype)
    known = f'dtypes({names[place]}="{kind}")'
    return next((f'{known} or same_dtype("{names[k]}", "{names[place]}")' for k in beside), known)


def _attribute_requirement(name: str, given: Any) -> str:
    if isinstance(given, str):
        return f"one_of({name}=({given!r}, ...))"
    if isinstance(given, int | float):
        return f"at_least({name}={given!r}) or one_of({name}=({given!r}, ...))"
    return f"holds(a function of {name})"


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(np.all(np.asarray(one == other)))
