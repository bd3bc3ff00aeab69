"""Float32 copies of a folder's weights, for memory mapping."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tenonnx.extend.formats import Pieces, Tensor, read_tensors, write_tensors

#: Float types of safetensors files as types of numpy, and those that are converted.
FLOATS: Mapping[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64}
_FLOATS = {name: kind for name, kind in FLOATS.items() if name != "F32"}

#: Bytes of weights from which they are converted in files: smaller ones are converted in memory.
LARGE = 250_000_000

#: Numbers that are converted at once.
_PIECE = 1 << 24


def needs_conversion(folder: Path) -> bool:
    """Whether a folder has large weights of another float type. Raises ``InvalidModel`` for broken files."""
    files = [path for path in folder.glob("*.safetensors") if path.is_file()]
    if sum(path.stat().st_size for path in files) < LARGE:
        return False
    return any(entry.dtype in _FLOATS for path in files for entry in read_tensors(path)[0].values())


def convert_weights(folder: Path, output: Path) -> None:
    """Write the weights of a folder in float32 to the folder ``output``, a piece at a time, with its JSON files.

    Integers stay as they are. Raises ``InvalidModel`` for broken files.
    """
    for path in folder.glob("*.json"):
        shutil.copyfile(path, output / path.name)
    for path in folder.glob("*.safetensors"):
        _convert_file(path, output / path.name)


def _convert_file(path: Path, place: Path) -> None:
    entries, metadata = read_tensors(path)
    write_tensors(place, [_converted(name, entry) for name, entry in entries.items()], metadata)


def _converted(name: str, entry: Any) -> Tensor:
    """A tensor to write in float32, or as it is if it holds no other floats."""
    if entry.dtype not in _FLOATS:
        return Tensor(name, entry.dtype, entry.shape, entry.region.length, lambda: entry.region)
    numbers = np.frombuffer(entry.region.view(), _FLOATS[entry.dtype])
    length = numbers.size * 4

    def pieces() -> Iterator[Any]:
        return (numbers[at : at + _PIECE].astype(np.float32) for at in range(0, numbers.size, _PIECE))

    return Tensor(name, "F32", entry.shape, length, lambda: Pieces(length, pieces))
