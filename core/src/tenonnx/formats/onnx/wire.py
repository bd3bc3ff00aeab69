"""Protocol buffers on the wire: fields with their tags and lengths (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Iterator

#: Tags of fields with their length ahead: the graph of a model, the initializers of a graph, the bytes of a tensor.
GRAPH, INITIALIZER, RAW_DATA = 0x3A, 0x2A, 0x4A

#: Bytes of a number that is as long as its first bits say, at most.
_LONGEST = 10


def fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
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


def header(tag: int, length: int) -> bytes:
    """The tag and length of a field, which so many bytes of contents follow."""
    return bytes([tag]) + varint(length)


def varint(number: int) -> bytes:
    """A number in as many bytes as it takes."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
