"""Opening files that a model names, restricted to the folder of the model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from tenonnx.extend import LimitExceeded
from tenonnx.extend.formats import open_inside, split_location


def open_below(folder: str | os.PathLike[str], location: str) -> BinaryIO:
    """Open a regular file in or below ``folder`` for reading, without following links.

    Raises ``UnsafePath`` for a path outside of the folder, a link, a device or a pipe, and ``InvalidModel`` for a
    missing file.
    """
    given = f'"{location[:200]}" in "{folder}"'
    return os.fdopen(open_inside(Path(folder), split_location(location, given), given), "rb")


def read_below(folder: str | os.PathLike[str], location: str, most: int | None = None) -> bytes:
    """Read such a file. Raises ``LimitExceeded`` for a size above ``most``, before reading."""
    with open_below(folder, location) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise LimitExceeded("a file of the model is too large", given=f'"{location[:200]}", {size} bytes')
        return file.read(size)
