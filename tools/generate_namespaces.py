"""Write the files that map names and ops to their modules.

``names.json`` of each package with flat namespaces has the module of each name, ``__init__.pyi`` of a family says the
same to type checkers, and ``ops.json`` of each family has the modules of each op. The stubs of core and of other
packages are by hand: ``names.json`` of core has its names, and packages declare the others as entry points. Run
``python tools/generate_namespaces.py`` after an op is added, renamed or moved, or a rule is given in another module;
``--check`` only says whether the files are true.
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

#: For each file the module whose functions stand beside the ops.
NAMESPACES = {"plugins/standard/src/tenonnx_standard/__init__.pyi": "composites"}

#: Packages without ops whose names are imported when they are first used; their stubs are by hand.
LAZY = ("plugins/data/src/tenonnx_data", "plugins/training/src/tenonnx_training")

FAMILIES = ("plugins/standard", "contrib_ms", "onnx_ml", "quantized")


#: Where packages declare the names that they add to namespaces of core.
EXTENSIONS = "tenonnx.extensions"

CORE = Path("core/src/tenonnx")


def names(package: str, composites: str) -> tuple[dict[str, str], dict[str, str]]:
    """The module of each name, and the names by what ONNX calls the op where that is spelled otherwise.

    Raises ``SystemExit`` where two modules define one name, or where a module bears one: once imported, it would stand
    in the name's place.
    """
    found: dict[str, str] = {}
    also: dict[str, str] = {}
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
            if not spelled and newest:
                also[value.name] = name
            found[name] = module.__name__
    return found, also


def stub(modules: dict[str, str]) -> str:
    lines = sorted(f"from {module} import {name} as {name}" for name, module in modules.items())
    return "\n".join(["# Written by tools/generate_namespaces.py, for type checkers.", *lines, ""])


def core_names() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The modules of the names of core by namespace, and what packages must declare: the object of each name."""
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
    """The names of other packages that a stub of core has, and that the package does not declare."""
    said: set[tuple[str, str]] = set()
    for path in [*Path().glob("*/pyproject.toml"), *Path().glob("plugins/**/pyproject.toml")]:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        said |= set(project.get("entry-points", {}).get(EXTENSIONS, {}).items())
    return [f'"{name}" = "{value}"' for name, value in others.items() if (name, value) not in said]


def as_json(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"


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
    return as_json(dict(sorted(told.items())))


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
