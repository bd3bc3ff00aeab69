"""Tables, vectors and buffers of a flatbuffer, deduplicated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

#: Alignment of buffers, in bytes.
_ALIGNMENT = 16


class Tables:
    """The buffers, operator codes and subgraphs of the file to write; equal vectors, tables and buffers are shared.

    ``names`` are the names to keep; all other tensors stay unnamed in the file.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.builder = flatbuffers.Builder(1 << 16)
        self.codes: dict[str, int] = {}
        self.buffers: dict[bytes, int] = {}
        self.vectors: dict[tuple[str, bytes], int] = {}
        self.tables: dict[tuple[Any, ...], int] = {}
        self.data: list[bytes] = [b""]
        self.subgraphs: list[int] = []
        self.first: int | None = None  # index of the subgraph that initializes the variables

    def vector(self, start: Callable[..., Any], offsets: Sequence[int]) -> int:
        """A vector of tables."""
        start(self.builder, len(offsets))
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def table(self, kind: str, fields: Mapping[str, Any]) -> int:
        """Offset of a table with these fields; equal tables are stored once."""
        key = kind, *fields.items()
        if key not in self.tables:
            getattr(tflite, f"{kind}Start")(self.builder)
            for field, value in fields.items():
                getattr(tflite, f"{kind}Add{field}")(self.builder, value)
            self.tables[key] = int(getattr(tflite, f"{kind}End")(self.builder))
        return self.tables[key]

    def text(self, name: str) -> int | None:
        """Offset of a name; None unless it is one of ``names``."""
        return int(self.builder.CreateSharedString(name)) if name in self.names else None

    def numbers(self, values: Sequence[Any], dtype: Any = np.int32) -> int:
        """Offset of a vector of numbers. Equal vectors are stored once, which matters for per-channel zero points."""
        array = np.asarray(values, dtype)
        key = array.dtype.str, array.tobytes()
        if key not in self.vectors:
            self.vectors[key] = int(self.builder.CreateNumpyVector(array))
        return self.vectors[key]

    def buffer(self, raw: bytes) -> int:
        builder = self.builder
        place = None
        if raw:
            builder.StartVector(1, len(raw), _ALIGNMENT)
            builder.head -= len(raw)
            builder.Bytes[builder.head : builder.head + len(raw)] = raw
            place = builder.EndVector()
        tflite.BufferStart(builder)
        if place is not None:
            tflite.BufferAddData(builder, place)
        return int(tflite.BufferEnd(builder))

    def place_of(self, raw: bytes) -> int:
        """The index of the buffer with these contents; equal contents share a buffer."""
        if raw not in self.buffers:
            self.buffers[raw] = len(self.data)
            self.data.append(raw)
        return self.buffers[raw]

    def number_of(self, name: str) -> int:
        return self.codes.setdefault(name, len(self.codes))
