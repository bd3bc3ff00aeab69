"""Verification: the structure of a model, then its numbers on two backends, then the node where they part."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tenonnx.backend.base import backends as installed_backends
from tenonnx.backend.compiling import compile_graph
from tenonnx.checks.compare import Difference, Rules, compare_by
from tenonnx.checks.correspondence import corresponding
from tenonnx.checks.generate import InputShapes
from tenonnx.checks.sizes import feasible_feeds
from tenonnx.checks.structure import structure_problems
from tenonnx.errors import InvalidFeed, TenonnxError, UnsupportedOp, VerificationFailed
from tenonnx.formats.loaders import is_onnx_file, load
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.graph.types import TensorType
from tenonnx.graph.values import Node, Value
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import Op
from tenonnx.transforms.rewrite import copy_graph
from tenonnx.transforms.simplify import simplify

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import onnx


#: Inner values that are looked at in one run.
SHOWN = 16

#: What to do about inputs that a backend, but not the other, fails on.
OTHERS = "give inputs that it takes (feeds=, --inputs)"


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How far one output of the other model on ``backend`` lies from the first model on the first backend."""

    name: str
    backend: str
    difference: Difference

    @property
    def equal(self) -> bool:
        return self.difference.equal

    def to_json(self) -> dict[str, Any]:
        found = self.difference
        return {
            "name": self.name,
            "backend": self.backend,
            "equal": found.equal,
            "absolute": found.absolute,
            "relative": found.relative if math.isfinite(found.relative) else None,
            "reason": found.reason,
        }

    def __str__(self) -> str:
        found = self.difference
        if not found.equal:
            return f"{self.name} ({self.backend}): {found.reason}"
        return f"{self.name} ({self.backend}): {found.absolute:.3g} absolute, {found.relative:.3g} relative"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first node, in the order of the other model, that computes a value from which the first model differs."""

    node: str
    value: str
    backend: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"node": self.node, "value": self.value, "backend": self.backend, "reason": self.reason}

    def __str__(self) -> str:
        return f'{self.node} computes "{self.value}" ({self.backend}): {self.reason}'


@dataclass(slots=True)
class Verification:
    """What was compared. ``problems`` are what breaks structure or running; ``notes`` limit what was compared."""

    reference: str
    outputs: list[OutputDifference] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    first_divergence: Divergence | None = None

    @property
    def equal(self) -> bool:
        return not self.problems and all(output.equal for output in self.outputs)

    @property
    def largest(self) -> OutputDifference | None:
        """The output of the largest absolute difference."""
        return max(self.outputs, key=lambda o: (not o.equal, o.difference.absolute), default=None)

    def raise_if_failed(self) -> Verification:
        """Raise ``VerificationFailed`` unless everything was equal; returns itself."""
        if self.equal:
            return self
        wrong = [str(output) for output in self.outputs if not output.equal]
        raise VerificationFailed(
            f"the model must give what the original gives on {self.reference}",
            given="\n".join([*self.problems, *wrong]),
            also=f"the first node that diverges: {self.first_divergence}" if self.first_divergence else "",
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "reference": self.reference,
            "outputs": [output.to_json() for output in self.outputs],
            "problems": self.problems,
            "notes": self.notes,
            "first_divergence": self.first_divergence.to_json() if self.first_divergence else None,
        }

    def __str__(self) -> str:
        lines = [f"{'equal' if self.equal else 'not equal'}; largest differences from {self.reference}:"]
        lines += [f"  {output}" for output in self.outputs]
        lines += [f"  {problem}" for problem in self.problems]
        if self.first_divergence:
            lines.append(f"  the first node that diverges: {self.first_divergence}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def verify(
    graph: Graph,
    other: Graph | str | os.PathLike[str] | onnx.ModelProto | None = None,
    *,
    feeds: Mapping[str, Any] | None = None,
    backends: Sequence[str] | None = None,
    input_shapes: InputShapes | None = None,
    seed: int = 0,
    absolute: float | None = None,
    relative: float | None = None,
    structure: bool = True,
    unlike: Mapping[str, int] | None = None,
) -> Verification:
    """Compare ``graph`` on the first backend with ``other``, or with itself on the further ones.

    ``other`` is claimed to be the same model: it is run on every backend, and its structure has to pass
    ``onnx.checker`` if that of ``graph`` does. Without ``feeds``, inputs are made up from ``seed`` and
    ``input_shapes``. The backends are numpy and, where it is installed, onnxruntime. ``absolute`` and ``relative``
    replace the tolerances of the table; ``unlike`` are sizes of symbols that made-up inputs are not to have. Raises
    ``UnsupportedOp`` when a graph cannot run, ``InvalidFeed`` when it cannot with these inputs.
    """
    against = graph if other is None else other if isinstance(other, Graph) else load(other, registry=graph.registry)
    chosen = list(backends or default_backends())
    found = Verification(chosen[0])
    if structure and against is not graph:
        _compare_structure(graph, against if isinstance(other, Graph) else other, against, found)
    found.problems += _interface_problems(graph, against)
    if found.problems:
        return found
    program = compile_graph(graph, chosen[0])
    if feeds is None:
        given, expected, sizes = _made_up(
            graph, [program, *_programs(graph, set(chosen) - {chosen[0]})], seed, input_shapes, unlike
        )
        if sizes:
            found.notes.append(f"inputs were made up with {', '.join(f'{n}={size}' for n, size in sizes.items())}")
    else:
        given, expected = dict(feeds), program(feeds)
    rules = Rules(accumulation(graph), absolute, relative, half_precision(graph))
    others = dict.fromkeys(chosen if other is not None else chosen[1:] or chosen)
    _compare_numbers(graph, against, list(others), given, expected, rules, found)
    return found


def _programs(graph: Graph, backends: Collection[str]) -> list[Program]:
    """The graph on those backends that can run it."""
    found = []
    for backend in backends:
        with contextlib.suppress(TenonnxError):
            found.append(compile_graph(graph, backend, strict=True))
    return found


def _made_up(
    graph: Graph,
    programs: Sequence[Program],
    seed: int,
    input_shapes: InputShapes | None,
    unlike: Mapping[str, int] | None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Inputs that all programs take, or else the first, with what the first gives for them and their unusual sizes."""

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        *_, expected = [program(feeds) for program in reversed(programs)]  # the slow reference for what others take
        return expected

    if len(programs) > 1:
        with contextlib.suppress(InvalidFeed):
            return feasible_feeds(graph, run, seed, input_shapes, unlike)
    return feasible_feeds(graph, programs[0], seed, input_shapes, unlike)


