"""Namespaces whose names are imported with their modules when they are first used."""

from __future__ import annotations

import json
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tenonnx.errors import similar_names
from tenonnx.graph.gc_paused import gc_paused
from tenonnx.graph.lazy_methods import lazy_import

#: The file beside a package that lists its namespaces: by namespace and name the module, and by ``ALSO`` other
#: spellings of names. ``tools/generate_namespaces.py`` writes it.
FILE, ALSO = "names.json", "also"


@cache
def flat_namespace(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package or module whose names are in the file ``names.json``.

    Names that installed packages add by entry points are there, too. A name that is not there raises
    ``AttributeError`` with those that may have been meant, or with the package to install.
    """
    below = f"{package}.".removeprefix("tenonnx.")

    def added() -> list[str]:
        if not f"{package}.".startswith("tenonnx."):
            return []
        names = (name.removeprefix(below) for name in lazy_import("extensions")() if name.startswith(below))
        return [name for name in names if "." not in name and not name.startswith("_")]

    def get(name: str) -> Any:
        if name == "__all__":
            return [*_own(package), *added()]
        if name.startswith("__"):
            raise AttributeError(name)
        own = _own(package)
        if name in own:
            with gc_paused():  # what is imported stays
                value = getattr(import_module(own[name]), name)
        else:
            value = lazy_import("find_extension")(below + name) if f"{package}.".startswith("tenonnx.") else None
            if value is None and _is_module(package, name):
                raise AttributeError(f"{package}.{name} is a module, which is not imported yet")
            if value is None:
                raise AttributeError(_why_not(package, name, below, [*own, *added()]))
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*_own(package), *added()})


def _is_module(package: str, name: str) -> bool:
    """Whether a package has such a module, which ``from package import name`` goes on to import."""
    return hasattr(sys.modules[package], "__path__") and find_spec(f"{package}.{name}") is not None


@cache
def _files(package: str) -> Mapping[str, Mapping[str, str]]:
    return json.loads(pkgutil.get_data(package, FILE) or "{}")  # type: ignore[no-any-return]


def _own(package: str) -> Mapping[str, str]:
    """The modules of the names that the package has itself."""
    return _files(package.partition(".")[0]).get(package, {})


def _why_not(package: str, name: str, below: str, known: list[str]) -> str:
    what, do = lazy_import("missing")(below + name)
    if what and package.partition(".")[0] == "tenonnx":
        return f"{what}: {do}"
    also = _files(package.partition(".")[0]).get(ALSO, {})
    near = dict.fromkeys(also.get(each, each) for each in similar_names(name, [*known, *also]))
    meant = f"did you mean {' or '.join(near)}?" if near else f"dir({package}) lists its names"
    return f"{package} has no {name!r}; {meant}"
