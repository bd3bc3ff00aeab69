"""Lines of the user's code, from which an equation of JAX comes."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path
from typing import Any

import jax
import jaxlib

_FOREIGN = tuple(
    str(Path(file).parent) for file in (jax.__file__, jaxlib.__file__, __file__, traceback.__file__) if file
)
_LIBRARIES = (
    "/flax/",
    "/equinox/",
    "/haiku/",
    "/optax/",
    "/jaxtyping/",
    "/tenonnx/",
    "/functools.py",
    "/contextlib.py",
)


def of_equation(equation: Any) -> str:
    """The line of the user that an equation comes from, or nothing."""
    held = getattr(equation.source_info, "traceback", None)
    frames = [(f.file_name, f.line_num, f.function_name) for f in held.frames] if held is not None else []
    return next((_line(*frame) for frame in frames if not _is_foreign(frame[0])), "")


def of_error(error: BaseException) -> list[str]:
    """The lines of the user that led to an error, the innermost last."""
    found = traceback.extract_tb(error.__traceback__)
    return [_line(f.filename, f.lineno or 0, f.name) for f in found if not _is_foreign(f.filename)]


def _is_foreign(file: str) -> bool:
    return file.startswith((*_FOREIGN, "<")) or any(part in file for part in _LIBRARIES)


def _line(file: str, number: int, function: str) -> str:
    return f"{file}:{number}, in {function}: {linecache.getline(file, number).strip()}"