def default_backends() -> tuple[str, str]:
    """numpy, and onnxruntime where it is installed."""
    return "numpy", "onnxruntime" if "onnxruntime" in installed_backends() else "numpy"


def _compare_structure(graph: Graph, source: Any, against: Graph, found: Verification) -> None:
    from_disk = isinstance(source, str | os.PathLike) and is_onnx_file(source)
    problems = structure_problems(source if from_disk else against)
    beyond = {node.op_type for node in against.walk() if isinstance(node.op, Op) and not node.op.specified}
    noted = [problem for problem in problems if any(f"No Op registered for {name} " in problem for name in beyond)]
    found.notes += [f"onnx.checker objects to an op of some runtimes: {problem}" for problem in noted]
    problems = [problem for problem in problems if problem not in noted]
    if not problems:
        return
    own = structure_problems(graph)
    if own:
        found.notes.append(f"onnx.checker objects to the original too: {own[0]}")
    else:
        found.problems += [f"onnx.checker: {problem}" for problem in problems]


def _compare_numbers(
    graph: Graph,
    against: Graph,
    backends: Sequence[str],
    feeds: Mapping[str, Any],
    expected: Mapping[str, Any],
    rules: Rules,
    found: Verification,
) -> None:
    """Run the other model on each backend that can, and that the original can run on. Raises what keeps all of them."""
    drawn = _drawn_outputs(against)
    if drawn:
        found.notes.append(f"drawn at random, not compared: {', '.join(sorted(drawn))}")
    unable: list[TenonnxError] = []
    taken = as_taken_by(against, feeds)
    for backend in backends:
        try:
            actual = compile_graph(against, backend, strict=True)(taken)
        except UnsupportedOp as error:
            unable.append(error)
            found.notes.append(f"not compared on {backend}: {error.what}")
            continue
        except TenonnxError as error:
            if backend != found.reference and _fails(graph, backend, feeds):
                unable.append(error)
                found.notes.append(f"not compared on {backend}: the original fails there, too: {error.what}; {OTHERS}")
            else:
                found.problems.append(f"{backend}: {error}")
            continue
        outputs = [
            OutputDifference(name, backend, compare_by(rules, actual[name], expected[name]))
            for name in expected
            if name not in drawn
        ]
        found.outputs += outputs
        if found.first_divergence is None and not all(output.equal for output in outputs):
            near = replace(rules, numbers=True)
            found.first_divergence = _first_divergence(graph, against, found.reference, backend, feeds, near)
            if all(compare_by(near, actual[name], expected[name]).equal for name in expected if name not in drawn):
                found.notes.append(f"only element types differ on {backend}: the numbers are near for these")
    if len(unable) == len(backends):
        raise unable[0]


