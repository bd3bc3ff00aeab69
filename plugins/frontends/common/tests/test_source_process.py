"""A source in a worker process: crashes, budgets, and notes on the graph."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import Graph, limits
from tenonnx.extend.checks import CallFailed, NoAnswer, ProcessCrashed, SourceProcess, WorkerEnded, size_of
from tenonnx_frontends import SizedCalls, SourceCall, UnverifiedWarning, verify_calls, warn_unverified

FUNCTIONS = """
import os, signal, time
import numpy as np
calls = 0
def doubled(x):
    global calls
    calls += 1
    return [x + x]
def count(): return calls
held = 0
def opened(*opening):
    global held
    held += 1
    return [held, *opening]
def of_source(source, *arguments): return [*source, *arguments]
def refuse(x): raise ValueError("sizes that do not fit\\nand more")
def crash(x): os.kill(os.getpid(), signal.SIGSEGV)
def hang(x): time.sleep(600)
def wait(seconds): time.sleep(seconds)
def grow(x):
    held = []
    while True: held.append(np.ones(1 << 22, np.uint8)); time.sleep(0.002)
"""

#: Each test has a separate worker.
_numbers = itertools.count()


@pytest.fixture
def process(tmp_path: Path) -> Any:
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    made = SourceProcess(path, f"runtime {next(_numbers)}")
    yield made
    made.worker.close()


@pytest.fixture
def graph() -> Graph:
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", ("batch",))
    graph.output("y", x + x)
    return graph


def _compared(graph: Graph, process: SourceProcess, by_size: dict[int, str]) -> Any:
    """Compare at several sizes, each with one function of the source."""

    def call(sizes: Any) -> Any:
        x = np.ones(sizes["batch"], np.float32)
        return {"x": x}, lambda: process(by_size.get(len(x), "refuse"), x)

    calls = SizedCalls(call)
    result = verify_calls("Runtime", graph, calls.calls_at([{"batch": size} for size in by_size]))
    assert not calls.why_fixed("batch", "Runtime"), "an end is no refusal"
    return result


ENDS = [
    ("crash", r"runtime \d+ crashed its process \(SIGSEGV\)"),
    ("hang", r"runtime \d+ did not answer within .* s; .*tenonnx.limits.set\(seconds="),
    pytest.param(
        "grow",
        r"runtime \d+ took more than .* bytes of memory; .*tenonnx.limits.set\(memory=",
        marks=pytest.mark.skipif(not limits.resident(), reason="the system does not tell the memory of a process"),
    ),
]


@pytest.mark.parametrize(("end", "said"), ENDS)
def test_a_source_that_ends_at_once_leaves_the_graph_unverified(
    end: str, said: str, process: SourceProcess, graph: Graph
) -> None:
    with limits.override(seconds=1, memory=1 << 26):
        result = _compared(graph, process, {2: end, 3: "doubled"})
    assert result.equal
    assert not result.verified
    assert not result.outputs
    with pytest.warns(UnverifiedWarning, match=f"^not verified against Runtime: {said}"):
        warn_unverified(result)
    assert list(result.unverified) == ["y"]


@pytest.mark.parametrize(("end", "said"), ENDS)
def test_comparisons_before_a_crash_count(end: str, said: str, process: SourceProcess, graph: Graph) -> None:
    with limits.override(seconds=2, memory=1 << 26):
        result = _compared(graph, process, {2: "doubled", 3: end, 4: "doubled"})
    assert result.verified
    assert [run.feeds for run in result.runs] == ["batch=2"]
    with pytest.warns(UnverifiedWarning, match=f"^not verified against Runtime at batch=3: {said}"):
        warn_unverified(result)


def test_a_size_that_the_source_refuses_is_reported_with_its_message(process: SourceProcess, graph: Graph) -> None:
    result = _compared(graph, process, {2: "doubled", 3: "doubled", 1: "refuse"})
    assert result.verified
    assert any(note.endswith("Runtime does not take that: ValueError: sizes that do not fit") for note in result.notes)


def test_a_source_that_ended_is_not_started_again(process: SourceProcess) -> None:
    with pytest.raises(ProcessCrashed):
        process("crash", 1)
    with pytest.raises(ProcessCrashed):
        process("count")
    assert process.worker.process_id is None
    other = SourceProcess(Path(process.worker.file), process.worker.name)
    assert other("count") == 0


def test_calls_share_one_budget_of_time(process: SourceProcess) -> None:
    with limits.override(seconds=1):
        process("wait", 0.7)
        with pytest.raises(NoAnswer):
            process("wait", 0.7)


def test_a_deadline_of_the_caller_is_not_a_refusal(process: SourceProcess, graph: Graph) -> None:
    process("count")
    with limits.within(0.5), pytest.raises(tx.OutOfTime):
        _compared(graph, process, {2: "hang"})


def test_calls_in_this_process_have_the_budget_too(graph: Graph) -> None:
    def call(sizes: Any) -> Any:
        x = np.ones(sizes["batch"], np.float32)
        return {"x": x}, lambda: [x + x, time.sleep(1.1)][:1]

    with limits.override(seconds=1):
        result = verify_calls("Runtime", graph, SizedCalls(call).calls_at([{"batch": 2}, {"batch": 3}]))
    assert [run.feeds for run in result.runs] == ["batch=2"]
    assert result.notes == ["not verified against Runtime at batch=3: the calls before took more than the limit of 1 s"]


def test_a_source_is_opened_once_until_another_is_used(process: SourceProcess) -> None:
    def of(*opening: Any) -> SourceProcess:
        return SourceProcess(Path(process.worker.file), process.worker.name, opening=opening)

    first, second = of("a", 1), of("a", 1)
    assert first("of_source", "x") == [1, "a", 1, "x"]
    assert first("of_source") == [1, "a", 1]
    assert second("of_source") == [2, "a", 1]
    assert first("of_source") == [3, "a", 1], "the child holds one source alone"
    assert process("count") == 0, "functions without a source get none"


def test_a_source_that_cannot_be_opened_is_tried_again(process: SourceProcess) -> None:
    broken = SourceProcess(Path(process.worker.file), process.worker.name, opening=())
    process.worker.call("count")
    Path(process.worker.file).write_text("def opened(): raise OSError('gone')\ndef run(source): return 1\n")
    process.worker.close()
    for _ in range(2):
        with pytest.raises(CallFailed) as caught:
            broken("run")
        assert (caught.value.kind, caught.value.given) == ("OSError", "gone")


def test_limits_of_the_caller_apply_in_the_child(process: SourceProcess) -> None:
    functions = (
        "from tenonnx import limits\ndef opened(): return limits.current().depth\ndef same(depth): return depth\n"
    )
    Path(process.worker.file).write_text(functions)
    with limits.override(depth=7):
        assert SourceProcess(Path(process.worker.file), process.worker.name, opening=())("same") == 7


def test_an_exception_does_not_end_the_process(process: SourceProcess) -> None:
    with pytest.raises(CallFailed):
        process("refuse", 1)
    assert process("count") == 0
    assert not issubclass(CallFailed, WorkerEnded)


def test_the_size_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(bytes(4))
    assert size_of(tmp_path) == 7
    assert size_of(tmp_path / "a") == 3


def test_the_sign_of_half_a_turn_is_no_difference() -> None:
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.atan(graph.input("x", "float32", (3,))) * 2)
    feeds = {"x": np.array([np.inf, 1.0, -np.inf], np.float32)}
    half = np.float32(np.pi)

    def compared(*expected: float) -> Any:
        return verify_calls("Runtime", graph, [SourceCall(lambda: feeds, lambda: [np.array(expected, np.float32)])])

    result = compared(-half, half / 2, -half)
    assert result.equal
    assert result.outputs[0].rule == "pi is the same angle as -pi, at 1 of 3 elements"
    assert not compared(-half, -half / 2, -half).equal
    assert not compared(-half, half / 2, 0).equal
    assert compared(half, half / 2, -half).outputs[0].rule == ""
