"""``tenonnx plugins new``: create a package of plugins that installs and passes its own tests."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template

import click

from tenonnx_cli.options import json_option
from tenonnx_cli.output import say, say_json


@dataclass(frozen=True)
class Part:
    """Part of a new package: entry points, files by template, a sentence for the README, and dependencies."""

    entries: tuple[tuple[str, str], ...]
    files: Mapping[str, str]
    readme: str
    needs: tuple[str, ...] = ()


def _entry(group: str, target: str, name: str = "$short") -> tuple[tuple[str, str], ...]:
    """Entry-point group of a part, with its line in ``pyproject.toml``."""
    return ((group, f'{name} = "{target}"'),)


def _entries(parts: list[Part]) -> str:
    """Entry-point tables of ``pyproject.toml``, one for each group."""
    lines = [entry for part in parts for entry in part.entries]
    tables = {group: [line for of, line in lines if of == group] for group, _ in lines}
    return "".join(
        f'\n[project.entry-points."tenonnx.{group}"]\n' + "\n".join(entries) + "\n" for group, entries in tables.items()
    )


_OP = Part(
    _entry("ops", "$module", name='"$domain"') + _entry("conformance", "$module.cases"),
    {
        "op.py": "src/$module/__init__.py",
        "cases.py": "src/$module/cases.py",
        "test_conformance.py": "tests/test_conformance.py",
    },
    "- `src/$module/__init__.py`: an op of `$domain`, and in `cases.py` how its inputs are drawn. `tenonnx.load`\n"
    "  reads models that use it, every backend runs them, `tenonnx.grad` differentiates them, and\n"
    "  `tenonnx convert --domains ai.onnx` writes them in plain ONNX. `tenonnx ops --markdown --package\n"
    "  $name` prints a table of them.",
)

_PARTS = {
    "backend": Part(
        _entry("backends", "$module.backend"),
        {
            "backend.py": "src/$module/backend.py",
            "test_backend.py": "tests/test_backend.py",
            "test_onnx.py": "tests/test_onnx.py",
        },
        '- `backend.py`: `graph.run(feeds, backend="$short")`, of a few ops.',
    ),
    "format": Part(
        _entry("frontends", "$module.format") + _entry("formats", "$module.format"),
        {"format.py": "src/$module/format.py", "test_format.py": "tests/test_format.py"},
        "- `format.py`: `tenonnx.load` reads files named `*.$short`; `tenonnx convert -o m.$short` writes\n"
        "  them, runs them, and compares.",
    ),
    "frontend": Part(
        _entry("frontends", "$module.frontend", name="$module"),
        {"frontend.py": "src/$module/frontend.py", "test_frontend.py": "tests/test_frontend.py"},
        "- `frontend.py`: `tenonnx.load` reads objects of `$module`, verified against themselves at any size.",
        ("tenonnx-frontends",),
    ),
    "target": Part(
        _entry("targets", "$module.targets"),
        {
            "targets.py": "src/$module/targets/__init__.py",
            "targets.toml": "src/$module/targets/$short.toml",
            "test_target.py": "tests/test_target.py",
        },
        "- `targets/$short.toml`: `tenonnx convert --target $short-1` writes what that runtime takes.",
    ),
    "rules": Part(
        _entry("rules", "$module.rules"),
        {"rules.py": "src/$module/rules.py", "test_rules.py": "tests/test_rules.py"},
        "- `rules.py`: what `tenonnx.load` puts in the place of nodes, of `$short.lab` here.",
    ),
    "transform": Part(
        _entry("transforms", "$module.transform:Transform"),
        {"transform.py": "src/$module/transform.py", "test_transform.py": "tests/test_transform.py"},
        "- `transform.py`: `tenonnx convert --$short 2` computes squares as products.",
    ),
    "command": Part(
        _entry("commands", "$module.command:command"),
        {"command.py": "src/$module/command.py", "test_command.py": "tests/test_command.py"},
        "- `command.py`: `tenonnx $short MODEL`.",
    ),
}

_COMMON = {"pyproject.toml": "pyproject.toml", "README.md": "README.md", "ci.yml": ".github/workflows/ci.yml"}


@click.command("new")
@click.argument("name")
@click.option("--domain", metavar="DOMAIN", help="Include an op of this domain, such as com.acme.")
@click.option("--backend", is_flag=True, help="Include a backend.")
@click.option("--format", is_flag=True, help="Include a file format that is read and written.")
@click.option("--frontend", is_flag=True, help="Include a front end for a framework.")
@click.option("--target", is_flag=True, help="Include a deployment target.")
@click.option("--rules", is_flag=True, help="Include import rules, which replace nodes while a model is read.")
@click.option("--transform", is_flag=True, help="Include a transform with an option of convert and plan.")
@click.option("--command", is_flag=True, help="Include a command of the command line.")
@json_option
def command(name: str, domain: str | None, as_json: bool, **flags: bool) -> None:
    """Create a package in a new folder NAME, such as tenonnx-acme, with tests and a CI workflow.

    The options choose its contents; give at least one.
    """
    from tenonnx.tools import installing, interpreter, write_bytes

    parts = [_OP] if domain is not None else []
    parts += [_PARTS[flag] for flag, wanted in flags.items() if wanted]
    files = dict(_files(name, domain or "", parts))
    _refuse(name, domain, parts)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, [text.encode("utf-8")])
    if as_json:
        say_json({"package": name, "files": [path.as_posix() for path in files]})
        return
    say(f"{name}: {len(files)} files")
    say(f"next: {installing(f'./{name}[test]')}")
    say(f"then: {interpreter()} -m pytest {name}")


def _refuse(name: str, domain: str | None, parts: list[Part]) -> None:
    """Raise ``InvalidCall`` for an invalid name or domain, a name that is taken, and a package without parts."""
    from tenonnx import InvalidCall

    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        what = "the name of a package is not made of lower-case words with hyphens between"
        raise InvalidCall(what, given=repr(name), do="tenonnx plugins new tenonnx-acme --domain com.acme")
    if domain is not None and not re.fullmatch(r"\w[\w.-]*", domain, re.ASCII):
        raise InvalidCall("a domain is not made of words separated by dots, such as com.acme", given=repr(domain))
    if not parts:
        options = "--domain DOMAIN, " + ", ".join(f"--{flag}" for flag in _PARTS)
        raise InvalidCall("nothing was chosen for the package to contain", given=name, available=options)
    if Path(name).exists():
        raise InvalidCall("the folder exists already", given=name, do="remove it, or choose another name")
    if owner := _owner(name, domain, parts):
        raise InvalidCall(f"the name is taken: {owner}", given=name, do="choose another name")


def _owner(name: str, domain: str | None, parts: list[Part]) -> str:
    """Owner of a package's name, module, domain or entry points; empty if all are unused."""
    from tenonnx.tools import GROUPS, is_ours, plugins, provider

    words = _words(name, domain or "")
    module, short = words["module"], words["short"]
    if name == "tenonnx" or is_ours(name):
        return f"{name} is a package of tenonnx"
    if module in sys.stdlib_module_names or keyword.iskeyword(module):
        return f"{module} is a word or a module of Python"
    found = find_spec(module)
    if found is not None and {"site-packages", "dist-packages"} & {*Path(found.origin or "").parts}:
        return f"the module {module} is installed"
    if _PARTS["transform"] in parts and f"--{short}" in _options_of_convert():
        return f"--{short} is an option of tenonnx convert"
    for group, line in dict.fromkeys(entry for part in parts for entry in part.entries):
        group, entry = f"tenonnx.{group}", Template(line.partition(" = ")[0].strip('"')).substitute(words)
        kind = GROUPS[group]
        if not (kind.unique or group == "tenonnx.ops"):
            continue
        others = [plugin.distribution for plugin in plugins(group, entry) if plugin.distribution != name]
        built_in = "tenonnx itself" if entry in kind.reserved else None
        if owner := provider(group, entry) or provider(entry, "*") or built_in or next(iter(others), None):
            return f'"{entry}" in {group} is that of {owner}'
    return ""


