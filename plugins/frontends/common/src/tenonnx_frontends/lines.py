"""Lines of the user's code, for messages."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterable
from pathlib import Path


class UserLines:
    """Distinguishes the user's code from a framework's, by packages of ``files`` and by ``parts`` of paths."""

    def __init__(self, files: Iterable[str | None], parts: Iterable[str] = ()) -> None:
        self._folders = (*(str(Path(file).parent) for file in files if file), "<")
        self._parts = tuple(parts)

    def is_foreign(self, file: str) -> bool:
        return file.startswith(self._folders) or any(part in file for part in self._parts)

    def first(self, frames: Iterable[tuple[str, int, str]]) -> str:
        """The first of the user's frames (file, line, function), as text; empty if there is none."""
        return next((line(*frame) for frame in frames if not self.is_foreign(frame[0])), "")

    def of_error(self, error: BaseException) -> list[str]:
        """The user's lines that led to an error, innermost last."""
        found = traceback.extract_tb(error.__traceback__)
        return [line(f.filename, f.lineno or 0, f.name, f.line) for f in found if not self.is_foreign(f.filename)]


def line(file: str, number: int, function: str, code: str | None = None) -> str:
    """Description of a line of code."""
    code = linecache.getline(file, number) if code is None else code
    return f"{file}:{number}, in {function}: {code.strip()}"
