"""Parallel work: every part is done once, by at most the allowed threads, and errors are raised."""

import os
import threading

import numpy as np
import pytest

from tenonnx.op import threads


@pytest.fixture(autouse=True)
def processors(monkeypatch):
    monkeypatch.setattr(threads, "_processors", lambda: 3)
    monkeypatch.setattr(threads, "_pool", None)


def noted(length, least):
    """Counts of each entry, and the threads that handled it."""
    done, by = np.zeros(length, int), set()

    def work(start, end):
        done[start:end] += 1
        by.add(threading.get_ident())

    threads.in_parts(work, length, least)
    return done.tolist(), by


@pytest.mark.parametrize(("length", "least"), [(0, 1), (1, 1), (2, 1), (10, 3), (10, 4), (1000, 7), (5, 0)])
def test_every_entry_is_done_once(length, least):
    assert noted(length, least)[0] == [1] * length


def test_little_work_stays_where_it_is():
    assert noted(29, 15)[1] == {threading.get_ident()}


def test_one_thread_may_be_all_that_is_allowed():
    with threads.allowed(1):
        assert noted(100, 1)[1] == {threading.get_ident()}


def test_parts_work_at_once():
    barrier = threading.Barrier(3, timeout=300)
    threads.in_parts(lambda start, end: barrier.wait(), 3, 1)
    assert not barrier.broken


def test_a_part_has_no_parts():
    inner = []
    threads.in_parts(lambda start, end: inner.append(noted(9, 1)), 3, 1)
    assert [done for done, _ in inner] == [[1] * 9] * 3


@pytest.mark.parametrize("place", [0, 2])
def test_errors_arrive_when_all_parts_have_ended(place):
    ended = []

    def work(start, end):
        if start == place:
            raise ValueError("of a part")
        ended.append(start)

    with pytest.raises(ValueError, match="of a part"):
        threads.in_parts(work, 3, 1)
    assert len(ended) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is nothing to fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_starts_its_own_threads():
    noted(3, 1)
    child = os.fork()
    if child == 0:
        os._exit(0 if noted(3, 1)[0] == [1, 1, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0
