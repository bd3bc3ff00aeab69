"""Large files without copies: the message of a model, and its large tensors as parts of the bytes that were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenonnx.formats.external import LARGE

#: Smaller files are parsed as they are: copies of their tensors cost little.
LARGE_FILE = 1 << 26

#: Fields with their length ahead: the graph of a model, the initializers of a graph, the bytes of a tensor.
_GRAPH, _INITIALIZER, _RAW_DATA = 0x3A, 0x2A, 0x4A

#: Bytes of a number that is as long as its first bits say, at most.
_LONGEST = 10


def without_large_tensors(data: bytes) -> tuple[bytes, Mapping[int, memoryview]]:
    """The message of a model without the bytes of large initializers, and these by the number of the initializer.

    A message copies what it holds, and gives copies of it. What is small or malformed is left to the parser.
    """
    if len(data) < LARGE_FILE:
        return data, {}
    try:
        return _divided(memoryview(data))
    except (ValueError, IndexError):
        return data, {}


def _divided(data: memoryview) -> tuple[bytes, Mapping[int, memoryview]]:
    """Both parts. Raises ``ValueError`` and ``IndexError`` where the message is malformed or has several graphs."""
    [(graph, start, end)] = [place for tag, *place in _fields(data, 0, len(data)) if tag == _GRAPH]
    large: dict[int, memoryview] = {}
    pieces: list[bytes | memoryview] = []
    number, copied = 0, start
    for tag, field, begin, stop in _fields(data, start, end):
        if tag != _INITIALIZER:
            continue
        raw = [place for tag, *place in _fields(data, begin, stop) if tag == _RAW_DATA] if stop - begin > LARGE else []
        if len(raw) == 1:
            [(before, first, last)] = raw
            rest = bytes(data[begin:before]) + bytes(data[last:stop])
            pieces += [data[copied:field], _headed(_INITIALIZER, rest)]
            large[number], copied = data[first:last], stop
        number += 1
    pieces.append(data[copied:end])
    return b"".join((data[:graph], _headed(_GRAPH, b"".join(pieces)), data[end:])), large


def _fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The tag of each field, and where the field, its contents and the next field begin."""
    while at < end:
        field = at
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == 0:
            _, stop = _number(data, at)
        elif kind == 2:
            length, at = _number(data, at)
            stop = at + length
        elif kind in (1, 5):
            stop = at + (8 if kind == 1 else 4)
        else:
            raise ValueError(tag)
        if stop > end:
            raise ValueError(stop)
        yield tag, field, at, stop
        at = stop


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A number of any length, and where it ends."""
    number = 0
    for place in range(_LONGEST):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise ValueError(at)


def _headed(tag: int, contents: bytes) -> bytes:
    """A field with its length ahead."""
    return bytes([tag]) + varint(len(contents)) + contents


def varint(number: int) -> bytes:
    """A number in as many bytes as it takes."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
