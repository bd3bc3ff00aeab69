"""``tenonnx bench`` on the tiny chain, with numpy only and with a slower backend."""

import json

import numpy as np
import pytest

import tenonnx as tx
from tenonnx.registry.discovery import Plugin
from tenonnx_run import base


class Other:
    """Runs on numpy, or raises ``error``."""

    speed = 1

    def __init__(self, error=None):
        self.error = error

    def compile(self, graph, *, state=None, strict=False):
        if self.error is not None:
            raise self.error
        return graph.compile("numpy", state=state)


@pytest.fixture
def other(monkeypatch, tmp_path):
    """Install a backend called other, with an empty home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def install(backend):
        monkeypatch.setattr(base, "plugins", lambda _: [Plugin("other", "m", "g", "tenonnx-other", "1")])
        genuine = Plugin.load
        monkeypatch.setattr(Plugin, "load", lambda p: backend if p.group == "g" else genuine(p))

    return install


def test_all_backends_are_listed_side_by_side_and_nothing_is_written(tenonnx, model, other, tmp_path):
    other(Other())
    before = set(tmp_path.rglob("*"))
    result = tenonnx("bench", model, "--seconds", "0.01", "--input-shapes", "x:4,3")
    assert result.code == 0, result.err
    header, *calls, second, numpy, line, kept = result.out.splitlines()
    assert header.split()[:5] == ["backend", "median", "p90", "p99", "calls/s"]
    assert [each.split()[0] for each in calls] == ["numpy", "other"]
    assert second.split()[:3] == ["backend", "first", "call"]
    assert (numpy.split()[0], line.split()[0], line.split()[-1]) == ("numpy", "other", "0")
    assert kept == 'the backend "auto" goes by rank: nothing was kept (--choose FILE keeps this order)'
    assert "random inputs from seed 0: x" in result.err
    assert set(tmp_path.rglob("*")) == before


def test_the_order_by_speed_is_written_to_the_given_file(tenonnx, model, other, tmp_path, monkeypatch):
    other(Other())
    result = tenonnx("bench", model, "--seconds", "0.01", "--choose", "choice.json")
    assert result.code == 0, result.err
    assert result.out.endswith("used where TENONNX_BACKEND_CHOICE=choice.json is set\n")
    found = json.loads((tmp_path / "choice.json").read_text())
    assert sorted(found["backends"]) == sorted(found["seconds"]) == ["numpy", "other"]
    assert found["backends"][0] == min(found["seconds"], key=found["seconds"].get)
    (tmp_path / "choice.json").write_text('{"backends": ["numpy"]}')
    monkeypatch.setenv("TENONNX_BACKEND_CHOICE", str(tmp_path / "choice.json"))
    assert tx.load(model).compile().backend == "numpy"
    again = tenonnx("bench", model, "--seconds", "0.01")
    assert again.out.endswith('the backend "auto" follows ' + f"{tmp_path / 'choice.json'} (TENONNX_BACKEND_CHOICE)\n")


def test_json_has_seconds(tenonnx, model, other, tmp_path):
    other(Other())
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    result = tenonnx("bench", model, "--seconds", "0.01", "--input", "x=x.npy", "--json")
    first, second = result.json["backends"]
    assert (first["backend"], second["backend"]) == ("numpy", "other")
    assert 0 < first["seconds"] < 1
    assert second["difference"] == 0
    assert first["seconds"] <= first["p90"] <= first["p99"]
    assert {first["ratio"]["median"], second["ratio"]["median"]} >= {1.0}
    assert result.err == ""


def test_a_single_backend_is_measured(tenonnx, model, other):
    other(Other())
    result = tenonnx("bench", model, "--seconds", "0.01", "--backend", "other", "--json")
    assert [row["backend"] for row in result.json["backends"]] == ["other"]


def test_a_backend_that_cannot_run_the_model_has_a_reason(tenonnx, model, other):
    other(Other(tx.UnsupportedOp("no kernel of Double")))
    result = tenonnx("bench", model, "--seconds", "0.01")
    assert result.code == 0
    assert "other: no kernel of Double" in result.err
    assert [line.split()[0] for line in result.out.splitlines()] == ["backend", "numpy", "backend", "numpy", "the"]


class Broken(Other):
    """Fails on its first call."""

    backend, state = "other", {}

    def compile(self, graph, *, state=None, strict=False):
        return self

    def __call__(self, feeds):
        raise self.error


@pytest.mark.parametrize("kind", [Other, Broken])
@pytest.mark.parametrize("error", [ValueError("no buffer"), SystemExit("gone")])
def test_a_backend_that_breaks_is_named_and_the_others_are_timed(tenonnx, model, other, kind, error):
    other(kind(error))
    result = tenonnx("bench", model, "--seconds", "0.01")
    assert result.code == 0
    assert 'other: plugin "other" of tenonnx-other 1 cannot ' in result.err
    assert str(error) in result.err
    assert [line.split()[0] for line in result.out.splitlines()] == ["backend", "numpy", "backend", "numpy", "the"]


def test_a_backend_that_is_not_installed_is_refused(tenonnx, model, other):
    other(Other())
    result = tenonnx("bench", model, "--backend", "warp")
    assert (result.code, result.out) == (2, "")
    assert 'no backend "warp" is installed' in result.err
    assert "numpy, other" in result.err


def test_nodes_are_timed_and_those_of_an_expanded_op_count_for_its_node(tenonnx, model):
    result = tenonnx("bench", model, "--nodes", "--input-shapes", "x:4,3")
    assert result.code == 0, result.err
    first, header, *lines = result.out.splitlines()
    assert first.startswith("numpy: ")
    assert header.split() == ["node", "op", "time", "share"]
    graph = tx.load(model)
    assert {line.split()[0] for line in lines} <= {node.label for node in graph.nodes}
    found = tenonnx("bench", model, "--nodes", "--json").json["backends"]
    (numpy,) = [each["nodes"] for each in found if each["backend"] == "numpy"]
    assert all(each["in_graph"] and each["seconds"] >= 0 for each in numpy)
    assert [each["seconds"] for each in numpy] == sorted((each["seconds"] for each in numpy), reverse=True)


def test_nodes_of_the_other_models_are_timed_where_one_fails(tenonnx, model, unknown):
    result = tenonnx("bench", unknown, model, "--nodes", "--input-shapes", "x:4,3")
    assert result.code == 0, result.err
    assert result.out.startswith(f"{model}, numpy: ")
    assert f"{unknown}, numpy: " in result.err
    first, second = tenonnx("bench", unknown, model, "--nodes", "--json").json["backends"]
    assert "acme" in first["problem"]
    assert second["nodes"]
    result = tenonnx("bench", unknown, unknown, "--nodes")
    assert (result.code, result.out) == (2, "")


def test_a_backend_that_times_no_nodes_is_refused_with_those_that_do(tenonnx, model, other):
    other(Other())
    result = tenonnx("bench", model, "--nodes", "--backend", "other")
    assert result.code == 2
    assert "this backend cannot measure single nodes" in result.err
    assert "numpy" in result.err


def test_models_threads_and_batch_sizes_are_listed_side_by_side(tenonnx, model, other, tmp_path):
    other(Other())
    line = ["bench", model, model, "--seconds", "0.01", "--batch-size", "1,2", "--backend", "numpy"]
    result = tenonnx(*line)
    assert result.code == 0, result.err
    header, *rows = result.out.splitlines()[:5]
    assert header.split()[:4] == ["backend", "batch", "median", "p90"]
    assert [row.split()[1] for row in rows] == ["1", "2", "1", "2"]
    assert [row["batch_size"] for row in tenonnx(*line, "--json").json["backends"]] == [1, 2, 1, 2]


@pytest.mark.parametrize("text", ["0", "1,x", "", "-1", "1,,2"])
def test_an_invalid_list_of_batch_sizes_is_refused(tenonnx, model, text):
    result = tenonnx("bench", model, "--batch-size", text)
    assert (result.code, result.out) == (2, "")
    assert "not a list of positive numbers such as 1,8,32" in result.err


def test_times_are_drawn_to_a_file(tenonnx, model, other, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    other(Other())
    result = tenonnx("bench", model, "--seconds", "0.01", "--plot", "times.svg")
    assert result.code == 0, result.err
    assert (tmp_path / "times.svg").read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("seconds", "text"), [(25.512, "25.5 s"), (1234.5, "1,234 s"), (0.0025, "2.5 ms"), (6.54e-5, "65.4 µs")]
)
def test_times_have_a_unit_that_people_read(seconds, text):
    from tenonnx_cli.output import human_seconds

    assert human_seconds(seconds) == text
