"""Cleaning up stale data files and temporary files.

Only a model's own files are removed: their names begin with the model's, and no other model in the folder refers to
them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, which does not remove open files
    fcntl = None  # type: ignore[assignment]


def temporary_prefix(name: str) -> str:
    """Prefix of the temporary files of exports to the file ``name``."""
    return f".tenonnx-{zlib.crc32(os.fsencode(name)):08x}-"


def lock(descriptor: int) -> int | None:
    """Lock a new file until the returned descriptor is closed, so that no other export removes it."""
    if fcntl is None:
        return None
    with contextlib.suppress(OSError):  # some file systems have no locks; nothing is removed there
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits for an export that is checking whether the file is abandoned
        return os.dup(descriptor)
    return None


#: Held while this process replaces a model.
_replacing = threading.Lock()


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock a folder, so that no other export in this or another process replaces a model there.

    Otherwise two exports to one path would both remove the old data, and one the other's data.
    """
    with _replacing, contextlib.ExitStack() as stack:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some file systems have no locks
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def superseded(model: Path) -> list[str]:
    """The names of the model's own data files, which are obsolete once the model is replaced."""
    candidates = _own_data_files(model)
    return [name for name in _names_in_file(model, candidates) if not _is_shared(model, name)] if candidates else []


def remove_stale(model: Path) -> None:
    """Remove leftovers of killed exports to ``model``: temporary files and folders, and their data files."""
    prefix = temporary_prefix(model.name)
    for temporary in model.parent.glob(f"{prefix}*.tmp"):
        with _abandoned(temporary) as abandoned:
            if abandoned:
                _remove_with_orphans(temporary, model)
    for folder in model.parent.glob(f"{prefix}*/"):
        with _abandoned(folder / model.name) as abandoned:  # a hard link to a temporary file, which shares its lock
            if abandoned:
                import shutil

                shutil.rmtree(folder, ignore_errors=True)


def _remove_with_orphans(temporary: Path, model: Path) -> None:
    orphans = set(_names_in_file(temporary, _own_data_files(model)))
    for name in orphans - set(_names_in_file(model, orphans)):
        if not _is_shared(model, name):
            _remove(model.with_name(name))
    _remove(temporary)


def _own_data_files(model: Path) -> list[str]:
    pattern = re.compile(re.escape(model.name) + r"(-\d+)?\.data")
    return [path.name for path in _listed(model.parent) if pattern.fullmatch(path.name)]


def _is_shared(model: Path, name: str) -> bool:
    """Whether another model in the folder refers to the data file, such as a copy of the model."""
    kinds = {".onnx", model.suffix}
    others = (path for path in _listed(model.parent) if path.suffix in kinds and path.name != model.name)
    return any(_names_in_file(other, [name]) for other in others)


def _names_in_file(path: Path, names: Iterable[str]) -> list[str]:
    """The names that occur in a file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
            return [name for name in names if contents.find(os.fsencode(name)) >= 0]
    except (OSError, ValueError):  # missing, unreadable, or empty
        return []


@contextlib.contextmanager
def _abandoned(temporary: Path) -> Iterator[bool]:
    """Whether the process that wrote the file has ended, and released its lock. Within the block the file is locked."""
    if fcntl is None:
        yield True
        return
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        free = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            free = False
        yield free
    finally:
        os.close(descriptor)


def _listed(folder: Path) -> Iterator[Path]:
    """The regular files of a folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
