"""Process of a job: takes requests on stdin and answers on stdout, until stdin ends."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import warnings
from typing import Any, BinaryIO

from tenonnx_serve.frames import HEAD, framed


def main() -> None:
    """Answer requests, each ``{"task": name, "arguments": {...}}``, sequentially."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # prints of other code go to stderr
    sys.stdout = sys.stderr
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    from tenonnx_cli.tools import watched
    from tenonnx_serve.tasks import TASKS
    from tenonnx_serve.tasks.failures import described

    warnings.simplefilter("ignore")
    with watched():
        while True:
            request = requests.get()
            try:
                message = {"result": TASKS[request["task"]](_teller(answers), **request["arguments"])}
                frame = framed(message)
            except Exception as error:
                frame = framed({"error": described(error)})
            answers.write(frame)


def _teller(answers: BinaryIO) -> Any:
    def tell(**news: Any) -> None:
        answers.write(framed({"news": news}))

    return tell


def _listen(stream: BinaryIO, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Enqueue requests; exit when the server is gone."""
    while len(head := stream.read(HEAD.size)) == HEAD.size:
        requests.put(json.loads(stream.read(HEAD.unpack(head)[0])))
    os._exit(0)


if __name__ == "__main__":
    main()
