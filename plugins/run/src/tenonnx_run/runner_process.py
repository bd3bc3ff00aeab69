"""Functions of the child process of ``runner.FunctionRunner``: a consumer of ONNX files, called on feeds."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: Key of an array whose element type numpy itself does not have, sent by its bits.
_EXTENDED = "extended dtype"

_functions: dict[str, Callable[..., Any]] = {}


def load(name: str) -> None:
    """Import ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION``."""
    if name in _functions:
        return
    place, _, function = name.rpartition(":")
    if place.endswith(".py"):
        file = Path(place).absolute()
        sys.path.insert(0, str(file.parent))  # as for python FILE.py: it may import what lies beside it
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    _functions[name] = getattr(module, function)


def run(name: str, path: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of the consumer: by name where it names them, otherwise in order."""
    load(name)
    found = _functions[name](path, {name: unsent(each) for name, each in feeds.items()})
    if isinstance(found, Mapping):
        return {"names": list(found), "values": [sendable(each) for each in found.values()]}
    values = list(found) if isinstance(found, list | tuple) else [found]
    return {"names": None, "values": [sendable(each) for each in values]}


def sendable(contents: Any) -> Any:
    """Contents as a message between processes takes them."""
    import numpy as np

    if contents is None or isinstance(contents, str):
        return contents
    if isinstance(contents, list | tuple):
        return [sendable(each) for each in contents]
    if isinstance(contents, Mapping):
        return {key: sendable(each) for key, each in contents.items()}
    array = np.asarray(contents)
    if array.dtype.isbuiltin == 2:
        return {_EXTENDED: array.dtype.name, "bits": array.view(f"u{array.dtype.itemsize}")}
    return array


def unsent(contents: Any) -> Any:
    """The contents that ``sendable`` was given."""
    if isinstance(contents, list):
        return [unsent(each) for each in contents]
    if isinstance(contents, dict):
        if _EXTENDED in contents:
            import ml_dtypes

            return contents["bits"].view(getattr(ml_dtypes, contents[_EXTENDED]))
        return {key: unsent(each) for key, each in contents.items()}
    return contents
