"""Selection of a backend, and programs of numpy."""

import numpy as np
import pytest
import tiny

import tenonnx as tx
from tenonnx_run.fallback import RunFailure


def graph(**defaults):
    """``2 * x + w`` and ``w + 1``; ``w`` has a default if one is given."""
    made = tx.Graph(opsets={"tiny": 5})
    made.registry = tiny.registry()
    x = made.input("x", "float32", ("n",))
    w = made.input("w", "float32", (1,))
    if "w" in defaults:
        w.data = tx.Graph().variable("w", np.array([defaults["w"]], np.float32)).data
    made.output("y", tiny.affine(x, w))
    made.output("next", tiny.add(w, 1.0))
    return made


X = np.array([1, 2], np.float32)


class Stub:
    """A mocked backend, and its program."""

    backend = "stub"

    def __init__(self, speed, error=None):
        self.speed, self.error, self.options, self.state = speed, error, None, {}

    def compile(self, graph, *, state=None, strict=False, **options):
        self.options = options
        if self.error is not None:
            raise self.error
        return self

    def __call__(self, feeds):
        return {}


def test_auto_passes_options_on(installed):
    installed.update(slow=Stub(1), fast=Stub(2))
    graph().compile(threads=3)
    assert (installed["fast"].options, installed["slow"].options) == ({"threads": 3}, None)
    assert graph().compile("slow") is installed["slow"]


def test_auto_uses_the_next_backend_that_can_run_the_graph(installed):
    installed.update(slow=Stub(1), fast=Stub(2, tx.UnsupportedOp("no kernel")))
    assert graph().compile(strict=True) is installed["slow"]


def test_no_plugin_is_blamed_for_an_invalid_model(installed):
    installed.update(slow=Stub(1), fast=Stub(2, tx.InvalidModel("scale has the wrong shape")))
    assert graph().compile(strict=True) is installed["slow"]
    with pytest.raises(tx.InvalidModel, match="scale has the wrong shape"):
        graph().compile("fast")
    del installed["slow"]
    with pytest.raises(tx.InvalidModel, match="scale has the wrong shape"):
        graph().compile(strict=True)


@pytest.mark.parametrize("others", [{}, {"slow": Stub(1)}])
def test_numpy_computes_a_call_that_auto_refuses(installed, others, monkeypatch):
    def refuse(self, feeds):
        raise RunFailure("no kernel for this length")

    monkeypatch.setattr(Stub, "__call__", refuse)
    installed.update(fast=Stub(2), **others)
    program = graph(w=3.0).compile()
    with pytest.warns(tx.FallbackWarning, match="numpy computes what stub refuses: no kernel for this length"):
        assert program({"x": X})["y"].tolist() == [5, 7]
    with pytest.raises(RunFailure):
        graph(w=3.0).compile(strict=True)({"x": X})


@pytest.mark.parametrize("error", [tx.UnsupportedOp("no kernel"), tx.NotRepresentable("no form")])
def test_numpy_is_the_last_resort_with_a_warning(installed, error):
    installed.update(fast=Stub(2, error))
    with pytest.warns(tx.FallbackWarning, match=error.what):
        program = graph().compile(threads=3)
    assert program.backend == "numpy"
    with pytest.raises(type(error)):
        graph().compile(strict=True)


def test_a_plugin_that_cannot_be_imported_is_left_out(installed):
    installed.update(broken=tx.PluginError("broken"), slow=Stub(1))
    with pytest.warns(tx.PluginWarning, match="broken"):
        assert graph().compile(strict=True) is installed["slow"]
    del installed["slow"]
    with pytest.warns(tx.PluginWarning), pytest.warns(tx.FallbackWarning, match="broken"):
        graph().compile()


@pytest.mark.parametrize("error", [ZeroDivisionError("oh"), KeyError("no"), tx.InvalidCall("wrongly refused")])
def test_auto_survives_whatever_a_backend_raises_and_names_it(installed, error):
    installed.update(slow=Stub(1), fast=Stub(2, error))
    with pytest.warns(tx.PluginWarning, match=f"tenonnx-fast.*\n.*{type(error).__name__}"):
        assert graph().compile(strict=True) is installed["slow"]


def test_auto_survives_a_backend_that_returns_no_program(installed):
    class Lacking(Stub):
        def compile(self, graph, **options):
            return None

    installed.update(slow=Stub(1), fast=Lacking(2))
    with pytest.warns(tx.PluginWarning, match="compile returned NoneType"):
        assert graph().compile(strict=True) is installed["slow"]


@pytest.mark.parametrize("name", ["plain", "auto"])
def test_options_that_a_backend_lacks_are_refused_with_what_it_takes(installed, name):
    class Plain(Stub):
        def compile(self, graph, *, state=None, strict=False, speed="high"):
            return self

    installed.update(plain=Plain(1))
    with pytest.raises(tx.InvalidCall, match="the backend plain does not take these options") as caught:
        graph().compile(name, sped="low")
    assert "sped" in caught.value.given
    assert "speed='high'" in caught.value.available
    assert graph().compile(name, speed="low", strict=True) is installed["plain"]


@pytest.mark.parametrize("error", [ZeroDivisionError("oh"), None])
def test_a_backend_that_is_asked_for_by_name_and_fails_is_named(installed, error):
    class Failing(Stub):
        def compile(self, graph, **options):
            if error is not None:
                raise error

    installed.update(slow=Failing(1))
    with pytest.raises(tx.PluginError, match='plugin "slow" of tenonnx-slow 1 cannot compile a graph') as caught:
        graph().compile("slow")
    assert ("ZeroDivisionError: oh" if error else "TypeError: compile returned NoneType") in caught.value.given


