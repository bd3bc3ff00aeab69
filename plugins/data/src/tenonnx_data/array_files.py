"""Files of numpy: ``.npz`` archives and ``.npy`` arrays."""

from __future__ import annotations

import functools
import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenonnx.extend import DType, InvalidCall, did_you_mean_file, limits
from tenonnx.tools import LOOKED_AT, looks_like
from tenonnx_data.binding import Field
from tenonnx_data.table import Array, Opener, Table, opened_file

#: Maximum number of axes, as in numpy.
MOST_AXES = 64

#: Bytes of an element in a header; a larger element counts as several.
LARGEST_ELEMENT = 16

#: Bytes to decompress at once.
CHUNK = 1 << 20

#: Column name for the array of a ``.npy`` file.
ARRAY = "array"

_KINDS = {"U": "text", "S": "text", "b": "number", "i": "number", "u": "number", "f": "number", "c": "number"}


class ArrayTable(Table):
    """A ``.npz`` or ``.npy`` file; arrays keep their types."""

    noun = "array"

    def __init__(self, path: str, opened: Opener = opened_file) -> None:
        found = read_members(path, opened)
        members = found if isinstance(found, dict) else {ARRAY: lambda: found}
        self.path, self._arrays = path, {name: read() for name, read in members.items()}
        self.fields = [
            Field(name, _KINDS.get(array.dtype.kind, "tensor"), f"{array.dtype}{list(array.shape)}", array.ndim - 1)
            for name, array in self._arrays.items()
        ]

    def column(self, name: str, dtype: DType) -> Array:
        array: Array = self._arrays[name]
        if array.dtype.kind == "V" and array.dtype.itemsize == dtype.numpy.itemsize:
            return array.view(dtype.numpy)  # numpy drops the dtypes of ml_dtypes
        return array

    def is_text(self, name: str) -> bool:
        return self._arrays[name].dtype.kind in "US"


def read_members(path: str, opened: Opener = opened_file) -> Any:
    """One array, or functions by name that read one each. Nothing in the file is executed."""
    with _refusing(path, opened):
        with opened(path) as file:
            start = file.read(8)
        if not start.startswith(b"PK"):
            source: Any = opened(path) if path == "-" else path
            array = np.load(source, mmap_mode=None if path == "-" else "r", allow_pickle=False)
            if not isinstance(array, np.ndarray):
                raise ValueError("it holds no array")
            return array.view(np.ndarray)
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
        return {name.removesuffix(".npy"): functools.partial(_member, path, name, opened) for name in members}


def _member(path: str, name: str, opened: Opener) -> Array:
    """Read one array of an archive, after checking its header against the limit ``elements``."""
    with _refusing(path, opened), opened(path) as whole, zipfile.ZipFile(whole) as archive, archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} of its format")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("Object arrays cannot be loaded")
        if len(shape) > MOST_AXES or any(dim < 0 for dim in shape):
            raise ValueError(f"a header of shape {shape!r:.80}")
        limits.check_elements((*shape, -(-dtype.itemsize // LARGEST_ELEMENT)), f"{name!r} in {path}")
        size = math.prod(shape) * dtype.itemsize
        contents = bytearray()
        while len(contents) < size and (chunk := file.read(min(size - len(contents), CHUNK))):
            contents += chunk
        if len(contents) < size:
            raise ValueError(f"{len(contents):,} bytes of {size:,} in {name!r}")
        array = np.frombuffer(contents, dtype, count=math.prod(shape)) if size else np.empty(math.prod(shape), dtype)
        return array.reshape(shape, order="F" if fortran else "C")


#: Exceptions for a damaged or encrypted archive, and for a header that is not Python.
_ODD = (NotImplementedError, RuntimeError, SyntaxError, tokenize.TokenError, RecursionError, KeyError)


@contextmanager
def _refusing(path: str, opened: Opener) -> Iterator[None]:
    """Convert errors of numpy and zipfile to ``InvalidCall``."""
    try:
        yield
    except OSError as error:
        what = f'cannot read "{path}": {error.strerror or error}'
        raise InvalidCall(what, do=did_you_mean_file(path)) from error
    except (
        ValueError,
        TypeError,
        EOFError,
        MemoryError,
        OverflowError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        *_ODD,
    ) as error:
        raise InvalidCall(
            f'cannot read "{path}" as a .npy or .npz file without pickled objects',
            given=_guess_format(path, opened) or " ".join(str(error).split()),
            do="save it with numpy.save or numpy.savez; strings as an array of dtype str",
        ) from error


def _guess_format(path: str, opened: Opener) -> str:
    """Guess the type of a file from its first bytes; empty if it is numpy's."""
    with opened(path) as file:
        start = file.read(LOOKED_AT)
    return "" if start.startswith((b"PK", b"\x93NUMPY")) else looks_like(start)
