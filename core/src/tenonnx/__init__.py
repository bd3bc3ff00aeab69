"""Read, edit, run, differentiate and retarget ONNX models.

Names are imported lazily, so that importing the package and printing the command line's help are fast. ``names.json``
maps each name to its module; installed packages add names by entry points.
"""

from __future__ import annotations

import sys

# ``python -m tenonnx`` puts the current folder on the path: its modules must not shadow those of the standard library.
if ["-m", "tenonnx"] in (sys.orig_argv[k : k + 2] for k in range(len(sys.orig_argv))) and sys.argv[:1] == ["-m"]:
    sys.path[:] = sys.path if sys.flags.safe_path else sys.path[1:]

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "limits":  # a base module, which those below import from here
        return import_module("tenonnx.limits")
    return import_module("tenonnx.registry.namespace").flat_namespace(__name__)[0](name)


def __dir__() -> list[str]:
    names: list[str] = import_module("tenonnx.registry.namespace").flat_namespace(__name__)[1]()
    return [*names, "__version__"]