def _options_of_convert() -> set[str]:
    from tenonnx_cli.convert import command as convert
    from tenonnx_cli.plan import command as plan

    both = [each for command in (convert, plan) for each in command.get_params(click.Context(command))]
    return {name for each in both for name in (*each.opts, *each.secondary_opts)}


def _words(name: str, domain: str) -> dict[str, str]:
    """Names that the templates use for a package and its parts."""
    short = name.removeprefix("tenonnx-").replace("-", "_")
    title = short.replace("_", " ").capitalize()
    return {"name": name, "module": name.replace("-", "_"), "domain": domain, "short": short, "title": title}


def _files(name: str, domain: str, parts: list[Part]) -> Iterator[tuple[Path, str]]:
    """Paths and contents of the files of a package."""
    words = _words(name, domain)

    def fill(text: str) -> str:
        return Template(text).substitute(words)

    words["entries"] = fill(_entries(parts))
    needs = dict.fromkeys(need for part in parts for need in part.needs)
    words["needs"] = "".join(f', "{need}"' for need in needs)
    words["what"] = "\n".join(fill(part.readme) for part in parts)
    folder = resources.files("tenonnx_cli").joinpath("template")
    start = {} if _OP in parts else {"init.py": "src/$module/__init__.py"}
    templates = {**_COMMON, **start, "py.typed": "src/$module/py.typed"}
    for part in parts:
        templates |= part.files
    for template, path in templates.items():
        yield Path(name, fill(path)), fill(folder.joinpath(f"{template}.txt").read_text("utf-8"))
