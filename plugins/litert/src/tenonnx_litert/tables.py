"""Tables and vectors of a flatbuffer that the parts of a file share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

#: Bytes to whose multiples contents are aligned.
_ALIGNMENT = 16


class Tables:
    """The buffers, operator codes and subgraphs of a file that is written, and what vectors of it are equal."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1 << 16)
        self.codes: dict[str, int] = {}
        self.held: dict[bytes, int] = {}
        self.vectors: dict[tuple[str, bytes], int] = {}
        self.data: list[bytes] = [b""]
        self.subgraphs: list[int] = []
        self.first: int | None = None  # the subgraph that assigns the first contents of variables

    def vector(self, start: Callable[..., Any], offsets: Sequence[int]) -> int:
        """A vector of tables."""
        start(self.builder, len(offsets))
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def numbers(self, values: Sequence[Any], dtype: Any = np.int32) -> int:
        """A vector of numbers; equal vectors share a place, which zero points of channels make small."""
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
        if raw not in self.held:
            self.held[raw] = len(self.data)
            self.data.append(raw)
        return self.held[raw]

    def number_of(self, name: str) -> int:
        return self.codes.setdefault(name, len(self.codes))
