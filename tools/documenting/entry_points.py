"""The page of the entry-point groups, from the table that checks them and the entries of our packages."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tenonnx.tools import GROUPS

ROOT = Path(__file__).parents[2]

_TESTS = "../how-to/plugin-tests.md#register-the-ops"
_BACKENDS = "../how-to/plugin-backends.md"
_REST = "../how-to/plugin-transforms.md"

#: For each group, what a package adds with it, the meaning of an entry's name, and the page with details.
DESCRIPTIONS = {
    "tenonnx.ops": ("operators", "the domain that they are of", _TESTS),
    "tenonnx.conformance": ("cases that test operators", "any", _TESTS),
    "tenonnx.backends": ("a backend that runs graphs", "what `backend=` takes", f"{_BACKENDS}#backends"),
    "tenonnx.frontends": (
        "a front end that reads models",
        "a suffix without its dot, the name of a file in a folder, or the Python package of a class",
        f"{_BACKENDS}#front-ends",
    ),
    "tenonnx.transforms": (
        "a transform of graphs",
        "the flag of `tenonnx convert` and `plan`",
        f"{_REST}#a-transform",
    ),
    "tenonnx.rules": ("rules that replace nodes while a model is read", "any", "rules-and-hooks.md"),
    "tenonnx.hooks": ("a hook that changes what is written", "what `--hook` takes", "rules-and-hooks.md"),
    "tenonnx.commands": ("a command", "the command", f"{_REST}#entry-point-groups"),
    "tenonnx.targets": ("deployment targets", "any", f"{_REST}#a-target"),
    "tenonnx.estimators": (
        "rules of estimators, which its import registers",
        "the Python package of the estimators",
        "../how-to/sklearn.md",
    ),
    "tenonnx.extensions": (
        "a function of `tenonnx` or a method of `Graph`",
        "the name below `tenonnx`",
        f"{_REST}#entry-point-groups",
    ),
    "tenonnx.formats": (
        "a format of files that models are written in",
        "the suffix of its files",
        "../how-to/leave-onnx.md#a-format-of-your-own",
    ),
    "tenonnx.layouts": (
        "a folder that a server or runtime takes",
        "what `--layout` takes",
        f"{_REST}#entry-point-groups",
    ),
    "tenonnx.frameworks": (
        "a framework that computes graphs, for the conformance kit",
        "the kind of rules that it reads",
        f"{_REST}#entry-point-groups",
    ),
    "tenonnx.lowerings": (
        "ways to express ops by lists of others",
        "any",
        "target-files.md#lists-of-ops",
    ),
    "tenonnx.torch_ops": ("operators and modules of PyTorch", "any", f"{_REST}#entry-point-groups"),
    "tenonnx.tensorflow_ops": ("ops of TensorFlow and TFLite", "any", f"{_REST}#entry-point-groups"),
}

HEAD = """# Entry points

A package adds to tenonnx by entry points, which its `pyproject.toml` declares:

```toml
[project.entry-points."tenonnx.ops"]
"com.acme" = "tenonnx_acme.plugin"      # the name = the module, or module:object
```

They are found once the package is installed, and imported when they are first needed. `tenonnx plugins` lists those of
an environment, and what is wrong with them; `TENONNX_PLUGINS` leaves some out. `tenonnx plugins new NAME` writes a
package to start from. [Stability](stability.md#one-number-for-packages) tells of the number `api`.

| group | what it adds | the name says | the value must be |
| --- | --- | --- | --- |
"""


def write(path: Path) -> None:
    """Write the page. Raises ``KeyError`` for a group without a description."""
    rows = [
        f"| [`{name}`](#{_anchor(name)}) | {DESCRIPTIONS[name][0]} | {DESCRIPTIONS[name][1]} | {group.needs} |"
        for name, group in GROUPS.items()
    ]
    declared = _declared()
    parts = [HEAD + "\n".join(rows) + "\n"]
    for name, group in GROUPS.items():
        what, _, page = DESCRIPTIONS[name]
        parts.append(f"## {name}\n\nFor {what}: [how to]({page}). The value must be {group.needs}.")
        if group.unique:
            parts.append(
                "A name is of one package: of two that declare it, the second is left out and named in a warning."
            )
        if group.reserved:
            parts.append(f"Names that are taken: {', '.join(f'`{each}`' for each in sorted(group.reserved))}.")
        if declared.get(name):
            parts.append("| name | value | package |\n| --- | --- | --- |\n" + "\n".join(declared[name]))
    path.write_text("\n\n".join(parts) + "\n", "utf-8")


def _declared() -> dict[str, list[str]]:
    """The entries of our packages by group, as rows of a table."""
    result: dict[str, list[str]] = {}
    for file in sorted([*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/**/pyproject.toml")]):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        for group, entries in project.get("entry-points", {}).items():
            result.setdefault(group, []).extend(f"| `{n}` | `{v}` | {project['name']} |" for n, v in entries.items())
    return result


def _anchor(name: str) -> str:
    return name.replace(".", "-").replace("_", "-")
