"""Files in a model's folder: atomic writing, and opening without leaving the folder."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from tenonnx.errors import InvalidCall, InvalidModel, TenonnxError, UnsafePath
from tenonnx.formats.temp_files import alone_in, lock, remove_stale, superseded, temporary_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from types import TracebackType

    from typing_extensions import Buffer

_NO_ROOM = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
# Without O_NONBLOCK, opening a pipe would wait for its writer.
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_OPENS_BELOW = bool(os.open in os.supports_dir_fd and _NO_FOLLOW and _DIRECTORY)


class AtomicWriter:
    """Writes a model and its data files; either all of them appear, or nothing changes.

        with AtomicWriter("model.onnx") as writer:
            data_name = available_name(writer.folder, "model.onnx.data")
            data, model = writer.open(data_name), writer.open()
            ...                                 # the model names data_name as its data file
            writer.discard("model.onnx.data")   # only if the model that is replaced owns it

    Everything is written to temporary files (``.tenonnx-*.tmp``) in the same folder, after removing those that a killed
    export to this path left. When the block ends, the data files are renamed, and the model last. A data file gets an
    unused name, so that the old model keeps its data until the last rename: if the process is killed, the folder holds
    the old pair or the new one, and at worst files that the next export removes.

    The model may overwrite the files that it is read from. POSIX keeps open descriptors and maps valid; Windows cannot
    replace an open file, so ``before_replace``, called right before the renames, closes them there.

    A new file follows the umask; the permissions of an existing model are applied to the new model and its data files.
    A symbolic link at ``path`` is replaced, not followed. Nothing is synced to disk (no fsync). A read-only file is
    only replaced with ``overwrite``. If the block raises, the old files are unchanged.

    Raises ``InvalidCall`` on entry if ``path`` is empty, a folder, a device or a read-only file, or if its folder is
    missing or not writable; at the end of the block if ``open()`` was not called, or a file of a chosen name has
    appeared in the meantime; and ``TenonnxError`` if the disk is full, or the operating system refuses a rename.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        before_replace: Callable[[], None] | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        self.path = Path(path).absolute()  # the working folder may change inside the block
        self.folder, self.name = self.path.parent, self.path.name
        self._named = not os.fspath(path).endswith(("/", os.sep))  # a Path drops the trailing separator
        self._before_replace = before_replace
        self._overwrite = overwrite
        self._mode: int | None = None
        self._parts: dict[str, _Part] = {}
        self._discarded: set[str] = set()
        self._supersedes = False

    def __enter__(self) -> Self:
        self._mode = self._check()
        remove_stale(self.path)
        self._parts[self.name] = self._create()
        return self

    def open(self, name: str | None = None) -> BinaryIO:
        """Open a new binary file for writing: the model itself, or the data file ``name``. It is closed automatically.

        Raises ``UnsafePath`` for anything but a plain file name, ``InvalidCall`` for a file that exists (see
        ``available_name``), was opened before, or cannot be created.
        """
        name = self.name if name is None else check_file_name(name)
        part = self._parts.get(name)
        if part is None:
            if os.path.lexists(self.folder / name):
                raise self._taken(name)
            part = self._parts[name] = self._create()
        if part.opened:
            raise InvalidCall("a file of an export was opened twice", given=repr(name))
        part.opened = True
        return part.file

    @contextlib.contextmanager
    def unfinished(self) -> Iterator[Path]:
        """The temporary path of the model, together with its data files, before they are renamed."""
        for part in self._parts.values():
            part.file.flush()
        if len(self._parts) == 1:
            yield self._parts[self.name].temporary
            return
        import tempfile  # imported lazily with its many modules

        with tempfile.TemporaryDirectory(prefix=temporary_prefix(self.name), dir=self.folder) as folder:
            for name, part in self._parts.items():
                Path(folder, name).hardlink_to(part.temporary)
            yield Path(folder, self.name)

    def discard(self, name: str) -> None:
        """Remove the file ``name`` in the folder once the new model is in place.

        This is meant for the data file of the replaced model, if no other model uses it. A file that is missing, cannot
        be removed or has just been written is kept. Raises ``UnsafePath`` for anything but a plain file name.
        """
        self._discarded.add(check_file_name(name))

    def discard_superseded(self) -> None:
        """Also remove the replaced model's data files, unless other models use them."""
        self._supersedes = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._commit()
            elif isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise self._refused(error) from error
        finally:
            self._clean_up()

    def _check(self) -> int | None:
        """Refuse a path that cannot be written; returns the permissions of the existing file, if any."""
        if not self._named or not self.name or "\0" in str(self.path):
            raise InvalidCall("the path of an output file names no file", given=repr(str(self.path)))
        try:
            if not self.folder.is_dir():
                what = "the folder of an output file does not exist"
                raise InvalidCall(what, given=str(self.path), do=f"create the folder {self.folder}")
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InvalidCall("cannot use the path of an output file", given=f"{self.path!r}: {error}") from error
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
            raise InvalidCall(
                "an output path exists and is not a regular file",
                given=f"{self.path}, which is {kind}",
                do="choose a file name" + ("" if stat.S_ISDIR(mode) else ", or pass an open binary stream"),
            )
        if not self._overwrite and (not mode & 0o222 or not os.access(self.path, os.W_OK)):
            raise InvalidCall(
                "the output file exists and is read-only",
                given=str(self.path),
                do="choose another name, make the file writable, or pass overwrite=True (--overwrite)",
            )
        return mode & 0o777

    def _create(self) -> _Part:
        temporary = self.folder / f"{temporary_prefix(self.name)}{os.urandom(8).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | _NO_FOLLOW
        try:
            descriptor = os.open(temporary, flags, 0o666 if self._mode is None else self._mode)
        except OSError as error:
            raise InvalidCall(
                "cannot write to the folder of an output file",
                given=f"{self.folder}: {error.strerror}",
                do="choose another folder, or change its permissions",
            ) from error
        part = _Part(temporary, os.fdopen(descriptor, "wb"), os.fstat(descriptor), lock(descriptor))
        if not os.path.lexists(temporary):  # another export removed it as abandoned before it was locked
            part.file.close()
            if part.lock is not None:
                os.close(part.lock)
            return self._create()
        if self._mode is not None and hasattr(os, "fchmod"):
            with contextlib.suppress(OSError):  # some file systems have no permissions; the umask was applied
                os.fchmod(descriptor, self._mode)
        return part

    def _commit(self) -> None:
        model = self._parts[self.name]
        if not model.opened:
            raise InvalidCall("an export wrote no model file", given=f"{self.path} was never opened")
        try:
            for part in self._parts.values():
                part.file.close()
            if self._before_replace is not None:
                self._before_replace()
            for name, part in self._parts.items():
                if part is not model:
                    try:
                        _rename_to_free(part.temporary, self.folder / name)
                    except FileExistsError as error:
                        raise self._taken(name) from error
            with alone_in(self.folder):
                if self._supersedes:
                    self._discarded.update(superseded(self.path))
                self._note(self._discarded - self._parts.keys())
                model.temporary.replace(self.path)
                self._remove_discarded()
        except OSError as error:
            raise self._refused(error) from error

    def _remove_discarded(self) -> None:
        """Remove each file once: another export may reuse a free name."""
        for name in self._discarded - self._parts.keys():
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
            self._discarded.remove(name)

    def _note(self, obsolete: Collection[str]) -> None:
        """Record the files to remove last in a temporary file, so that the next export removes them after a kill."""
        if not obsolete:
            return
        note = self._parts[""] = self._create()  # one statement, so that an interrupt cannot separate the two steps
        with note.file:
            note.file.writelines(os.fsencode(name) + b"\n" for name in obsolete)

    def _clean_up(self) -> None:
        """Remove temporary files that are not part of the finished pair; after success, also the discarded files.

        This looks at the disk instead of flags, as an interrupt may come between a rename and setting a flag.
        """
        model_in_place = not os.path.lexists(self._parts[self.name].temporary)
        if model_in_place:
            self._remove_discarded()  # those that an interrupt left
        for name, part in self._parts.items():
            with contextlib.suppress(OSError):
                part.file.close()
            with contextlib.suppress(OSError):
                part.temporary.unlink()
            if part.lock is not None:
                os.close(part.lock)
                part.lock = None
            target = self.folder / name
            with contextlib.suppress(OSError):
                if not model_in_place and os.path.samestat(target.lstat(), part.identity):
                    target.unlink()

    def _taken(self, name: str) -> InvalidCall:
        return InvalidCall(
            "cannot write the data file over a file that the old model may still read",
            given=f"{name!r}, which exists in {self.folder}",
            available=available_name(self.folder, name),
        )

    def _refused(self, error: OSError) -> TenonnxError:
        full = error.errno in _NO_ROOM
        return TenonnxError(
            "the output files do not fit on the disk" if full else "cannot write an output file",
            given=f"{self.path}: {error.strerror or error}",
            do="free some space, or choose another folder"
            if full
            else "choose another name or folder, or close the programs that use the file",
            also="nothing was changed",
        )


