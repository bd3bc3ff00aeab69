"""``tenonnx bench`` on the tiny chain, where numpy is the only backend, and beside one that is slower."""

import json

import numpy as np
import pytest

import tenonnx as tx
from tenonnx.backend import base
from tenonnx.registry.discovery import Plugin


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
    """Installs a backend called other, and gives the file in which figures are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def install(backend):
        monkeypatch.setattr(base, "plugins", lambda _: [Plugin("other", "m", "g", "tenonnx-other", "1")])
        monkeypatch.setattr(Plugin, "load", lambda plugin: backend)
        return tmp_path / "cache" / "tenonnx" / "backends.json"

    return install


def test_all_backends_stand_side_by_side_and_the_figures_are_kept(tenonnx, model, other):
    cache = other(Other())
    result = tenonnx("bench", model, "--seconds", "0.01", "--input-shapes", "x:4,3")
    assert result.code == 0, result.err
    header, numpy, line = result.out.splitlines()
    assert header.split("  ")[1] == "backend"
    assert (numpy.split()[0], line.split()[0], line.split()[-1]) == ("numpy", "other", "0")
    assert "random inputs from seed 0: x" in result.err
    (kept,) = json.loads(cache.read_text()).values()
    assert kept.keys() == {"other"}


def test_json_has_seconds(tenonnx, model, other, tmp_path):
    other(Other())
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    result = tenonnx("bench", model, "--seconds", "0.01", "--input", "x=x.npy", "--json")
    first, second = result.json["backends"]
    assert (first["backend"], second["backend"]) == ("numpy", "other")
    assert 0 < first["seconds"] < 1
    assert second["difference"] == 0
    assert result.err == ""


def test_one_backend_alone_is_measured_and_nothing_kept(tenonnx, model, other):
    cache = other(Other())
    result = tenonnx("bench", model, "--seconds", "0.01", "--backend", "other", "--json")
    assert [row["backend"] for row in result.json["backends"]] == ["other"]
    assert not cache.exists()


def test_a_backend_that_cannot_run_the_model_says_why(tenonnx, model, other):
    cache = other(Other(tx.UnsupportedOp("no kernel of Double")))
    result = tenonnx("bench", model, "--seconds", "0.01")
    assert result.code == 0
    assert "other: no kernel of Double" in result.err
    assert len(result.out.splitlines()) == 2
    assert not cache.exists()


class Broken(Other):
    """Breaks at its first call."""

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
    assert len(result.out.splitlines()) == 2


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
    assert header.split() == ["node", "op", "ms", "share"]
    graph = tx.load(model)
    assert {line.split()[0] for line in lines} <= {node.label for node in graph.nodes}
    found = tenonnx("bench", model, "--nodes", "--json").json["backends"]
    (numpy,) = [each["nodes"] for each in found if each["backend"] == "numpy"]
    assert all(each["in_graph"] and each["seconds"] >= 0 for each in numpy)
    assert [each["seconds"] for each in numpy] == sorted((each["seconds"] for each in numpy), reverse=True)


def test_a_backend_that_times_no_nodes_is_refused_with_those_that_do(tenonnx, model, other):
    other(Other())
    result = tenonnx("bench", model, "--nodes", "--backend", "other")
    assert result.code == 2
    assert "this backend cannot measure single nodes" in result.err
    assert "numpy" in result.err
