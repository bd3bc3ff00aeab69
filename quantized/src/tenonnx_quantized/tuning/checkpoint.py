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

from tenonnx.extend import DType, InvalidCall, InvalidModel, Node, TenonnxError, UnsafePath
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
            known = json.loads(_no_link(about).read_text("utf-8"))["fingerprint"] if about.is_file() else None
        except TenonnxError:
            raise
        except Exception as error:
            raise InvalidCall(f'cannot read the checkpoint "{self.folder}"', given=str(error)) from error
        if known not in (None, fingerprint):
            raise InvalidCall(
                f'the checkpoint "{self.folder}" is of another run',
                given="a model, settings or data that differ",
                do="give the same ones, or another folder",
            )
        if known is None:
            _write(about, {"fingerprint": fingerprint})

    def tensor(self, number: int, shape: Sequence[Any] | None = None) -> QuantizedTensor | None:
        """The quantized weights of a layer of this shape, if stored.

        Raises ``InvalidModel`` for damaged files, ``UnsafePath`` for links.
        """
        if self.folder is None or not self._path(number, "json").is_file():
            return None
        try:
            about = self._read(number, "json")
            if shape is not None and list(about["shape"]) != list(shape):
                raise ValueError(f"weights of shape {about['shape']} instead of {list(shape)}")
            paths = [self._path(number, f"{part}.npy") for part in ("quantized", "scale", "zero")]
            return _tensor([np.load(_no_link(path), mmap_mode="r") for path in paths], about)
        except TenonnxError:
            raise
        except Exception as error:  # numpy raises many kinds of errors for damaged files
            raise self._damaged(error) from error

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

    def channels(self, number: int, count: int | None = None) -> Array | None:
        """The channel scale of a group of ``count`` channels, if stored. Raises ``InvalidModel`` for a damaged file."""
        if self.folder is None or not self._path(number, "channels.json").is_file():
            return None
        try:
            result = np.asarray(self._read(number, "channels.json"), np.float64)
            if (
                result.ndim != 1
                or len(result) != (count or len(result))
                or not np.all((result > 0) & np.isfinite(result))
            ):
                raise ValueError("no list of a positive number for each channel")
            return result
        except TenonnxError:
            raise
        except Exception as error:  # numpy raises many kinds of errors for damaged files
            raise self._damaged(error) from error

    def keep_channels(self, number: int, scale: Array) -> None:
        if self.folder is not None:
            self._write(number, scale.tolist(), "channels.json")

    def _path(self, number: int, part: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{number:05}.{part}"

    def _read(self, number: int, part: str) -> Any:
        return json.loads(_no_link(self._path(number, part)).read_text("utf-8"))

    def _damaged(self, error: Exception) -> InvalidModel:
        given = f"{type(error).__name__}: {error}"[:200]
        return InvalidModel(f'the checkpoint "{self.folder}" is damaged', given=given, do="remove the folder")

    def _write(self, number: int, contents: Any, part: str = "json") -> None:
        _write(self._path(number, part), contents)


def _no_link(path: Path) -> Path:
    if path.is_symlink():
        raise UnsafePath("a file of a checkpoint is a link", given=str(path), do="remove the folder")
    return path


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
    contiguous = np.ascontiguousarray(numbers)
    return contiguous.view(np.uint8) & np.uint8((1 << DType.of(contiguous.dtype).bits) - 1)


def _tensor(arrays: Sequence[Array], about: dict[str, Any]) -> QuantizedTensor:
    packed, scale, zeros = arrays
    dtype, shape = DType.of(about["dtype"]), tuple(map(int, about["shape"]))
    axis, block_size = about["axis"], int(about["block_size"])
    if packed.dtype != np.uint8 or packed.shape != (*shape[:-1], -(-shape[-1] * dtype.bits // 8)):
        raise ValueError(f"{packed.dtype}{list(packed.shape)} are no values of {about['dtype']}{list(shape)}")
    if axis is None:
        fits = scale.size == 1
    elif block_size:
        fits = scale.shape == (*shape[:axis], -(-shape[axis] // block_size), *shape[axis + 1 :])
    else:
        fits = scale.size == shape[axis]
    if not fits or scale.dtype != np.float32 or list(scale.shape) != list(about["zeros"]):
        raise ValueError(f"scales {scale.dtype}{list(scale.shape)} and zero points {about['zeros']} do not fit")
    zero = _numbers(zeros, dtype, max(about["zeros"][-1:], default=1)).reshape(about["zeros"])

    def compute(start: int, stop: int) -> Array:
        return _numbers(packed[start:stop], dtype, shape[-1])

    parameters = QuantizationParameters(scale, zero, dtype, DType.of(about["scale_type"]), about["unit"])
    quantized = Computed(dtype, shape, compute)
    return QuantizedTensor(quantized, parameters, axis, block_size, about["error"])


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
