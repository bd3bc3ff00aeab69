"""Half precision within an error budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, InvalidCall, operators
from tenonnx.extend.backends import compile_graph
from tenonnx.extend.checks import InputShapes, as_taken_by, feasible_feeds, with_outputs
from tenonnx.extend.transforms import inline_functions
from tenonnx_optimize.precision import Lowered, greatest_of, lower_precision

#: Number of rounds in which nodes return to float32, and their share in each round.
ROUNDS, PART = 8, 0.1

#: Precision, as a fraction of all nodes, of the search for the number of leading nodes to keep.
PARTS = 32


def lower_within(
    graph: Graph,
    dtype: DType | str,
    budget: float,
    *,
    keep: Collection[str] = (),
    feeds: Mapping[str, Any] | None = None,
    input_shapes: InputShapes | None = None,
    seed: int = 0,
    convert_interface: bool = False,
) -> Lowered:
    """``lower_precision`` that keeps nodes in float32 until no output differs by more than ``budget``.

    A difference is relative to the largest number of the output, measured on numpy with ``feeds`` or random inputs.
    First, nodes with numbers beyond the range return to float32, then the tenth of all nodes that contributes most to
    the difference, repeatedly. If that does not suffice, errors accumulate over many nodes, and the necessary number of
    leading nodes stays in float32. Remaining differences are noted. Raises as ``lower_precision``.
    """
    if not budget > 0:
        raise InvalidCall(
            "the budget is not positive: it is relative to the largest absolute value of an output", given=repr(budget)
        )
    graph = inline_functions(graph) if graph.functions else graph
    program = compile_graph(graph, "numpy")
    if feeds is None:
        given, expected, _ = feasible_feeds(graph, program, seed, input_shapes)
    else:
        given, expected = dict(feeds), program(feeds)

    def lowered_but(kept: Collection[str]) -> _Attempt:
        lowered = lower_precision(graph, dtype, keep=kept, widen=lost, convert_interface=convert_interface)
        found = _run(lowered.graph, given)
        return lowered, *max(((_difference(found[name], expected[name]), name) for name in expected), default=(0.0, ""))

    labels = [node.label for node in graph.nodes]
    kept, lost = set(keep), set[str]()
    for _ in range(ROUNDS):
        lowered, difference, output = lowered_but(kept)
        if difference <= budget:
            break
        more, worst = _worst_nodes(graph, lowered, given, greatest_of(DType.of(dtype)))
        lost |= more
        if not more:
            kept |= worst
    else:
        lowered, difference, output = _with_first_kept(
            lambda count: lowered_but({*keep, *labels[:count]}), len(labels), budget
        )
    lowered.largest = max(map(_largest, expected.values()), default=0.0)
    finite = np.isfinite(difference)
    size = f"differs by {difference:.3g} of its largest number" if finite else "is not finite any more"
    lowered.notes.append(f'output "{output}" {size}, {"more than" if difference > budget else "within"} {budget:g}')
    return lowered


#: A lowered graph, its largest relative difference, and the output concerned.
_Attempt = tuple[Lowered, float, str]


def _with_first_kept(attempt: Callable[[int], _Attempt], count: int, budget: float) -> _Attempt:
    """Result of ``attempt`` with the fewest of ``count`` leading nodes in float32 that meets the budget."""
    fewest, enough, found = 0, count, None
    while enough - fewest > max(1, count // PARTS):
        middle = (fewest + enough) // 2
        tried = attempt(middle)
        if tried[1] <= budget:
            enough, found = middle, tried
        else:
            fewest = middle
    return found or attempt(count)


def _run(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs for feeds of the original graph."""
    return compile_graph(graph, "numpy")(as_taken_by(graph, feeds))


def _difference(found: Any, expected: Any) -> float:
    """The largest difference relative to the largest number; infinite if a number is lost, 0 for other types."""
    if not _is_float(expected):
        return 0.0
    wanted, got = expected.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(wanted)
    if not np.isfinite(got[finite]).all():
        return float("inf")
    difference = np.abs(got[finite] - wanted[finite]).max(initial=0.0)
    return float(difference / max(_largest(wanted), 1e-30))


def _is_float(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and DType.of(contents.dtype).is_float


def _largest(array: Any) -> float:
    """The largest finite number of a float output."""
    if not _is_float(array):
        return 0.0
    numbers = np.abs(array.astype(np.float64))
    return float(numbers[np.isfinite(numbers)].max(initial=0.0))


def _worst_nodes(
    graph: Graph, lowered: Lowered, feeds: Mapping[str, Any], greatest: float
) -> tuple[set[str], set[str]]:
    """Nodes with inputs or outputs beyond the range, and the tenth of nodes that contributes most to the difference."""
    computed = {v.name for node in graph.nodes for v in node.outputs if v is not None}
    all_computed = {v.name for node in lowered.graph.nodes for v in node.outputs if v is not None}
    names = computed & all_computed
    expected = compile_graph(with_outputs(graph, names), "numpy")(feeds)
    found = _run(with_outputs(lowered.graph, names), feeds)
    differences = {name: _difference(found[name], expected[name]) for name in names if name in found}
    beyond = {name for name in differences if _largest(expected[name]) > greatest}
    lost: set[str] = set()
    added: dict[str, float] = {}
    for node in graph.nodes:
        if node.label in lowered.float32_nodes:
            continue
        before = max((differences.get(v.name, 0.0) for v in node.uses), default=0.0)
        after = max((differences.get(v.name, 0.0) for v in node.outputs if v is not None), default=0.0)
        named = {v.name for v in (*node.uses, *node.outputs) if v is not None}
        if not np.isfinite(after) and (np.isfinite(before) or named & beyond):
            lost.add(node.label)
        elif after > before:
            added[node.label] = after - before
    count = max(1, int(PART * len(graph.nodes)))
    return lost, set(sorted(added, key=lambda label: -added[label])[:count])


def with_float_interface(graph: Graph, original: Graph) -> Graph:
    """``graph`` with casts at its interface to the types of ``original``, for comparison."""
    outer = Graph(graph.name, opsets=graph.opsets)
    outer.registry = graph.registry
    casts = operators()
    with outer.building():
        given = []
        for wanted, value in zip(original.inputs, graph.inputs, strict=True):
            assert wanted.type is not None
            fed = outer.input(wanted.name, wanted.type)
            given.append(fed if wanted.type == value.type else casts.cast(fed, value.dtype))
        results = graph(*given)
        for wanted, result in zip(original.outputs, results if len(graph.outputs) > 1 else [results], strict=True):
            if again := [
                value for value in outer.outputs if value.name == wanted.name
            ]:  # an output that is listed twice
                outer.outputs.append(again[0])
                continue
            outer.output(wanted.name, result if wanted.type == result.type else casts.cast(result, wanted.dtype))
    return outer
