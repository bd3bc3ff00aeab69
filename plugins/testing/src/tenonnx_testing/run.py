"""Execution of one drawn call: on arrays, by the body, and as a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tenonnx.extend import ArrayConstant, DType, Graph, Op, TenonnxError, TensorType, Type, Value
from tenonnx.extend.symbolic import symbol
from tenonnx.extend.testing import Evaluator, as_inputs, compare, evaluate_graph, pad, type_of
from tenonnx.extend.transforms import Builder, interpreting, invoke
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.positions import about_ties

#: Outputs of an op; None for absent ones.
Outputs: TypeAlias = tuple[Any, ...]


class Failure(AssertionError):
    """A check failed, on the drawn call or on the changed ``call`` that the check derived from it."""

    call: Call | None = None


@contextmanager
def blaming(what: str, *, passing: type[Exception] | tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Convert errors of the op's own functions, except ``passing``, to a ``Failure`` that begins with ``what``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    except Failure:
        raise
    except Exception as error:
        if isinstance(error, passing):
            raise
        raise Failure(f"{what} raised {type(error).__name__}: {error}") from error


def expect(case: Case, drawn: Call, what: str, actual: Iterable[Any], expected: Iterable[Any]) -> None:
    """Raise ``Failure`` unless the outputs agree; for random outputs, only the types are compared."""
    found, wanted = list(actual), list(expected)
    if len(found) != len(wanted):
        raise Failure(f"{what} gives {len(found)} outputs, and {case.op.title} itself {len(wanted)}")
    accumulation = max([1, *(getattr(v, "size", 1) for v in drawn.inputs)])
    random = is_random(case.op, drawn)
    for position, (theirs, ours) in enumerate(zip(found, wanted, strict=True)):
        if random:
            if type_of(theirs) != type_of(ours):
                raise Failure(
                    f"output {position} of {what} is {type_of(theirs)}, that of {case.op.title} {type_of(ours)}"
                )
            continue
        result = compare(ours, theirs, accumulation=accumulation, tolerance=case.tolerance, steps=case.steps)
        if not result.equal:
            reason = result.reason + about_ties(case.op, drawn, theirs, ours)
            raise Failure(f"{case.op.title} differs from {what}: output {position}: {reason}")


def expect_new(what: str, drawn: Call, found: Outputs, earlier: Outputs) -> None:
    """Raise ``Failure`` if an output shares memory with an earlier output, which its receiver may have changed.

    Read-only outputs, and memory of an input or attribute, are allowed.
    """
    given = list(_arrays([*drawn.inputs, *drawn.attributes.values()]))
    if any(
        isinstance(attribute, Graph) for attribute in drawn.attributes.values()
    ):  # constants of a subgraph may be outputs, too
        return
    for position, (now, before) in enumerate(zip(found, earlier, strict=False)):
        arrays = isinstance(now, np.ndarray) and isinstance(before, np.ndarray)
        if not arrays or not np.may_share_memory(now, before) or not _owner(now).flags.writeable:
            continue
        if not any(np.may_share_memory(now, v) for v in given):
            raise Failure(f"{what} gives as output {position} an array that it gave before, and writes it again")


def _arrays(given: Iterable[Any]) -> Iterator[np.ndarray[Any, Any]]:
    for each in given:
        if isinstance(each, np.ndarray | ArrayConstant):
            yield each if isinstance(each, np.ndarray) else each.array()
        elif isinstance(each, list | dict):
            yield from _arrays(each.values() if isinstance(each, dict) else each)


def _owner(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def present(outputs: Outputs) -> list[Any]:
    """Outputs that are present; a single None is an empty optional."""
    return [output for output in outputs if output is not None or len(outputs) == 1]


def completed(op: Op, drawn: Call) -> Call:
    """Return the call with arrays for all inputs and values for all attributes, as ``op`` itself completes them."""
    inputs, attributes = op.signature.arrange(op, list(drawn.inputs), dict(drawn.attributes))
    evaluator = Evaluator()
    plain = [_plain(op, position, item) for position, item in enumerate(inputs)]
    with interpreting(evaluator):
        wrapped = as_inputs(op, [v if not isinstance(v, list | dict) else None for v in plain])
    given = [
        p if isinstance(p, list | dict) or w is None else evaluator.contents(w)
        for p, w in zip(plain, wrapped, strict=True)
    ]
    return replace(
        drawn, inputs=tuple(pad(op, given)), attributes={name: _as_stored(a) for name, a in attributes.items()}
    )


def _as_stored(attribute: Any) -> Any:
    """Convert an attribute as a file stores it: floats are rounded to 32 bits, tensors become constants."""
    if isinstance(attribute, np.ndarray | np.generic):
        return ArrayConstant(np.asarray(attribute))
    if isinstance(attribute, list | tuple):
        return [_as_stored(a) for a in attribute]
    return float(np.float32(attribute)) if isinstance(attribute, float) else attribute


def _plain(op: Op, position: int, item: Any) -> Any:
    """Convert a list of numbers or texts to a vector; other lists are sequences."""
    if not isinstance(item, list | tuple) or any(v is None or isinstance(v, np.ndarray | list) for v in item):
        return item
    if not item:
        return np.zeros(0, np.int64) if op.signature.input_at(position).index else []
    if isinstance(item[0], str):
        return np.asarray(item, dtype=object)
    return np.asarray(item, dtype=np.float32 if any(isinstance(v, float) for v in item) else None)


def evaluate(op: Op, drawn: Call, body_of: Op | None = None) -> tuple[Any, ...]:
    """Compute a completed call by numpy rules, or by the body of ``body_of``; absent outputs at the end are removed."""
    evaluator = Evaluator(body_of=body_of)
    with interpreting(evaluator):
        values = [
            None if v is None and not takes_none(op, p) else evaluator.wrap(_read_only(v))
            for p, v in enumerate(drawn.inputs)
        ]
        results = evaluator.call(op, values, drawn.attributes, drawn.outputs)
    return trimmed([None if r is None else evaluator.contents(r) for r in results])


def takes_none(op: Op, position: int) -> bool:
    """Whether None at a position is an empty optional rather than an absent input."""
    return bool(op.signature.inputs) and not op.signature.input_at(position).optional


def _read_only(contents: Any) -> Any:
    if isinstance(contents, np.ndarray):
        contents = contents.view()
        contents.flags.writeable = False
    return contents


def trimmed(outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Remove absent outputs at the end; a single None is an empty optional and stays."""
    kept = list(outputs)
    while len(kept) > 1 and kept[-1] is None:
        kept.pop()
    return tuple(kept)


