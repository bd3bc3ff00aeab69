"""Running a model on backends in a child process, and classifying the outcome."""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import Graph, TenonnxError, load
from tenonnx.tools import FunctionRunner, compile_graph
from tenonnx_cli.tools import complete

#: Number of words of an error message that identify it.
_WORDS = 8

#: Outcome of a run: ``kind`` is ok, error, nan or differs; ``said`` is the error without names and numbers.
Outcome = dict[str, str]


def outcome(path: str, backends: Sequence[str], seed: int, tolerance: float | None, seconds: float) -> Outcome:
    """Run a model on random inputs on one backend, or compare two.

    A backend is a name, or the path of a Python interpreter whose environment has a runtime.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _outcome(path, backends, seed, tolerance, seconds)
        except Exception as error:  # backends may raise anything
            return {"kind": "error", "said": f"{type(error).__name__}: {plain(str(error))}"}


def _outcome(path: str, backends: Sequence[str], seed: int, tolerance: float | None, seconds: float) -> Outcome:
    graph = load(path)
    results: list[Mapping[str, Any]] = []
    feeds: Mapping[str, Any] = {}
    for backend in backends:
        try:
            feeds, outputs = complete(graph, _program(graph, path, backend, seconds), feeds, seed, {})
        except TenonnxError as error:
            return {"kind": "error", "said": f"{backend}: {plain(str(error))}"}
        results.append(outputs)
    if len(results) == 2:
        return _compared(results[0], results[1], tolerance)
    names = [name for name, each in results[0].items() if _is_broken(each)]
    is_nan = bool(names) and not any(map(_is_broken, feeds.values()))
    return {"kind": "nan" if is_nan else "ok", "said": ""}


def is_interpreter(backend: str) -> bool:
    """Whether a backend is the path of a Python interpreter."""
    return os.sep in backend


def _program(graph: Graph, path: str, backend: str, seconds: float) -> Any:
    if not is_interpreter(backend):
        return compile_graph(graph, backend, strict=backend != "numpy")
    names = [value.name for value in graph.outputs]
    runner = _runner(backend, seconds)
    return lambda feeds: dict(zip(names, runner(path, feeds, names), strict=True))


@functools.cache
def _runner(python: str, seconds: float) -> FunctionRunner:
    return FunctionRunner(f"{Path(__file__).with_name('runtimes.py')}:run", seconds, python)


def _compared(one: Mapping[str, Any], two: Mapping[str, Any], tolerance: float | None) -> Outcome:
    from tenonnx.extend.checks import Tolerance, compare

    allowed = None if tolerance is None else Tolerance(tolerance, tolerance, "as asked")
    for name, contents in one.items():
        if not compare(two[name], contents, accumulation=4096, tolerance=allowed).equal:
            return {"kind": "differs", "said": ""}
    return {"kind": "ok", "said": ""}


def _is_broken(contents: Any) -> bool:
    """Whether an array contains NaN or infinity."""
    array = np.asarray(contents)
    return array.dtype.kind in "fc" and not bool(np.isfinite(array).all())


def plain(text: str) -> str:
    """The first words of an error message, without quoted names, bracketed text, paths and numbers."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^\]]*\]|\{[^}]*\}|\S*/\S*|\d+", "", text)
    return " ".join(text.split()[:_WORDS])
