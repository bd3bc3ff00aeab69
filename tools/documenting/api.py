"""The public names of the libraries, from their docstrings."""

from __future__ import annotations

import inspect
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType

#: Modules whose names users and authors of packages import, and what each is for.
MODULES = {
    "tenonnx": "Read, edit, run, differentiate and convert models.",
    "tenonnx_training": "Train graphs: losses, optimizers, `fit`.",
    "tenonnx.extend": "Define operators.",
    "tenonnx.extend.transforms": "Write transforms of graphs.",
    "tenonnx.extend.backends": "Write a backend.",
    "tenonnx.extend.frontends": "Write a front end.",
    "tenonnx.extend.formats": "Read and write file formats.",
    "tenonnx.extend.rules": "Write import rules.",
    "tenonnx.extend.options": "Declare the options of a function and of a command once.",
    "tenonnx.extend.checks": "Compare and verify.",
    "tenonnx.extend.symbolic": "Arithmetic on symbolic dims.",
    "tenonnx.extend.testing": "What a package needs to test itself.",
    "tenonnx_testing": "The conformance kit.",
}


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    told: dict[int, str] = {}
    for name, purpose in MODULES.items():
        (folder / f"{name}.md").write_text(_page(name, purpose, told), "utf-8")
    head = "# Python API\n\nThe public names, from their docstrings. What is not here may change at any time.\n"
    table = [f"| [`{name}`]({name}.md) | {purpose} |" for name, purpose in MODULES.items()]
    tree = ["```{toctree}", ":hidden:", "", *MODULES, "```"]
    (folder / "index.md").write_text("\n".join([head, "| module | for |", "| --- | --- |", *table, "", *tree, ""]))


def _page(name: str, purpose: str, told: dict[int, str]) -> str:
    """The page of a module; ``told`` are the objects that pages before it tell of, and which."""
    module = import_module(name)
    named = {each: getattr(module, each) for each in public(module)}
    elsewhere = {each: told[id(value)] for each, value in named.items() if id(value) in told}
    found = {each: value for each, value in named.items() if each not in elsewhere}
    told.update((id(value), name) for value in found.values())
    sections = {
        "Functions": [n for n, value in found.items() if _is_function(value)],
        "Classes": [n for n, value in found.items() if inspect.isclass(value) and not _is_error(value)],
        "Errors and warnings": [n for n, value in found.items() if _is_error(value)],
    }
    parts = [f"# {name}\n\n{purpose}\n"]
    for title, names in sections.items():
        if names:
            parts.append(f"## {title}\n\n```{{eval-rst}}")
            parts += [_directive(f"{name}.{each}", found[each]) for each in names]
            parts.append("```\n")
    if elsewhere:
        links = (f"[`{each}`]({page}.md)" for each, page in elsewhere.items())
        parts.append(f"## Also in this module\n\n{', '.join(links)}\n")
    return "\n".join(parts)


def public(module: ModuleType) -> list[str]:
    """The names of a module that are of this project, in order."""
    listed = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    ours = (n for n in sorted(listed) if str(getattr(getattr(module, n), "__module__", "")).startswith("tenonnx"))
    return [n for n in ours if not inspect.ismodule(getattr(module, n))]


def _directive(path: str, value: object) -> str:
    if _is_error(value):
        return f".. autoexception:: {path}\n"
    if inspect.isclass(value):
        members = "" if issubclass(value, Enum) else "   :members:\n"
        return f".. autoclass:: {path}\n{members}"
    return f".. autofunction:: {path}\n"


def _is_function(value: object) -> bool:
    return callable(value) and not inspect.isclass(value)


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)
