"""Test suite of a backend: ONNX's single-op models, the cases of installed packages, and the program contract."""

from __future__ import annotations

import fnmatch
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests

import tenonnx as tx
from tenonnx.extend import Graph, InvalidCall, InvalidFeed, Op, UnsupportedOp
from tenonnx.extend.checks import Tolerance, compare
from tenonnx.extend.testing import plugins
from tenonnx_testing.cases import EXAMPLES, Case, collected
from tenonnx_testing.cases import load as load_cases
from tenonnx_testing.kit import calls
from tenonnx_testing.models import single_node
from tenonnx_testing.run import Failure, evaluate, expect, is_random

#: The opset of ``ai.onnx`` in models of an op from another domain.
_ONNX_OPSET = 21


@dataclass(frozen=True, slots=True)
class _Item:
    label: str
    run: Callable[[str, int], None]


def backend_conformance(
    backend: str, *, domains: tuple[str, ...] = ("ai.onnx",), failing: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """Return a pytest function that compares a backend with the numpy results of every case in ``domains``.

    It also tests the contract of compiled programs: feeds, defaults, ownership of returned arrays, and state.

    The backend runs without a fallback; a test is skipped where it raises ``UnsupportedOp``. ``failing`` maps patterns
    of test ids to the reason of the failure; these tests are strict xfails. Raises ``InvalidCall`` for a backend that
    is not installed, a pattern that matches no test, or an empty reason.
    """
    load_cases()
    cases = [case for case in collected() if case.op.domain in domains and case.op.before is None]
    of_cases = [_Item(case.title, functools.partial(_run_case, case)) for case in cases]
    return _test(backend, [*of_cases, *(_Item(name, run) for name, run in PROMISES.items())], failing)


def onnx_conformance(backend: str, *, failing: Mapping[str, str] | None = None) -> Callable[..., None]:
    """Return a pytest function that runs the single-op models of the onnx package on a backend.

    ``failing`` and errors are as in ``backend_conformance``. Collecting the tests takes some seconds, since onnx
    computes the expected outputs then.
    """
    with warnings.catch_warnings(action="ignore"):
        models = load_model_tests(kind="node")
    return _test(backend, [_Item(case.name, functools.partial(_run_onnx, case)) for case in models], failing)


def _test(backend: str, items: list[_Item], failing: Mapping[str, str] | None) -> Callable[..., None]:
    backends = ["numpy", *(plugin.name for plugin in plugins("tenonnx.backends"))]
    if backend not in backends:
        raise InvalidCall("the backend is not installed", given=backend, available=", ".join(backends))
    reasons: dict[str, str] = {}
    for pattern, reason in (failing or {}).items():
        meant = fnmatch.filter([item.label for item in items], pattern)
        if not meant or not reason:
            what = "failing tests are not given as patterns of test ids with reasons"
            raise InvalidCall(what, given=f"{pattern!r}: {reason!r}, for {len(meant)} of {len(items)} tests")
        reasons.update(dict.fromkeys(meant, reason))

    def parameter(item: _Item) -> Any:
        known = item.label in reasons
        marks = [pytest.mark.xfail(reason=reasons[item.label], strict=True)] if known else []
        return pytest.param(item, id=item.label, marks=marks)

    @pytest.mark.parametrize("item", list(map(parameter, items)))
    def test(item: _Item, request: pytest.FixtureRequest) -> None:
        try:
            item.run(backend, request.config.getoption("tenonnx_examples", EXAMPLES))
        except Failure as failure:
            raise pytest.fail.Exception(str(failure), pytrace=False) from None

    return test


def _compiled(graph: Graph, backend: str, **options: Any) -> Any:
    try:
        return graph.compile(backend, strict=True, **options)
    except UnsupportedOp as error:
        pytest.skip(f"not taken: {error.what}")


# ----- models of ONNX -------------------------------------------------------------------------------------------------


#: Ops whose expected outputs depend on the random generator. Dropout is compared: it uses the same generator as onnx.
_OTHER_GENERATOR = ("Bernoulli", "RandomUniformLike")


def _run_onnx(case: Any, backend: str, examples: int) -> None:
    graph = tx.load(case.model)
    if not all(isinstance(node.op, Op) for node in graph.walk()):
        pytest.skip("no installed package provides the op")
    if any(node.op.name in _OTHER_GENERATOR for node in graph.walk()):
        pytest.skip("what is drawn at random is not compared")
    program, names = _compiled(graph, backend), [value.name for value in graph.inputs]
    for inputs, outputs in case.data_sets:
        found = program(dict(zip(names, map(_contents, inputs), strict=False))).values()
        tolerance = Tolerance(case.atol, case.rtol, "as the suite has it")
        for position, (ours, theirs) in enumerate(zip(found, map(_contents, outputs), strict=False)):
            result = compare(ours, theirs, tolerance=tolerance)
            if not result.equal:
                raise Failure(f"{case.name} differs on {backend}: output {position}: {result.reason}")


def _contents(stored: Any) -> Any:
    if isinstance(stored, onnx.TensorProto):
        return onnx.numpy_helper.to_array(stored)
    return np.asarray(stored) if isinstance(stored, np.generic) else stored


# ----- cases ----------------------------------------------------------------------------------------------------------


def _run_case(case: Case, backend: str, examples: int) -> None:
    compared = 0
    for drawn in calls(case, examples):
        if is_random(case.op, drawn):
            pytest.skip("what is drawn at random is not compared")
        expected = evaluate(case.op, drawn)
        trial = single_node(case.op, drawn, case.op.version, expected, _ONNX_OPSET)
        if trial is None:
            continue
        found = _compiled(tx.load(trial.model), backend)(trial.feeds)
        _check_no_shared_memory(backend, found.values(), trial.feeds.values())
        expect(case, drawn, backend, found.values(), trial.expected)
        compared += 1
    if not compared:
        pytest.skip("no call has a form in a file")


# ----- contract of programs -------------------------------------------------------------------------------------------


def _sum() -> Graph:
    """Return the graph ``sum = x + total`` of float32[2] tensors."""
    graph = Graph("promises", opsets={"ai.onnx": 17})
    x, total = (graph.input(name, "float32", (2,)) for name in ("x", "total"))
    graph.output("sum", x + total)
    return graph


def _identity_outputs() -> Graph:
    """Return a graph whose outputs are its input and a constant."""
    graph = Graph("passing", opsets={"ai.onnx": 17})
    graph.output("x_again", graph.input("x", "float32", (2,)))
    graph.output("w_again", graph.variable("w", np.array([3, 4], np.float32)))
    return graph


def _check_no_shared_memory(backend: str, found: Iterable[Any], feeds: Iterable[Any]) -> None:
    arrays, fed = ([a for a in given if isinstance(a, np.ndarray)] for given in (found, feeds))
    if any(a.flags.writeable and np.may_share_memory(a, feed) for a in arrays for feed in fed):
        raise Failure(f"{backend} returned the array of a feed")


def _test_returned_arrays(backend: str, examples: int) -> None:
    """Test that returned arrays share no memory with feeds, constants or the results of the next call."""
    program = _compiled(_sum(), backend)
    x, zeros = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    first = program({"x": x, "total": zeros})["sum"]
    again = program({"x": x + 1, "total": zeros})["sum"]
    for what, array, wanted in (("the first call", first, [1, 2]), ("the second call", again, [2, 3])):
        if np.asarray(array).tolist() != wanted:
            raise Failure(f"{backend} changed an output that it had returned: {what} gave {wanted}, now it is {array}")
    _check_no_shared_memory(backend, [first], [x, zeros])
    program = _compiled(_identity_outputs(), backend)
    for _ in range(2):  # writing to the results of the first call must not change the second
        found = program({"x": x})
        _check_no_shared_memory(backend, found.values(), [x])
        if np.asarray(found["w_again"]).tolist() != [3, 4]:
            raise Failure(f"{backend} returned its own constant for writing: it is {found['w_again']} now")
        if found["w_again"].flags.writeable:
            found["w_again"][...] = -1


def _test_invalid_feeds(backend: str, examples: int) -> None:
    """Test that missing and unknown feeds, and wrong types or shapes, raise ``InvalidFeed``."""
    program = _compiled(_sum(), backend)
    right = np.zeros(2, np.float32)
    for what, wrong in {
        "is missing": {"x": right},
        "is text": {"x": right, "total": np.array(["a", "b"], object)},
        "has three elements": {"x": right, "total": np.zeros(3, np.float32)},
        "is of no name": {"x": right, "total": right, "more": right},
    }.items():
        try:
            program(wrong)
        except InvalidFeed:
            continue
        except Exception as error:
            reason = f"and raised {type(error).__name__}: {error}"
            raise Failure(f"{backend} raised no InvalidFeed where a feed {what}, {reason}") from error
        raise Failure(f"{backend} raised no InvalidFeed where a feed {what}, and took it")


def _test_defaults(backend: str, examples: int) -> None:
    """Test that feeding an input with a default is optional in every call."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x, float[2] y) => (float[2] s) <float[2] y = {1, 2}>'
    program = _compiled(tx.load(onnx.parser.parse_model(text + " { s = Add(x, y) }")), backend)
    x = np.zeros(2, np.float32)
    for fed, wanted in (({}, [1, 2]), ({"y": x + 5}, [5, 5]), ({}, [1, 2])):
        try:
            found = np.asarray(program({"x": x, **fed})["s"]).tolist()
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found != wanted:
            what = f"{'fed' if fed else 'not fed'}, and the sum is not {wanted}, but {found}"
            raise Failure(f"{backend} fails on an input with a default (use DefaultsProgram); it was {what}")


def _test_state(backend: str, examples: int) -> None:
    """Test that ``state={input: output}`` feeds the output of a call to the next call."""
    program = _compiled(_sum(), backend, state={"total": "sum"})
    try:
        program.state["total"] = np.zeros(2, np.float32)
        for _ in range(2):
            given = np.asarray(program({"x": np.array([1, 2], np.float32)})["sum"])
            if given.flags.writeable:
                given[...] = -1
        kept = np.asarray(program.state["total"]).tolist()
    except Exception as error:
        reason = f"and raised {type(error).__name__}: {error}"
        raise Failure(f"{backend} neither keeps state nor raises UnsupportedOp, {reason}") from error
    if kept != [2, 4]:
        raise Failure(f"{backend} does not keep the sum of two calls, [2.0, 4.0], as state, but {kept}")


#: Tests of the program contract, by test id.
PROMISES: Mapping[str, Callable[[str, int], None]] = {
    "arrays of its own": _test_returned_arrays,
    "feeds": _test_invalid_feeds,
    "defaults": _test_defaults,
    "state": _test_state,
}
