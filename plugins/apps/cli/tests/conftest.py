"""The command line in this process, on models of the ``tiny`` family."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from tenonnx.formats.onnx.writer import to_model
from tenonnx.graph.graph import Graph
from tenonnx_cli import main

sys.path.insert(0, str(Path(__file__).parents[4] / "core" / "tests"))

import tiny


@pytest.fixture(autouse=True)
def tiny_operators():
    from tenonnx.graph.definitions import defined_by

    with defined_by(tiny.registry()):
        yield


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def tenonnx(capfd, monkeypatch, tmp_path):
    """Runs one command in an empty folder, with the tiny family as the only plugin."""
    monkeypatch.setattr("tenonnx.registry.registry._default", tiny.registry())
    monkeypatch.setenv("TENONNX_PLUGINS", "")
    monkeypatch.delenv("TENONNX_TRACEBACK", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Result(code, *capfd.readouterr())

    return run


def chain():
    """``exp(affine(2 * x * w))``: one op is composite, and one has another definition below version 4."""
    graph = Graph("chain", opsets={"tiny": 4})
    graph.doc = "a chain of ops"
    graph.metadata["license"] = "none"
    x = graph.input("x", "float32", ("n", 3))
    scaled = tiny.multiply(tiny.double(x), graph.variable("w", np.full(3, 0.5, np.float32)))
    graph.output("y", tiny.exp(tiny.affine(scaled, scale=0.5, shift=0.25)))
    return graph


@pytest.fixture
def model(tmp_path):
    """The chain as a file."""
    path = tmp_path / "chain.onnx"
    onnx.save(to_model(chain()), path)
    return path


@pytest.fixture
def unknown(tmp_path):
    """A model whose ops no package provides."""
    proto = to_model(chain())
    for node in proto.graph.node:
        node.domain = "acme"
    proto.opset_import.add(domain="acme", version=2)
    onnx.save(proto, tmp_path / "unknown.onnx")
    return tmp_path / "unknown.onnx"