def is_index(op: Op, position: int) -> bool:
    """Whether an input is an index input: its contents (positions, sizes or axes) determine shapes."""
    return op.signature.input_at(position).index


def symbolic_type(contents: Any, prefix: str, *, unknown: str = "") -> tuple[Type | None, dict[str, int]]:
    """Return the type of contents with a distinct symbol for every dim, and the sizes of the symbols.

    With ``unknown="dims"`` the dims are None, with ``unknown="rank"`` the shape is None.
    """
    kind = type_of(contents)
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind, {}
    if unknown:
        return kind.with_shape(None if unknown == "rank" else (None,) * len(kind.shape)), {}
    names = {f"{prefix}_{axis}": int(side) for axis, side in enumerate(contents.shape)}
    return kind.with_shape(tuple(symbol(name) for name in names)), names


def trace(
    op: Op,
    drawn: Call,
    apply: Callable[..., Sequence[Value | None]],
    *,
    symbolic: bool,
    known: Container[int] = (),
) -> tuple[Graph, list[Any]]:
    """Trace ``apply(builder, values)`` into a graph; return it and the feeds.

    Index inputs and those at ``known`` become constants, all others graph inputs, with ``symbolic`` dims or real ones.
    Absent results get no graph output.
    """
    graph = Graph("conformance")
    feeds: list[Any] = []
    values: list[Value | None] = []
    builder = Builder(graph)
    for position, contents in enumerate(drawn.inputs):
        if contents is None and not takes_none(op, position):
            values.append(None)
        elif isinstance(contents, np.ndarray) and (position in known or is_index(op, position)):
            values.append(builder.constant(contents, DType.of(contents.dtype)))
        else:
            name = f"input{position}"
            kind = symbolic_type(contents, f"d{position}")[0] if symbolic else type_of(contents)
            values.append(graph.input(name, kind) if kind is not None else None)
            feeds.append(contents)
    with interpreting(builder):
        results = apply(builder, values)
        for result in results:
            if result is not None:
                graph.outputs.append(builder.as_output(builder.adopt(result)))  # type: ignore[arg-type]
    return graph, feeds


def run_graph(graph: Graph, feeds: Sequence[Any]) -> tuple[Any, ...]:
    return evaluate_graph(graph, [_read_only(f) for f in feeds])


def run_reference(case: Case, drawn: Call) -> Sequence[Any]:
    """Outputs of the reference of a case, which may raise any error."""
    assert case.reference is not None, "only cases that have one are compared with it"
    result = case.reference(*drawn.inputs, **drawn.attributes)
    return result if isinstance(result, tuple) else (result,)


def is_random(op: Op, drawn: Call) -> bool:
    """Whether the outputs of this call are random, so that only their types can be compared."""
    if op.pure:
        return False
    if op.primitive:
        return True

    def body(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return invoke(op, op.function, values, drawn.attributes, drawn.outputs)

    try:
        graph, _ = trace(op, drawn, body, symbolic=False)
    except TenonnxError:
        return True
    return any(isinstance(node.op, Op) and not node.op.pure for node in graph.walk())
