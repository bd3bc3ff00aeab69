"""Limits: their sources, scope, and errors."""

import contextvars
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_run.compiling import TimedProgram


def test_an_override_applies_inside_the_block_and_in_its_own_thread_only():
    seen = []
    usual = tx.limits.current().elements
    with tx.limits.override(elements=10) as limits:
        assert limits.elements == tx.limits.current().elements == 10
        thread = threading.Thread(target=lambda: seen.append(tx.limits.current().elements), **_empty_context())
        thread.start()
        thread.join()
    assert seen == [usual] == [tx.limits.current().elements]


def _empty_context():
    return {"context": contextvars.Context()} if sys.version_info >= (3, 14) else {}


def test_the_error_names_the_limit_and_how_to_raise_it():
    with tx.limits.override(elements=10), pytest.raises(tx.LimitExceeded) as caught:
        tx.limits.check_elements([3, None, 4], "the test")
    text = str(caught.value)
    for part in (
        "the test exceeds",
        '"elements"',
        "12",
        "up to 10",
        "TENONNX_LIMIT_ELEMENTS",
        "tenonnx.limits.set",
    ):
        assert part in text


class Slow:
    """A program that never ends."""

    backend, state = "toy", {}

    def __call__(self, feeds):
        while (end := tx.limits.end()) is not None and time.monotonic() < end:
            pass
        raise tx.limits.out_of_time()


def test_a_deadline_applies_to_each_call_of_a_program():
    program = TimedProgram(Slow(), 0.01)
    for _ in range(2):
        with pytest.raises(tx.LimitExceeded, match="within its deadline"):
            program({})
    assert tx.limits.end() is None
    program._program.backend = "another"  # as autotuning may decide
    assert program.backend == "another"


def test_a_deadline_does_not_outlast_the_one_around_it():
    with tx.limits.within(10):
        outer = tx.limits.end()
        with tx.limits.within(1000):
            assert tx.limits.end() == outer
        with tx.limits.within(1):
            assert tx.limits.end() < outer
        assert tx.limits.end() == outer


@pytest.mark.parametrize("wrong", [0, -1, "soon", float("nan")])
def test_a_deadline_is_a_number_of_seconds(wrong):
    with pytest.raises(tx.InvalidCall, match="deadline is not a positive number"):
        tx.Graph().compile("numpy", deadline=wrong)


@pytest.mark.parametrize("number", [np.float32(5), np.int64(5)])
def test_a_deadline_may_be_a_number_of_numpy(number):
    assert tx.Graph().compile("numpy", deadline=number)({}) == {}


@pytest.mark.parametrize("wrong", [{"elephants": 1}, {"elements": 0}, {"elements": "many"}])
def test_invalid_limits_are_refused(wrong):
    with pytest.raises(tx.InvalidCall, match=r"unknown limit|a limit is not"), tx.limits.override(**wrong):
        pass


def test_expansions_share_one_budget():
    with tx.limits.override(nodes=3), tx.limits.work():
        for _ in range(3):
            with tx.limits.expanding("an op"):
                pass
        with pytest.raises(tx.LimitExceeded, match='"nodes"'), tx.limits.expanding("an op"):
            pass


def test_expansions_have_a_depth():
    def deeper(left):
        with tx.limits.expanding("an op"):
            if left:
                deeper(left - 1)

    with tx.limits.override(depth=3):
        deeper(2)
        with pytest.raises(tx.LimitExceeded, match='"depth"'):
            deeper(3)


def test_calls_of_one_piece_of_work_are_counted():
    with tx.limits.override(nodes=3):
        for _ in range(20):  # each call is work of its own
            tx.limits.count_call("an op")
        with tx.limits.work():
            for _ in range(3):
                tx.limits.count_call("an op")
            with pytest.raises(tx.LimitExceeded, match=r'the number of calls of an op.* the limit "nodes"'):
                tx.limits.count_call("an op")


@pytest.mark.parametrize(("text", "shown"), [("77", "77"), ("lots", "is not a positive number")])
def test_the_environment_sets_limits(text, shown, monkeypatch):
    monkeypatch.setenv("TENONNX_LIMIT_ELEMENTS", text)
    script = "import tenonnx as tx\ntry: print(tx.limits.current().elements)\nexcept tx.InvalidCall as e: print(e)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert shown in done.stdout


def test_set_applies_to_the_process():
    usual = tx.limits.current().elements
    try:
        tx.limits.set(elements=usual + 1)
        assert tx.limits.current().elements == usual + 1
    finally:
        tx.limits.set(elements=usual)
