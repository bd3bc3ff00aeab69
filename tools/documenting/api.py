"""The public names of the libraries, from their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe

#: Modules that users and authors of packages import from, and the purpose of each.
MODULES = {
    "tenonnx": "Read, edit, run, differentiate and convert models.",
    "tenonnx_training": "Train graphs: losses, optimizers, `fit`.",
    "tenonnx_score": "Score files of tables, images and arrays with a model.",
    "tenonnx_torch": "Modules of PyTorch as graphs, and graphs as modules.",
    "tenonnx_transformers": "Export of Hugging Face transformers models to folders that a runtime serves.",
    "tenonnx_jax": "Functions of JAX as graphs, and graphs as functions of JAX.",
    "tenonnx_tensorflow": "Rules for ops of TensorFlow and TFLite; `tx.load` reads the models.",
    "tenonnx_sklearn": "Estimators of scikit-learn as graphs, and rules for those of others.",
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

#: Source folders of packages that import a framework: the site parses them without importing them.
APART = {
    f"tenonnx_{path.parts[-3]}": path.parent
    for path in Path(__file__).parents[2].glob("plugins/**/src/tenonnx_*")
    if path.parts[-3] in ("jax", "score", "sklearn", "tensorflow", "torch", "transformers")
}


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    documented: dict[int, str] = {}
    for name, purpose in MODULES.items():
        page = _read(name, purpose) if name in APART else _page(name, purpose, documented)
        (folder / f"{name}.md").write_text(page, "utf-8")
    head = "# Python API\n\nThe public names, from their docstrings. What is not here may change at any time.\n"
    table = [f"| [`{name}`]({name}.md) | {purpose} |" for name, purpose in MODULES.items()]
    tree = ["```{toctree}", ":hidden:", "", *MODULES, "```"]
    (folder / "index.md").write_text("\n".join([head, "| module | for |", "| --- | --- |", *table, "", *tree, ""]))


def _page(name: str, purpose: str, documented: dict[int, str]) -> str:
    """The page of a module. ``documented`` maps the ids of objects to the earlier pages that document them."""
    module = import_module(name)
    named = {each: getattr(module, each) for each in public(module)}
    elsewhere = {each: documented[id(value)] for each, value in named.items() if id(value) in documented}
    found = {each: value for each, value in named.items() if each not in elsewhere}
    documented.update((id(value), name) for value in found.values())
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


def _read(name: str, purpose: str) -> str:
    """The page of a module that is not imported."""
    module = griffe.load(name, search_paths=[str(APART[name])], resolve_aliases=True)
    parts = [f"# {name}\n\n{purpose}\n"]
    listed = {
        each: module[each].final_target if module[each].is_alias else module[each] for each in module.exports or ()
    }
    for title, kind in (("Functions", "function"), ("Classes", "class")):
        found = {each: target for each, target in sorted(listed.items()) if target.kind.value == kind}
        if found:
            lines = [line for each, target in found.items() for line in _parsed_directive(f"{name}.{each}", target)]
            parts.append("\n".join([f"## {title}\n", "```{eval-rst}", *lines, "```\n"]))
    return "\n".join(parts)


def _parsed_directive(path: str, target: Any, indent: str = "") -> Iterator[str]:
    """The directive of a function or class, with the public methods of the class."""
    taken = [each for each in getattr(target, "parameters", ()) if each.name not in ("self", "cls")]
    kind = "class" if target.is_class else "method" if indent else "function"
    yield f"{indent}.. py:{kind}:: {path}({_signature(taken)})"
    yield ""
    text = inspect.cleandoc(target.docstring.value if target.docstring else "")
    yield from (f"{indent}   {line}".rstrip() for line in text.splitlines())
    yield ""
    if target.is_class:
        for name, member in target.members.items():
            if not name.startswith("_") and member.is_function and member.docstring:
                yield from _parsed_directive(name, member, "   ")


def _signature(parameters: Iterable[Any]) -> str:
    """Parameters with their stars and defaults, without annotations."""
    shown, marked = [], False
    for each in parameters:
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(each.kind.value, "")
        if each.kind.value == "keyword-only" and not marked:
            shown.append("*")
        marked |= stars == "*" or each.kind.value == "keyword-only"
        shown.append(f"{stars}{each.name}" + (f"={each.default}" if each.default is not None and not stars else ""))
    return ", ".join(shown)


def public(module: ModuleType) -> list[str]:
    """The public names of a module that this project defines, in order."""
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
