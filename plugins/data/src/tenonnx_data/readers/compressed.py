"""Compressed text files, by the last suffix: ``rows.csv.gz``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

#: Codecs of Arrow by suffix.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}

#: Maximum number of pieces of a compressed file, each of which is decompressed from the start.
COMPRESSED_PIECES = 8

#: Bytes to skip at a time.
_STEP = 4 << 20


def is_compressed(path: str) -> bool:
    return Path(path).suffix.lower() in CODECS


def suffix_of(path: str | Path) -> str:
    """The suffix of a file's format in lower case: ``.csv`` for ``rows.csv.gz``."""
    name = Path(path).name.lower()
    return Path(Path(name).stem if is_compressed(name) else name).suffix


def is_empty(path: str) -> bool:
    """Whether a text file is empty, as engines write for a partition without rows."""
    try:
        with opened_text(path) as stream:
            return not stream.read(1)
    except (OSError, pa.ArrowException):
        return False  # the reader reports the error


@contextmanager
def opened_text(path: str, start: int = 0) -> Iterator[Any]:
    """The bytes of a text file from an offset. Raises ``OSError`` and ``ArrowException``."""
    if not is_compressed(path):
        with Path(path).open("rb") as file:
            file.seek(start)
            yield file
        return
    with pa.input_stream(path, compression=CODECS[Path(path).suffix.lower()]) as stream:
        while start and (passed := stream.read(min(start, _STEP))):
            start -= len(passed)
        yield stream
