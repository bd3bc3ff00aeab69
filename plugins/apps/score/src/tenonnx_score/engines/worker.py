"""A process that makes parts: it takes a task and then parts on stdin, answers on stdout, and ends with its run."""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

from tenonnx_score.engines.frames import receive, send


def main() -> None:
    """Make parts until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print
    sys.stdout = sys.stderr
    wanted: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(wanted,), daemon=True).start()
    import pyarrow as pa

    from tenonnx_score.engines.outcomes import outcome
    from tenonnx_score.parts import Part, Task

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    task: Task = wanted.get()
    while True:
        part: Part = wanted.get()
        found = outcome(task, part, lambda rows: send(answers, ("rows", rows)))
        send(answers, ("outcome", found))


def _listen(wanted: queue.SimpleQueue[Any]) -> None:
    """Pass on what is wanted; when the run is gone, there is nobody to work for."""
    try:
        while True:
            wanted.put(receive(sys.stdin.buffer))
    except EOFError:
        os._exit(0)


if __name__ == "__main__":
    main()
