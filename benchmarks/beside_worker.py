"""Work of one tool in its own environment: ``python beside_worker.py TASK TOOL ROUNDS < jobs.json``.

Jobs are ``{"id", "source", "output", "opset"}``. Each prints a line of JSON with its median seconds, or the error; the
last line has the peak memory of the process in KiB. ``beside.py`` starts this, also in environments without tenonnx.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Job = dict[str, Any]

#: Seconds that one estimator may take to be fitted and exported.
LONGEST = 4


def convert_tenonnx(job: Job) -> None:
    import tenonnx as tx

    tx.export(tx.retarget(tx.load(job["source"]), opset_version=job["opset"]), job["output"])


def convert_version_converter(job: Job) -> None:
    import onnx
    from onnx import version_converter

    onnx.save(version_converter.convert_version(onnx.load(job["source"]), job["opset"]), job["output"])


def simplify_tenonnx(job: Job) -> None:
    import tenonnx as tx

    tx.export(tx.simplify(tx.load(job["source"])), job["output"])


def simplify_onnxsim(job: Job) -> None:
    import onnx
    import onnxsim

    onnx.save(onnxsim.simplify(onnx.load(job["source"]))[0], job["output"])


def simplify_onnxslim(job: Job) -> None:
    import onnxslim

    onnxslim.slim(job["source"], job["output"])


def quantize_tenonnx(job: Job) -> None:
    import tenonnx as tx

    tx.export(tx.quantize(tx.load(job["source"]), mode="dynamic")[0], job["output"])


def quantize_onnxruntime(job: Job) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(job["source"], job["output"])


def estimator_tenonnx(estimator: Any, rows: Any, path: str) -> None:
    import tenonnx as tx

    tx.export(tx.load(estimator, rows, verify=False), path)


def estimator_skl2onnx(estimator: Any, rows: Any, path: str) -> None:
    from skl2onnx import to_onnx

    Path(path).write_bytes(to_onnx(estimator, rows).SerializeToString())


TOOLS: dict[str, dict[str, Callable[..., None]]] = {
    "convert": {"tenonnx": convert_tenonnx, "onnx.version_converter": convert_version_converter},
    "simplify": {"tenonnx": simplify_tenonnx, "onnxsim": simplify_onnxsim, "onnxslim": simplify_onnxslim},
    "quantize": {"tenonnx": quantize_tenonnx, "onnxruntime.quantization": quantize_onnxruntime},
    "estimators": {"tenonnx": estimator_tenonnx, "skl2onnx": estimator_skl2onnx},
}


def timed(work: Callable[[], None], rounds: int) -> float:
    """The median of the processor seconds of ``rounds`` calls, after one that does not count."""
    times = []
    for k in range(rounds + 1):
        start = time.process_time()
        work()
        times += [time.process_time() - start] if k else []
    return statistics.median(times)


def files(jobs: list[Job], work: Callable[[Job], None], rounds: int) -> Iterator[Job]:
    """The outcome of each job with a file."""
    for job in jobs:
        yield {"id": job["id"], "begun": True}
        try:
            yield {"id": job["id"], "seconds": timed(lambda job=job: work(job), rounds)}  # type: ignore[misc]
        except Exception as error:
            yield {"id": job["id"], "error": said(error)}


def estimators(folder: str, export: Callable[..., None], rounds: int) -> Iterator[Job]:
    """The outcome of each estimator of scikit-learn that can be fitted with its defaults on the rows of iris."""
    import numpy as np
    from sklearn.datasets import load_iris
    from sklearn.utils import all_estimators

    X, y = load_iris(return_X_y=True)  # noqa: N806
    X = X.astype(np.float32)  # noqa: N806
    for name, kind in all_estimators():
        np.random.seed(0)
        try:
            with within(LONGEST):
                estimator = kind()
                with suppress(Exception):
                    estimator.set_params(random_state=0)
                estimator.fit(X, y)
                method = next(m for m in ("predict", "transform") if hasattr(estimator, m))
                wanted = getattr(estimator, method)(X)
                wanted = np.asarray(wanted.toarray() if hasattr(wanted, "toarray") else wanted)
        except BaseException:  # needs other data or arguments, or takes too long
            continue
        path = f"{folder}/{name}.onnx"
        try:
            with within(LONGEST):
                seconds = timed(lambda: export(estimator, X, path), rounds)  # noqa: B023
        except Exception as error:
            yield {"id": name, "error": said(error)}
            continue
        yield {"id": name, "seconds": seconds, **judged(path, X, wanted)}


def judged(path: str, rows: Any, wanted: Any) -> Job:
    """Whether the first output of a file, in onnxruntime, is what the estimator gives."""
    import numpy as np
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        given = np.asarray(session.run(None, {session.get_inputs()[0].name: rows})[0])
        if given.size != wanted.size:
            return {"right": False, "why": f"{given.shape} in place of {wanted.shape}"}
        given = given.reshape(wanted.shape)
        if wanted.dtype.kind in "fc":
            return {"right": bool(np.allclose(given, wanted, rtol=1e-3, atol=1e-4)), "why": "other numbers"}
        return {"right": bool(np.mean(given == wanted) > 0.99), "why": "other labels"}
    except Exception as error:
        return {"right": False, "why": said(error)}


class within:  # noqa: N801
    """Raises ``TimeoutError`` after so many seconds."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def late(*_: Any) -> None:
            raise TimeoutError(f"not within {self.seconds} seconds")

        signal.signal(signal.SIGALRM, late)
        signal.alarm(self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)


def said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def main() -> None:
    task, tool, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tools print
    warnings.simplefilter("ignore")
    given = json.load(sys.stdin)
    work = TOOLS[task][tool]
    outcomes = estimators(given, work, rounds) if task == "estimators" else files(given, work, rounds)
    for outcome in outcomes:
        print(json.dumps(outcome), file=answers, flush=True)
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    print(json.dumps({"peak": int(peak)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
