"""Checks of whether a model fails, each in child processes with a time limit."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenonnx import InvalidCall
from tenonnx.extend.checks import ModelCommand, NoAnswer, ProcessCrashed, Worker

if TYPE_CHECKING:
    from onnx import ModelProto

#: Signature of a failure; a candidate must have the same one as the original model.
Signature = tuple[str, ...]


class Check:
    """A callable that tells whether a model fails as the first model did; subclasses define ``signature``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.expected: Signature | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __call__(self, model: ModelProto) -> bool:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tenonnx-reduce-")
        path = Path(self._folder.name) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        signature = self.signature(str(path))
        if signature is None:
            return False
        if self.expected is None:
            self.expected = signature
        return signature == self.expected

    def signature(self, path: str) -> Signature | None:
        """Signature of the failure of the model in a file; None if it does not fail."""
        raise NotImplementedError

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


class CommandCheck(Check):
    """A model fails if a command for it exits with a nonzero status, or if ``pattern`` matches the command's output.

    The model's path replaces ``{model}`` in the command, or is appended. Raises ``InvalidCall`` for an invalid pattern.
    """

    def __init__(self, command: str, pattern: str | None, seconds: float) -> None:
        super().__init__(seconds)
        self._command = ModelCommand(command, "--check")
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise InvalidCall("--check-output is not a regular expression", given=f"{pattern}: {error}") from None

    def signature(self, path: str) -> Signature | None:
        ended = self._command(path, self.seconds)
        if ended is None:
            return ("timeout",) if self._pattern is None else None
        status, output = ended
        if self._pattern is not None:
            return ("output",) if self._pattern.search(output) else None
        return (str(status),) if status else None


class BackendCheck(Check):
    """A model fails if a backend raises an error, returns NaN, crashes or hangs, or if two backends differ.

    A backend is a name, or the path of a Python interpreter, whose onnxruntime or OpenVINO then runs the model.
    """

    def __init__(self, backends: Sequence[str], seconds: float, seed: int = 0, tolerance: float | None = None) -> None:
        super().__init__(seconds)
        self._arguments = list(backends), seed, tolerance, seconds
        self._worker = Worker(Path(__file__).with_name("probe.py"), " or ".join(backends))

    def signature(self, path: str) -> Signature | None:
        try:
            outcome = self._worker.call("outcome", path, *self._arguments, seconds=self.seconds)
        except NoAnswer:
            return ("timeout",)
        except ProcessCrashed as error:
            return ("crash", error.what)
        return None if outcome["kind"] == "ok" else (outcome["kind"], outcome["said"])

    def close(self) -> None:
        self._worker.close()
        super().close()
