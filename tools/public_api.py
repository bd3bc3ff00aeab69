"""The public API, one name with its signature per line; ``docs/reference/api.txt`` has that of the last release.

``tests/test_public_api.py`` compares. ``python tools/public_api.py`` writes the file, as a release does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import griffe
from documenting.json_output import every_key

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs/reference/api.txt"

#: Public modules, see ``docs/reference/stability.md``.
MODULES = (
    "tenonnx",
    "tenonnx.extend",
    "tenonnx.extend.backends",
    "tenonnx.extend.checks",
    "tenonnx.extend.formats",
    "tenonnx.extend.frontends",
    "tenonnx.extend.options",
    "tenonnx.extend.rules",
    "tenonnx.extend.symbolic",
    "tenonnx.extend.testing",
    "tenonnx.extend.transforms",
    "tenonnx_cli.extend",
    "tenonnx_testing",
    "tenonnx_training",
)


def lines() -> list[str]:
    """Every public name, sorted, such as ``tenonnx.verify(graph, other=, *, feeds=)``; ``=`` marks a default.

    The keys of the commands' JSON output are names, too.
    """
    of_python = {line for name in MODULES for line in _of_module(name)}
    return sorted(of_python | {f"tenonnx {command} --json: {key}" for command, key in every_key()})


def write() -> None:
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")


@functools.cache
def _sources() -> griffe.ModulesCollection:
    """Our packages parsed from their sources, so that classes lack members inherited from third-party bases."""
    folders = [ROOT / "core/src", *ROOT.glob("*/src"), *ROOT.glob("plugins/**/src")]
    loader = griffe.GriffeLoader(search_paths=folders)
    for folder in folders:
        for package in folder.glob("tenonnx*/__init__.py"):
            loader.load(package.parent.name)
    loader.resolve_aliases(external=False)
    return loader.modules_collection


def _of_module(name: str) -> Iterator[str]:
    module, source = import_module(name), _sources()[name]
    for each in getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]:
        if not isinstance(getattr(module, each), ModuleType):
            found = source.members.get(each)
            yield from [f"{name}.{each}"] if found is None else _of(f"{name}.{each}", _target(found))


def _target(found: griffe.Object | griffe.Alias) -> griffe.Object | griffe.Alias:
    """The target of an alias; the alias itself if it points to a third-party package."""
    try:
        return found.final_target if found.is_alias else found
    except griffe.AliasResolutionError:
        return found


def _of(title: str, found: griffe.Object | griffe.Alias) -> Iterator[str]:
    if isinstance(found, griffe.Function):
        yield title + _signature(found.parameters)
    elif isinstance(found, griffe.Class):
        members = {name: _target(member) for name, member in found.all_members.items()}
        makers = (members.get(name) for name in ("__init__", "__new__"))
        maker = next((each for each in makers if isinstance(each, griffe.Function)), None)
        yield title + (_signature([*maker.parameters][1:]) if maker else _fields(found))
        for name, member in members.items():
            if not name.startswith("_") and not member.is_class:
                yield from _of(f"{title}.{name}", member)
    else:
        yield title


def _fields(found: griffe.Class) -> str:
    """The fields of a NamedTuple."""
    if "NamedTuple" not in map(str, found.bases):
        return ""
    fields = [
        each for each in found.attributes.values() if each.annotation is not None and "property" not in each.labels
    ]
    return f"({', '.join(each.name + '=' * (each.value is not None) for each in fields)})"


def _signature(parameters: Iterable[griffe.Parameter]) -> str:
    """The parameters, without annotations and values of defaults."""
    shown, marked = [], False
    for each in parameters:
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(each.kind.value, "") if each.kind else ""
        alone = each.kind is griffe.ParameterKind.keyword_only
        shown += ["*"] if alone and not marked else []
        marked |= alone or stars == "*"
        shown.append(f"{stars}{each.name}{'=' * (each.default is not None and not stars)}")
    return f"({', '.join(shown)})"


if __name__ == "__main__":
    write()
    sys.stdout.write(f"{FILE}: {len(lines())} lines\n")
