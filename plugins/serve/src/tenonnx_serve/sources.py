"""Where models come from: what the server was given at its start, and files that the page sends."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenonnx_cli.extend import SUFFIXES

#: Files of a folder that are listed, and folders inside each other that are looked into.
LISTED, DEEPEST = 2000, 8

#: Uploads at one time, and models that are kept.
AT_ONCE, MOST_MODELS = 4, 50

#: Bytes that must stay free on the disk.
SPARED = 1 << 30

#: Characters of the name of a file.
_LONGEST_NAME = 200

#: Files that can be sent: models with their data, and contents of inputs.
SENT = (*SUFFIXES, ".npz", ".npy", ".csv", ".data", ".bin", ".weight")


class Refused(Exception):
    """A request that cannot be, with the status of HTTP that says so."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status, self.what = status, what


@dataclass(frozen=True, slots=True)
class Model:
    """``source`` is a path or FILE.py:FUNCTION, read with ``reading``; a file of our ``own`` is removed with it."""

    id: str
    name: str
    source: str
    own: bool = False
    reading: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, str]:
        return {"id": self.id, "name": self.name}


class Sources:
    """Models by their ids. ``given`` is what the server was started for: nothing, a folder, or one model."""

    def __init__(self, folder: Path, given: str | None, largest: int, reading: Mapping[str, Any]) -> None:
        self._folder, self._largest = folder, largest
        self.given: Path | None = None
        self.models: dict[str, Model] = {}
        self._sending = 0
        if given is not None and Path(given).is_dir():
            self.given = Path(given).resolve()
        elif given is not None:
            path, colon, function = given.rpartition(":")
            made = bool(colon) and path.lower().endswith(".py")
            source = f"{Path(path).resolve()}:{function}" if made else str(Path(given).resolve())
            self._add(Path(given).name, source, reading=reading if made else {})

    def _add(self, name: str, source: str, own: bool = False, reading: Mapping[str, Any] | None = None) -> Model:
        known = next((model for model in self.models.values() if model.source == source), None)
        if known is None:
            known = Model(secrets.token_hex(8), name, source, own, reading or {})
            self.models[known.id] = known
        return known

    def find(self, id: str) -> Model:
        """Raises ``Refused`` for a model that there is not."""
        if id not in self.models:
            raise Refused(404, "This model is not open any more. Open it again.")
        return self.models[id]

    # ----- the folder -------------------------------------------------------------------------------------------------

    def listing(self) -> list[str]:
        """The models in the folder, by their ways from it."""
        found: list[str] = []
        if self.given is None:
            return found
        for folder, names, files in os.walk(self.given):
            names[:] = sorted(name for name in names if not name.startswith("."))
            here = Path(folder).relative_to(self.given)
            if len(here.parts) >= DEEPEST:
                names.clear()
            found += [(here / name).as_posix() for name in sorted(files) if name.lower().endswith(SUFFIXES)]
            if len(found) >= LISTED:
                break
        return found[:LISTED]

    def open(self, way: str) -> Model:
        """A model of the folder. Raises ``Refused`` for what is not in it, wherever links lead."""
        if self.given is None:
            raise Refused(403, "This server was not given a folder.")
        try:
            path = (self.given / way).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise Refused(404, "There is no such file in the folder.") from None
        if not path.is_relative_to(self.given) or not path.is_file():
            raise Refused(403, "Only files inside of the folder are served, and no links that lead out of it.")
        if not path.name.lower().endswith(SUFFIXES):
            raise Refused(403, f"Models are files that end in {' or '.join(SUFFIXES)}.")
        return self._add(way, str(path))

    # ----- what the page sends ----------------------------------------------------------------------------------------

    async def receive(self, name: str, beside: str, size: int | None, chunks: AsyncIterator[bytes]) -> Model:
        """A file as a model, or ``beside`` the file of another: its external data, or contents of its inputs.

        Raises ``Refused``; then nothing of it is left.
        """
        folder = self._folder / secrets.token_hex(8)
        if beside:
            other = self.find(beside)
            if not other.own:
                raise Refused(403, "Files go beside a model that was sent, too.")
            folder = Path(other.source).parent
        path = folder / _file_name(name)
        if path.exists():
            raise Refused(409, f"{path.name} is there already.")
        self._check_room(size or 0)
        if self._sending >= AT_ONCE:
            raise Refused(429, f"{AT_ONCE} files are on their way. Send this one again when they have arrived.")
        self._sending += 1
        try:
            folder.mkdir(exist_ok=True)
            await self._write(path, chunks)
        except BaseException:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # others may be beside it
                folder.rmdir()
            raise
        finally:
            self._sending -= 1
        while len(self.models) >= MOST_MODELS:
            self.forget(next(iter(self.models)))
        return self._add(path.name, str(path), own=True)

    async def _write(self, path: Path, chunks: AsyncIterator[bytes]) -> None:
        written = 0
        with path.open("xb") as file:
            async for chunk in chunks:
                written += len(chunk)
                self._check_room(written)
                file.write(chunk)

    def _check_room(self, size: int) -> None:
        if size > self._largest:
            raise Refused(
                413,
                f"Files of up to {self._largest:,} bytes are taken. Start tenonnx serve with the file, or its folder.",
            )
        if shutil.disk_usage(self._folder).free - size < SPARED:
            raise Refused(507, "There is too little room on the disk for this file.")

    def forget(self, id: str) -> None:
        """Let go of a model; a file of our own is removed."""
        model = self.models.pop(id)
        if model.own:
            path = Path(model.source)
            path.unlink(missing_ok=True)
            if not any(Path(other.source).parent == path.parent for other in self.models.values()):
                shutil.rmtree(path.parent, ignore_errors=True)


def _file_name(name: str) -> str:
    """The name of a file that is sent. Raises ``Refused`` for one that leads elsewhere."""
    plain = Path(name).name == name and "\\" not in name and name.isprintable() and not name.startswith(".")
    if not plain or not 0 < len(name.encode()) <= _LONGEST_NAME:
        raise Refused(400, "A file is sent by its plain name.")
    if not name.lower().endswith(SENT):
        raise Refused(400, f"Files that end in {', '.join(SENT)} are taken.")
    return name
