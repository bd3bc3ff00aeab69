"""Test suite of a framework's front end: valid calls at several sizes, and invalid ones."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tenonnx as tx
from tenonnx.extend import Graph, InvalidCall, TensorType
from tenonnx.extend.testing import plugins
from tenonnx_testing.run import Failure


@dataclass(frozen=True)
class SourceCase:
    """A source object for a front end: ``make`` creates it, ``draw`` draws example inputs.

    ``dims`` are the dynamic axes by input, ``options`` further options of ``tx.load``. ``component`` is the row of the
    case in ``component_table``.
    """

    make: Callable[[], Any]
    draw: st.SearchStrategy[tuple[Any, ...]]
    dims: Mapping[Any, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    component: str = ""

    @property
    def examples(self) -> tuple[Any, ...]:
        """Example inputs of one call, always the same."""
        found: list[tuple[Any, ...]] = []

        @settings(max_examples=1, database=None, derandomize=True, phases=[Phase.generate], deadline=None)
        @given(self.draw)
        def once(examples: tuple[Any, ...]) -> None:
            found.append(examples)

        once()
        return found[0]

    def read(self, *examples: Any, **options: Any) -> Graph:
        keywords = {**({"dims": self.dims} if self.dims else {}), **self.options, **options}
        return tx.load(self.make(), *(examples or self.examples), **keywords)


def source_conformance(
    cases: Mapping[str, SourceCase], *, frontend: str, opsets: Sequence[int] = (13, 17, 21), examples: int = 5
) -> Callable[..., None]:
    """Return a pytest function that tests the front end named ``frontend`` on each case.

    - The front end's own verifier accepts the graph, also at other sizes of dynamic dims, for ``examples`` drawn calls,
      and in a file of each opset.
    - Dynamic dims have their names in the graph, in every form of the option; inputs and outputs have those of the
      caller.
    - The verifier rejects a changed graph.
    - Reading twice gives the same file.
    - Invalid dims, names and options raise ``InvalidCall``.
    """
    checks = {**_CHECKS, "files": _files(opsets), "drawn calls": _drawn(examples)}

    @pytest.mark.parametrize("check", checks)
    @pytest.mark.parametrize("name", cases)
    def test(name: str, check: str) -> None:
        try:
            checks[check](cases[name], _reader(frontend))
        except (Failure, tx.VerificationFailed) as failure:
            pytest.fail(f"{name}: {failure}", pytrace=False)

    return test


def _reader(name: str) -> Any:
    result = next((plugin.load() for plugin in plugins("tenonnx.frontends") if plugin.name == name), None)
    if result is None:
        pytest.fail(f"no front end is called {name}", pytrace=False)
    if not callable(getattr(result, "verifier", None)):
        pytest.fail(f"front end {name} has a function read, but no function verifier", pytrace=False)
    return result


def _verified(case: SourceCase, reader: Any, graph: Graph, examples: Sequence[Any] = ()) -> Any:
    options = {**({"dims": case.dims} if case.dims else {}), **case.options}
    return reader.verifier(case.make(), *(examples or case.examples), **options)(graph)


def _numbers(case: SourceCase, reader: Any) -> None:
    found = _verified(case, reader, case.read(verify=False)).raise_if_failed()
    if not found.outputs:
        raise Failure(f"no output was compared: {'; '.join(found.notes)}")
    sizes = {each.run for each in found.outputs}
    if case.dims and len(sizes) < 2:
        raise Failure(f"numbers were not compared at other sizes, but at {', '.join(sizes)}")


def _files(opsets: Sequence[int]) -> Callable[[SourceCase, Any], None]:
    def check(case: SourceCase, reader: Any) -> None:
        graph = case.read(verify=False)
        for opset in opsets:
            stream = io.BytesIO()
            tx.export(graph, stream, opset_version=opset)
            _verified(case, reader, tx.load(stream.getvalue())).raise_if_failed()

    return check


def _drawn(examples: int) -> Callable[[SourceCase, Any], None]:
    def check(case: SourceCase, reader: Any) -> None:
        @settings(
            max_examples=examples,
            database=None,
            derandomize=True,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case.draw)
        def each(given_examples: tuple[Any, ...]) -> None:
            graph = case.read(*given_examples, verify=False)
            _verified(case, reader, graph, given_examples).raise_if_failed()

        each()

    return check


def _dims(case: SourceCase, reader: Any) -> None:
    graph = case.read(verify=False)
    if problems := tx.infer(graph, strict=False):
        raise Failure(f"the graph is invalid: {problems[0]}")
    names = [value.name for value in graph.inputs]
    for key, axes in case.dims.items():
        value = graph.inputs[key] if isinstance(key, int) else graph.inputs[names.index(key)]
        for axis, dim in axes.items():
            found = value.type.shape[axis] if isinstance(value.type, TensorType) and value.type.shape else None
            if str(found) != dim:
                raise Failure(f'dim {axis} of input "{value.name}" is not {dim}, but {found}')
    if not case.dims:
        return
    named = {names[key] if isinstance(key, int) else key: axes for key, axes in case.dims.items()}
    for form in ({"dims": named}, {"dims": json.dumps(named)}, {"dims": None, "dynamic_axes": named}):
        again = case.read(verify=False, **form)
        if list(map(str, again.inputs)) != list(map(str, graph.inputs)):
            raise Failure(f"dims mean different things in each form; {form} gives {again.inputs}")


def _names(case: SourceCase, reader: Any) -> None:
    graph = case.read(verify=False)
    taken = inspect.signature(reader.read).parameters
    for option, values in (("input_names", graph.inputs), ("output_names", graph.outputs)):
        if option not in taken or option in case.options or (option == "input_names" and case.dims):
            continue
        wanted = [f"{option[0]}{k}" for k in range(len(values))]
        again = case.read(verify=False, **{option: wanted})
        found = again.inputs if option == "input_names" else again.outputs
        if [value.name for value in found] != wanted:
            raise Failure(f"{option} does not give the names {wanted}, but {[value.name for value in found]}")
        _expect_invalid_call(case, {option: [*wanted, "one_more"]})


def _bad_calls(case: SourceCase, reader: Any) -> None:
    if "dims" in inspect.signature(reader.read).parameters:
        first = case.read(verify=False).inputs[0]
        _expect_invalid_call(case, {"dims": {"no input of this name": {0: "n"}}})
        _expect_invalid_call(case, {"dims": {first.name: {99: "n"}}})
        _expect_invalid_call(case, {"dims": "{nonsense"})
    _expect_invalid_call(case, {"no_such_option": 1})


def _expect_invalid_call(case: SourceCase, options: Mapping[str, Any]) -> None:
    try:
        case.read(verify=False, **options)
    except InvalidCall:
        return
    raise Failure(f"InvalidCall was not raised for {options}")


def _changed_graph(case: SourceCase, reader: Any) -> None:
    graph = case.read(verify=False)
    for value in graph.outputs:
        if isinstance(value.type, TensorType) and value.type.dtype.is_float:
            with graph.building():
                changed = value + 1.0
            graph.outputs[graph.outputs.index(value)] = changed
            name = value.name
            graph.rename(value, graph.unique_name(f"{name}_before"))
            graph.rename(changed, name)
            if _verified(case, reader, graph).equal:
                raise Failure(f'the verifier missed that output "{name}" is another')
            return


def _twice(case: SourceCase, reader: Any) -> None:
    first, second = (io.BytesIO(), io.BytesIO())
    for stream in (first, second):
        tx.export(case.read(verify=False), stream)
    if first.getvalue() != second.getvalue():
        raise Failure("reading twice gave different files")


_CHECKS: Mapping[str, Callable[[SourceCase, Any], None]] = {
    "numbers": _numbers,
    "dims": _dims,
    "names": _names,
    "bad calls": _bad_calls,
    "something else": _changed_graph,
    "read twice": _twice,
}


def component_table(cases: Mapping[str, str], title: str) -> str:
    """Return a Markdown table of case names (``cases`` maps them to components), one row per component."""
    lines = [f"| | {title} |", "| --- | --- |"]
    for component in dict.fromkeys(cases.values()):
        lines.append(f"| {component} | {', '.join(name for name, of in cases.items() if of == component)} |")
    return "\n".join(lines) + "\n"
