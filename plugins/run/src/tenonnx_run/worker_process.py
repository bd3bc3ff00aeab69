"""Child process of ``worker.Worker``: calls functions of one Python file and returns their results.

It is started by path and imports only the standard library and numpy; the file that it serves imports the rest. A call
without a function name waits for these imports. A call with a source first runs the file's function ``opened``, caches
the result until another source is given, and passes it to each function as first argument.

A message is a header of two lengths, JSON, and the bytes of its arrays. Neither side unpickles, so that a child
corrupted by a foreign parser cannot run code in its parent.
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
    """Encode contents as the parts of a message: None, numbers, strings, bytes, arrays, lists, tuples and dicts.

    Arrays have dtypes of numpy and ml_dtypes, or hold strings. A tuple arrives as a list, a numpy scalar as a 0-d
    array. Raises ``TypeError`` for anything else.
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
    result = bytearray(count)
    view, start = memoryview(result), 0
    while start < count:
        read = stream.readinto(view[start:])  # type: ignore[attr-defined]
        if not read:
            raise EOFError("the stream ended within a message")
        start += read
    return result


def _encoded(contents: Any, parts: list[Any]) -> Any:
    """Encode contents as JSON; other types become an object with one key, and their bytes are appended to ``parts``."""
    if contents is None or type(contents) in (bool, int, float, str):
        return contents
    if isinstance(contents, bytes | bytearray | memoryview):
        return {"bytes": _added(memoryview(contents).cast("B"), parts)}
    if isinstance(contents, list | tuple):
        return [_encoded(each, parts) for each in contents]
    if isinstance(contents, dict):
        return {"dict": [[_encoded(key, parts), _encoded(each, parts)] for key, each in contents.items()]}
    import numpy as np  # imported lazily, as the child's path is set only after start

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
    """Append the bytes of a part; returns their offset and length."""
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
    # copied for alignment, and so that the array does not keep the whole message alive
    return np.frombuffer(bytearray(_part(text, raw)), _dtype(text["array"])).reshape(text["shape"])


def _dtype(name: str) -> Any:
    """A dtype by its name in ml_dtypes, or by numpy's string, which begins with the byte order."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills this process if necessary
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # stdout is for answers, so prints of a runtime go to stderr
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
    except Exception as error:  # reported in answer to the first call
        failure = _error_data(error)
    objects: dict[str, Any] = {}
    while True:
        try:
            function, arguments, source = receive(requests)
        except EOFError:
            return
        try:
            result = failure or {"result": _called(served, objects, function, arguments, source) if function else None}
            answer = packed(result)
        except Exception as error:
            answer = packed(_error_data(error))
        send(answers, answer)


def _called(served: Any, objects: dict[str, Any], function: str, arguments: list[Any], source: Any) -> Any:
    """Result of a function of the served file; ``objects`` caches the last source by its key."""
    if source is None:
        return getattr(served, function)(*arguments)
    key, opening, limits = source
    if "tenonnx.limits" in sys.modules:  # the served file has imported it
        sys.modules["tenonnx.limits"].set(**limits)
    if key not in objects:
        objects.clear()
        objects[key] = served.opened(*opening)
    return getattr(served, function)(objects[key], *arguments)


def _error_data(error: Exception) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    main(*sys.argv[1:])
