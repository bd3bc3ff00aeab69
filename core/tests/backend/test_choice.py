"""Which of several backends ``auto`` takes: the one that is measured to be the fastest."""

import json

import numpy as np
import pytest
import tiny

import tenonnx as tx
from tenonnx.backend import choice
from tenonnx.registry.discovery import Plugin

X = {"x": np.array([1, 2], np.float32)}


class Clock:
    """The time of these tests, which passes while a ``Timed`` computes."""

    now = 0.0

    def perf_counter(self):
        return self.now


class Timed:
    """numpy under another name, some seconds later."""

    def __init__(self, name, seconds, speed=1, error=None):
        self.name, self.seconds, self.speed, self.error = name, seconds, speed, error
        self.calls = 0

    def compile(self, graph, *, state=None, strict=False):
        backend, program = self, graph.compile("numpy", state=state)

        class Program:
            backend = self.name
            state = program.state

            def __call__(self, feeds):
                backend.calls += 1
                if backend.error is not None:
                    raise backend.error
                choice.time.now += backend.seconds
                return program(feeds)

        return Program()


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(choice, "time", Clock())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tenonnx" / "backends.json"


def graph(length=1):
    """``2 * x + w`` and ``w + 1``, and so many nodes."""
    made = tx.Graph(opsets={"tiny": 5})
    made.registry = tiny.registry()
    w = made.input("w", "float32", (1,))
    w.data = tx.Graph().variable("w", np.array([10], np.float32)).data
    made.output("y", tiny.affine(made.input("x", "float32", ("n",)), w))
    following = tiny.add(w, 1.0)
    for _ in range(length):
        following = tiny.add(following, 0.0)
    made.output("next", following)
    return made


def test_the_first_call_measures_and_the_next_program_remembers(installed, cache):
    installed.update(slow=Timed("slow", 0.02, speed=9), fast=Timed("fast", 0.0))
    program = graph().compile()
    assert program(X)["y"].tolist() == [12, 14]
    assert program.backend == "fast"
    (seconds,) = json.loads(cache.read_text()).values()
    assert seconds == pytest.approx({"fast": 0.0, "slow": 0.02})
    calls = installed["slow"].calls
    again = graph().compile()
    assert again(X)["y"].tolist() == [12, 14]
    assert (again.backend, installed["slow"].calls) == ("fast", calls)


def test_another_graph_is_measured_anew(installed, cache):
    installed.update(slow=Timed("slow", 0.01), fast=Timed("fast", 0.0))
    for length in (1, 2):
        graph(length).compile()(X)
    assert len(json.loads(cache.read_text())) == 2


def test_graphs_that_read_another_output_are_told_apart(installed, cache):
    installed.update(slow=Timed("slow", 0.01), fast=Timed("fast", 0.0))
    for takes_second in (False, True):
        made = tx.Graph(opsets={"tiny": 5})
        made.registry = tiny.registry()
        _, second = tiny.pair(made.input("x", "float32", (2,)))
        third = tiny.exp(second)
        made.output("y", tiny.add(third, second if takes_second else third))
        made.compile()(X)
    assert len(json.loads(cache.read_text())) == 2


def test_what_was_measured_on_changes_no_state(installed):
    installed.update(slow=Timed("slow", 0.01, speed=9), fast=Timed("fast", 0.0))
    program = graph().compile(state={"w": "next"})
    program.state["w"] = [20]
    assert [program(X)["y"].tolist() for _ in range(3)] == [[22, 24], [23, 25], [24, 26]]
    assert program.state["w"].tolist() == [23]


def test_a_backend_that_fails_at_the_first_call_is_out(installed):
    installed.update(broken=Timed("broken", 0.0, speed=9, error=tx.InvalidCall("no")), slow=Timed("slow", 0.01))
    program = graph().compile()
    assert program(X)["y"].tolist() == [12, 14]
    assert program.backend == "slow"


def test_where_all_fail_the_first_says_why(installed):
    installed.update(one=Timed("one", 0.0, speed=9, error=tx.InvalidCall("first")))
    installed.update(two=Timed("two", 0.0, error=tx.InvalidCall("second")))
    with pytest.raises(tx.InvalidCall, match="first"):
        graph().compile()(X)


def test_under_a_deadline_nothing_is_measured(installed, cache):
    installed.update(first=Timed("first", 0.0, speed=9), other=Timed("other", 0.0))
    assert graph().compile(deadline=5)(X)["y"].tolist() == [12, 14]
    assert (installed["first"].calls, installed["other"].calls) == (1, 0)
    assert not cache.exists()


def test_a_large_graph_is_compiled_once(installed, monkeypatch):
    monkeypatch.setattr("tenonnx.backend.auto.LARGEST_COMPARED", 0)
    installed.update(first=Timed("first", 0.01, speed=9), other=Timed("other", 0.0))
    assert graph().compile().backend == "first"


@pytest.mark.parametrize("contents", ["", "[1]", '{"a": 1}', '{"a": {"fast": "quick"}}', "\x00"])
def test_a_damaged_cache_is_no_cache(installed, cache, contents):
    cache.parent.mkdir()
    cache.write_text(contents)
    installed.update(slow=Timed("slow", 0.01), fast=Timed("fast", 0.0))
    program = graph().compile()
    program(X)
    assert program.backend == "fast"
    assert len(json.loads(cache.read_text())) == 1


