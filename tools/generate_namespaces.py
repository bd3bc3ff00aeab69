"""Write the files that map names and ops to their modules.

``names.json`` of each package with lazy imports maps names to modules, ``__init__.pyi`` of a family has the same for
type checkers, and ``ops.json`` of a family maps ops to modules. The stubs of core and of other packages are written by
hand: ``names.json`` of core has its own names, and packages declare the others as entry points. Run ``python
tools/generate_namespaces.py`` after an op is added, renamed or moved, or a rule is added in another module; ``--check``
only tells whether the files are up to date.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any

from tenonnx.extend import Op

ROOT = Path(__file__).parent.parent

#: For each stub, a module with further functions of its namespace.
NAMESPACES = {"plugins/standard/src/tenonnx_standard/__init__.pyi": "composites"}

#: Packages without ops with lazy imports; their stubs are written by hand.
LAZY = ("plugins/data/src/tenonnx_data", "plugins/training/src/tenonnx_training")

FAMILIES = ("plugins/standard", "contrib_ms", "onnx_ml", "quantized")


#: The entry-point group for names in namespaces of core.
EXTENSIONS = "tenonnx.extensions"

CORE = Path("core/src/tenonnx")


def names(package: str, composites: str) -> tuple[dict[str, str], dict[str, str]]:
    """The module of each name, and the Python name of each op whose ONNX name is spelled differently.

    Raises ``SystemExit`` if two modules define one name, or if a module has a function's name: once imported, it would
    replace the function.
    """
    result: dict[str, str] = {}
    also: dict[str, str] = {}
    modules = [m.name for m in iter_modules(import_module(package).__path__) if m.name not in ("plugin", "cases")]
    for stem in modules:
        module = import_module(f"{package}.{stem}")
        for name, value in vars(module).items():
            is_op = isinstance(value, Op) or (stem == composites and isinstance(value, FunctionType))
            if not is_op or name.startswith("_") or value.__module__ != module.__name__:
                continue
            if name in result or name in modules:
                raise SystemExit(f"{package} has two things called {name}, one of them in {stem}.py")
            spelled = name.replace("_", "") == getattr(value, "name", name).replace("_", "").lower()
            newest = getattr(value, "before", None) is None
            if not spelled and newest:
                also[value.name] = name
            result[name] = module.__name__
    return result, also


def stub(modules: dict[str, str]) -> str:
    lines = sorted(f"from {module} import {name} as {name}" for name, module in modules.items())
    return "\n".join(["# Written by tools/generate_namespaces.py, for type checkers.", *lines, ""])


def core_names() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Names and modules of core by namespace, and the objects that other packages must declare, by name."""
    own: dict[str, dict[str, str]] = {}
    others: dict[str, str] = {}
    for path in sorted(CORE.rglob("*.pyi")):
        space = ".".join(path.relative_to(CORE.parent).with_suffix("").parts).removesuffix(".__init__")
        for name, module in stub_names(path).items():
            if module.partition(".")[0] == "tenonnx":
                own.setdefault(space, {})[name] = module
            else:
                others[f"{space}.{name}".removeprefix("tenonnx.")] = f"{module}:{name}"
    return own, others


def stub_names(path: Path) -> dict[str, str]:
    """The modules of the names that a stub imports."""
    imports = (each for each in ast.parse(path.read_text("utf-8")).body if isinstance(each, ast.ImportFrom))
    return {alias.name: each.module for each in imports if each.module is not None for alias in each.names}


def undeclared(others: dict[str, str]) -> list[str]:
    """Names in a stub of core whose packages do not declare them as entry points."""
    said: set[tuple[str, str]] = set()
    for path in [*Path().glob("*/pyproject.toml"), *Path().glob("plugins/**/pyproject.toml")]:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        said |= set(project.get("entry-points", {}).get(EXTENSIONS, {}).items())
    return [f'"{name}" = "{value}"' for name, value in others.items() if (name, value) not in said]


def as_json(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"


class _Recorder:
    """A stand-in for the registry that records the modules that have only rules."""

    rules: Iterable[str] = ()

    def add_package(self, name: str, **rules: str) -> None:
        self.rules = rules


def index(package: str) -> str:
    """Modules of meanings and rules by domain and op, without the modules that have only rules."""
    recorder = _Recorder()
    import_module(f"{package}.plugin").register_ops(registry=recorder)
    skipped = {"plugin", "cases", *recorder.rules}
    stems = [m.name for m in iter_modules(import_module(package).__path__) if m.name not in skipped]
    found: dict[str, dict[str, set[str]]] = {}
    for module in [import_module(f"{package}.{stem}") for stem in stems]:
        for op in _ops(module):
            modules = found.setdefault(op.domain, {}).setdefault(op.name, set())
            modules |= {name.partition(".")[2] for name in _modules(op)} & set(stems)
    ops = {domain: {name: " ".join(sorted(each[name])) for name in sorted(each)} for domain, each in found.items()}
    return as_json(dict(sorted(ops.items())))


def _ops(module: ModuleType) -> Iterator[Op]:
    return (v for v in vars(module).values() if isinstance(v, Op) and v.__module__ == module.__name__)


def _modules(op: Op) -> Iterator[str]:
    said: list[Any] = [op.function, *op.rules.values(), *(lower for _, lower in op.lowerings)]
    said += [change.unless for change in op.signature_changes if change.unless]
    yield from (unwrap(function).__module__ for function in said if isinstance(unwrap(function), FunctionType))


def main() -> None:
    os.chdir(ROOT)
    own, others = core_names()
    if missing := undeclared(others):
        raise SystemExit(f"packages must declare in {EXTENSIONS}:\n" + "\n".join(missing))
    texts = {f"{CORE}/names.json": as_json(own)}
    for name, composites in NAMESPACES.items():
        package = Path(name).parent.name
        modules, also = names(package, composites)
        texts[name] = stub(modules)
        texts[str(Path(name).with_name("names.json"))] = as_json({package: dict(sorted(modules.items())), "also": also})
    for folder in map(Path, LAZY):
        texts[f"{folder}/names.json"] = as_json({folder.name: stub_names(folder / "__init__.pyi")})
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
