"""Commands as tools of the Model Context Protocol: argument schemas, checked paths, and calls with a time limit."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tenonnx import InvalidCall
from tenonnx.extend import did_you_mean_file
from tenonnx.tools import did_you_mean
from tenonnx_cli.extend import FAILED, is_made
from tenonnx_cli.tools import program

_TARGET = (
    "opset domains target ops without functions ir-version assume-finite approximate fix-shapes free-dims "
    "dynamic-batch input-shapes initializers-as-constants float16 bfloat16 half-interface budget simplify fuse "
    "fuse-also channels-first transpose-inputs transpose-outputs dequantize qdq qoperator for-inference no-zipmap"
)
_COMPARISON = "inputs input-shapes seed atol rtol exact"

#: Options of each command that a client may set. Except convert's output, none runs code, trusts a file or names a file
#: to write.
OPTIONS: Mapping[str, Sequence[str]] = {
    command: options.split()
    for command, options in {
        "inspect": "nodes node op variables tree costs input-shapes",
        "ops": "domain package",
        "plan": _TARGET,
        "convert": f"output {_TARGET} verify tidy strip shapes external-data-threshold costs {_COMPARISON}",
        "verify": f"{_COMPARISON} backend",
        "compare": f"{_COMPARISON} map quantiles",
    }.items()
}

#: Arguments that are files to read.
_READ = frozenset(["model", "first", "second", "inputs"])

#: Arguments of commands that are not offered.
_HIDDEN = frozenset(["rest"])

#: The argument of convert that allows overwriting.
_REPLACE = "replace"

#: Python types accepted for JSON types; numbers are accepted as strings, as for opset.
_ACCEPTED: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str, int, float),
}

#: Maximum length of a result in characters, and the decreasing numbers of list items tried to shorten one.
LONGEST, _ITEMS = 60_000, (100, 30, 10, 3)


@dataclass(frozen=True)
class Limits:
    """Folders for reading (None: any file) and writing (None: no file), and the time limit of a call in seconds."""

    input_folder: Path | None
    output_folder: Path | None
    seconds: float

    def readable(self, given: str) -> str:
        """The absolute path of a file or folder to read.

        Raises ``InvalidCall`` for a function of a Python file, a missing file, and one outside of the folders.
        """
        if is_made(given) or given.endswith(".py"):
            raise InvalidCall("the server does not execute Python files", given=given, do="export the model first")
        path = _resolved(Path(self.input_folder or "") / given)
        folders = [folder for folder in (self.input_folder, self.output_folder) if folder is not None]
        if self.input_folder is not None and not any(path.is_relative_to(folder) for folder in folders):
            raise InvalidCall(
                "the file is outside of the folder that is served", given=given, available=str(self.input_folder)
            )
        if not path.exists():
            raise InvalidCall("no model or file of that name", given=given, do=did_you_mean_file(path))
        return str(path)

    def writable(self, given: str, replace: bool) -> str:
        """The absolute path of a file to write, with links resolved.

        Raises ``InvalidCall`` if writing is not allowed, for a path outside of the folder, and for an existing file
        without ``replace``.
        """
        if self.output_folder is None:
            raise InvalidCall("the server was started without --write", given=given, do="start it with --write FOLDER")
        path = _resolved(self.output_folder / given)
        if not path.is_relative_to(self.output_folder) or path == self.output_folder:
            raise InvalidCall(
                "the output is outside of the folder of --write", given=given, available=str(self.output_folder)
            )
        if path.exists() and not replace:
            raise InvalidCall("the output exists", given=given, do=f"set {_REPLACE} to true, or choose another name")
        return str(path)


def _resolved(path: Path) -> Path:
    try:
        result = path.resolve()
        result.exists()  # raises if a name is too long
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidCall("cannot read the path", given=repr(str(path)), available=str(error)) from error
    return result


def parameters(command: str) -> Mapping[str, click.Parameter]:
    """The parameters of a command that a client may set, by argument name."""
    found = program.get_command(click.Context(program), command)
    assert found is not None
    by_name: dict[str, click.Parameter] = {}
    for each in found.get_params(click.Context(found)):
        if isinstance(each, click.Argument):
            if each.name not in _HIDDEN:
                by_name[str(each.name)] = each
        elif (name := _long(each).removeprefix("--")) in OPTIONS[command]:
            by_name[name.replace("-", "_")] = each
    return by_name


def description(command: str) -> str:
    """The help text of a command, without its exit codes."""
    found = program.get_command(click.Context(program), command)
    assert found is not None
    paragraphs = [" ".join(each.split()) for each in (found.help or "").split("\n\n")]
    kept = [re.sub(r" ?Exit code[^.]*\.", "", each).strip() for each in paragraphs]
    if command == "ops":
        kept.append("For one op, also the Python source of its body, which defines it by simpler ops.")
    return "\n\n".join(filter(None, kept))


def schema(command: str) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    options = parameters(command)
    properties = {name: _property(each) for name, each in options.items()}
    if command == "convert":
        properties[_REPLACE] = {"type": "boolean", "description": "Replace the output file if it exists."}
    required = [name for name, each in options.items() if each.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _long(option: click.Parameter) -> str:
    return next((name for name in option.opts if name.startswith("--")), option.opts[0])


def _property(parameter: click.Parameter) -> dict[str, Any]:
    """The schema of one argument."""
    about = {"description": parameter.help} if isinstance(parameter, click.Option) and parameter.help else {}
    if getattr(parameter, "is_flag", False):
        return {"type": "boolean", **about}
    item: dict[str, Any] = {"type": "string"}
    if isinstance(parameter.type, click.Choice):
        item["enum"] = list(parameter.type.choices)
    elif isinstance(parameter.type, click.types.IntParamType):
        item = {"type": "integer"}
    elif isinstance(parameter.type, click.types.FloatParamType):
        item = {"type": "number"}
    return {**({"type": "array", "items": item} if parameter.multiple else item), **about}


def command_line(command: str, arguments: Mapping[str, Any], limits: Limits) -> list[str]:
    """The command line for the arguments of a tool.

    Raises ``InvalidCall`` for an unknown or missing argument, a value of another type, and a refused path.
    """
    by_name = parameters(command)
    given = {name: value for name, value in arguments.items() if value is not None}
    replace = command == "convert" and bool(given.pop(_REPLACE, False))
    for name in given.keys() - by_name.keys():
        raise InvalidCall(
            f'{command} has no argument "{name}"', available=", ".join(sorted(by_name)), do=did_you_mean(name, by_name)
        )
    for name, parameter in by_name.items():
        if parameter.required and name not in given:
            raise InvalidCall(f'the argument "{name}" of {command} is missing')
    options, places = [], []
    for name, parameter in by_name.items():
        if name not in given:
            continue
        for value in _values(name, parameter, given[name]):
            if name == "output":
                text = limits.writable(str(value), replace)
            elif name in _READ or (name == "target" and str(value).endswith((".toml", ".json"))):
                text = limits.readable(str(value))
            else:
                text = str(value)
            if isinstance(parameter, click.Argument):
                places.append(text)
            elif isinstance(value, bool):
                options += [_long(parameter)] if value else [*parameter.secondary_opts[:1]]
            else:
                options.append(f"{_long(parameter)}={text}")
    return [command, *options, "--json", "--", *places]


def _values(name: str, parameter: click.Parameter, value: Any) -> Sequence[Any]:
    """The values of an argument. Raises ``InvalidCall`` for a value of another type."""
    expected = str(_property(parameter)["type"])
    several = list(value) if expected == "array" and isinstance(value, list) else [value]
    accepted = _ACCEPTED["string" if expected == "array" else expected]
    for each in several:
        if not isinstance(each, accepted) or (isinstance(each, bool) and bool not in accepted):
            what = f'the argument "{name}" has a value of the wrong type'
            raise InvalidCall(what, given=repr(each)[:300], available=expected)
    return several


async def call(command: str, arguments: Mapping[str, Any], limits: Limits, folder: str) -> str:
    """The result of a command as JSON, computed in a child process with ``folder`` for temporary files.

    Raises ``InvalidCall`` with the command's error message, or if the call exceeds its time limit.
    """
    line = command_line(command, arguments, limits)
    settings = Path(folder) / "settings.toml"
    settings.touch()  # an empty settings file, so that those of the folder do not apply
    where = line.index("--")
    line[where:where] = [f"--config={settings}", f"--timeout={limits.seconds:g}"]
    result = await _run(["tenonnx", *line], limits.seconds, folder)
    if command == "ops" and "name" in arguments:
        sources = await _run(["tenonnx_serve.op_sources", *line[line.index("--") + 1 :]], limits.seconds, folder)
        result = [{**row, "source": sources.get(f"{row['module']}.{row['function']}")} for row in result]
    return shortened(result)


async def _run(words: Sequence[str], seconds: float, folder: str) -> Any:
    """Run a module and parse its JSON output. Raises ``InvalidCall``; all its processes have ended on return."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
        env={**os.environ, "TMPDIR": folder, "PYTHONIOENCODING": "utf-8"},
    )
    try:
        async with asyncio.timeout(seconds + 1):  # the command's own timeout comes first and has a better message
            printed, said = await process.communicate()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise InvalidCall(
            f"the call did not end within {seconds:g} seconds", do="start tenonnx serve --mcp with a larger --timeout"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        result = json.loads(printed)
    except ValueError:
        last = said.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise InvalidCall(f"the process ended with code {process.returncode}", given="".join(last)[:300]) from None
    if process.returncode not in (0, FAILED) or (isinstance(result, dict) and "error" in result):
        raise _failure(result)
    return result


def _failure(result: Any) -> InvalidCall:
    error = result.get("error") if isinstance(result, dict) else None
    if not isinstance(error, dict):
        return InvalidCall("the command failed", given=json.dumps(result)[:300])
    parts = {name: error[name] for name in ("given", "available", "do", "also") if error.get(name)}
    return InvalidCall(str(error.get("message")), **parts)


def shortened(result: Any) -> str:
    """A result as JSON; if it is long, lists are truncated and the number of omitted items is added.

    Raises ``InvalidCall`` if it is still too long.
    """
    text = json.dumps(result, ensure_ascii=False)
    for most in _ITEMS:
        if len(text) <= LONGEST:
            return text
        text = json.dumps(_cut(result, most), ensure_ascii=False)
    if len(text) <= LONGEST:
        return text
    raise InvalidCall(f"the result is longer than {LONGEST:,} characters", do="ask for a part of it")


def _cut(result: Any, most: int) -> Any:
    if isinstance(result, dict):
        return {name: _cut(value, most) for name, value in result.items()}
    if isinstance(result, list):
        kept = [_cut(each, most) for each in result[:most]]
        return [*kept, f"and {len(result) - most:,} more"] if len(result) > most else kept
    return result
