"""Source lines of JAX equations in the user's code."""

from __future__ import annotations

import traceback
from typing import Any

import jax
import jaxlib

import tenonnx
from tenonnx_frontends import UserLines

#: Parts of paths of library files.
_LIBRARIES = ("/flax/", "/equinox/", "/haiku/", "/optax/", "/jaxtyping/", "/functools.py", "/contextlib.py")

USER = UserLines((jax.__file__, jaxlib.__file__, tenonnx.__file__, __file__, traceback.__file__), _LIBRARIES)


def of_equation(equation: Any) -> str:
    """The user's line that produced an equation; empty if unknown."""
    traceback = getattr(equation.source_info, "traceback", None)
    return USER.first(
        (f.file_name, f.line_num, f.function_name) for f in (traceback.frames if traceback is not None else ())
    )
