"""Models given at the start of the server, and uploads."""

from __future__ import annotations

import lzma
import os
import secrets
import shutil
import zipfile
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tenonnx.tools import FRONTENDS, plugins
from tenonnx_cli.extend import SUFFIXES

#: Maximum number of listed files, and maximum depth of folders.
LISTED, DEEPEST = 2000, 8

#: Maximum number of concurrent uploads, of stored models, and of stored files of inputs.
AT_ONCE, MOST_MODELS, MOST_FEEDS = 4, 50, 20

#: Bytes that must stay free on the disk.
SPARED = 1 << 30

#: Maximum length of a file name.
_LONGEST_NAME = 200

#: Suffixes of files with input values, and of external data.
FEEDS, DATA = (".npz", ".npy", ".csv"), (".data", ".bin", ".weight")

#: Suffixes that are seldom models: such files of a folder can be opened but are not listed.
_SELDOM = frozenset((".json", ".txt", ".pb"))

#: File that identifies a SavedModel folder, which is uploaded as an archive.
_SAVED_MODEL = "saved_model.pb"

#: Maximum number of files in an archive, and maximum ratio of their total size to the archive's.
_MOST_FILES, _MOST_EXPANSION = 10_000, 20


#: Description of model suffixes, for messages.
_KINDS = f"{' or '.join(SUFFIXES)}, or as an installed front end reads them"


@cache
def read_suffixes() -> tuple[str, ...]:
    """The suffixes of models: ONNX, the native format, and those of installed front ends."""
    return (*SUFFIXES, *sorted({f".{plugin.name}" for plugin in plugins(FRONTENDS)} - set(SUFFIXES)))


def is_listed(name: str) -> bool:
    """Whether a file of a folder is listed as a model."""
    suffix = Path(name).suffix.lower()
    return suffix in read_suffixes() and suffix not in _SELDOM


