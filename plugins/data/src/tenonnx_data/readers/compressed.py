"""Files of text that are compressed as a whole, by the suffix behind their own: ``rows.csv.gz``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

#: What Arrow reads, by suffix.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}

#: Pieces of a compressed file at most: each is read from the beginning of the file.
COMPRESSED_PIECES = 8

#: Bytes that are passed over at a time.
_STEP = 4 << 20


def is_compressed(path: str) -> bool:
    return Path(path).suffix.lower() in CODECS


def suffix_of(path: str | Path) -> str:
    """The suffix that tells the kind of a file, in small letters: ``.csv`` of ``rows.csv.gz``."""
    name = Path(path).name.lower()
    return Path(Path(name).stem if is_compressed(name) else name).suffix


def is_empty(path: str) -> bool:
    """Whether a text has nothing in it, as engines write where they had no rows."""
    try:
        with opened_text(path) as stream:
            return not stream.read(1)
    except (OSError, pa.ArrowException):
        return False  # its reader tells what is wrong


@contextmanager
def opened_text(path: str, start: int = 0) -> Iterator[Any]:
    """The bytes of a text from a place on. Raises ``OSError`` and ``ArrowException``."""
    if not is_compressed(path):
        with Path(path).open("rb") as file:
            file.seek(start)
            yield file
        return
    with pa.input_stream(path, compression=CODECS[Path(path).suffix.lower()]) as stream:
        while start and (passed := stream.read(min(start, _STEP))):
            start -= len(passed)
        yield stream
