"""Worker processes: supported values, limits that kill them, and restarts."""

import os
import signal
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from tenonnx import OutOfTime, limits
from tenonnx.extend.checks import CallFailed, NoAnswer, OutOfMemory, ProcessCrashed, Worker, WorkerEnded, worker_for

FUNCTIONS = """
import os, signal, sys, time
import numpy as np
calls = 0
def same(*arguments):
    global calls
    calls += 1
    return list(arguments)
def count(): return calls
def process(): return os.getpid()
def modules(): return [name for name in sys.modules if name.startswith("tenonnx")]
def die(number):
    print("last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), number)
def leave(): os._exit(7)
def exits(): sys.exit(5)
def fail(): raise KeyError("no such thing")
def noisy():
    print("a runtime prints this"); os.write(1, b"and this"); return 1
def sleep(seconds): time.sleep(seconds)
def unsendable(): return object()
def big(): return np.ones(1 << 60, np.uint8)
def grow():
    held = []
    while True: held.append(np.ones(1 << 22, np.uint8)); time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("worker") / "functions.py"
    path.write_text(FUNCTIONS)
    return path


@pytest.fixture(scope="module")
def worker(file):
    made = Worker(file, "the runtime")
    yield made
    made.close()


CONTENTS = [
    None,
    True,
    -3,
    2.5,
    float("inf"),
    "täxt\ud800\n",
    b"\x00\xff",
    [1, [2, None]],
    {"a": 1, 2: {"b": [3.5]}},
    np.arange(6, dtype=np.int16).reshape(2, 3),
    np.arange(6, dtype=np.float64).reshape(2, 3).T,
    np.float16([[np.nan, -0.0]]),
    np.array(7, np.uint64),
    np.zeros((0, 3), np.complex64),
    np.array([True, False]),
    np.array([["a", ""], ["ünï", "b\nc"]], object),
    np.array(["x", "longer"]),
    np.float32([[1.5, -2]]).astype(ml_dtypes.bfloat16),
    np.float32([0.5]).astype(ml_dtypes.float8_e4m3fn),
]


@pytest.mark.parametrize("contents", CONTENTS, ids=lambda each: type(each).__name__)
def test_contents_arrive_as_they_were_sent(worker, contents):
    (result,) = worker.call("same", contents)
    np.testing.assert_equal(result, contents)
    if isinstance(contents, np.ndarray):
        assert result.shape == contents.shape
        assert result.dtype == (object if contents.dtype.kind in "OU" else contents.dtype)
        assert result.flags.writeable


@pytest.mark.parametrize(
    "contents",
    [object(), np.array([object()]), np.array(["2020-01-01"], "M8[D]")],
    ids=["object", "array of objects", "date"],
)
def test_unpicklable_objects_are_refused_and_the_worker_goes_on(worker, contents):
    with pytest.raises(TypeError):
        worker.call("same", contents)
    assert worker.call("same", 1) == [1]


def test_the_child_knows_nothing_of_the_house_and_serves_many_calls(worker):
    first = worker.call("process")
    assert first != os.getpid()
    assert worker.call("modules") == []
    assert [worker.call("process") for _ in range(3)] == [first] * 3


def test_an_exception_is_reported_and_the_child_lives_on(worker):
    before = worker.call("process")
    with pytest.raises(CallFailed, match="the runtime failed") as caught:
        worker.call("fail")
    assert caught.value.kind == "KeyError"
    assert "no such thing" in caught.value.given
    for odd in ("unknown", "unsendable", "big"):
        with pytest.raises(CallFailed):
            worker.call(odd)
    assert worker.call("process") == before


def test_output_of_a_runtime_is_not_an_answer(worker):
    assert worker.call("noisy") == 1


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        (("die", int(signal.SIGSEGV)), "SIGSEGV"),
        (("die", int(signal.SIGFPE)), "SIGFPE"),
        (("die", int(signal.SIGABRT)), "SIGABRT"),
        (("leave",), "exit code 7"),
        (("exits",), "exit code 5"),
    ],
    ids=lambda each: str(each[-1]) if isinstance(each, tuple) else each,
)
def test_a_crash_is_reported_and_the_next_call_has_a_new_child(worker, call, cause):
    before = worker.call("process")
    with pytest.raises(ProcessCrashed, match="the runtime crashed its process") as caught:
        worker.call(*call)
    assert cause in str(caught.value)
    assert ("last words" in str(caught.value)) == (call[0] == "die")
    assert worker.call("process") != before
    assert worker.call("count") == 0


def test_a_child_that_died_between_two_calls_is_replaced(worker):
    before = worker.call("process")
    os.kill(before, signal.SIGKILL)
    while worker.process_id is not None:
        time.sleep(0.001)
    assert worker.call("process") != before


def test_limits_of_time(worker):
    with pytest.raises(NoAnswer, match=r"did not answer within 0\.05 s"):
        worker.call("sleep", 60, seconds=0.05)
    with limits.within(0.05), pytest.raises(OutOfTime):
        worker.call("sleep", 60, seconds=120)
    assert worker.call("same", 1, seconds=60) == [1]


def test_an_interrupt_ends_the_child(worker):
    before = worker.call("process")
    timer = threading.Timer(0.05, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        worker.call("sleep", 60)
    assert worker.call("process") != before


def test_a_file_that_cannot_be_imported_is_reported(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_runtime")
    worker = Worker(tmp_path / "broken.py", "the runtime")
    for _ in range(2):
        with pytest.raises(CallFailed) as caught:
            worker.call("run")
        assert caught.value.kind == "ModuleNotFoundError"
    worker.close()


@pytest.mark.skipif(not limits.resident(), reason="the system does not tell the memory of a process")
def test_a_limit_of_memory_ends_the_child(worker):
    worker.wait()
    most = limits.resident(worker.process_id) + (64 << 20)
    with pytest.raises(OutOfMemory, match=f"the runtime took more than {most:,} bytes of memory") as caught:
        worker.call("grow", memory=most)
    assert isinstance(caught.value, WorkerEnded)
    assert worker.call("same", 1, memory=1 << 40) == [1]


def test_imports_are_not_counted_as_the_time_of_a_call(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\ndef one(): return 1\n")
    worker = Worker(tmp_path / "slow.py", "the runtime")
    assert worker.call("one", seconds=0.4) == 1
    worker.close()
    with limits.within(0.1), pytest.raises(OutOfTime):
        worker.call("one")
    worker.close()


def test_one_worker_for_a_file(file):
    worker = worker_for(file, "the runtime")
    assert worker is worker_for(file, "the runtime")
    worker.start()
    worker.start()
    assert worker.call("same") == []
    worker.close()
    worker.close()
    assert worker.process_id is None
    assert worker.call("same") == []
    worker.close()
