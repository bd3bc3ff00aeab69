"""Targets by name, as data files of installed packages, and by path."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidCall, PluginError, did_you_mean, listing
from tenonnx.tools import plugins
from tenonnx_targets.accuracy import Accuracy
from tenonnx_targets.schema import WrongTarget, read_targets
from tenonnx_targets.target import Target

#: Entry-point group of packages that contain target files.
GROUP = "tenonnx.targets"

#: Suffixes of target files.
SUFFIXES = (".toml", ".json")

_SCHEMA = "docs/reference/target-files.md says what is in such a file"


def runtimes() -> tuple[dict[str, Target], list[PluginError]]:
    """The targets of all installed files by name, and the errors of unreadable files."""
    result: dict[str, Target] = {}
    failures: list[PluginError] = []
    for package, folder in _folders(failures):
        for file in sorted((f for f in folder.iterdir() if f.name.endswith(SUFFIXES)), key=lambda f: f.name):
            try:
                text, is_json = file.read_text("utf-8"), file.name.endswith(".json")
                targets = list(read_targets(text, json=is_json, package=package))
                taken = [p for p in targets if p.name in result]
                if taken:
                    raise WrongTarget(f'"{taken[0].name}" is a target of {result[taken[0].name].package} too')
            except (OSError, ValueError) as error:
                failures.append(PluginError(f"target file {file.name} of {package} is ignored: {error}", do=_SCHEMA))
            else:
                result.update((target.name, target) for target in targets)
    return result, failures


def find_runtime(name: str) -> Target:
    """The target of that name or file path. Raises ``InvalidCall`` with similar names."""
    if Path(name.partition("#")[0]).suffix in SUFFIXES:
        return load_target(name)
    found, failures = runtimes()
    if name in found:
        return found[name]
    near = [each for each in found if each.startswith(name[:4])] or list(found)
    raise InvalidCall(
        "unknown target",
        given=name,
        available=listing(near),
        do=f"{did_you_mean(name, found)} tenonnx targets lists all; or specify --opset and --domains".strip(),
        also=(failure.what for failure in failures),
    )


def load_target(name: str) -> Target:
    """The target in a file; if there are several, the one named after ``#``."""
    path, _, wanted = name.partition("#")
    file = Path(path)
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidCall(f'cannot read "{path}": {reason}', do="give the path of a target file") from error
    try:
        targets = {target.name: target for target in read_targets(text, json=file.suffix == ".json", alone=file.stem)}
    except WrongTarget as error:
        where = path if error.line is None else f"{path}, line {error.line}"
        raise InvalidCall(f"invalid target file: {where}", given=str(error), do=_SCHEMA) from error
    if wanted in targets or (not wanted and len(targets) == 1):
        return targets[wanted] if wanted else next(iter(targets.values()))
    what = f'"{path}" has no target "{wanted}"' if wanted else f'"{path}" has several targets'
    raise InvalidCall(what, available=listing(list(targets)), do=f"name one: {path}#{next(iter(targets))}")


def narrowed_target(
    target: str | Target | None,
    domains: Collection[str],
    ops: Collection[str] | None = None,
    without: Collection[str] = (),
    accuracy: str = "rounding",
) -> Target | None:
    """A target restricted to some of its ops, with lowerings of an accuracy class; None without any restriction.

    Without a target, the restriction applies to ``ops``, or else to the ops of ``domains`` at any version.
    """
    found = find_runtime(target) if isinstance(target, str) else target
    if found is None and ops is None and not without:
        return None
    if found is None:
        found = Target.of_ops(ops) if ops is not None else replace(Target.of_ops([]), ops=None)
        found = found if ops is not None else replace(found, opsets=dict.fromkeys(["ai.onnx", *domains]))
    elif ops is not None:
        found = found.only(ops)
    found = found.less(without) if without else found
    return replace(found, accuracy=max(found.accuracy, Accuracy[accuracy.upper()]))


def _folders(failures: list[PluginError]) -> Iterator[tuple[str, Any]]:
    """The folders with target files, and their packages."""
    from importlib import resources

    for plugin in plugins(GROUP):
        try:
            module = plugin.load()
        except PluginError as error:
            failures.append(error)
        else:
            yield plugin.source, resources.files(module)
