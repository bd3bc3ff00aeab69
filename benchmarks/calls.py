"""Call overhead of the onnxruntime backend over ``InferenceSession.run``, for forty small models on one thread.

``OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/calls.py`` prints processor time, the minimum of nine
rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import onnxruntime
from measure import geometric, rounds, table
from small_models import small_models

from tenonnx.formats.onnx.writer import to_model

#: Rows of the table: ranges of a model's runtime in microseconds.
BANDS = ((0, 50), (50, 100), (100, 1_000), (1_000, 10**9))


def repeated(call: Callable[[], object], count: int) -> None:
    for _ in range(count):
        call()


def main() -> None:
    found: list[tuple[float, float, float]] = []
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    for graph, feeds in small_models().values():
        session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), options, ["CPUExecutionProvider"])
        program = graph.compile("onnxruntime", session_options={"intra_op_num_threads": 1})
        own, ours, bound = partial(session.run, None, feeds), partial(program, feeds), program.bind(feeds)
        once = rounds({"own": own}, 5, 3, min)["own"]
        count = max(5, int(0.01 / once))
        turns = {
            name: partial(repeated, call, count) for name, call in (("own", own), ("ours", ours), ("bound", bound))
        }
        each = rounds(turns, 9, 1, min, time.process_time)
        found.append((each["own"] / count * 1e6, each["ours"] / each["own"], each["bound"] / each["own"]))
    rows: list[list[object]] = []
    for low, high in BANDS:
        ours = [call for own, call, _ in found if low <= own < high]
        bound = [call for own, _, call in found if low <= own < high]
        if ours:
            rows.append([f"from {low} on", len(ours), geometric(ours), max(ours), geometric(bound), max(bound)])
    columns = ["microseconds", "models", "a call, mean", "at most", "a bound call, mean", "at most"]
    table("Calls beside those of onnxruntime", columns, rows)


if __name__ == "__main__":
    main()
