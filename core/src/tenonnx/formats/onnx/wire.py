"""The wire format of protocol buffers: fields with tags and lengths (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Iterator

#: Tags of length-delimited fields: the graph of a model, the initializers of a graph, the raw data of a tensor.
GRAPH, INITIALIZER, RAW_DATA = 0x3A, 0x2A, 0x4A

#: Maximum length of a varint in bytes.
_LONGEST = 10


def fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """For each field its tag and the offsets of the field, of its contents and of the next field."""
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
    """A varint and the offset after it."""
    number = 0
    for place in range(_LONGEST):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise ValueError(at)


def header(tag: int, length: int) -> bytes:
    """Tag and length of a field with this many bytes of contents."""
    return bytes([tag]) + varint(length)


def varint(number: int) -> bytes:
    """A number as a varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
