"""Selection by ``auto``: the highest-ranked installed backend that accepts the graph."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tiny

import tenonnx as tx
from tenonnx_run.auto import CHOICE

X = {"x": np.array([1, 2], np.float32)}
STATE = {"state": {"w": "next"}}


class Ranked:
    """numpy under another name, which counts calls."""

    def __init__(self, name, speed, error=None, **declared):
        self.name, self.speed, self.error = name, speed, error
        self.compiled = self.calls = 0
        vars(self).update(declared)

    def compile(self, graph, *, state=None, strict=False):
        self.compiled += 1
        if self.error is not None:
            raise self.error
        backend, program = self, graph.compile("numpy", state=state)

        class Program:
            backend, state = self.name, program.state

            def __call__(self, feeds):
                backend.called()
                return program(feeds)

        return Program()

    def called(self):
        self.calls += 1


def graph():
    """``2 * x + w`` and ``w + 1``."""
    made = tx.Graph(opsets={"tiny": 5})
    made.registry = tiny.registry()
    w = made.input("w", "float32", (1,))
    w.data = tx.Graph().variable("w", np.array([10], np.float32)).data
    made.output("y", tiny.affine(made.input("x", "float32", ("n",)), w))
    made.output("next", tiny.add(w, 1.0))
    return made


@pytest.mark.parametrize("options", [{}, STATE])
def test_only_the_best_rank_runs_and_once(installed, tmp_path, monkeypatch, options):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    installed.update(low=Ranked("low", 1), high=Ranked("high", 9), middle=Ranked("middle", 5))
    program = graph().compile(**options)
    assert program(X)["y"].tolist() == [12, 14]
    assert program.backend == "high"
    assert [(each.compiled, each.calls) for each in installed.values()] == [(0, 0), (1, 1), (0, 0)]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("declared", "options", "taken"),
    [
        ({"runtime": "no_such_runtime"}, {}, "low"),
        ({"runtime": "json"}, {}, "high"),
        ({"unsupported": {"tiny::Affine"}}, {}, "low"),
        ({"unsupported": ["Add"]}, {}, "low"),
        ({"unsupported": ("other::Affine",)}, {}, "high"),
        ({"trains": False}, STATE, "low"),
        ({"trains": False}, {}, "high"),
    ],
)
def test_a_backend_declares_what_it_accepts(installed, declared, options, taken):
    installed.update(high=Ranked("high", 9, **declared), low=Ranked("low", 1))
    assert graph().compile(**options).backend == taken
    assert installed["high"].compiled == (taken == "high")


def test_a_runtime_is_imported_when_it_compiles_and_only_then():
    program = """
        import sys
        from tenonnx.tools import backends
        loaded = {name: plugin.load() for name, plugin in backends().items()}
        assert "onnxruntime" in loaded, loaded
        print([name for name in (*loaded, "openvino") if name in sys.modules])
    """
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(line.strip() for line in program.splitlines())],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "[]\n", done.stderr


def test_numpy_runs_what_no_backend_accepts(installed):
    installed.update(high=Ranked("high", 9, unsupported={"Affine"}))
    assert graph().compile().backend == "numpy"


def test_numpy_computes_a_call_that_fails_on_a_third_party_backend(third_parties):
    class Broken(Ranked):
        def called(self):
            raise SystemExit(3)

    third_parties.update(broken=Broken("broken", 9))
    with pytest.warns(tx.FallbackWarning, match='plugin "broken" of tenonnx-broken 1 cannot run a graph'):
        assert graph().compile()(X)["y"].tolist() == [12, 14]
    with pytest.raises(tx.PluginError, match="cannot run a graph") as caught:
        graph().compile("broken")(X)
    assert "SystemExit: 3" in caught.value.given


@pytest.mark.parametrize("given", [None, {"z": 1}, {"y": 1}])
def test_the_names_of_outputs_are_checked(third_parties, given):
    class Other(Ranked):
        def compile(self, graph, *, state=None, strict=False):
            class Program:
                backend, state = "other", {}

                def __call__(self, feeds):
                    return given

            return Program()

    third_parties.update(other=Other("other", 9))
    with pytest.raises(tx.PluginError, match='plugin "other" of tenonnx-other 1 returned the wrong outputs'):
        graph().compile("other")(X)


# ----- the user's choice ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "taken"),
    [(["low", "high", "numpy"], "low"), (["numpy", "high"], "numpy"), (["gone", "high"], "high"), ([], "numpy")],
)
def test_a_file_of_the_user_changes_the_order(installed, tmp_path, monkeypatch, order, taken):
    installed.update(high=Ranked("high", 9), low=Ranked("low", 1))
    (tmp_path / "choice.json").write_text(json.dumps({"backends": order}))
    monkeypatch.setenv(CHOICE, str(tmp_path / "choice.json"))
    assert graph().compile().backend == taken


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"backends": 3}', '{"backends": [3]}', None])
def test_a_choice_that_cannot_be_read_is_an_error(installed, tmp_path, monkeypatch, text):
    if text is not None:
        (tmp_path / "choice.json").write_text(text)
    monkeypatch.setenv(CHOICE, str(tmp_path / "choice.json"))
    with pytest.raises(tx.InvalidCall, match=r"choice\.json"):
        graph().compile()


class OnDevices(Ranked):
    def compile(self, graph, *, state=None, strict=False, device="here"):
        if device != "here":
            raise tx.InvalidCall("the device must be one that there is", given=device, available="here")
        return super().compile(graph, state=state, strict=strict)


def test_options_restrict_the_choice_to_backends_that_accept_them(installed):
    installed.update(high=Ranked("high", 9), low=OnDevices("low", 1))
    assert graph().compile(device="here").backend == "low"
    with pytest.raises(tx.InvalidCall, match="one that there is"):
        graph().compile(device="there")
    with pytest.raises(tx.InvalidCall, match="does not take these options"):
        graph().compile(depth=3)
