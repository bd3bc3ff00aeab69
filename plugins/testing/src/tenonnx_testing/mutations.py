"""Checks of invalid calls: each raises a tenonnx error, or gives the same outputs in every way to run it."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx

from tenonnx import load
from tenonnx.extend import DType, Graph, InvalidCall, Known, Op, TenonnxError, Type, TypeMismatch, Value, find_rule
from tenonnx.extend.backends import compile_graph
from tenonnx.extend.formats import to_model
from tenonnx.extend.testing import UNFORESEEN, type_of
from tenonnx.extend.testing import apply as call
from tenonnx.extend.transforms import Builder, infer_call, interpreting
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.foreign import advice, foreign_cause
from tenonnx_testing.inference import contradiction
from tenonnx_testing.oracles import newest_of_onnx
from tenonnx_testing.repro import note_line, one_line
from tenonnx_testing.run import (
    Failure,
    Outputs,
    evaluate,
    expect,
    is_index,
    is_random,
    present,
    takes_none,
    trace,
    trimmed,
)
from tenonnx_testing.schemas import schema_at, versions

#: Number of mutations tried on each drawn call, one at a time.
MUTATIONS = 3

Random: TypeAlias = np.random.Generator
Mutation: TypeAlias = Callable[[Random, Op, Call], Call | None]

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "string", "complex64")


def mutations_agree(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that mutations of a call raise a ``TenonnxError`` or give the same outputs in every way to run."""
    random = np.random.default_rng(zlib.crc32(one_line(case.op, drawn).encode()))
    for _ in range(MUTATIONS):
        tried = (mutate(random, case.op, drawn) for mutate in random.permutation(np.array(_MUTATIONS, object)))
        mutated = next(filter(None, tried), None)
        if mutated is None:
            return False
        refuse_or_agree(case, drawn, mutated, expected, symbolic=bool(random.integers(2)))
    return True


def refuse_or_agree(
    case: Case,
    drawn: Call,
    mutated: Call,
    expected: Outputs,
    *,
    symbolic: bool,
    by_body: Literal["", "refused", "broken"] = "",
) -> None:
    """Raise ``Failure`` unless a mutated call is rejected, or gives the same outputs in every way to run it.

    Where the body computes the call, ``by_body="refused"`` forbids that the numpy rule rejects it, and ``"broken"``
    that the rule raises a foreign error.
    """
    ways: dict[str, Callable[[], Outputs | None]] = {"called": lambda: called(case.op, mutated)}
    inferred: list[Type | None] = []
    model = None
    if not has_subgraph(mutated):  # a subgraph belongs to one graph
        if not any(v is None and takes_none(case.op, k) for k, v in enumerate(mutated.inputs)):
            ways["in a graph"] = lambda: _in_graph(case.op, mutated, symbolic, inferred)
        model = _attempt("writing a file", lambda: _model(case.op, mutated, len(expected)))
    if model is not None:
        ways["from a file"] = lambda: _from_file(model, mutated)
    try:
        found = {way: outputs for way, run in ways.items() if (outputs := _attempt(way, run)) is not None}
        if symbolic and "called" not in found:  # with symbolic dims, a mismatch shows at run time only
            found.pop("in a graph", None)
        if "called" not in found:
            check_error_type(case.op, drawn, mutated)
        if by_body and "called" not in found and _only_rule_rejects(case.op, mutated, broken=by_body == "broken"):
            raise Failure(f"{case.op.title} refuses, when called, what its body computes")
        if not found:
            return
        if broken := broken_requirement(case.op, mutated):
            raise Failure(f"{case.op.title} accepts, {next(iter(found))}, what breaks its requirements: {broken}")
        if "called" not in found:
            raise Failure(f"{case.op.title} accepts, {next(iter(found))}, what it refuses when called")
        for kind, contents in zip(inferred, found.get("in a graph", ()), strict=False):
            if problem := contradiction(kind, contents, {}):
                raise Failure(f"{case.op.title}: an output is inferred as {kind}, not {type_of(contents)}: {problem}")
        if not case.op.primitive:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    found["by its body"] = evaluate(case.op, mutated, body_of=case.op)
                except Exception as error:
                    raise Failure(f"{case.op.title} accepts, when called, what its body refuses: {error}") from error
        whole = len(found["called"]) == len(expected)  # a file with fewer outputs may be invalid
        if whole and model is not None and (objection := _objection(case.op, mutated, model)):
            raise Failure(f"{case.op.title} accepts, when called, what ONNX refuses: {objection}")
        if is_random(case.op, mutated):
            return
        (_, first), *others = found.items()
        for way, outputs in others:
            common = min(len(present(outputs)), len(present(first)))  # a file may have fewer outputs
            expect(case, mutated, f"what it is {way}", present(outputs)[:common], present(first)[:common])
    except Failure as failure:
        failure.add_note(f"mutated: {note_line(case.op, mutated)}")
        failure.call = mutated
        raise


