"""Read, edit, run, differentiate and retarget ONNX models.

A name is imported with its module when it is first used, so that importing the package, and asking the command line for
help, costs nothing. ``names.json`` says where each is; installed packages add further names by entry points.
"""

from __future__ import annotations

import sys

# python -m tenonnx opens files of others in the current folder, whose modules must not be taken for those of Python.
if ["-m", "tenonnx"] in (sys.orig_argv[k : k + 2] for k in range(len(sys.orig_argv))) and sys.argv[:1] == ["-m"]:
    sys.path[:] = sys.path if sys.flags.safe_path else sys.path[1:]

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "limits":  # a module below all others, which these import from here
        return import_module("tenonnx.limits")
    return import_module("tenonnx.registry.namespace").flat_namespace(__name__)[0](name)


def __dir__() -> list[str]:
    names: list[str] = import_module("tenonnx.registry.namespace").flat_namespace(__name__)[1]()
    return [*names, "__version__"]
