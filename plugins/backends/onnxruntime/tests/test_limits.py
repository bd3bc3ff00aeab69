"""Time and memory limits of verification on onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenonnx as tx
from tenonnx.extend.checks import NoAnswer, OutOfMemory, ProcessCrashed
from tenonnx_onnxruntime import plain


def ending_with(error: Exception, opset: int, monkeypatch: Any) -> tx.Graph:
    """A graph of an opset, while the worker process answers every call with an error."""

    def ended(*given: Any, **named: Any) -> Any:
        raise error

    monkeypatch.setattr(plain.process().worker, "call", ended)
    graph = tx.Graph(opsets={"ai.onnx": opset})
    x = graph.input("x", "float32", (2,))
    graph.output("y", x + x)
    return graph


@pytest.mark.parametrize(("error", "limit"), [(NoAnswer, "seconds"), (OutOfMemory, "memory")])
def test_beyond_a_limit_nothing_is_compared_there(error: Any, limit: str, monkeypatch: Any) -> None:
    graph = ending_with(error("onnxruntime ended"), 21, monkeypatch)
    result = tx.verify(graph, graph.copy(), feeds={"x": np.ones(2, np.float32)})
    assert {each.backend for each in result.outputs} == {"numpy"}
    notes = [note for note in result.notes if "onnxruntime ended" in note]
    assert any(f"tenonnx.limits.set({limit}=" in note for note in notes)


def test_a_file_that_crashes_its_target_is_not_written(tmp_path: Any, monkeypatch: Any) -> None:
    graph = ending_with(ProcessCrashed("onnxruntime crashed"), 17, monkeypatch)
    with pytest.raises(tx.VerificationFailed, match="onnxruntime"):
        tx.convert(graph, tmp_path / "out.onnx", target="onnxruntime-1.22")
    assert not (tmp_path / "out.onnx").exists()
