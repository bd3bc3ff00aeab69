"""External tensor data: safe reading from files in a model's folder, and streaming to a new file.

A model is untrusted and names its data files itself. Each file is therefore opened once, by ``open_inside``, and stays
open; offsets and lengths are checked against its size before anything is read.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

from tenonnx.errors import InvalidCall, InvalidModel
from tenonnx.formats.files import open_inside, split_location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from typing_extensions import Buffer

LARGE = 1 << 20
"""From this length a tensor is aligned to pages, and copied by the kernel where that is possible."""

_CHUNK = 2 << 20
_BLOCK = 4096
_KERNEL_CHUNK = 1 << 30  # Linux copies at most 2 GiB - 4 KiB in one call


class DataFile:
    """An open external data file. It stays readable when its name is removed or reused.

    It is mapped on first view. If another program truncates the file afterwards, accessing the lost part of a mapped
    view kills the process (SIGBUS). ``read_into`` and views that are not ``mapped`` are safe.
    """

    def __init__(self, path: str, descriptor: int, *, mapped: bool = True) -> None:
        self._descriptor = descriptor
        self._mapped = mapped
        self._lock = threading.Lock()
        self._map: mmap.mmap | None = None
        self.path = path
        status = os.fstat(descriptor)
        self.size = status.st_size
        self.identity = (status.st_dev, status.st_ino)

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes, read-only, without a copy if the file is mapped; they stay valid after ``close``.

        Raises InvalidModel if the file cannot be mapped or was truncated, InvalidCall if it was closed.
        """
        descriptor = self.fileno()
        if not length:
            return memoryview(b"")
        if not self._mapped:
            return self.read(offset, length)
        if self._map is None:
            # By default a map duplicates the descriptor; models with a file per tensor would exhaust descriptors.
            options: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}
            try:
                self._map = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ, **options)
            except (OSError, ValueError, OverflowError) as error:
                raise InvalidModel(
                    "cannot map an external data file into memory", given=f"{self.path}: {error}"
                ) from error
        return memoryview(self._map)[offset : offset + length]

    def read(self, offset: int, length: int) -> memoryview:
        """A read-only copy of the bytes. Raises InvalidModel if the file was truncated."""
        buffer = memoryview(bytearray(length))
        done = 0
        while done < length:
            count = self.read_into(buffer[done:], offset + done)
            if not count:
                raise InvalidModel(
                    "an external data file was truncated while in use",
                    given=f"{self.path}, {offset + length} bytes needed",
                    available=f"{offset + done} bytes",
                )
            done += count
        return buffer.toreadonly()

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill the buffer from the file; returns the number of bytes, 0 at the end of the file.

        Raises InvalidModel if the file cannot be read, InvalidCall if it was closed.
        """
        descriptor = self.fileno()
        try:
            if hasattr(os, "preadv"):
                return os.preadv(descriptor, [buffer], offset)
            with self._lock:
                os.lseek(descriptor, offset, os.SEEK_SET)
                chunk = os.read(descriptor, min(len(buffer), _CHUNK // 2))
        except OSError as error:
            raise InvalidModel("cannot read an external data file", given=f"{self.path}: {error}") from error
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def fileno(self) -> int:
        """The file descriptor. Raises InvalidCall if the file was closed."""
        if self._descriptor < 0:
            raise InvalidCall("external data was read after it was closed", given=self.path, do="load the model again")
        return self._descriptor

    def close(self) -> None:
        """Close the file, and unmap it when its last view is gone. Repeated calls do nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        mapped, self._map = self._map, None
        if mapped is not None:
            with contextlib.suppress(BufferError):  # the last view unmaps it
                mapped.close()
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class Region(NamedTuple):
    """A range of bytes in an open data file, within its size at opening."""

    file: DataFile
    offset: int
    length: int

    @property
    def path(self) -> str:
        """The absolute path of the file at opening; ``file.identity`` is its device and inode."""
        return self.file.path

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + self.length

    def view(self) -> memoryview:
        """The bytes, read-only, without a copy if mapped. Raises as ``DataFile.view``."""
        return self.file.view(self.offset, self.length)

    def read(self) -> memoryview:
        """A read-only copy of the bytes. Raises as ``DataFile.read``."""
        return self.file.read(self.offset, self.length)

    def part(self, offset: int, length: int) -> Region:
        """A range of ``length`` bytes at ``offset`` in this one."""
        return Region(self.file, self.offset + offset, length)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Bytes that are produced in pieces, with their total length."""

    length: int
    make: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[memoryview]:
        return map(_bytes_of, self.make())


class ExternalFiles:
    """The external data files of one model, in or below the folder ``base_dir``.

    ``base_dir`` is trusted; locations are not. ``None`` means that there is no folder, as for a model in memory; then
    every location is refused. Each file is opened once and stays open until ``close``, or until this object and all
    regions of the file are gone. Contents are ``mapped``, or else read on view.
    """

    def __init__(self, base_dir: str | os.PathLike[str] | None, *, mapped: bool = True) -> None:
        self.mapped = mapped
        self.base_dir = None if base_dir is None else Path(base_dir).absolute()
        self._files: dict[str, DataFile] = {}  # by location, as in the model but with forward slashes

    def region(
        self, location: str, offset: str | int | None = None, length: str | int | None = None, *, tensor: str = ""
    ) -> Region:
        """The bytes that a tensor's ``external_data`` entries describe. ``None`` means from the start, or to the end.

        Raises ``UnsafePath`` if the location leaves the folder, contains a link, or is not a regular file;
        ``InvalidModel`` if the file does not exist or cannot be opened, an entry is not a number, or the range exceeds
        the file.
        """
        file = self._files.get(location)
        if file is None:
            file = self._open(location, tensor)
        start = 0 if offset is None else _number(offset)
        count = max(file.size - start, 0) if length is None else _number(length)
        if start < 0 or count < 0:
            raise InvalidModel(
                "the offset or length of external data is not a decimal number",
                given=f"{self._given(location, tensor)}, offset {offset!r:.200}, length {length!r:.200}",
            )
        if start + count > file.size:
            raise InvalidModel(
                "external data lies beyond the end of its file",
                given=f"{self._given(location, tensor)}, offset {start}, length {count}",
                available=f"{file.size} bytes",
                do="fetch the data file again: it may be cut short, or belong to another model",
            )
        return Region(file, start, count)

    def close(self) -> None:
        """Close all files. Existing views stay valid; regions can no longer be read."""
        while self._files:
            self._files.popitem()[1].close()

    def _open(self, location: str, tensor: str) -> DataFile:
        given = self._given(location, tensor)
        parts = split_location(location, given)
        if self.base_dir is None:
            what = "a model with external data was given without the folder of its data files"
            raise InvalidModel(what, given=given, do="pass base_dir=, or load the model from its path")
        name = "/".join(parts)  # the normalized name is a safe location, too
        file = self._files.get(name)
        if file is None:
            path, descriptor = str(self.base_dir.joinpath(*parts)), open_inside(self.base_dir, parts, given)
            file = self._files.setdefault(name, DataFile(path, descriptor, mapped=self.mapped))
        self._files[location] = file
        return file

    def _given(self, location: str, tensor: str) -> str:
        return f"tensor {tensor[:200]!r}, location {location[:200]!r}, folder {self.base_dir}"


class ExternalDataWriter:
    """Writes tensors sequentially to a new, empty binary file, with at most one chunk in memory.

    A tensor of at least ``LARGE`` bytes starts at a multiple of ``alignment`` (the page size, which ONNX recommends for
    mapping; 65536 suits Windows too), a smaller one at a multiple of 64 or of ``alignment`` if that is less. Gaps are
    filled with zeros. Regions that are adjacent in both files are copied at once. The file is complete after ``flush``,
    which the writer calls when used as a context manager.
    """

    def __init__(self, file: BinaryIO, alignment: int = 4096) -> None:
        if alignment < 1:
            raise InvalidCall("the alignment of external data is not positive", given=str(alignment))
        self._file = file
        self._alignment = alignment
        self._end = 0
        self._pending: Region | None = None  # the last bytes before _end
        self._buffer = memoryview(bytearray(_CHUNK))
        self._used = 0  # bytes at the start of the buffer, which precede those of _pending

    def append(self, source: Region | Pieces | Buffer | np.ndarray) -> tuple[int, int]:
        """Add a tensor in the format of ``raw_data``; returns its offset and its length in the new file.

        Raises ``InvalidCall`` if the source is not a contiguous buffer or its file was closed, ``InvalidModel`` if the
        file of a region was truncated or cannot be read.
        """
        data = source if isinstance(source, Region | Pieces) else _bytes_of(source)
        length = len(data) if isinstance(data, memoryview) else data.length
        if not length:
            return self._end, 0
        padding = -self._end % (self._alignment if length >= LARGE else min(self._alignment, 64))
        if padding:
            self._copy_pending()
            self._put(memoryview(bytes(padding)))
        last = self._pending
        if isinstance(data, Region) and last is not None and last.file is data.file and last.end == data.offset:
            self._pending = Region(last.file, last.offset, last.length + length)
        else:
            self._copy_pending()
            if isinstance(data, Region):
                self._pending = data
            else:
                for piece in (data,) if isinstance(data, memoryview) else data:
                    self._put(piece)
        offset = self._end + padding
        self._end = offset + length
        return offset, length

    def flush(self) -> None:
        """Write pending data to the file. Raises InvalidModel if the file of a region was truncated."""
        self._copy_pending()
        self._drain()

    def _copy_pending(self) -> None:
        source, self._pending = self._pending, None
        if source is None:
            return
        position = source.offset
        if source.length >= LARGE:
            self._drain()
            position = self._copy_in_kernel(source)
        while position < source.end:
            if self._used == len(self._buffer):
                self._drain()
            count = source.file.read_into(self._buffer[self._used :][: source.end - position], position)
            if not count:
                raise InvalidModel(
                    "an external data file was truncated while it was copied",
                    given=f"{source.path}, {source.end} bytes needed",
                    available=f"{position} bytes",
                )
            self._used += count
            position += count

    def _copy_in_kernel(self, source: Region) -> int:
        """Copy in the kernel, which shares blocks if the file system can; returns the source offset that it reached.

        This needs equal offsets within a block; otherwise copying in user space is faster. Whatever the kernel refuses
        (another file system, a container's filter, an append-only file) is left to the caller, which copies it or
        raises the error. Other types of file objects are excluded, as they may transform what is written to them.
        """
        position = source.offset
        same_place = (self._end - source.length - position) % _BLOCK == 0
        if not (
            same_place and hasattr(os, "copy_file_range") and isinstance(self._file, (io.BufferedWriter, io.FileIO))
        ):
            return position
        self._file.flush()
        descriptors = source.file.fileno(), self._file.fileno()
        with contextlib.suppress(OSError):
            while position < source.end:
                count = os.copy_file_range(*descriptors, min(source.end - position, _KERNEL_CHUNK), position)
                if not count:
                    break
                position += count
        return position

    def _put(self, data: memoryview) -> None:
        if len(data) > len(self._buffer) - self._used:
            self._drain()
        if len(data) > len(self._buffer):
            self._write(data)
        else:
            self._buffer[self._used : self._used + len(data)] = data
            self._used += len(data)

    def _drain(self) -> None:
        used, self._used = self._used, 0
        self._write(self._buffer[:used])

    def _write(self, data: memoryview) -> None:
        while data:  # an unbuffered file may write only a part
            written = self._file.write(data[:_CHUNK])
            data = data[written or _CHUNK :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.flush()


def _bytes_of(source: Buffer | np.ndarray) -> memoryview:
    """The bytes of a contiguous buffer, without a copy."""
    try:
        if hasattr(source, "dtype"):
            import numpy as np

            array = np.asarray(source)
            if not array.flags.c_contiguous:
                raise ValueError("it is not contiguous")
            return array.reshape(-1).view(np.uint8).data  # arrays of extended dtypes do not support the buffer protocol
        view = memoryview(source)
        return view.cast("B") if view.nbytes else memoryview(b"")
    except (TypeError, ValueError) as error:
        raise InvalidCall(
            "contents for external data are not a contiguous buffer of numbers",
            given=f"{type(source).__name__}: {error}",
            do="pass numpy.ascontiguousarray(...)",
        ) from error


def _number(text: str | int) -> int:
    """Parse a number; -1 if it is none. Only ASCII digits count, and few enough to parse quickly."""
    if isinstance(text, str):
        return int(text) if len(text) < 20 and text.isascii() and text.isdigit() else -1
    return text if isinstance(text, int) and not isinstance(text, bool) else -1
