"""Write ``__init__.pyi`` of each package with a flat namespace: the module that defines each of its ops.

Run ``python tools/generate_namespaces.py`` after an op is added, renamed or moved; ``--check`` only says whether the
files are true.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType

from tenonnx.extend import Op

ROOT = Path(__file__).parent.parent

#: For each file the module whose functions stand beside the ops.
FILES = {"plugins/standard/src/tenonnx_standard/__init__.pyi": "composites"}


def names(package: str, composites: str) -> dict[str, str]:
    """The line of each name.

    Raises ``SystemExit`` where two modules define one name, or where a module bears one: once imported, it would stand
    in the name's place.
    """
    found: dict[str, str] = {}
    modules = [m.name for m in iter_modules(import_module(package).__path__) if m.name not in ("plugin", "cases")]
    for stem in modules:
        module = import_module(f"{package}.{stem}")
        for name, value in vars(module).items():
            is_op = isinstance(value, Op) or (stem == composites and isinstance(value, FunctionType))
            if not is_op or name.startswith("_") or value.__module__ != module.__name__:
                continue
            if name in found or name in modules:
                raise SystemExit(f"{package} has two things called {name}, one of them in {stem}.py")
            spelled = name.replace("_", "") == getattr(value, "name", name).replace("_", "").lower()
            newest = getattr(value, "before", None) is None
            known_as = "" if spelled or not newest else f"  # {value.name}"
            found[name] = f"from {module.__name__} import {name} as {name}{known_as}"
    return found


def main() -> None:
    stale = []
    for name, composites in FILES.items():
        path = ROOT / name
        lines = sorted(names(path.parent.name, composites).values())
        text = "\n".join(
            ["# Written by tools/generate_namespaces.py; read by type checkers, and when a name is used.", *lines, ""]
        )
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, "utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"stale: {', '.join(stale)}; run python tools/generate_namespaces.py")


if __name__ == "__main__":
    main()