def test_where_the_cache_cannot_be_written_it_is_measured_again(installed, cache):
    cache.parent.write_text("a file in its place")
    installed.update(slow=Timed("slow", 0.01), fast=Timed("fast", 0.0))
    for _ in range(2):
        program = graph().compile()
        program(X)
        assert program.backend == "fast"


def test_the_cache_does_not_grow_for_ever(monkeypatch, cache):
    monkeypatch.setattr(choice, "REMEMBERED", 3)
    for length in range(5):
        choice.remember({"fast": 1.0}, graph(length), {})
    assert len(json.loads(cache.read_text())) == 3
    assert choice.recalled(graph(4), {}) == {"fast": 1.0}
    assert choice.recalled(graph(0), {}) == {}


# ----- backends of others ---------------------------------------------------------------------------------------------


class Wrong(Timed):
    """A backend that is faster than all others, and adds ``by`` to what it gives."""

    def __init__(self, by=1.0, dtype=np.float32):
        super().__init__("wrong", 0.0, speed=9)
        self.by, self.dtype = by, dtype

    def compile(self, graph, *, state=None, strict=False):
        wrong, program = self, super().compile(graph, state=state)

        class Program:
            backend, state = "numpy", program.state

            def __call__(self, feeds):
                return {name: (array + wrong.by).astype(wrong.dtype) for name, array in program(feeds).items()}

        return Program()


@pytest.mark.parametrize("wrong", [Wrong(), Wrong(np.nan), Wrong(0, np.float64)])
@pytest.mark.parametrize("deadline", [None, 5])
def test_a_backend_of_others_must_give_what_numpy_gives(strangers, cache, wrong, deadline):
    strangers.update(wrong=wrong, slow=Timed("slow", 0.01))
    program = graph().compile(deadline=deadline)
    with pytest.warns(tx.PluginWarning, match='plugin "wrong" of tenonnx-wrong 1 must give what the graph computes'):
        assert program(X)["y"].tolist() == [12, 14]
    assert program.backend == "slow"
    assert program(X)["y"].tolist() == [12, 14]
    if deadline is None:
        (kept,) = json.loads(cache.read_text()).values()
        assert kept.keys() == {"slow"}


def test_numpy_takes_the_place_of_all_that_are_wrong(strangers, cache):
    strangers.update(wrong=Wrong())
    program = graph().compile(state={"w": "next"})
    with pytest.warns(tx.PluginWarning, match="differs from that of numpy"):
        assert program(X)["y"].tolist() == [12, 14]
    assert program.backend == "numpy"
    assert program(X)["y"].tolist() == [13, 15]
    assert not cache.exists()


def test_rounding_is_not_wrong_and_who_is_right_is_not_asked_again(strangers):
    strangers.update(near=Wrong(1e-4), slow=Timed("slow", 0.01))
    for _ in range(2):
        program = graph().compile()
        assert program(X)["y"] == pytest.approx([12, 14], abs=1e-3)
        assert program.backend == "near"


def test_of_a_large_graph_ours_is_taken_first(strangers, monkeypatch):
    monkeypatch.setattr("tenonnx.backend.auto.LARGEST_COMPARED", 0)
    monkeypatch.setattr(Plugin, "is_ours", property(lambda plugin: plugin.name == "ours"))
    strangers.update(ours=Timed("ours", 0.01), wrong=Wrong())
    program = graph().compile()
    assert program(X)["y"].tolist() == [12, 14]
    assert program.backend == "ours"


# ----- libraries that take long to import -----------------------------------------------------------------------------


class Costly(Timed):
    """A backend of a library that nobody has imported."""

    library = "a library that takes seconds"


STATE = {"state": {"w": "next"}}


def test_a_large_library_is_imported_for_no_single_call(installed):
    installed.update(known=Timed("known", 0.02), costly=Costly("costly", 0.0))
    program = graph().compile()
    assert program(X)["y"].tolist() == [12, 14]
    assert (program.backend, installed["costly"].calls) == ("known", 0)


@pytest.mark.parametrize(("seconds", "chosen"), [(0.02, "costly"), (0.002, "known")])
def test_it_is_for_a_training_that_repays_it(installed, cache, seconds, chosen):
    installed.update(known=Timed("known", seconds), costly=Costly("costly", 0.0))
    program = graph().compile(**STATE)
    assert program(X)["y"].tolist() == [12, 14]
    assert program.backend == chosen
    assert [len(figures) for figures in json.loads(cache.read_text()).values()] == [1 + (chosen == "costly")]
    assert graph().compile(**STATE).backend == chosen


def test_it_is_where_it_is_imported_already(installed, monkeypatch):
    installed.update(known=Timed("known", 0.02), costly=Costly("costly", 0.0))
    monkeypatch.setattr(Costly, "library", "json")
    program = graph().compile()
    program(X)
    assert program.backend == "costly"


def test_it_is_where_nothing_else_runs(installed):
    installed.update(costly=Costly("costly", 0.0))
    assert graph().compile().backend == "costly"


class OnDevices(Costly):
    def compile(self, graph, *, state=None, strict=False, device="here"):
        if device != "here":
            raise tx.InvalidCall("the device must be one that there is", given=device, available="here")
        return super().compile(graph, state=state, strict=strict)


def test_options_choose_among_those_that_take_them(installed):
    installed.update(known=Timed("known", 0.0), costly=OnDevices("costly", 0.02))
    assert graph().compile(device="here").backend == "costly"
    with pytest.raises(tx.InvalidCall, match="one that there is"):
        graph().compile(device="there")
    with pytest.raises(tx.InvalidCall, match="must take these options"):
        graph().compile(depth=3)
