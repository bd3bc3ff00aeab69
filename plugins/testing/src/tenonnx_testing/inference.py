"""Inferred types are real types: with the shapes known, as symbols, and without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from tenonnx.extend import (
    Dim,
    DType,
    Known,
    MapType,
    Op,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    TypeMismatch,
    UnknownType,
    Value,
    find_rule,
)
from tenonnx.extend.symbolic import evaluate as value_of
from tenonnx.extend.symbolic import symbols_of
from tenonnx.extend.testing import UNFORESEEN, constant_value, infer_by_body, type_of
from tenonnx.extend.transforms import infer_call
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.models import single_node, without_output_types
from tenonnx_testing.oracles import newest_of_onnx
from tenonnx_testing.run import Failure, blaming, is_index, symbolic_type
from tenonnx_testing.schemas import schema_at

#: What inference is told of the inputs, and whether of the contents of Index inputs too.
_VIEWS = (
    ("static shapes", True),
    ("static shapes", False),
    ("symbolic dims", True),
    ("symbolic dims", False),
    ("unknown dims", True),
    ("unknown ranks", True),
    ("unknown ranks", False),
)


def inferred_are_real(case: Case, drawn: Call, expected: tuple[Any, ...]) -> bool:
    """No inferred type contradicts the real outputs; what ONNX infers from static shapes is inferred here, too."""
    for view, contents_known in _VIEWS:
        what = f"with {view}" + ("" if contents_known else " and unknown contents of index inputs")
        values, symbols = values_of(case, drawn, view, contents_known)
        with blaming(f"type inference of {case.op.title} {what}"):
            try:
                known = infer_call(case.op, values, drawn.attributes, drawn.outputs)
            except UnknownType:
                if view != "unknown ranks":
                    raise
                continue
        _hold(case, known, expected, symbols, what)
        if view != "unknown ranks":
            _knows_what_the_body_knows(case.op, values, drawn, known, what)
        if view == "static shapes" and contents_known:
            _as_good_as_onnx(case, drawn, known, expected)
    _known_beside_unknown_ranks(case, drawn, expected)
    return True


def _known_beside_unknown_ranks(case: Case, drawn: Call, expected: tuple[Any, ...]) -> None:
    """No inferred type contradicts the real outputs where the rank of one input alone is unknown."""
    if len(drawn.inputs) < 2:
        return
    static, _ = values_of(case, drawn, contents_known=False)
    unknown, _ = values_of(case, drawn, "unknown ranks", contents_known=False)
    place = drawn.turn % len(drawn.inputs)
    values = [*static[:place], unknown[place], *static[place + 1 :]]
    what = f'with an unknown rank of "{case.op.signature.input_at(place).name}" alone'
    with blaming(f"type inference of {case.op.title} {what}"):
        try:
            known = infer_call(case.op, values, drawn.attributes, drawn.outputs)
        except UnknownType:
            return
    _hold(case, known, expected, {}, what)


def inferred_beside_ones(case: Case, drawn: Call, expected: tuple[Any, ...]) -> None:
    """No inferred type contradicts the real outputs where dims of length 1 are known, and all others are symbols."""
    values, symbols = values_of(case, drawn, "symbolic dims")
    for value in values:
        if value is not None and value.data is None and isinstance(value.type, TensorType) and value.type.shape:
            ones = (1 if symbols.get(str(dim)) == 1 else dim for dim in value.type.shape)
            value._replace_fields(type=value.type.with_shape(tuple(ones)))
    what = "with symbolic dims beside those of length 1"
    try:
        known = infer_call(case.op, values, drawn.attributes, drawn.outputs)
    except (TypeMismatch, *UNFORESEEN):  # "types" judges what inference refuses
        return
    _hold(case, known, expected, symbols, what)


def values_of(
    case: Case, drawn: Call, view: str = "static shapes", contents_known: bool = True
) -> tuple[list[Value | None], dict[str, int]]:
    """Inputs of which inference is told so much, and the sizes that symbols stand for."""
    values: list[Value | None] = []
    symbols: dict[str, int] = {}
    for position, contents in enumerate(drawn.inputs):
        if contents is None and case.op.signature.input_at(position).optional:
            values.append(None)
            continue
        if contents_known and isinstance(contents, np.ndarray) and is_index(case.op, position):
            values.append(constant_value(contents, DType.of(contents.dtype), None, f"input{position}"))
            continue
        kind = type_of(contents)
        if view != "static shapes":
            unknown = {"unknown dims": "dims", "unknown ranks": "rank"}.get(view, "")
            kind, found = symbolic_type(contents, f"d{position}", unknown=unknown)
            symbols.update(found)
        values.append(Value(f"input{position}", kind))
    return values, symbols


def _hold(
    case: Case, known: list[Known | None], expected: tuple[Any, ...], symbols: Mapping[str, int], what: str
) -> None:
    if len(known) < len(expected):
        raise Failure(f"{case.op.title} {what}: {len(known)} outputs are inferred, and there are {len(expected)}")
    for position, contents in enumerate(expected):
        entry = known[position]
        inferred = None if entry is None else entry.type
        if entry is None and contents is not None:
            raise Failure(
                f"{case.op.title} {what}: output {position} is inferred to be absent, and it is {type_of(contents)}"
            )
        problem = contradiction(inferred, contents, symbols)
        if problem:
            real = type_of(contents)
            raise Failure(f"{case.op.title} {what}: output {position} is inferred as {inferred}, not {real}: {problem}")


def _knows_what_the_body_knows(
    op: Op, values: list[Value | None], drawn: Call, known: list[Known | None], what: str
) -> None:
    """A type rule knows every rank, size, symbol and type that the body gives without it."""
    if op.primitive or find_rule(op, "type") is None:
        return
    try:
        by_body = infer_by_body(op, values, drawn.attributes, drawn.outputs)
    except (TypeMismatch, *UNFORESEEN):  # the body wants to know more
        return
    for position, (entry, other) in enumerate(zip(known, by_body, strict=False)):
        if entry is not None and other is not None and is_vaguer(entry.type, other.type):
            raise Failure(
                f"the type rule of {op.title} {what} knows less than its body: output {position} is {entry.type}, and "
                f"{other.type} by the body"
            )


def rule_knows_more(case: Case, drawn: Call) -> bool:
    """Whether the type rule of an op tells of some output what the body leaves open, at known ranks."""
    for view, contents_known in _VIEWS:
        if view == "unknown ranks":
            continue
        values, _ = values_of(case, drawn, view, contents_known)
        known = infer_call(case.op, values, drawn.attributes, drawn.outputs)
        try:
            by_body = infer_by_body(case.op, values, drawn.attributes, drawn.outputs)
        except (TypeMismatch, *UNFORESEEN):
            return True
        pairs = [(e.type, o.type) for e, o in zip(known, by_body, strict=False) if e is not None and o is not None]
        if any(is_vaguer(body, rule, lambda dim: dim is not None) for rule, body in pairs):
            return True
    return False


def _is_plain(dim: Dim) -> bool:
    """Whether a dim is a number or a symbol: of longer expressions, a rule may leave those out that tell little."""
    return isinstance(dim, int) or (dim is not None and symbols_of(dim) == {str(dim)})


def is_vaguer(one: Type | None, other: Type | None, tells: Callable[[Dim], bool] = _is_plain) -> bool:
    """Whether a type leaves open what another one tells, where not every dim ``tells`` something."""
    if isinstance(one, SequenceType | OptionalType) and isinstance(other, SequenceType | OptionalType):
        return is_vaguer(one.element, other.element, tells)
    if not isinstance(one, TensorType) or not isinstance(other, TensorType):
        return one is None and other is not None
    if one.shape is None or other.shape is None:
        return one.shape is None and other.shape is not None
    return any(a is None and tells(b) for a, b in zip(one.shape, other.shape, strict=False))


def contradiction(inferred: Type | None, contents: Any, symbols: Mapping[str, int]) -> str:
    """Reason why contents are not of an inferred type; nothing if they are."""
    if inferred is None:
        return ""
    if isinstance(inferred, OptionalType):
        return "" if contents is None else contradiction(inferred.element, contents, symbols)
    if isinstance(inferred, SequenceType):
        if not isinstance(contents, list):
            return "it is not a sequence"
        return next(filter(None, (contradiction(inferred.element, c, symbols) for c in contents)), "")
    if isinstance(inferred, MapType):
        return "" if isinstance(contents, dict) else "it is not a map"
    if not isinstance(contents, np.ndarray | np.generic):
        return "it is not a tensor"
    real = np.asarray(contents)
    if DType.of(real.dtype) is not inferred.dtype:
        return "the dtypes differ"
    if inferred.shape is None:
        return ""
    if len(inferred.shape) != real.ndim:
        return "the ranks differ"
    for axis, (dim, side) in enumerate(zip(inferred.shape, real.shape, strict=True)):
        if dim is None:
            continue
        try:
            value = value_of(dim, symbols)
        except ValueError:
            continue  # a symbol that inference made up
        if value != side:
            where = ", ".join(f"{name}={symbols[name]}" for name in sorted(symbols_of(dim)))
            return f"dim {axis} would be {value}" + (f" for {where}" if where else "")
    return ""


def _as_good_as_onnx(case: Case, drawn: Call, known: list[Known | None], expected: tuple[Any, ...]) -> None:
    """Every dim that ONNX's own inference finds is found, too."""
    schema = schema_at(case.op, case.op.version)
    if schema is None or not schema.judged or not any(_has_unknown(entry) for entry in known):
        return
    trial = single_node(case.op, drawn, case.op.version, expected, newest_of_onnx())
    if trial is None:
        return
    inferred = onnx.shape_inference.infer_shapes(without_output_types(trial.model), data_prop=True)
    present = [entry for entry in known[: len(expected)] if entry is not None]
    for position, (entry, info) in enumerate(zip(present, inferred.graph.output, strict=False)):
        if not isinstance(entry.type, TensorType) or not info.type.tensor_type.HasField("shape"):
            continue
        theirs = [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]
        ours = entry.type.shape if entry.type.shape is not None else [None] * len(theirs)
        if any(isinstance(t, int) and not isinstance(o, int) for t, o in zip(theirs, ours, strict=True)):
            what = f"{case.op.title} with static shapes: output {position}"
            raise Failure(f"{what} is inferred as {entry.type}, and ONNX infers {theirs}")


def _has_unknown(entry: Known | None) -> bool:
    if entry is None or not isinstance(entry.type, TensorType):
        return False
    return entry.type.shape is None or any(not isinstance(dim, int) for dim in entry.type.shape)
