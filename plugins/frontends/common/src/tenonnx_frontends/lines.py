"""Lines of the user's code, for messages."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterable
from pathlib import Path


class UserLines:
    """Tells the user's code from that of a framework: ``files`` lie in its packages, ``parts`` are parts of paths."""

    def __init__(self, files: Iterable[str | None], parts: Iterable[str] = ()) -> None:
        self._folders = (*(str(Path(file).parent) for file in files if file), "<")
        self._parts = tuple(parts)

    def is_foreign(self, file: str) -> bool:
        return file.startswith(self._folders) or any(part in file for part in self._parts)

    def first(self, frames: Iterable[tuple[str, int, str]]) -> str:
        """Of frames (file, line, function) the first of the user, or nothing."""
        return next((line(*frame) for frame in frames if not self.is_foreign(frame[0])), "")

    def of_error(self, error: BaseException) -> list[str]:
        """The lines of the user that led to an error, the innermost last."""
        found = traceback.extract_tb(error.__traceback__)
        return [line(f.filename, f.lineno or 0, f.name, f.line) for f in found if not self.is_foreign(f.filename)]


def line(file: str, number: int, function: str, code: str | None = None) -> str:
    """Description of a line of code."""
    code = linecache.getline(file, number) if code is None else code
    return f"{file}:{number}, in {function}: {code.strip()}"
