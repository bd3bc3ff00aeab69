"""Checkpoints of quantized weights in files, to resume an interrupted run."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import DType, InvalidCall, Node
from tenonnx_quantized.computed import Computed, rows
from tenonnx_quantized.formats import packed_array, unpacked_array
from tenonnx_quantized.tuning.config import QuantizeConfig
from tenonnx_quantized.tuning.quantized_tensor import QuantizationParameters, QuantizedTensor
from tenonnx_quantized.tuning.statistics import Batch

Array = np.ndarray[Any, Any]

_FILE = re.compile(r"run\.(json|partial)|[0-9]{5}\.((quantized|scale|zero)\.npy|(channels\.)?(json|partial))")


class Checkpoint:
    """Quantized weights and channel scales by number, in a folder, or in memory without one.

    The JSON file of each is written last, so that incomplete ones are recomputed. Raises ``InvalidCall`` for the folder
    of a run with another model, other settings or other data.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, fingerprint: str) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is None:
            return
        about = self.folder / "run.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            known = json.loads(about.read_text("utf-8"))["fingerprint"] if about.is_file() else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidCall(f'cannot read the checkpoint "{self.folder}"', given=str(error)) from error
        if known not in (None, fingerprint):
            raise InvalidCall(
                f'the checkpoint "{self.folder}" is of another run',
                given="a model, settings or data that differ",
                do="give the same ones, or another folder",
            )
        if known is None:
            _write(about, {"fingerprint": fingerprint})

    def tensor(self, number: int) -> QuantizedTensor | None:
        """The quantized weights of a layer, if stored."""
        if self.folder is None or not self._path(number, "json").is_file():
            return None
        about = json.loads(self._path(number, "json").read_text("utf-8"))
        arrays = [np.load(self._path(number, f"{part}.npy"), mmap_mode="r") for part in ("quantized", "scale", "zero")]
        return _tensor(arrays, about)

    def keep(self, number: int, tensor: QuantizedTensor) -> QuantizedTensor:
        """Store weights, packed, in files if there is a folder; returns them."""
        found, whole = tensor.parameters, np.asarray(tensor.quantized)
        bits = found.dtype.bits
        arrays = [packed_array(_bytes(each), bits) for each in (whole, np.atleast_1d(found.zero_point))]
        arrays.insert(1, found.scale)
        about = {
            "dtype": str(found.dtype),
            "scale_type": str(found.scale_type),
            "unit": found.unit,
            "shape": whole.shape,
            "zeros": np.shape(found.zero_point),
            "axis": tensor.axis,
            "block_size": tensor.block_size,
            "error": tensor.error,
        }
        if self.folder is None:
            return _tensor(arrays, about)
        for part, contents in zip(("quantized", "scale", "zero"), arrays, strict=True):
            np.save(self._path(number, f"{part}.npy"), contents)
        self._write(number, about)
        kept = self.tensor(number)
        assert kept is not None
        return kept

    def channels(self, number: int) -> Array | None:
        """The channel scale of a group, if stored."""
        if self.folder is None or not self._path(number, "channels.json").is_file():
            return None
        return np.asarray(json.loads(self._path(number, "channels.json").read_text("utf-8")), np.float64)

    def keep_channels(self, number: int, scale: Array) -> None:
        if self.folder is not None:
            self._write(number, scale.tolist(), "channels.json")

    def _path(self, number: int, part: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{number:05}.{part}"

    def _write(self, number: int, contents: Any, part: str = "json") -> None:
        _write(self._path(number, part), contents)


def _write(path: Path, contents: Any) -> None:
    """Write a JSON file atomically."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(contents), "utf-8")
    partial.replace(path)


def remove_checkpoint(folder: str | os.PathLike[str]) -> None:
    """Remove the files of a checkpoint, and the folder if it becomes empty."""
    path = Path(folder)
    for file in path.iterdir():
        if _FILE.fullmatch(file.name):
            file.unlink()
    if not any(path.iterdir()):
        path.rmdir()


def _bytes(numbers: Array) -> Array:
    """Quantized values of at most a byte as unsigned bytes; sign extension of narrow ones is removed."""
    held = np.ascontiguousarray(numbers)
    return held.view(np.uint8) & np.uint8((1 << DType.of(held.dtype).bits) - 1)


def _tensor(arrays: Sequence[Array], about: dict[str, Any]) -> QuantizedTensor:
    packed, scale, zeros = arrays
    dtype, shape = DType.of(about["dtype"]), tuple(about["shape"])
    zero = _numbers(zeros, dtype, max(about["zeros"][-1:], default=1)).reshape(about["zeros"])

    def compute(start: int, stop: int) -> Array:
        return _numbers(packed[start:stop], dtype, shape[-1])

    parameters = QuantizationParameters(scale, zero, dtype, DType.of(about["scale_type"]), about["unit"])
    quantized = Computed(dtype, shape, compute)
    return QuantizedTensor(quantized, parameters, about["axis"], about["block_size"], about["error"])


def _numbers(packed: Array, dtype: DType, count: int) -> Array:
    raw = unpacked_array(np.asarray(packed), dtype.bits)[..., :count]
    if dtype.is_integer and dtype.is_signed and dtype.bits < 8:
        raw = np.where(raw >> (dtype.bits - 1), raw.astype(np.int16) - (1 << dtype.bits), raw)
        return raw.astype(np.int8).astype(dtype.numpy)
    return raw.view(np.uint8).view(dtype.numpy)


def fingerprint(nodes: Iterable[Node], batches: Sequence[Batch], chosen: QuantizeConfig) -> str:
    """A hash of the settings, the data, and the first row of all weights."""
    found = hashlib.sha256(repr(chosen).encode())
    for node in nodes:
        weights = node.inputs[1]
        if weights is not None and weights.data is not None:
            found.update(f"{weights.name} {weights.shape}".encode())
            found.update(np.ascontiguousarray(rows(weights, 0, 1)).tobytes())
    for batch in batches:
        for name, contents in batch.items():
            array = np.asarray(contents)
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array))
    return found.hexdigest()
