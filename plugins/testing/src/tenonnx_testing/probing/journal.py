"""Journal of a probe: its results so far, from which an interrupted one resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: One result: facts of a call, the outcome and its reason.
Result = Mapping[str, Any]


class Journal:
    """The file of finished cases, by title; one of other ``settings`` is begun anew."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.traits = path, None
        self.results: dict[str, Sequence[Result]] = {}
        lines = _lines(path)
        if lines and lines[0] == {"settings": dict(settings)}:
            for line in lines[1:]:
                self.traits = line.get("traits", self.traits)
                if "case" in line:
                    self.results[line["case"]] = line["results"]
        else:
            path.write_text(json.dumps({"settings": settings}) + "\n", "utf-8")

    def set_traits(self, traits: Mapping[str, Any]) -> None:
        self.traits = dict(traits)
        self._append({"traits": self.traits})

    def add(self, case: str, results: Sequence[Result]) -> None:
        """Keep the results of a case."""
        self.results[case] = results
        self._append({"case": case, "results": results})

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of the file: the last one may be torn."""
    found = []
    text: Iterable[str] = path.read_text("utf-8").splitlines() if path.exists() else ()
    for line in text:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