def check_output(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Raise ``InvalidCall`` if ``path`` cannot be written, before long work whose results go there."""
    AtomicWriter(path, overwrite=overwrite)._check()


@dataclass
class _Part:
    temporary: Path
    file: BinaryIO
    identity: os.stat_result
    lock: int | None
    opened: bool = False


def _rename_to_free(old: Path, new: Path) -> None:
    """Rename a file without overwriting. Raises FileExistsError, even if the target appeared just now."""
    try:
        new.hardlink_to(old)  # unlike rename on POSIX, this never replaces
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # no hard links on this system or file system
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new)) from None
        old.rename(new)
    else:
        old.unlink()


def write_bytes(path: str | os.PathLike[str], chunks: Iterable[Buffer]) -> None:
    """Write one file atomically. Each chunk is written as it is produced. Raises as ``AtomicWriter``."""
    with AtomicWriter(path) as writer:
        file = writer.open()
        for chunk in chunks:
            file.write(chunk)


def available_name(folder: str | os.PathLike[str], wanted: str) -> str:
    """``wanted``, or if that exists in the folder the first unused one of ``stem-1.suffix``, ``stem-2.suffix``, ...

    Raises ``UnsafePath`` for anything but a plain file name.
    """
    path = Path(folder) / check_file_name(wanted)
    names = itertools.chain([wanted], (f"{path.stem}-{count}{path.suffix}" for count in itertools.count(1)))
    return next(name for name in names if not os.path.lexists(path.with_name(name)))


def check_file_name(name: str) -> str:
    """Check that ``name`` is a file name without folder on every operating system; returns it.

    Raises ``UnsafePath`` if it is empty, ``.`` or ``..``, or has a path separator, a drive or a NUL.
    """
    if name in ("", ".", "..") or set(name) & set("/\\\0") or name[1:2] == ":" or (os.name == "nt" and ":" in name):
        raise UnsafePath(
            "the name of a data file is not a plain file name",
            given=repr(name[:200]),
            do="give a file name without a folder: the file is written beside the model",
        )
    return name


def check_readable(path: str | os.PathLike[str]) -> None:
    """Raise ``InvalidCall`` for a device, pipe or socket, on which a reader could block or never end."""
    with contextlib.suppress(OSError, ValueError):  # the reader reports errors of the path
        if stat.S_IFMT(Path(path).stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            what = "a model cannot be read from a device, pipe or socket"
            raise InvalidCall(what, given=os.fspath(path), do="copy it to a file, or give its bytes")


def split_location(location: str, given: str) -> tuple[str, ...]:
    """The parts of a relative path in a model. Backslashes count as separators on every system, as models travel.

    Raises ``UnsafePath`` if it is absolute, empty, has a drive or a NUL, or goes up with ``..``.
    """
    parts = tuple(part for part in location.replace("\\", "/").split("/") if part not in ("", "."))
    absolute = location[:1] in ("/", "\\") or location[1:2] == ":" or (os.name == "nt" and ":" in location)
    if absolute or not parts or ".." in parts or "\0" in location:
        what = "the location of external data is not a relative path inside the model's folder"
        raise UnsafePath(what, given=given, do="move the data file beside the model, and name it so in the model")
    return parts


def open_inside(folder: Path, parts: Sequence[str], given: str) -> int:
    """Open the regular file at ``parts`` below ``folder`` for reading; returns the descriptor.

    The parts are opened one by one without following links, and the opened file is checked. Nothing is reopened by
    path, so there is no gap between check and use. ``folder`` itself may be reached through links.

    Raises ``UnsafePath`` if a part is a link, or the file has several hard links or is not a regular file;
    ``InvalidModel`` if the file does not exist or cannot be opened.
    """
    try:
        descriptor = (_open_below if _OPENS_BELOW else _open_checked)(folder, parts)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ELOOP or _link_among(folder, parts):
            raise UnsafePath(
                "the path of external data leads through a symbolic link",
                given=given,
                do="put the file itself in the model's folder (cp -L follows links)",
            ) from error
        raise InvalidModel(
            "cannot read the file of external data",
            given=f"{given}: {getattr(error, 'strerror', None) or error}",
            do="put the data file in place, or give the folder where it is as base_dir",
        ) from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePath("external data is not in a regular file", given=given)
    what = "the file of external data has a second name (hard link), which may lie outside the folder"
    raise UnsafePath(what, given=f"{given}, {status.st_nlink} names", do="copy the file")


def _open_below(folder: Path, parts: Sequence[str]) -> int:
    search = getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY
    descriptor = os.open(folder, search)
    try:
        for part in parts[:-1]:
            below = os.open(part, search | _NO_FOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        return os.open(parts[-1], _READ | _NO_FOLLOW, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _open_checked(folder: Path, parts: Sequence[str]) -> int:
    """For systems without ``dir_fd``: check for links before and after opening, and compare the file's identity."""
    path = folder.joinpath(*parts)
    if not _link_among(folder, parts):
        descriptor = os.open(path, _READ)
        if not _link_among(folder, parts) and os.path.samestat(path.lstat(), os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
    raise OSError(errno.ELOOP, "a link is on the path, or the path changed while it was opened", str(path))


def _link_among(folder: Path, parts: Sequence[str]) -> bool:
    """Whether one of the parts is a symbolic link, or a Windows junction."""
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    for count in range(1, len(parts) + 1):
        try:
            status = folder.joinpath(*parts[:count]).lstat()
        except (OSError, ValueError):
            return False
        if stat.S_ISLNK(status.st_mode) or (junction and getattr(status, "st_reparse_tag", 0) == junction):
            return True
    return False
