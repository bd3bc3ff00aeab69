"""Functions of the worker process for HDF5 files, since damaged files crash libhdf5.

Contents are returned as data, from which ``hdf5_files`` writes a new file.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

#: Groups at the root with the state of an optimizer, which no model needs.
_OPTIMIZERS = ("optimizer", "optimizer_weights")


class Outside(Exception):
    """An HDF5 file refers to data of other files, or contains links."""


#: An open HDF5 file, and its size in bytes.
Opened = tuple[Any, int]


def opened(path: str, member: str) -> Opened:
    """An HDF5 file, or one in a zip archive if ``member`` is its name there."""
    file: Any
    if member:
        with zipfile.ZipFile(path) as archive:
            file = io.BytesIO(archive.read(member))
    else:
        file = Path(path).open("rb")  # noqa: SIM115
    return h5py.File(file, "r"), file.seek(0, io.SEEK_END)


def sizes(opened: Opened) -> list[int]:
    """Bytes of all datasets, and bytes of the file. Raises ``Outside`` for links, external storage and virtual data."""
    (root, packed), unpacked = opened, 0
    for path, each in _objects(root):
        if isinstance(each, h5py.Dataset):
            if each.external or each.is_virtual:
                raise Outside(f'"{path}" is stored in other files')
            if each.dtype.kind not in "biufcV" or each.dtype.fields:
                raise TypeError(f'"{path}" holds {each.dtype}')
            unpacked += int(each.size or 0) * each.dtype.itemsize
    return [unpacked, packed]


def contents(opened: Opened) -> list[list[Any]]:
    """Path, attributes and array of each object, groups before their members; the array of a group is None."""
    return [
        [
            path,
            {name: _sendable(each.attrs[name]) for name in each.attrs},
            _sendable(each[()]) if isinstance(each, h5py.Dataset) else None,
        ]
        for path, each in _objects(opened[0])
    ]


def _objects(root: Any) -> Iterator[tuple[str, Any]]:
    pending, seen = [("", root)], set()
    while pending:
        path, each = pending.pop()
        place = h5py.h5o.get_info(each.id).addr
        if place in seen:
            raise ValueError(f'"{path}" is stored under two names')
        seen.add(place)
        yield path, each
        if not isinstance(each, h5py.Group):
            continue
        for name in each:
            if not path and name in _OPTIMIZERS:
                continue
            link = each.get(name, getlink=True)
            inner = f"{path}/{name}".lstrip("/")
            if not isinstance(link, h5py.HardLink):
                raise Outside(f'"{inner}" is a link to "{link.path}"')
            pending.append((inner, each[name]))


def _sendable(value: Any) -> Any:
    """Convert a value for sending: strings, arrays, and dicts in place of arrays of byte strings and opaque types."""
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        return str(value)
    array = np.asarray(value)
    if array.dtype.kind in "SV":
        return {"dtype": array.dtype.str, "shape": list(array.shape), "raw": array.tobytes()}
    return array
