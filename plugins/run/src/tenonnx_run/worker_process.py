"""Child process of ``worker.Worker``: calls functions of one Python file and returns their results.

It is started by its path and imports the standard library and numpy alone; the file that it serves imports the rest.
The call of no function waits for these imports. A call with a source has the function ``opened`` of that file open it
first, keeps what that returns until another source comes, and gives it to each function as the first argument.

A message is a header of two lengths, then JSON, then the bytes of the arrays in it. Nothing is unpickled on either
side, so that a child which a foreign parser has corrupted cannot run code in its parent.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import struct
import sys
from typing import Any, BinaryIO

_HEADER = struct.Struct("<QQ")


def packed(contents: Any) -> list[Any]:
    """Contents as the bytes of a message, in parts: None, numbers, texts, bytes, arrays, lists, tuples and dicts.

    Arrays are of the types of numpy and ml_dtypes, or of texts. A tuple arrives as a list, and a number of numpy as an
    array without axes. Raises ``TypeError`` for anything else.
    """
    parts: list[Any] = []
    text = json.dumps(_encoded(contents, parts)).encode()
    return [_HEADER.pack(len(text), sum(len(part) for part in parts)), text, *parts]


def send(stream: BinaryIO, message: list[Any]) -> None:
    """Write a packed message."""
    for part in message:
        stream.write(part)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read the contents of a message. Raises ``EOFError`` at the end of the stream."""
    length, size = _HEADER.unpack(_exactly(stream, _HEADER.size))
    text = json.loads(_exactly(stream, length))
    return _decoded(text, memoryview(_exactly(stream, size)))


def _exactly(stream: BinaryIO, count: int) -> bytearray:
    found = bytearray(count)
    view, start = memoryview(found), 0
    while start < count:
        read = stream.readinto(view[start:])  # type: ignore[attr-defined]
        if not read:
            raise EOFError("the stream ended within a message")
        start += read
    return found


def _encoded(contents: Any, parts: list[Any]) -> Any:
    """The contents for JSON, those that it lacks as an object of one key; bytes are added to ``parts``."""
    if contents is None or type(contents) in (bool, int, float, str):
        return contents
    if isinstance(contents, bytes | bytearray | memoryview):
        return {"bytes": _added(memoryview(contents).cast("B"), parts)}
    if isinstance(contents, list | tuple):
        return [_encoded(each, parts) for each in contents]
    if isinstance(contents, dict):
        return {"dict": [[_encoded(key, parts), _encoded(each, parts)] for key, each in contents.items()]}
    import numpy as np  # a child knows where it is when it has been told

    array = np.asarray(contents)
    if array.dtype.kind in "OUST":
        texts = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in array.flat]
        if not all(isinstance(each, str) for each in texts):
            raise TypeError("an array of objects cannot be sent to a worker process")
        return {"texts": texts, "shape": list(array.shape)}
    is_extended = array.dtype.type.__module__ == "ml_dtypes"
    if array.dtype.kind not in "biufc" and not is_extended:
        raise TypeError(f"an array of {array.dtype} cannot be sent to a worker process")
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    name = array.dtype.name if is_extended else array.dtype.str
    return {"array": name, "shape": list(array.shape), "bytes": _added(raw, parts)}


def _added(part: memoryview, parts: list[Any]) -> list[int]:
    """Range of the bytes of a part among all."""
    start = sum(len(each) for each in parts)
    parts.append(part)
    return [start, len(part)]


def _decoded(text: Any, raw: memoryview) -> Any:
    if isinstance(text, list):
        return [_decoded(each, raw) for each in text]
    if not isinstance(text, dict):
        return text
    if "dict" in text:
        return {_decoded(key, raw): _decoded(each, raw) for key, each in text["dict"]}
    if "bytes" in text and "array" not in text:
        return _part(text, raw)
    import numpy as np

    if "texts" in text:
        array = np.empty(len(text["texts"]), object)
        array[:] = text["texts"]
        return array.reshape(text["shape"])
    # copied, so that an array is aligned, and holds no more memory than its own
    return np.frombuffer(bytearray(_part(text, raw)), _dtype(text["array"])).reshape(text["shape"])


def _dtype(name: str) -> Any:
    """An element type by its name in ml_dtypes, or by the text of numpy, which begins with its byte order."""
    import numpy as np

    if not name[:1].isalpha():
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def _part(text: dict[str, Any], raw: memoryview) -> bytes:
    start, length = text["bytes"]
    return bytes(raw[start : start + length])


def main(file: str, *imports: str) -> None:
    """Answer calls until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process where it must
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a runtime prints is no answer
    sys.path[:0] = receive(requests)
    spec = importlib.util.spec_from_file_location("tenonnx_worker_functions", file)
    assert spec is not None
    assert spec.loader is not None
    served = importlib.util.module_from_spec(spec)
    failure: dict[str, Any] | None = None
    try:
        for name in imports:
            importlib.import_module(name)
        spec.loader.exec_module(served)
    except Exception as error:  # told in answer to the first call
        failure = _told(error)
    held: dict[str, Any] = {}
    while True:
        try:
            function, arguments, source = receive(requests)
        except EOFError:
            return
        try:
            result = failure or {"result": _called(served, held, function, arguments, source) if function else None}
            answer = packed(result)
        except Exception as error:
            answer = packed(_told(error))
        send(answers, answer)


def _called(served: Any, held: dict[str, Any], function: str, arguments: list[Any], source: Any) -> Any:
    """Result of a function of the file that is served; ``held`` is the source that was used last, by its key."""
    if source is None:
        return getattr(served, function)(*arguments)
    key, opening, limits = source
    if "tenonnx.limits" in sys.modules:  # the file that is served has imported it
        sys.modules["tenonnx.limits"].set(**limits)
    if key not in held:
        held.clear()
        held[key] = served.opened(*opening)
    return getattr(served, function)(held[key], *arguments)


def _told(error: Exception) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    main(*sys.argv[1:])
