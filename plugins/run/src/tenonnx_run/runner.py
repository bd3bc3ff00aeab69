"""Runners: a user's consumers of ONNX files, as a function or a command."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tenonnx.errors import InvalidCall
from tenonnx_run.commands import run_command
from tenonnx_run.worker import CallFailed, NoAnswer, ProcessCrashed, Worker, WorkerEnded

#: Default time limit of a call, in seconds.
SECONDS = 30.0

#: Time limit of a runner's imports, in seconds.
_IMPORTS = 300.0

#: Characters of a command's last output in a message.
_SHOWN = 300

_FILE = Path(__file__).with_name("runner_process.py")


class FunctionRunner:
    """A consumer given as ``MODULE:FUNCTION``, run in a child process to survive crashes and hangs.

    The function takes the path of an ONNX file and feeds by name, and returns outputs by name or in order. A Python
    file is named by its path, ``FILE.py:FUNCTION``. ``seconds`` is the time limit of each call. ``python`` is the
    interpreter of another environment, which needs only the consumer and numpy: modules of this environment are passed
    to it by file.
    """

    def __init__(self, name: str, seconds: float = SECONDS, python: str = "") -> None:
        place, _, function = name.rpartition(":")
        if not place or not function.isidentifier():
            raise InvalidCall("a runner is not of the form MODULE:FUNCTION", given=name)
        if python and shutil.which(python) is None:
            raise InvalidCall("no such Python interpreter", given=python, do="give the path of one: ENV/bin/python")
        self.name, self.seconds = name, seconds
        self._function = f"{_file_of(place)}:{function}" if python else name
        self._worker = Worker(_FILE, name, python=python)
        self._started: int | None = None

    def start(self) -> None:
        """Import the function. Raises ``InvalidCall`` if that fails."""
        if self._started is not None and self._worker.process_id == self._started:
            return
        try:
            self._worker.call("load", self._function, seconds=_IMPORTS)
        except (CallFailed, WorkerEnded) as error:
            kind = f"{error.kind}: " if isinstance(error, CallFailed) else f"{error.what} "
            raise InvalidCall(f"cannot import the runner {self.name}", given=f"{kind}{error.given}") from error
        self._started = self._worker.process_id

    def __call__(self, path: str | os.PathLike[str], feeds: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
        """Run a file; returns the outputs called ``names``.

        Raises ``CallFailed`` for exceptions of the function, ``ProcessCrashed``, and ``NoAnswer`` after ``seconds``.
        """
        self.start()
        answer = self._worker.call("run", self._function, os.fspath(path), dict(feeds), seconds=self.seconds)
        values, named = answer["values"], answer["names"]
        return _in_order(self.name, values, None if named is None else dict(zip(named, values, strict=True)), names)

    def close(self) -> None:
        """End the child process."""
        self._worker.close()


class CommandRunner:
    """A consumer given as a command line with ``{model}``, ``{inputs}`` and ``{outputs}`` for three paths.

    The inputs are a ``.npz`` file of arrays by name; the program writes the outputs to another.
    """

    def __init__(self, line: str, seconds: float = SECONDS) -> None:
        self.name, self.seconds = line, seconds
        try:
            self._words = shlex.split(line)
        except ValueError as error:
            raise InvalidCall("cannot read the command of a runner", given=f"{line} ({error})") from error
        missing = [word for word in ("{model}", "{inputs}", "{outputs}") if word not in line]
        if missing:
            raise InvalidCall(
                f"the command of a runner lacks {', '.join(missing)}",
                given=line,
                do='write for example "tool {model} {inputs} {outputs}"',
            )

    def start(self) -> None:
        """Raise ``InvalidCall`` if the program does not exist."""
        if shutil.which(self._words[0]) is None:
            raise InvalidCall("no such program", given=self._words[0])

    def __call__(self, path: str | os.PathLike[str], feeds: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
        """Run a file; returns the outputs called ``names``. Raises as ``FunctionRunner`` and for failed commands."""
        import numpy as np

        with TemporaryDirectory(prefix="tenonnx-") as folder:
            places = {"model": os.fspath(path), "inputs": f"{folder}/inputs.npz", "outputs": f"{folder}/outputs.npz"}
            if any(not isinstance(each, np.ndarray) or each.dtype.hasobject for each in feeds.values()):
                raise CallFailed(f"{self.name} failed", "TypeError", "only arrays of numbers fit into a .npz file")
            np.savez(places["inputs"], **feeds)
            self._run([_filled(word, places) for word in self._words])
            try:
                with np.load(places["outputs"], allow_pickle=False) as archive:
                    found = {name: archive[name] for name in archive.files}
            except (OSError, ValueError) as error:
                raise CallFailed(f"{self.name} failed", "OSError", f"it wrote no outputs.npz: {error}") from error
        return _in_order(self.name, list(found.values()), found if set(found) & set(names) else None, names)

    def close(self) -> None:
        """Nothing to release."""

    def _run(self, words: Sequence[str]) -> None:
        ended = run_command(words, self.seconds)
        if ended is None:
            raise NoAnswer(f"{self.name} did not answer within {self.seconds:g} s")
        code, said = ended
        said = " ".join(said.split())[-_SHOWN:]
        if code < 0:
            raise ProcessCrashed(f"{self.name} crashed ({signal.Signals(-code).name})", given=said)
        if code:
            raise CallFailed(f"{self.name} failed", f"exit code {code}", said)


def runner_of(text: str, seconds: float = SECONDS) -> FunctionRunner | CommandRunner:
    """Parse a runner: ``MODULE:FUNCTION``, ``PYTHON MODULE:FUNCTION`` for the interpreter of another environment, or a
    command with ``{model}``, ``{inputs}`` and ``{outputs}``. Raises ``InvalidCall`` for other texts."""
    if any(place in text for place in ("{model}", "{inputs}", "{outputs}")):
        return CommandRunner(text, seconds)
    python, _, function = text.strip().rpartition(" ")
    if python and shutil.which(python) is not None:
        return FunctionRunner(function, seconds, python)
    return FunctionRunner(text, seconds)


def _file_of(module: str) -> str:
    """The file of a module of this environment; else the name itself."""
    try:
        spec = None if module.endswith(".py") else find_spec(module)
    except ModuleNotFoundError:
        spec = None
    return module if spec is None or spec.origin is None else spec.origin


def _filled(word: str, places: Mapping[str, str]) -> str:
    for name, place in places.items():
        word = word.replace(f"{{{name}}}", place)
    return word


def _in_order(runner: str, values: Sequence[Any], by_name: Mapping[str, Any] | None, names: Sequence[str]) -> list[Any]:
    """Outputs in the order of ``names``. Raises ``CallFailed`` if some are missing."""
    if by_name is not None and all(name in by_name for name in names):
        return [by_name[name] for name in names]
    if by_name is not None or len(values) != len(names):
        known = list(by_name) if by_name is not None else len(values)
        raise CallFailed(f"{runner} failed", "ValueError", f"outputs are {known}, not {', '.join(names)}")
    return list(values)