class Refused(Exception):
    """A refused request, with the HTTP status."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status, self.what = status, what


@dataclass(frozen=True, slots=True)
class Model:
    """``source`` is a path or FILE.py:FUNCTION, read with ``reading``; an upload (``is_upload``) is removed with it."""

    id: str
    name: str
    source: str
    is_upload: bool = False
    reading: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, str]:
        return {"id": self.id, "name": self.name}


class Sources:
    """Models by ID. ``served_folder`` is the server's argument: nothing, a folder, or one model."""

    def __init__(self, folder: Path, given: str | None, largest: int, reading: Mapping[str, Any]) -> None:
        self._folder, self._largest = folder, largest
        self.served_folder: Path | None = None
        self.models: dict[str, Model] = {}
        self.feeds: dict[str, Model] = {}
        self._sending = 0
        if given is not None and Path(given).is_dir():
            self.served_folder = Path(given).resolve()
        elif given is not None:
            path, colon, function = given.rpartition(":")
            is_function = bool(colon) and path.lower().endswith(".py")
            source = f"{Path(path).resolve()}:{function}" if is_function else str(Path(given).resolve())
            self._add(Path(given).name, source, reading=reading if is_function else {})

    def _add(self, name: str, source: str, own: bool = False, reading: Mapping[str, Any] | None = None) -> Model:
        known = next((model for model in self.models.values() if model.source == source), None)
        if known is None:
            known = Model(secrets.token_hex(8), name, source, own, reading or {})
            self.models[known.id] = known
        return known

    def find(self, id: str) -> Model:
        """The model with this ID. Raises ``Refused`` if there is none."""
        if id not in self.models:
            raise Refused(404, "This model is not open any more. Open it again.")
        return self.models[id]

    def find_feeds(self, id: str) -> Model:
        """An uploaded file of inputs. Raises ``Refused`` if there is none."""
        if id not in self.feeds:
            raise Refused(404, "This file of inputs is not there any more. Choose it again.")
        return self.feeds[id]

    # ----- the folder -------------------------------------------------------------------------------------------------

    def listing(self) -> list[str]:
        """The models in the folder, as relative paths."""
        result: list[str] = []
        if self.served_folder is None:
            return result
        for folder, names, files in os.walk(self.served_folder):
            names[:] = sorted(name for name in names if not name.startswith("."))
            here = Path(folder).relative_to(self.served_folder)
            if _SAVED_MODEL in files and here.parts and ".pb" in read_suffixes():
                result.append(here.as_posix())
                names.clear()
                continue
            if len(here.parts) >= DEEPEST:
                names.clear()
            result += [(here / name).as_posix() for name in sorted(files) if is_listed(name)]
            if len(result) >= LISTED:
                break
        return result[:LISTED]

    def open(self, way: str) -> Model:
        """Open a model of the folder. Raises ``Refused`` for paths outside, links resolved."""
        if self.served_folder is None:
            raise Refused(403, "This server was not given a folder.")
        try:
            path = (self.served_folder / way).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise Refused(404, "There is no such file in the folder.") from None
        is_folder = (path / _SAVED_MODEL).is_file()
        if not path.is_relative_to(self.served_folder) or not (path.is_file() or is_folder):
            raise Refused(403, "Only files inside of the folder are served, and no links that lead out of it.")
        if not is_folder and not path.name.lower().endswith(read_suffixes()):
            raise Refused(403, f"Models are files that end in {_KINDS}.")
        return self._add(way, str(path))

    # ----- uploads ----------------------------------------------------------------------------------------------------

    async def receive(
        self, name: str, beside: str, size: int | None, chunks: AsyncIterator[bytes], feeds: bool = False
    ) -> Model:
        """Receive a model, a file of input values, or with ``beside`` an external data file of another model.

        With ``feeds`` only input values are accepted. Raises ``Refused`` and then leaves no files.
        """
        if feeds and not name.lower().endswith(FEEDS):
            raise Refused(400, f"Files that end in {', '.join(FEEDS)} are taken as inputs.")
        folder = self._folder / secrets.token_hex(8)
        if beside:
            other = self.find(beside)
            if not other.is_upload:
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
            with suppress(OSError):  # the folder may contain other uploads
                folder.rmdir()
            raise
        finally:
            self._sending -= 1
        if beside:
            return other
        if path.name.lower().endswith(FEEDS):
            while len(self.feeds) >= MOST_FEEDS:
                self._remove(self.feeds.pop(next(iter(self.feeds))))
            sent = Model(secrets.token_hex(8), path.name, str(path), is_upload=True)
            self.feeds[sent.id] = sent
            return sent
        while len(self.models) >= MOST_MODELS:
            self.forget(next(iter(self.models)))
        source = self._unpacked(path) if path.suffix.lower() == ".zip" else path
        return self._add(path.name, str(source), own=True)

    def _unpacked(self, archive: Path) -> Path:
        """Unpack the SavedModel of an archive; returns its folder. Raises ``Refused`` and then leaves no files."""
        folder = archive.parent / "unpacked"
        try:
            with zipfile.ZipFile(archive) as file:
                members = [member for member in file.infolist() if not member.is_dir()]
                size = sum(member.file_size for member in members)
                if len(members) > _MOST_FILES or size > _MOST_EXPANSION * archive.stat().st_size + (1 << 20):
                    raise Refused(413, "The archive holds more than a SavedModel does.")
                self._check_room(size)
                file.extractall(folder, members)
        except (
            zipfile.BadZipFile,
            OSError,
            RuntimeError,
            ValueError,
            IndexError,  # of zipfile, for a member without a name
            EOFError,
            zlib.error,
            lzma.LZMAError,
        ) as error:
            shutil.rmtree(archive.parent, ignore_errors=True)
            raise Refused(400, f"The archive cannot be read: {error}") from None
        except Refused:
            shutil.rmtree(archive.parent, ignore_errors=True)
            raise
        archive.unlink()
        result = next((path.parent for path in sorted(folder.rglob(_SAVED_MODEL))), None)
        if result is None:
            shutil.rmtree(archive.parent, ignore_errors=True)
            raise Refused(400, f"The archive has no {_SAVED_MODEL}: an archive is the folder of a SavedModel.")
        return result

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
        """Close a model; an upload is removed."""
        model = self.models.pop(id)
        if model.is_upload:
            self._remove(model)

    def _remove(self, sent: Model) -> None:
        """Remove the folder of an upload, with its data files."""
        place = Path(sent.source).relative_to(self._folder).parts[0]
        shutil.rmtree(self._folder / place, ignore_errors=True)


def _file_name(name: str) -> str:
    """The name of an uploaded file. Raises ``Refused`` for a path."""
    plain = Path(name).name == name and "\\" not in name and name.isprintable() and not name.startswith(".")
    if not plain or not 0 < len(name.encode()) <= _LONGEST_NAME:
        raise Refused(400, "A file is sent by its plain name.")
    taken = (*read_suffixes(), *FEEDS, *DATA, *([".zip"] if ".pb" in read_suffixes() else []))
    if not name.lower().endswith(taken):
        raise Refused(400, f"Files that end in {_KINDS}, or {', '.join((*FEEDS, *DATA))}, are taken.")
    return name
