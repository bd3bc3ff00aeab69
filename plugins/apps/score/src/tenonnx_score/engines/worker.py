"""Worker process: takes a task and then parts on stdin, answers on stdout, and ends with its run."""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

from tenonnx_score.engines.frames import receive, send


def main() -> None:
    """Compute parts until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of other code go to stderr
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
    """Enqueue requests; exit when the run is gone."""
    try:
        while True:
            wanted.put(receive(sys.stdin.buffer))
    except EOFError:
        os._exit(0)


if __name__ == "__main__":
    main()
