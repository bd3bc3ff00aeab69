"""Division of a model's external data into files of a maximum size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from tenonnx.extend import InvalidCall

#: Bytes that are copied at once, and the alignment of tensors, which runtimes need to map them.
_PIECE, _PAGE = 1 << 24, 1 << 16

#: Suffix of the name of a data file, after the name of the model.
SUFFIX = ".data"


def check_size(largest: int | None) -> None:
    """Raise ``InvalidCall`` if a maximum size of files is not a positive number of bytes."""
    if largest is not None and (not isinstance(largest, int) or isinstance(largest, bool) or largest < 1):
        raise InvalidCall("the maximum size of data files is not a positive number of bytes", given=repr(largest))


def locations(path: Path) -> list[str]:
    """Names of the data files of a model, sorted."""
    return sorted({entry.value for entry in _location_entries(onnx.load(path, load_external_data=False))})


def _location_entries(model: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    """The entries of external tensors that name their files."""
    for tensor in model.graph.initializer:
        yield from (entry for entry in tensor.external_data if entry.key == "location")


def split_data(path: Path, largest: int | None, suffix: str = SUFFIX) -> None:
    """Divide the data file of a model into files of at most ``largest`` bytes, in the order of the tensors.

    The files are ``model.onnx.data``, ``model.onnx.data_1`` and so on, with another ``suffix`` if given; a larger
    tensor has a file of its own. Tensors are copied in pieces.
    """
    written = path.with_name(f"{path.name}{SUFFIX}")
    if not written.is_file():
        return
    whole = path.with_name(f"{path.name}{suffix}")
    if largest is None or written.stat().st_size <= largest:
        if whole != written:
            _move_data(path, written, whole)
        return
    model = onnx.load(path, load_external_data=False)
    source = written.rename(whole.with_name(f"{whole.name}.whole"))
    with source.open("rb") as read:
        for number, shard in enumerate(_shards(model, largest)):
            place = whole.with_name(f"{whole.name}_{number}") if number else whole
            with place.open("wb") as write:
                for start, tensor in shard:
                    entries = {entry.key: entry for entry in tensor.external_data}
                    read.seek(int(entries["offset"].value))
                    write.seek(start)
                    length = int(entries["length"].value)
                    for done in range(0, length, _PIECE):
                        write.write(read.read(min(_PIECE, length - done)))
                    entries["offset"].value, entries["location"].value = str(start), place.name
    source.unlink()
    onnx.save(model, path)


def _move_data(path: Path, written: Path, place: Path) -> None:
    """Rename the data file of a model."""
    model = onnx.load(path, load_external_data=False)
    for entry in _location_entries(model):
        entry.value = place.name
    written.rename(place)
    onnx.save(model, path)


def _shards(model: onnx.ModelProto, largest: int) -> list[list[tuple[int, onnx.TensorProto]]]:
    """The external tensors of a model by file, each with its offset."""
    result: list[list[tuple[int, onnx.TensorProto]]] = [[]]
    end = 0
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        length = next(int(entry.value) for entry in tensor.external_data if entry.key == "length")
        start = -(-end // _PAGE) * _PAGE if length >= _PAGE else end
        if result[-1] and start + length > largest:
            result.append([])
            start = 0
        result[-1].append((start, tensor))
        end = start + length
    return result
