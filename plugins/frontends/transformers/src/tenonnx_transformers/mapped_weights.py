"""Float32 copies of a folder's weights, for memory mapping."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tenonnx.extend.formats import read_tensors

#: Element types of safetensors files that are converted, as types of numpy.
_FLOATS: Mapping[str, Any] = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64}

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


def convert_weights(folder: Path, made: Path) -> None:
    """Write the weights of a folder in float32 to the folder ``made``, a piece at a time, with its JSON files.

    Integers stay as they are. Raises ``InvalidModel`` for broken files.
    """
    for path in folder.glob("*.json"):
        shutil.copyfile(path, made / path.name)
    for path in folder.glob("*.safetensors"):
        _convert_file(path, made / path.name)


def _convert_file(path: Path, place: Path) -> None:
    entries, metadata = read_tensors(path)
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, entry in entries.items():
        found = _FLOATS.get(entry.dtype)
        size = entry.region.length if found is None else entry.region.length // np.dtype(found).itemsize * 4
        dtype = entry.dtype if found is None else "F32"
        header[name] = {"dtype": dtype, "shape": list(entry.shape), "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with place.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for entry in entries.values():
            numbers = np.frombuffer(entry.region.view(), _FLOATS.get(entry.dtype, np.uint8))
            for start in range(0, numbers.size, _PIECE):
                piece = numbers[start : start + _PIECE]
                file.write((piece.astype(np.float32) if entry.dtype in _FLOATS else piece).data)
