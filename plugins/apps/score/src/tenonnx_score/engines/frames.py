"""Messages between a run and its worker: a length, and a pickle of the package's own objects."""

from __future__ import annotations

import pickle
import struct
from typing import Any, BinaryIO

_HEAD = struct.Struct("<Q")


def send(stream: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(_HEAD.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next message. Raises ``EOFError`` if the other side is gone."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    (length,) = _HEAD.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)  # noqa: S301  from a process that we started
