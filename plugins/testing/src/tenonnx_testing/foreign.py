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


def advice(op: Op, drawn: Call, changed: Call, error: BaseException, *, computed: bool) -> str:
    """Advice on a foreign error of a changed call, which the body may have ``computed``."""
    of_code = isinstance(error, AttributeError | NameError) and "'NoneType'" not in str(error)
    if of_code and not isinstance(error, UnboundLocalError):
        return "mend the line below: no requirement is missing"
    requirement = missing_requirement(op, drawn, changed, error)
    if computed:
        return f"its body computes this call: mend the numpy rule, or else what is missing may be {requirement}"
    return f"what is missing may be {requirement}"


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
    axes = {
        k: [(size, array.shape[:axis].count(size)) for axis, size in enumerate(array.shape)]
        for k, array in arrays.items()
    }
    found = dict.fromkeys(each for k in resized for each in axes[k])
    words = {each: AXES[place] if place < len(AXES) else "_" for place, each in enumerate(found)}
    shown = [k for k in arrays if k in resized or any(each[0] > 1 and each in words for each in axes[k])]
    patterns = [" ".join(words.get(each, "_") for each in axes[k]) for k in shown]
    if len(shown) == 1 and changed.inputs[shown[0]].ndim < arrays[shown[0]].ndim:  # more axes may be valid
        patterns = [f"... {patterns[0]}"]
    known = ", ".join(f'{names[k]}="{pattern}"' for k, pattern in zip(shown, patterns, strict=True))
    same_rank = [k for k in resized if arrays[k].ndim == changed.inputs[k].ndim]
    pairs = [pair for k in same_rank for pair in zip(axes[k], changed.inputs[k].shape, strict=True)]
    empty = [words[each] for each, size in pairs if not size]
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