def check_error_type(op: Op, drawn: Call, mutated: Call) -> None:
    """Raise ``Failure`` if a call that meets all requirements ends in an error of Python or numpy."""
    try:
        called(op, mutated)
    except TenonnxError as error:
        foreign = foreign_cause(op, error)
        if foreign is None or broken_requirement(op, mutated):
            return
        what = f"{op.title} takes by its requirements a call that ends in {type(foreign).__name__}: {foreign}"
        computed = _only_rule_rejects(op, mutated, broken=True)
        raise Failure(f"{what}; {advice(op, drawn, mutated, foreign, computed=computed)}") from foreign


def _only_rule_rejects(op: Op, drawn: Call, *, broken: bool) -> bool:
    """Whether the body computes an admitted call that its numpy rule rejects (``broken``: with a foreign error)."""
    if op.primitive or find_rule(op, "numpy") is None or broken_requirement(op, drawn):
        return False
    if broken and not _breaks(op, drawn):
        return False
    if not is_admitted(op, drawn):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            evaluate(op, drawn, body_of=op)
    except Exception:
        return False
    return True


def is_admitted(op: Op, drawn: Call) -> bool:
    """Whether the requirements and the type rule of an op accept a call."""
    if broken_requirement(op, drawn):
        return False
    types = [None if v is None else Value("", type_of(v)) for v in drawn.inputs]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            infer_call(op, types, drawn.attributes, drawn.outputs)
    except Exception:
        return False
    return True


def _breaks(op: Op, drawn: Call) -> bool:
    """Whether a call ends in a foreign error, wrapped in a ``TenonnxError``."""
    try:
        called(op, drawn)
    except TenonnxError as error:
        return error.__cause__ is not None and not isinstance(error.__cause__, TenonnxError)
    return False


def broken_requirement(op: Op, drawn: Call) -> str:
    """Return the message of the requirement that the call violates; empty if it violates none."""
    contents = [None if v is None else Value("", type_of(v)) for v in drawn.inputs]
    try:
        op.requirements.check(contents, op.signature.complete(op, drawn.attributes))
    except TypeMismatch as error:
        return error.what
    except (InvalidCall, *UNFORESEEN):
        return ""
    return ""