def as_taken_by(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The feeds of another graph, floats in the types that this one has them in."""
    found = dict(feeds)
    for value in graph.all_inputs:
        kind, given = value.type, getattr(found.get(value.name), "dtype", None)
        if isinstance(kind, TensorType) and kind.dtype.is_float and given is not None and DType.of(given).is_float:
            found[value.name] = found[value.name].astype(kind.dtype.numpy, copy=False)
    return found


def _fails(graph: Graph, backend: str, feeds: Mapping[str, Any]) -> bool:
    try:
        compile_graph(graph, backend, strict=True)(feeds)
    except TenonnxError:
        return True
    return False


def _interface_problems(graph: Graph, other: Graph) -> list[str]:
    problems = []
    for kind, ours, theirs in (
        ("inputs", graph.inputs, other.inputs),
        ("outputs", graph.outputs, other.outputs),
    ):
        names, found = [v.name for v in ours], [v.name for v in theirs]
        if names != found:
            problems.append(f"the {kind} must be {', '.join(names)}; they are {', '.join(found)}")
    return problems


# ----- tolerance --------------------------------------------------------------------------------------------------


def accumulation(graph: Graph) -> int:
    """About how many roundings an output has behind it: one for each node of the longest path, and its longest sum.

    A weight is summed over all of its elements that go to one output channel, which is its first or last axis.
    """
    depth: dict[Value, int] = {}
    for node in graph.nodes:
        reached = 1 + max((depth.get(v, 0) for v in node.uses), default=0)
        depth.update((v, reached) for v in node.outputs if v is not None)
    return max(depth.values(), default=0) + max(map(_terms, graph.variables), default=1)


def half_precision(graph: Graph) -> DType | None:
    """The half precision that a graph computes in, whatever its outputs are cast to; None where it does not."""
    typed = graph
    if any(v is not None and v.type is None for node in graph.walk() for v in node.outputs):
        typed = copy_graph(graph)
        infer(typed, strict=False)
    for kind in (DType.bfloat16, DType.float16):
        for node in typed.walk():
            outputs, inputs = ([v for v in group if v is not None] for group in (node.outputs, node.inputs))
            if _has(outputs, kind) and _has([v for v in inputs if not v.is_constant], kind):
                return kind
    return None


def _has(values: Sequence[Value], kind: DType) -> bool:
    return any(isinstance(v.type, TensorType) and v.type.dtype is kind for v in values)


def _terms(variable: Value) -> int:
    kind = variable.type
    shape = kind.shape if isinstance(kind, TensorType) else None
    sizes = [d for d in shape or () if isinstance(d, int)]
    if len(sizes) < 2 or not all(sizes):
        return 1
    return math.prod(sizes) // max(sizes[0], sizes[-1])


# ----- what differs, and where ------------------------------------------------------------------------------------


def _drawn_outputs(graph: Graph) -> set[str]:
    """The outputs that depend on a node that draws random numbers; one that is not in use, as a Dropout, does not."""
    if any(map(_draws, graph.nodes)):
        graph = simplify(graph)
    drawn: set[Value] = set()
    for node in graph.nodes:
        if _draws(node) or any(v in drawn for v in node.uses):
            drawn.update(v for v in node.outputs if v is not None)
    return {v.name for v in graph.outputs if v in drawn}


def _draws(node: Node) -> bool:
    inside = (inner for subgraph in node.subgraphs for inner in subgraph.walk())
    return any(isinstance(n.op, Op) and not n.op.pure for n in (node, *inside))


def _first_divergence(
    graph: Graph, other: Graph, reference: str, backend: str, feeds: Mapping[str, Any], rules: Rules
) -> Divergence | None:
    """The first value, in the order of ``other``, that both have and that differs in numbers, whatever its type.

    A few values that lie evenly between are looked at in each round, then those ahead of the first that differs, so
    that memory holds no more than these. A value that differs is taken to make later ones differ, too.
    """
    same = corresponding(graph, other)
    made = {v.name: node for node in other.nodes for v in node.outputs if v is not None and v.name in same}
    names = list(made)
    found: Divergence | None = None
    while names:
        step = max(1, -(-len(names) // SHOWN))
        looked_at = names[step - 1 :: step]
        try:
            expected = compile_graph(with_outputs(graph, {same[name] for name in looked_at}), reference)(feeds)
            actual = compile_graph(with_outputs(other, looked_at), backend)(as_taken_by(other, feeds))
        except TenonnxError:  # a value that this backend cannot give away
            return found
        start = 0
        for place, name in enumerate(looked_at):
            difference = compare_by(rules, actual[name], expected[same[name]])
            if not difference.equal:
                found = Divergence(made[name].title, name, backend, difference.reason)
                names = names[start : place * step + step - 1]
                break
            start = place * step + step
        else:
            names = names[start:]
    return found


def with_outputs(graph: Graph, names: Collection[str]) -> Graph:
    """A copy of ``graph`` with computed values of these names as further outputs."""
    copy = copy_graph(graph)
    shown = {v.name for v in copy.outputs}
    for node in copy.nodes:
        copy.outputs += [v for v in node.outputs if v is not None and v.name in names and v.name not in shown]
    return copy
