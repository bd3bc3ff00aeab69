"""Checkpoints in SavedModels: the contents of variables by name.

The index is a LevelDB table: keys share prefixes within a block, an index block lists the blocks, and a footer has its
position. Its values are ``BundleEntryProto`` messages with the positions of tensors.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import InvalidModel, NotRepresentable, limits, listing
from tenonnx_frontends import open_below, read_below
from tenonnx_tensorflow.attributes import numpy_type, text_of
from tenonnx_tensorflow.messages import parse

_FOOTER, _TRAILER = 48, 5
_MAGIC = 0xDB4775248B80FB57


def _varint(contents: bytes, place: int) -> tuple[int, int]:
    result, shift = 0, 0
    while place < len(contents) and shift < 64:
        byte = contents[place]
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, place
        shift += 7
    raise InvalidModel("the index of a checkpoint is truncated", given=f"a number that ends at byte {place}")


class Checkpoint:
    """The tensors of ``variables`` in a folder, read on demand."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        index = prefix.with_name(prefix.name + ".index")
        self.entries = dict(_entries(read_below(prefix.parent, index.name), str(index)))
        header = parse("BundleHeader", self.entries.pop(b"", b""), f'the header of "{index}"')
        if header.endianness:
            raise NotRepresentable("a checkpoint is not little-endian", given=str(index))
        self.shards = header.num_shards

    def names(self) -> list[str]:
        return [key.decode("utf-8", "replace") for key in self.entries if not key.startswith(b"\0")]

    def read(self, name: str) -> np.ndarray[Any, Any]:
        if name.encode() not in self.entries:
            raise InvalidModel(
                f'the checkpoint has no "{name}"', given=str(self.prefix), available=listing(self.names(), 5)
            )
        entry = parse("BundleEntry", self.entries[name.encode()], f'the entry of "{name}"')
        if not entry.slices:
            return self._contents(name, entry)
        shape = [int(dim.size) for dim in entry.shape.dim]
        if any(n < 0 for n in shape):
            raise InvalidModel(f'"{name}" has an axis of negative length', given=str(shape))
        whole = np.zeros(limits.sized(shape, f'"{name}"'), numpy_type(entry.dtype))
        for each in entry.slices:
            pairs = [(int(e.start), int(e.length)) if e.length else (0, -1) for e in each.extent]
            key = _key_of_slice(name, pairs)
            if key not in self.entries or len(pairs) != len(shape):
                raise InvalidModel(f'the checkpoint lacks slices of "{name}"', given=f"none for {pairs}")
            place = tuple(slice(a, a + n if n >= 0 else None) for a, n in pairs)
            part = self._contents(name, parse("BundleEntry", self.entries[key], f'a slice of "{name}"'))
            if part.shape != whole[place].shape:
                raise InvalidModel(
                    f'a slice of "{name}" does not have the shape that its position requires', given=str(part.shape)
                )
            whole[place] = part
        return whole

    def _contents(self, name: str, entry: Any) -> np.ndarray[Any, Any]:
        path = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard_id:05d}-of-{self.shards:05d}")
        shape = [int(dim.size) for dim in entry.shape.dim]
        kind = numpy_type(entry.dtype)
        with open_below(path.parent, path.name) as file:
            if (
                min(entry.offset, entry.size, *shape, 0) < 0
                or entry.offset + entry.size > os.fstat(file.fileno()).st_size
            ):
                raise InvalidModel(
                    f'"{path}" does not hold the bytes of "{name}"', given=f"{entry.size} from {entry.offset} on"
                )
            file.seek(entry.offset)
            if kind is object:
                return _texts(file.read(entry.size), math.prod(shape)).reshape(shape)
            if math.prod(shape) * np.dtype(kind).itemsize != entry.size:
                raise InvalidModel(
                    f'"{name}" does not have as many bytes as its shape needs', given=f"{entry.size} for {shape}"
                )
            found = np.empty(math.prod(shape), kind)
            file.readinto(found.view(np.uint8))  # type: ignore[attr-defined]
            return found.reshape(shape)


def _key_of_slice(name: str, pairs: Iterable[tuple[int, int]]) -> bytes:
    """Key of a slice: numbers and text in an order-preserving encoding; -1 is the whole axis."""
    pairs = list(pairs)
    escaped = name.encode().replace(b"\xff", b"\xff\0").replace(b"\0", b"\0\xff")
    ends = b"".join(_ordered(number) for pair in pairs for number in pair)
    return b"\0" + escaped + b"\0\1" + bytes([1, len(pairs)] if pairs else [0]) + ends


def _ordered(number: int) -> bytes:
    if number < 0:
        return bytes([0x80 ^ (number & 0xFF)])
    size = number.bit_length() // 7 + 1
    found = bytearray(number.to_bytes(size, "big"))
    found[0] |= (0xFF00 >> size) & 0xFF
    return bytes(found)


def _texts(contents: bytes, count: int) -> np.ndarray[Any, Any]:
    """Decode strings: lengths first, then a checksum, then the strings."""
    if count > len(contents):
        raise InvalidModel("the strings of a checkpoint are truncated", given=f"{count} texts in {len(contents)} bytes")
    lengths, place = [], 0
    for _ in range(count):
        length, place = _varint(contents, place)
        lengths.append(length)
    place += 4
    result = np.empty(count, object)
    for k, length in enumerate(lengths):
        result[k] = text_of(contents[place : place + length])
        place += length
    return result


def _entries(contents: bytes, what: str) -> Iterator[tuple[bytes, bytes]]:
    if len(contents) < _FOOTER or struct.unpack("<Q", contents[-8:])[0] != _MAGIC:
        raise InvalidModel(f'"{what}" is not the index of a checkpoint', given=f"{len(contents)} bytes")
    footer = contents[-_FOOTER:]
    _, place = _varint(footer, 0)
    _, place = _varint(footer, place)
    start, place = _varint(footer, place)
    size, _ = _varint(footer, place)
    blocks = keys = 0
    for _, handle in _rows(contents, start, size, what):
        begin, place = _varint(handle, 0)
        length, _ = _varint(handle, place)
        blocks += length
        if blocks > len(contents):
            raise InvalidModel(f'blocks of "{what}" overlap', given=f"{blocks} bytes of {len(contents)}")
        for key, value in _rows(contents, begin, length, what):
            keys += len(key)  # prefixes that keys share are stored once
            limits.check("memory", keys, f'the size of the names in "{what}"')
            yield key, value


def _rows(contents: bytes, start: int, size: int, what: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block, which ends with the positions of uncompressed keys."""
    block = contents[start : start + size]
    if len(block) != size or size < 4 or start + size + 1 > len(contents):
        raise InvalidModel(f'"{what}" lacks a block', given=f"one of {size} bytes from {start} on")
    if contents[start + size]:
        raise NotRepresentable("the index of a checkpoint is compressed", given=what)
    restarts = struct.unpack("<I", block[-4:])[0]
    end = size - 4 * (restarts + 1)
    place, key = 0, b""
    while place < end:
        shared, place = _varint(block, place)
        added, place = _varint(block, place)
        length, place = _varint(block, place)
        key = key[:shared] + block[place : place + added]
        place += added
        yield key, block[place : place + length]
        place += length