def _attempt(way: str, run: Callable[[], Any]) -> Any:
    """Return the result of ``run``, or None if it raises an expected error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return run()
    except TenonnxError:
        return None
    except Exception as error:
        raise Failure(f"{way}, a bare {type(error).__name__} is raised: {error}") from error


# ----- ways to run a call ---------------------------------------------------------------------------------------------


def called(op: Op, drawn: Call) -> Outputs:
    """Call the op on arrays."""
    counted = {} if drawn.outputs is None else {"_outputs": drawn.outputs}
    found = op(*drawn.inputs, **drawn.attributes, **counted)
    return trimmed(found if isinstance(found, tuple) else (found,))


def _in_graph(op: Op, drawn: Call, symbolic: bool, inferred: list[Type | None]) -> Outputs:
    def apply(_: Builder, values: Sequence[Value | None]) -> Sequence[Value | None]:
        counted = {} if drawn.outputs is None else {"_outputs": drawn.outputs}
        result = call(op, values, {**drawn.attributes, **counted})
        return result if isinstance(result, tuple) else (result,)

    graph, feeds = trace(op, drawn, apply, symbolic=symbolic)
    inferred += [value.type for value in graph.outputs]
    return tuple(compile_graph(graph, "numpy")(dict(zip((v.name for v in graph.inputs), feeds, strict=True))).values())


def _model(op: Op, drawn: Call, outputs: int) -> onnx.ModelProto:
    version = versions(op)[-1]
    graph = Graph("conformance", opsets={"ai.onnx": newest_of_onnx()} | {op.domain: version})
    values: list[Value | None] = []
    for position, contents in enumerate(drawn.inputs):
        kind = None if contents is None else type_of(contents)
        if isinstance(contents, np.ndarray) and is_index(op, position):
            values.append(graph.variable(f"input{position}", contents))
        else:
            values.append(None if kind is None else graph.input(f"input{position}", kind))
    builder = Builder(graph)
    known = [Known(None)] * outputs
    with interpreting(builder):
        graph.outputs = [v for v in builder.add(op, values, drawn.attributes, known, version=version) if v is not None]
    return to_model(graph)


def _from_file(model: onnx.ModelProto, drawn: Call) -> Outputs | None:
    graph = load(model)
    if not all(isinstance(node.op, Op) for node in graph.nodes):  # ops of tests are not registered
        return None
    feeds = {v.name: drawn.inputs[int(v.name.removeprefix("input"))] for v in graph.inputs}
    return tuple(compile_graph(graph, "numpy")(feeds).values())


def _objection(op: Op, drawn: Call, model: onnx.ModelProto) -> str:
    """Reason why ONNX rejects the element types at every version, or its shape inference the model; else empty."""
    schemas = [found for version in versions(op) if (found := schema_at(op, version)) is not None]
    if not schemas or not schemas[-1].judged:
        return ""
    alike = [schema for schema in schemas if len(schema.inputs) == len(schemas[-1].inputs)]
    for position, (formal, contents) in enumerate(zip(schemas[-1].inputs, drawn.inputs, strict=False)):
        allowed = {t for s in alike for t in s.constraints.get(s.inputs[position].types, {s.inputs[position].types})}
        if isinstance(contents, np.ndarray) and not any(_alike(DType.of(contents.dtype), text) for text in allowed):
            return f"{formal.name} takes no {DType.of(contents.dtype)}"
    try:
        onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        reason = " ".join(str(error).split())
        return "" if reason.count("op_type") > 1 else reason[:300]  # not an error inside a function body of ONNX
    return ""


def _alike(dtype: DType, allowed: str) -> bool:
    """Whether a type of a schema accepts a dtype or another of its kind (float, integer, complex)."""
    name = allowed.removeprefix("optional(").removeprefix("tensor(").rstrip(")")
    other = DType.float64 if name == "double" else DType.float32 if name == "float" else DType.__members__.get(name)
    if other is None:
        return False
    same = (dtype.is_float, dtype.is_integer, dtype.is_complex) == (other.is_float, other.is_integer, other.is_complex)
    return same and (dtype.is_numeric or dtype is other)


def has_subgraph(drawn: Call) -> bool:
    return any(isinstance(value, Graph) for value in drawn.attributes.values())


# ----- mutations ------------------------------------------------------------------------------------------------------


def _at_array(change: Callable[[Random, np.ndarray[Any, Any]], np.ndarray[Any, Any] | None]) -> Mutation:
    """Return a mutation that changes one input tensor."""

    def mutate(random: Random, op: Op, drawn: Call) -> Call | None:
        places = [k for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray)]
        if not places:
            return None
        place = places[random.integers(len(places))]
        changed = change(random, drawn.inputs[place])
        return None if changed is None else with_input(drawn, place, changed)

    return mutate


def with_input(drawn: Call, place: int, contents: Any) -> Call:
    return replace(drawn, inputs=(*drawn.inputs[:place], contents, *drawn.inputs[place + 1 :]))


def _other_rank(random: Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    axis = random.integers(array.ndim + 1)
    fewer = array.size and array.ndim and random.integers(2)
    return array[:1].reshape(array.shape[1:]) if fewer else np.expand_dims(array, axis)


def _other_length(random: Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    if not array.ndim or not array.size:
        return None
    axis = random.integers(array.ndim)
    first = array.take([0], axis)
    longer = array.shape[axis] == 1 or random.integers(2)
    return np.concatenate([array, first], axis) if longer else np.delete(array, 0, axis)


def _other_dtype(random: Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return as_dtype(array, DTYPES[random.integers(len(DTYPES))])


def as_dtype(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Convert contents to another dtype, without regard to overflow or precision."""
    dtype = DType[name]
    if array.dtype == object:
        return np.ones(array.shape, "int64" if dtype is DType.string else dtype.numpy)
    plain = array.astype(np.float32) if array.dtype.isbuiltin == 2 else array
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return plain.astype(str).astype(object) if dtype is DType.string else plain.astype(dtype.numpy)