def test_wrong_options_are_not_a_reason_to_fall_back(installed):
    installed.update(fast=Stub(2, tx.InvalidCall("no such option")))
    with pytest.raises(tx.InvalidCall, match="no such option"):
        graph().compile(threads=3)


def test_without_other_backends_numpy_needs_no_warning(installed):
    assert graph().compile().backend == "numpy"
    assert graph().compile("numpy", strict=True).backend == "numpy"
    with pytest.raises(tx.InvalidCall, match="numpy") as caught:
        graph().compile(cores=3)
    assert "cores" in str(caught.value)


def test_a_backend_that_is_not_installed_is_named(installed):
    with pytest.raises(tx.InvalidCall, match="warp") as caught:
        graph().compile("warp")
    assert "numpy" in caught.value.available
    assert "pip" not in caught.value.do, "a name that was made up must not be installed"


# ----- inputs with a default ------------------------------------------------------------------------------------------


def test_a_default_is_used_unless_the_input_is_fed():
    program = graph(w=10).compile("numpy")
    for w, expected in ((None, 10), (5, 5), (None, 10)):
        feeds = {"x": X} if w is None else {"x": X, "w": np.array([w], np.float32)}
        results = program(feeds)
        assert results["y"].tolist() == [2 + expected, 4 + expected]
        assert results["next"].item() == expected + 1


def test_compiling_leaves_the_graph_as_it_was():
    made = graph(w=10)
    made.compile("numpy")({"x": X, "w": np.zeros(1, np.float32)})
    assert [v.name for v in made.inputs] == ["x"]
    assert [v.name for v in made.variables] == ["w"]


# ----- state ----------------------------------------------------------------------------------------------------------


def test_state_is_replaced_after_each_call():
    program = graph(w=10).compile("numpy", state={"w": "next"})
    assert [program({"x": X})["y"].tolist() for _ in range(3)] == [[12, 14], [13, 15], [14, 16]]
    assert program.state["w"].item() == 13


def test_state_without_a_default_has_to_be_set():
    program = graph().compile("numpy", state={"w": "next"})
    assert len(program.state) == 0
    with pytest.raises(tx.InvalidFeed, match='state "w" is not set'):
        program({"x": X})
    program.state["w"] = [1]
    assert program({"x": X})["y"].tolist() == [3, 5]


def test_state_and_results_are_apart():
    program = graph(w=10).compile("numpy", state={"w": "next"})
    given = np.array([1], np.float32)
    program.state["w"] = given
    given[:] = 7
    read = program.state["w"]
    read[:] = 8
    results = program({"x": X})
    results["next"][:] = 9
    assert program.state["w"].item() == 2


def test_results_that_are_read_late_are_those_of_their_call():
    program = graph(w=10).compile("numpy", state={"w": "next"})
    first, second = program({"x": X}), program({"x": X})
    assert [first["next"].item(), second["next"].item()] == [11, 12]
    assert dict(first).keys() == {"y", "next"}
    first["next"][:] = 0
    assert program({"x": X})["next"].item() == 13


@pytest.mark.parametrize(
    "read",
    [
        lambda results: results.setdefault("next"),
        lambda results: dict([results.popitem(), results.popitem()])["next"],
        lambda results: (results | {})["next"],
        lambda results: ({} | results)["next"],
        lambda results: results.pop("next"),
    ],
)
def test_results_that_became_state_are_read_in_any_way(read):
    results = graph(w=10).compile("numpy", state={"w": "next"})({"x": X})
    assert read(results).tolist() == [11]


def test_results_are_equal_to_what_they_hold():
    results = graph(w=10).compile("numpy", state={"w": "next"})({"x": X[:1]})
    assert results != {"y": None, "next": None}
    assert results == results.copy()


def test_results_keep_what_is_written_into_them():
    results = graph(w=10).compile("numpy", state={"w": "next"})({"x": X})
    results["next"] = 5
    assert results.copy()["next"] == 5
    results = graph(w=10).compile("numpy", state={"w": "next"})({"x": X})
    del results["next"]
    assert list(results.items()) == [("y", results["y"])]


def test_a_call_that_fails_leaves_the_state():
    program = graph(w=10).compile("numpy", state={"w": "next"})
    with pytest.raises(tx.InvalidFeed):
        program({"x": np.zeros((2, 2, 2), np.float32)})
    assert program.state["w"].item() == 10


@pytest.mark.parametrize("state", [{"z": "next"}, {"w": "z"}])
def test_state_maps_inputs_to_outputs(state):
    with pytest.raises(tx.InvalidCall, match=r'no graph (in|out)put "z"'):
        graph().compile("numpy", state=state)


@pytest.mark.parametrize("count", [0, -1, 1.5, "two"])
def test_threads_of_numpy_are_a_number(count):
    with pytest.raises(tx.TenonnxError, match="threads is not a positive integer"):
        graph().compile("numpy", threads=count)


def test_options_that_numpy_lacks():
    with pytest.raises(tx.TenonnxError, match="unknown option for the numpy backend") as caught:
        graph().compile("numpy", provider="CPU", threads=1)
    assert "threads" in str(caught.value)
