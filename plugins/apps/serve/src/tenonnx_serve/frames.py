"""Messages between the server and the process of a job: JSON with its length ahead."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

#: The length ahead of a message.
HEAD = struct.Struct("<I")

#: Bytes of one message.
LARGEST = 1 << 28


def framed(message: Any) -> bytes:
    """A message with its length. Raises ``ValueError`` where it is too long, and for what JSON cannot say."""
    try:
        body = json.dumps(message, allow_nan=False).encode()
    except ValueError:  # a number that JSON does not have
        body = json.dumps(_finite(message), allow_nan=False).encode()
    if len(body) > LARGEST:
        raise ValueError(f"an answer of {len(body):,} bytes, more than {LARGEST:,}")
    return HEAD.pack(len(body)) + body


def _finite(part: Any) -> Any:
    """The same with None for infinities and what is no number."""
    if isinstance(part, dict):
        return {key: _finite(each) for key, each in part.items()}
    if isinstance(part, list | tuple):
        return [_finite(each) for each in part]
    return None if isinstance(part, float) and not math.isfinite(part) else part
