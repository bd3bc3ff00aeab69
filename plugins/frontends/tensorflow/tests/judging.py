"""Verification of cases against TensorFlow."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx_litert.reading.frontend import verifier
from tenonnx_tensorflow.verification import array_of

OPSETS = (13, 17, 21)


@dataclass(frozen=True)
class Case:
    """A TensorFlow function or a Keras model, its arguments, and sizes of dynamic axes."""

    make: Callable[[], Any]
    examples: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    opsets: Sequence[int] = OPSETS
    refused: str = ""


def array(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0, seed: int = 0) -> Any:
    """Random numbers of a shape."""
    random = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return random.integers(int(low), int(high) + 1, shape).astype(dtype)
    if np.dtype(dtype).kind == "c":
        return (random.uniform(low, high, shape) + 1j * random.uniform(low, high, shape)).astype(dtype)
    return random.uniform(low, high, shape).astype(dtype)


def judge(case: Case) -> int:
    """Read a case, verify it at several sizes and its file at each opset; returns the number of nodes."""
    source = case.make()
    if case.refused:
        with pytest.raises(tx.NotRepresentable, match=case.refused):
            tx.load(source, *case.examples, **case.options)
        return 0
    if isinstance(source, Path):
        graph = tx.load(source, verify=False, **case.options)
        compare = verifier(source)
        assert compare is not None
        result = compare(graph)
        result.raise_if_failed()
        assert result.outputs or result.unverified, result.notes  # the interpreter ran the file
    else:
        graph = tx.load(source, *case.examples, **case.options)
    feeds = _feeds(graph, case)
    expected = graph.run(feeds) if feeds is not None else None
    for opset in case.opsets:
        stream = io.BytesIO()
        tx.export(graph, stream, opset_version=opset)
        model = onnx.load_from_string(stream.getvalue())
        onnx.checker.check_model(model, full_check=True)
        versions = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
        assert versions["ai.onnx"] == opset
        if expected is not None:
            result = tx.load(model).run(feeds)
            for name, wanted in expected.items():
                _same(result[name], wanted, f"{name} at opset {opset}")
    return len(graph.nodes)


def _feeds(graph: tx.Graph, case: Case) -> dict[str, Any] | None:
    if not all(isinstance(each, np.ndarray) for each in case.examples) or len(case.examples) != len(graph.inputs):
        return None
    return {v.name: array_of(a) for v, a in zip(graph.inputs, case.examples, strict=True)}


def _same(actual: Any, expected: Any, what: str) -> None:
    if np.asarray(expected).dtype.kind in "fV":
        np.testing.assert_allclose(
            np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol=1e-4, atol=1e-5, err_msg=what
        )
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=what)
