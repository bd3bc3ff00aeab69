"""The manifest of an output folder, with which a stopped run resumes."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from tenonnx import InvalidCall
from tenonnx_data.readers import Slice
from tenonnx_score.options import FORMATS
from tenonnx_score.parts import Done, Part
from tenonnx_score.summary import Summary
from tenonnx_score.writing import errors_name, part_name, synced, writing_to

MANIFEST, LOCK = "_manifest.jsonl", "_lock"

#: Placeholder for options that a manifest lacks.
_ABSENT = object()

#: Version of the manifest's format.
FORM = 2


class Manifest:
    """The parts of an output folder. The first line describes the run, each other line a completed part.

    A part counts once its line is on disk, so a part is computed at most twice, into the same file.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], parts: Mapping[int, Mapping[str, Any]]) -> None:
        self.folder, self.run = folder, run
        self._lines = dict(parts)

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of a folder, None if there is none. An incomplete last line is ignored."""
        path = folder / MANIFEST
        if not os.path.lexists(path):
            return None
        lines = []
        for text in _contents(path).split(b"\n"):
            try:
                lines.append(json.loads(text))
            except (ValueError, RecursionError):
                break
        if not lines or not _is_run(lines[0]) or not all(map(_is_part, lines[1:])):
            raise _broken(path)
        whole = {
            line["part"]: line
            for line in lines[1:]
            if _size(folder / part_name(line["part"], lines[0]["options"]["format"])) == line["size"]
        }
        return cls(folder, lines[0], whole)

    @classmethod
    def begin(cls, folder: Path, run: Mapping[str, Any]) -> Manifest:
        """Create the manifest of an empty folder."""
        return cls(folder, {"form": FORM, **run}, {}).rewrite()

    def rewrite(self) -> Manifest:
        """Write the valid entries, and remove other files."""
        temporary = self.folder / f".{MANIFEST}.tmp"
        with writing_to(self.folder):
            temporary.unlink(missing_ok=True)  # left by a killed writer
            with temporary.open("x", encoding="utf-8") as file:
                for line in (self.run, *self._lines.values()):
                    file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.folder / MANIFEST)
            synced(self.folder)
        self.clean()
        return self

    def clean(self) -> None:
        """Remove leftovers of stopped runs and dead workers."""
        names = {part_name(number, self.run["options"]["format"]) for number in self._lines}
        names |= {errors_name(number) for number, line in self._lines.items() if line["bad"]}
        for path in written(self.folder):
            if str(path.relative_to(self.folder).as_posix()) not in names:
                path.unlink(missing_ok=True)

    def add(self, part: Part, done: Done) -> None:
        """Record a completed part."""
        line = {
            "part": part.number,
            "rows": done.rows,
            "bad": done.bad,
            "size": done.size,
            "reason": done.first_reason,
            "slices": [_slice_data(piece) for piece in part.slices],
            "summary": done.summary.to_dict(),
        }
        with writing_to(self.folder), _opened(self.folder / MANIFEST, os.O_WRONLY | os.O_APPEND) as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._lines[part.number] = line

    def completed(self, part: Part) -> Done | None:
        """Record of a completed part. Raises ``InvalidCall`` if it was computed from other input."""
        line = self._lines.get(part.number)
        if line is None:
            return None
        now = [_slice_data(piece) for piece in part.slices]
        if line["slices"] != now:
            before = {piece["path"]: piece for piece in line["slices"]}
            changed = [piece["path"] for piece in now if before.get(piece["path"]) != piece]
            raise self.changed(f'"{(changed or list(before))[0]}" is another than when part {part.number} was written')
        summary = Summary.from_json(line["summary"])
        return Done(part.number, line["rows"], line["bad"], line["size"], line["reason"], summary)

    @property
    def numbers(self) -> set[int]:
        return set(self._lines)

    def check(self, run: Mapping[str, Any]) -> None:
        """Raise ``InvalidCall`` naming the differences to the recorded run."""
        for key in ("model", "options"):
            before, now = self.run[key], json.loads(json.dumps(run[key]))
            if before != now:
                names = [name for name in {**before, **now} if before.get(name, _ABSENT) != now.get(name, _ABSENT)]
                what = "the model" if key == "model" else f"the option {names[0]}"
                said = "" if key == "model" else f": {before.get(names[0])!r} then, {now.get(names[0])!r} now"
                raise self.changed(f"{what} is another than when it was begun{said}")

    def changed(self, given: str) -> InvalidCall:
        return InvalidCall(
            f'cannot continue the run in "{self.folder}": it was begun with another model, input or option',
            given=given,
            do="restore these, give another output folder, or start again (--overwrite)",
        )


def _opened(path: Path, flags: int) -> TextIO:
    """Open a file of an output folder for writing. Raises ``OSError`` at once for a link, a device or a pipe."""
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def _contents(path: Path) -> bytes:
    """The bytes of a manifest. Raises ``InvalidCall`` for a link, a device or a pipe."""
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read()
    except OSError as error:
        raise _broken(path) from error
    raise _broken(path)


def _broken(path: Path) -> InvalidCall:
    do = "give another folder, or start again (--overwrite)"
    return InvalidCall(
        f'"{path}" is not a manifest of tenonnx score', given="another file, or one that was edited", do=do
    )


def _is_run(line: Any) -> bool:
    """Whether a line describes a run."""
    if not isinstance(line, dict) or line.get("form") != FORM or not isinstance(line.get("outputs"), str):
        return False
    options = line.get("options")
    numbers = [line.get(name) for name in ("batch", "at_once", "threads")]
    if not isinstance(line.get("backend"), str):
        return False
    if not isinstance(line.get("exact"), bool) or not isinstance(line.get("whole_groups"), bool):
        return False
    if any(type(number) is not int or not 0 < number < 1 << 31 for number in numbers):
        return False
    return isinstance(line.get("model"), dict) and isinstance(options, dict) and options.get("format") in FORMATS


def _is_part(line: Any) -> bool:
    """Whether a line describes a part."""
    if not isinstance(line, dict) or "reason" not in line or not isinstance(line["reason"], str | None):
        return False
    numbers = [line.get(name) for name in ("part", "rows", "bad", "size")]
    if any(type(number) is not int or not 0 <= number < 1 << 63 for number in numbers):
        return False
    slices, summary = line.get("slices"), line.get("summary")
    are_slices = isinstance(slices, list) and all(
        isinstance(s, dict) and isinstance(s.get("path"), str) for s in slices
    )
    return are_slices and Summary.is_json(summary)


def _slice_data(piece: Slice) -> dict[str, Any]:
    """A slice with the identity of its file, as data for JSON."""
    names = piece.names or (piece.path,)
    return {
        "path": piece.path,
        "start": piece.start,
        "stop": piece.stop,
        "files": {name: _stamp(Path(name)) for name in names},
    }


def _stamp(path: Path) -> list[int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return [state.st_size, state.st_mtime_ns]


def _size(path: Path) -> int | None:
    found = _stamp(path)
    return found[0] if found else None


def written(folder: Path) -> Iterator[Path]:
    """Files in a folder that runs wrote, except the manifest."""
    for place, names in ((folder, ("part-*", ".part-*.tmp")), (folder / "errors", ("_part-*", "._part-*.tmp"))):
        for pattern in names:
            yield from sorted(place.glob(pattern))


def emptied(folder: Path) -> None:
    """Remove the files that runs wrote to a folder, the manifest first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in written(folder):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        (folder / "errors").rmdir()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder against other runs. Raises ``InvalidCall`` if one is writing to it."""
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = _opened(folder / LOCK, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass  # a system without file locks
        except OSError as error:
            raise InvalidCall(
                f'another run is writing into "{folder}"',
                do="wait for its end, or give another folder",
            ) from error
        yield


def encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_of(text: str) -> pa.Schema:
    """Decode a schema that was ``encoded``. Raises ``InvalidCall`` for other text."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (ValueError, pa.ArrowException, OSError) as error:
        do = "give another folder, or start again (--overwrite)"
        raise InvalidCall("the manifest does not list the outputs of its run", given=str(error)[:200], do=do) from error


def foreign(folder: Path) -> Sequence[str]:
    """Files in a folder that no run wrote."""
    names = {MANIFEST, LOCK, "errors", f".{MANIFEST}.tmp"} | {path.name for path in written(folder)}
    return sorted(path.name for path in folder.iterdir() if path.name not in names) if folder.exists() else []