def _other_position(random: Random, op: Op, drawn: Call) -> Call | None:
    """Change one element of an index input (positions, sizes or axes)."""
    places = [k for k, v in enumerate(drawn.inputs) if isinstance(v, np.ndarray) and v.size and is_index(op, k)]
    places = [k for k in places if drawn.inputs[k].dtype.kind in "iu"]
    if not places:
        return None
    place = places[random.integers(len(places))]
    changed = drawn.inputs[place].copy()
    flat = changed.reshape(-1)
    with np.errstate(over="ignore"):
        flat[random.integers(flat.size)] += (-9, -1, 1, 9)[random.integers(4)]
    return with_input(drawn, place, changed)


def _other_count(random: Random, op: Op, drawn: Call) -> Call | None:
    """Remove an input, or add one too many."""
    if not drawn.inputs or has_subgraph(drawn):  # a loop without its condition never ends
        return None
    if random.integers(3) == 0:
        further = next((v for v in drawn.inputs if v is not None), None)
        return None if further is None else replace(drawn, inputs=(*drawn.inputs, further))
    place = int(random.integers(len(drawn.inputs)))
    if op.signature.input_at(place).variadic:
        return replace(drawn, inputs=drawn.inputs[:place])
    return with_input(drawn, place, None)


def _other_attribute(random: Random, op: Op, drawn: Call) -> Call | None:
    """Set an attribute to a value out of range, of another type or of another length."""
    names = [name for name, value in drawn.attributes.items() if isinstance(value, int | float | str | list)]
    if not names:
        return None
    name = names[random.integers(len(names))]
    found = others(drawn.attributes[name])
    return replace(drawn, attributes={**drawn.attributes, name: found[random.integers(len(found))]})


def others(value: Any) -> list[Any]:
    """Invalid or unusual values for an attribute: out of range, of another type or of another length."""
    if isinstance(value, str):
        return ["nonsense", "", 3, ["text"]]
    if isinstance(value, int):
        return [-1, 0, 1, value + 1, value - 9, value + 9, 1.5, "text", [value]]
    if isinstance(value, float):
        return [-1.0, 0.0, 0.0703125, 0.5, 0.703125, 2, "text", [value]]
    nested = [[other, *value[1:]] for other in others(value[0])] if value else [[1], ["text"]]
    return [[], value[1:], [*value, *value[:1]], 3, *nested]


_MUTATIONS: tuple[Mutation, ...] = (
    _at_array(_other_rank),
    _at_array(_other_length),
    _at_array(_other_dtype),
    _other_position,
    _other_count,
    _other_attribute,
)
