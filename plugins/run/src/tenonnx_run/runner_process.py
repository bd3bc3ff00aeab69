"""Child process of ``runner.FunctionRunner``: calls a consumer of ONNX files."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_functions: dict[str, Callable[..., Any]] = {}


def load(name: str) -> None:
    """Import ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION``."""
    if name in _functions:
        return
    place, _, function = name.rpartition(":")
    if place.endswith(".py"):
        file = Path(place).absolute()
        sys.path.insert(0, str(file.parent))  # as ``python FILE.py`` does, so that the file can import its neighbors
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    _functions[name] = getattr(module, function)


def run(name: str, path: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of the consumer: by name if it returns a mapping, otherwise in order."""
    load(name)
    found = _functions[name](path, dict(feeds))
    if isinstance(found, Mapping):
        return {"names": list(found), "values": list(found.values())}
    return {"names": None, "values": list(found) if isinstance(found, list | tuple) else [found]}
