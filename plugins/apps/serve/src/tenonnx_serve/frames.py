"""Messages between the server and a job's process: JSON with a length prefix."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

#: Length prefix of a message.
HEAD = struct.Struct("<I")

#: Maximum size of a message in bytes.
LARGEST = 1 << 28


def framed(message: Any) -> bytes:
    """A message with its length prefix. Raises ``ValueError`` if it is too long or not valid as JSON."""
    try:
        body = json.dumps(message, allow_nan=False).encode()
    except ValueError:  # a number that JSON lacks
        body = json.dumps(_finite(message), allow_nan=False).encode()
    if len(body) > LARGEST:
        raise ValueError(f"an answer of {len(body):,} bytes, more than {LARGEST:,}")
    return HEAD.pack(len(body)) + body


def _finite(part: Any) -> Any:
    """The same data with None for infinities and NaN."""
    if isinstance(part, dict):
        return {key: _finite(each) for key, each in part.items()}
    if isinstance(part, list | tuple):
        return [_finite(each) for each in part]
    return None if isinstance(part, float) and not math.isfinite(part) else part
