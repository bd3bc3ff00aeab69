"""Untrusted HDF5 files, read in a worker process and rewritten for Keras."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import InvalidModel, LimitExceeded, UnsafePath, limits
from tenonnx.extend.checks import CallFailed, SourceProcess, WorkerEnded, size_of, worker_for
from tenonnx_frontends import one_line

#: Module of the functions that the worker process runs, its name in messages, and the module that it imports first.
_FUNCTIONS, _NAME, _LIBRARY = Path(__file__).with_name("hdf5_process.py"), "HDF5", "h5py"

#: Maximum ratio of contents to file size if the contents exceed the memory limit.
_RATIO = 10

#: Path, attributes and array of an object; the array of a group is None.
Object = Sequence[Any]


def start() -> None:
    """Start the worker process, which imports its library in parallel."""
    worker_for(_FUNCTIONS, _NAME, _LIBRARY).start()


def read_hdf5(path: Path, member: str = "") -> list[Object]:
    """All objects of an HDF5 file, groups before their members; ``member`` is its name if ``path`` is a zip archive.

    Raises ``OSError`` if the file cannot be opened, ``UnsafePath`` for external storage, links and virtual datasets,
    ``LimitExceeded`` for contents above the limit ``memory`` that are much larger than the file, and ``InvalidModel``
    if the file cannot be read, or crashes the worker process.
    """
    path.open("rb").close()
    opening = str(path.absolute()), member
    process = SourceProcess(_FUNCTIONS, _NAME, size_of(path), opening, [_LIBRARY])
    try:
        check_size(path, *process("sizes"))
        objects: list[Object] = process("contents")
        return objects
    except CallFailed as error:
        if error.kind == "Outside":
            raise UnsafePath(
                "an HDF5 file holds data of other files", given=f"{path}: {error.given}", do="save the model again"
            ) from error
        raise InvalidModel(f'"{path}" is not a complete HDF5 file', given=one_line(error)) from error
    except WorkerEnded as error:
        raise InvalidModel(f'cannot read "{path}" as an HDF5 file', given=one_line(error)) from error


def write_hdf5(path: Path, objects: Sequence[Object]) -> None:
    """Write objects of ``read_hdf5`` to a new file. Raises ``InvalidModel`` for names and types that h5py refuses."""
    import h5py

    try:
        with h5py.File(path, "w", libver="latest") as file:  # the first format limits attributes to 64 KiB
            for name, attributes, array in objects:
                if array is not None:
                    entry = file.create_dataset(name, data=_restored(array))
                else:
                    entry = file.create_group(name) if name else file
                for key, value in attributes.items():
                    restored = _restored(value)
                    is_text = isinstance(restored, np.ndarray) and restored.dtype.kind == "O"
                    entry.attrs.create(key, restored, dtype=h5py.string_dtype() if is_text else None)
    except Exception as error:  # h5py raises many kinds of errors
        raise InvalidModel(
            "an HDF5 file holds names or types that h5py cannot write", given=f"{type(error).__name__}: {error}"
        ) from error


def elements(objects: Sequence[Object]) -> int:
    """Number of elements of all arrays."""
    arrays = [array for _, _, array in objects if array is not None]
    return sum(math.prod(each["shape"] if isinstance(each, Mapping) else each.shape) for each in arrays)


def _restored(sent: Any) -> Any:
    """A value restored from ``hdf5_process._sendable``."""
    if isinstance(sent, Mapping):
        return np.frombuffer(sent["raw"], sent["dtype"]).reshape(sent["shape"])
    return sent


def check_size(path: Path, size: int, packed: int) -> None:
    """Raise ``LimitExceeded`` if the unpacked size exceeds the limit ``memory`` and ten times the packed size."""
    if size > limits.current().memory and size > _RATIO * packed:
        raise LimitExceeded(
            'the unpacked size of a file exceeds the limit "memory"',
            given=f"{path}: {packed} bytes, unpacked {size}",
            do="where you trust the model, raise it: tenonnx.limits.set(memory=...)",
        )
