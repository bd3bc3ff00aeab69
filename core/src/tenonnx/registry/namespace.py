"""One flat namespace for the names of many modules, which are imported when a name of theirs is first used."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tenonnx.errors import installing
from tenonnx.graph.garbage import uncollected

#: A line of a stub: where a name is defined, and what ONNX calls the op where that is another name.
_LINE = re.compile(r"^from (?P<module>\S+) import (?P<name>\w+) as (?P=name)(?:  # (?P<onnx>\w+))?$", re.MULTILINE)


@cache
def flat_namespace(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package or module whose stub (``.pyi``) says where its names are defined.

    The stub is what editors and type checkers read, too. A name that is not there raises ``AttributeError`` with those
    that may have been meant. ``__all__`` is the names of the distributions that are installed.
    """

    @cache
    def lines() -> dict[str, re.Match[str]]:
        spec: Any = sys.modules[package].__spec__
        stub = spec.loader.get_data(f"{spec.origin.removesuffix('.py')}.pyi")
        return {line["name"]: line for line in _LINE.finditer(stub.decode("utf-8"))}

    def get(name: str) -> Any:
        if name == "__all__":
            roots = {line["module"].partition(".")[0] for line in lines().values()}
            installed = {root for root in roots if find_spec(root)}
            return [name for name, line in lines().items() if line["module"].partition(".")[0] in installed]
        if name.startswith("__") or f"{package}.{name}" in sys.modules:  # the latter to ``from package import module``
            raise AttributeError(name)
        if name not in lines():
            meant = " or ".join(_meant(name, {each: line["onnx"] for each, line in lines().items()}))
            raise AttributeError(
                f"{package} has no {name!r}; "
                + (f"did you mean {meant}?" if meant else f"dir({package}) lists its names")
            )
        module = lines()[name]["module"]
        distribution = module.partition(".")[0].replace("_", "-")
        try:
            with uncollected():  # what is imported stays
                value = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != module.partition(".")[0]:
                raise
            text = f"{package}.{name} is in {distribution}, which is not installed: {installing(distribution)}"
            raise AttributeError(text) from error
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(lines())


def _meant(name: str, known: dict[str, str | None]) -> list[str]:
    """The names that a wrong one may stand for: of ONNX's own name, in another spelling, or those that look alike."""
    import difflib

    spelled = {_plain(each): each for each in known} | {_plain(onnx): each for each, onnx in known.items() if onnx}
    plain = _plain(name)
    return [spelled[near] for near in ([plain] if plain in spelled else difflib.get_close_matches(plain, spelled))]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
