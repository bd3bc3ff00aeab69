"""Write where the ops of our packages are, which import their modules on demand by it.

That is ``__init__.pyi`` of each package with a flat namespace, the module of each name; and ``ops.json`` of each
family, the modules that say what each op is. Run ``python tools/generate_namespaces.py`` after an op is added, renamed
or moved, or a rule is given in another module; ``--check`` only says whether the files are true.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any

from tenonnx.extend import Op

ROOT = Path(__file__).parent.parent

#: For each file the module whose functions stand beside the ops.
NAMESPACES = {"plugins/standard/src/tenonnx_standard/__init__.pyi": "composites"}

FAMILIES = ("plugins/standard", "contrib_ms", "onnx_ml", "quantized")


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


def namespace(package: str, composites: str) -> str:
    lines = sorted(names(package, composites).values())
    head = "# Written by tools/generate_namespaces.py; read by type checkers, and when a name is used."
    return "\n".join([head, *lines, ""])


class _Recorder:
    """Stands for a registry, to hear which modules of a package hold nothing but rules."""

    rules: Iterable[str] = ()

    def add_package(self, name: str, **rules: str) -> None:
        self.rules = rules


def index(package: str) -> str:
    """By domain and op the modules of its meanings and rules, but for those that hold nothing but rules."""
    recorder = _Recorder()
    import_module(f"{package}.plugin").register_ops(registry=recorder)
    skipped = {"plugin", "cases", *recorder.rules}
    stems = [m.name for m in iter_modules(import_module(package).__path__) if m.name not in skipped]
    found: dict[str, dict[str, set[str]]] = {}
    for module in [import_module(f"{package}.{stem}") for stem in stems]:
        for op in _ops(module):
            modules = found.setdefault(op.domain, {}).setdefault(op.name, set())
            modules |= {name.partition(".")[2] for name in _modules(op)} & set(stems)
    told = {domain: {name: " ".join(sorted(held[name])) for name in sorted(held)} for domain, held in found.items()}
    return json.dumps(dict(sorted(told.items())), indent=1) + "\n"


def _ops(module: ModuleType) -> Iterator[Op]:
    return (v for v in vars(module).values() if isinstance(v, Op) and v.__module__ == module.__name__)


def _modules(op: Op) -> Iterator[str]:
    said: list[Any] = [op.function, *op.rules.values(), *(lower for _, lower in op.lowerings)]
    said += [change.unless for change in op.signature_changes if change.unless]
    yield from (unwrap(function).__module__ for function in said if isinstance(unwrap(function), FunctionType))


def main() -> None:
    os.chdir(ROOT)
    texts = {name: namespace(Path(name).parent.name, composites) for name, composites in NAMESPACES.items()}
    for family in FAMILIES:
        (package,) = Path(family, "src").glob("tenonnx_*")
        texts[f"{package}/ops.json"] = index(package.name)
    stale = [name for name, text in texts.items() if not Path(name).exists() or Path(name).read_text("utf-8") != text]
    if stale and "--check" in sys.argv:
        raise SystemExit(f"stale: {', '.join(stale)}; run python tools/generate_namespaces.py")
    for name in stale:
        Path(name).write_text(texts[name], "utf-8")


if __name__ == "__main__":
    main()
