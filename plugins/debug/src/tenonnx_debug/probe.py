"""Probe of models on backends: a program that reads paths of models, a line each, and answers in lines of JSON."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import TenonnxError, load
from tenonnx.tools import compile_graph
from tenonnx_cli.tools import complete

#: Words of an error that tell it from others.
_WORDS = 8

#: What a backend did with a model: ``kind`` is ok, error, nan or differs, ``said`` the error without names and numbers.
Outcome = dict[str, str]


def outcome(path: str, backends: Sequence[str], seed: int, tolerance: float | None) -> Outcome:
    """Outcome of one backend for a model on random inputs, or a difference between two."""
    graph = load(path)
    results: list[Mapping[str, Any]] = []
    feeds: Mapping[str, Any] = {}
    for backend in backends:
        try:
            program = compile_graph(graph, backend, strict=backend != "numpy")
            feeds, found = complete(graph, program, feeds, seed, {})
        except TenonnxError as error:
            return {"kind": "error", "said": f"{backend}: {plain(str(error))}"}
        results.append(found)
    if len(results) == 2:
        return _compared(results[0], results[1], tolerance)
    names = [name for name, each in results[0].items() if _is_broken(each)]
    return (
        {"kind": "nan", "said": ""}
        if names and not any(map(_is_broken, feeds.values()))
        else {"kind": "ok", "said": ""}
    )


def _compared(one: Mapping[str, Any], two: Mapping[str, Any], tolerance: float | None) -> Outcome:
    from tenonnx.extend.checks import Tolerance, compare

    allowed = None if tolerance is None else Tolerance(tolerance, tolerance, "as asked")
    for name, contents in one.items():
        if not compare(two[name], contents, accumulation=4096, tolerance=allowed).equal:
            return {"kind": "differs", "said": ""}
    return {"kind": "ok", "said": ""}


def _is_broken(contents: Any) -> bool:
    """Whether NaN or an infinity is among numbers."""
    array = np.asarray(contents)
    return array.dtype.kind in "fc" and not bool(np.isfinite(array).all())


def plain(text: str) -> str:
    """The beginning of an error without names in quotes, paths and numbers."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^\]]*\]|\{[^}]*\}|\S*/\S*|\d+", "", text)
    return " ".join(text.split()[:_WORDS])


def main() -> None:
    backends, seed, tolerance = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        path = json.loads(line)
        try:
            said = outcome(path, backends, seed, tolerance)
        except Exception as error:  # of a backend that is at fault
            said = {"kind": "error", "said": f"{type(error).__name__}: {plain(str(error))}"}
        Path(f"{path}.json").write_text(json.dumps(said), "utf-8")
        sys.stderr.write("done\n")
        sys.stderr.flush()


if __name__ == "__main__":
    main()
