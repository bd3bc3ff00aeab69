"""Journal of a probe: its results so far, from which an interrupted one resumes."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any

from tenonnx.extend import InvalidCall

#: One result: facts about a call, the outcome and the reason.
Result = Mapping[str, Any]

#: Expected types of the values of a line, checked since the user may have edited the file.
_TRAITS: Mapping[str, type] = {"opset": int, "ir_version": int, "static_shapes": bool, "external_data": bool}
_RESULT: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("op", "dtype", "outcome", "reason"), str),
    **dict.fromkeys(("others", "fed", "computed"), list),
    "attributes": dict,
    "first": int,
    "last": int | None,
    "rank": int | None,
    "with_constants": bool,
}


class Journal:
    """File with the results of finished cases, by title; it is overwritten if its ``settings`` differ."""

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
        """Append the results of a case."""
        self.results[case] = results
        self._append({"case": case, "results": results})

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _lines(path: Path) -> list[dict[str, Any]]:
    """Read the valid lines of the file; the last one may be incomplete."""
    if not os.path.lexists(path):
        return []
    if not stat.S_ISREG(path.lstat().st_mode):
        do = "remove it: it holds the results of an interrupted probe"
        raise InvalidCall(f'"{path}" is not a regular file', do=do)
    result = []
    for line in path.read_text("utf-8", "replace").splitlines():
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not _is_line(read):
            break
        result.append(read)
    return result


def _is_line(read: Any) -> bool:
    """Whether a parsed line holds settings, traits or the results of a case."""
    if not isinstance(read, dict):
        return False
    if "settings" in read:
        return True
    if "traits" in read:
        return _has(read["traits"], _TRAITS)
    results = read.get("results")
    if not isinstance(read.get("case"), str) or not isinstance(results, list):
        return False
    return all(_has(each, _RESULT) and _are_texts_and_numbers(each) for each in results)


def _has(found: Any, types: Mapping[str, type | UnionType]) -> bool:
    return isinstance(found, dict) and all(name in found and isinstance(found[name], types[name]) for name in types)


def _are_texts_and_numbers(result: Mapping[str, Any]) -> bool:
    items = [*result["others"], *result["fed"], *result["computed"], *result["attributes"].values()]
    return all(isinstance(each, str | int) for each in items)
