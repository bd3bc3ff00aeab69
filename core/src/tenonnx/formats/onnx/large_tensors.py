"""Zero-copy reading of large files: the message without its large tensors, and views of the file's bytes."""

from __future__ import annotations

from collections.abc import Mapping

from tenonnx.formats.external import LARGE
from tenonnx.formats.onnx.wire import GRAPH, INITIALIZER, RAW_DATA, fields, header

#: Smaller files are parsed as they are, since copies of their tensors are cheap.
LARGE_FILE = 1 << 26


def without_large_tensors(data: bytes) -> tuple[bytes, Mapping[int, memoryview]]:
    """The message of a model without the bytes of large initializers, and these by initializer index.

    Protobuf copies bytes on parsing and on access. Small or malformed files are left to the parser.
    """
    if len(data) < LARGE_FILE:
        return data, {}
    try:
        return _divided(memoryview(data))
    except (ValueError, IndexError):
        return data, {}


def _divided(data: memoryview) -> tuple[bytes, Mapping[int, memoryview]]:
    """Split the message. Raises ``ValueError`` and ``IndexError`` if it is malformed or has several graphs."""
    [(graph, start, end)] = [place for tag, *place in fields(data, 0, len(data)) if tag == GRAPH]
    large: dict[int, memoryview] = {}
    pieces: list[bytes | memoryview] = []
    number, copied = 0, start
    for tag, field, begin, stop in fields(data, start, end):
        if tag != INITIALIZER:
            continue
        raw = [place for tag, *place in fields(data, begin, stop) if tag == RAW_DATA] if stop - begin > LARGE else []
        if len(raw) == 1:
            [(before, first, last)] = raw
            rest = bytes(data[begin:before]) + bytes(data[last:stop])
            pieces += [data[copied:field], header(INITIALIZER, len(rest)), rest]
            large[number], copied = data[first:last], stop
        number += 1
    contents = b"".join((*pieces, data[copied:end]))
    return b"".join((data[:graph], header(GRAPH, len(contents)), contents, data[end:])), large
