"""Test suite of a front end or file format: types, outputs, and round trips through files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import tenonnx as tx
from tenonnx.extend import Graph
from tenonnx.extend.checks import Tolerance, compare, structure_problems
from tenonnx_testing.run import Failure


@dataclass(frozen=True)
class Example:
    """A source for ``tx.load``, with feeds and expected outputs.

    ``tolerance`` replaces the default where the source's library computes differently; it has to give a reason.
    """

    source: Any
    feeds: Mapping[str, Any]
    expected: Mapping[str, Any]
    examples: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Tolerance | None = None

    def read(self) -> Graph:
        return tx.load(self.source, *self.examples, **self.options)


def frontend_conformance(
    make: Callable[[Path], Mapping[str, Example]], *, write: Callable[[Graph, Path], object] | None = None
) -> Callable[..., None]:
    """Return a pytest function that tests the graphs of a front end.

    ``make`` takes an empty folder and returns examples by name. For each example:

    - all types can be inferred, and numpy computes the expected outputs;
    - reading changes no file, and gives the same graph twice;
    - the graph stays the same through an ONNX export that ``onnx.checker`` accepts, and through a native file;
    - with ``write``, a function of a graph and the path of the example, it stays the same through the package's own
      format.
    """
    checks = {name: check for name, check in _CHECKS.items() if write is not None or name != "its own file"}

    @pytest.mark.parametrize("name", checks)
    def test(name: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            inside = Path(folder, "examples")
            inside.mkdir()
            found = make(inside)
            if not found:
                pytest.fail("no example given", pytrace=False)
            for title, example in found.items():
                try:
                    checks[name](example, inside, write)
                except (Failure, tx.VerificationFailed) as failure:
                    pytest.fail(f"{title}: {failure}", pytrace=False)

    return test


def _types(example: Example, folder: Path, write: Any) -> None:
    graph = example.read()
    problems = tx.infer(graph, strict=False)
    if problems:
        raise Failure(f"the graph is invalid: {problems[0]}")


def _numbers(example: Example, folder: Path, write: Any) -> None:
    found = example.read().run(example.feeds, backend="numpy")
    if list(found) != list(example.expected):
        raise Failure(f"outputs are not {', '.join(example.expected)}, but {', '.join(found)}")
    for name, expected in example.expected.items():
        result = compare(found[name], expected, tolerance=example.tolerance)
        if not result.equal:
            raise Failure(f'output "{name}": {result.reason}')


def _twice(example: Example, folder: Path, write: Any) -> None:
    before = _files(folder)
    first, second = example.read(), example.read()
    if _files(folder) != before:
        raise Failure("reading changed a file")
    if [node.title for node in first.nodes] != [node.title for node in second.nodes]:
        raise Failure("reading twice gave different nodes or names")
    tx.verify(first, second, feeds=example.feeds, backends=["numpy"], structure=False).raise_if_failed()


def _through_onnx(example: Example, folder: Path, write: Any) -> None:
    path = folder / "again.onnx"
    _check_written(example, path, tx.export)
    if problems := structure_problems(path):
        raise Failure(f"onnx.checker rejects the exported file: {problems[0]}")


def _through_native(example: Example, folder: Path, write: Any) -> None:
    _check_written(example, folder / "again.safetensors", lambda graph, path: graph.save(path))


def _through_own(example: Example, folder: Path, write: Any) -> None:
    if not isinstance(example.source, Path):
        raise Failure("the source of an example with write is not a path")
    _check_written(example, example.source.with_name(f"again{example.source.suffix}"), write)


def _check_written(example: Example, path: Path, write: Callable[[Graph, Path], object]) -> None:
    graph = example.read()
    write(graph, path)
    again = tx.load(path) if path.suffix in (".onnx", ".safetensors") else replace(example, source=path).read()
    tx.verify(graph, again, feeds=example.feeds, backends=["numpy"]).raise_if_failed()


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


_CHECKS: Mapping[str, Callable[[Example, Path, Any], None]] = {
    "types": _types,
    "numbers": _numbers,
    "read twice": _twice,
    "an ONNX file": _through_onnx,
    "a native file": _through_native,
    "its own file": _through_own,
}
