"""Comparison of inferred types with the real ones, for known, symbolic and unknown shapes."""

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

#: Knowledge of the input shapes, and whether the contents of index inputs are known too.
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
    """Check that inferred types fit the real outputs, and are at least as precise as ONNX's own shape inference."""
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
        _check_types(case, known, expected, symbols, what)
        if view != "unknown ranks":
            _check_against_body(case.op, values, drawn, known, what)
        if view == "static shapes" and contents_known:
            _check_against_onnx(case, drawn, known, expected)
    _check_one_unknown_rank(case, drawn, expected)
    return True


def _check_one_unknown_rank(case: Case, drawn: Call, expected: tuple[Any, ...]) -> None:
    """Check that inferred types fit the real outputs if the rank of one input is unknown."""
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
    _check_types(case, known, expected, {}, what)


def inferred_beside_ones(case: Case, drawn: Call, expected: tuple[Any, ...]) -> None:
    """Check that inferred types fit the real outputs if dims of length 1 are known and all others symbolic."""
    values, symbols = values_of(case, drawn, "symbolic dims")
    for value in values:
        if value is not None and value.data is None and isinstance(value.type, TensorType) and value.type.shape:
            ones = (1 if symbols.get(str(dim)) == 1 else dim for dim in value.type.shape)
            value._replace_fields(type=value.type.with_shape(tuple(ones)))
    what = "with symbolic dims beside those of length 1"
    try:
        known = infer_call(case.op, values, drawn.attributes, drawn.outputs)
    except (TypeMismatch, *UNFORESEEN):  # the check "types" reports errors of inference
        return
    _check_types(case, known, expected, symbols, what)


def values_of(
    case: Case, drawn: Call, view: str = "static shapes", contents_known: bool = True
) -> tuple[list[Value | None], dict[str, int]]:
    """Input values with the shape knowledge of ``view``, and the sizes of their symbolic dims."""
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


def _check_types(
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


def _check_against_body(op: Op, values: list[Value | None], drawn: Call, known: list[Known | None], what: str) -> None:
    """Check that a type rule infers every dtype, rank, size and symbol that inference through the body finds."""
    if op.primitive or find_rule(op, "type") is None:
        return
    try:
        by_body = infer_by_body(op, values, drawn.attributes, drawn.outputs)
    except (TypeMismatch, *UNFORESEEN):  # the body needs more knowledge
        return
    for position, (entry, other) in enumerate(zip(known, by_body, strict=False)):
        if entry is not None and other is not None and is_vaguer(entry.type, other.type):
            raise Failure(
                f"the type rule of {op.title} {what} knows less than its body: output {position} is {entry.type}, and "
                f"{other.type} by the body"
            )


def rule_knows_more(case: Case, drawn: Call) -> bool:
    """Whether the type rule of an op infers more than its body at known ranks."""
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
    """Whether a dim is a number or a single symbol; rules may leave out longer expressions."""
    return isinstance(dim, int) or (dim is not None and symbols_of(dim) == {str(dim)})


def is_vaguer(one: Type | None, other: Type | None, tells: Callable[[Dim], bool] = _is_plain) -> bool:
    """Whether a type lacks something that ``other`` has; of its dims, those count for which ``tells`` is true."""
    if isinstance(one, SequenceType | OptionalType) and isinstance(other, SequenceType | OptionalType):
        return is_vaguer(one.element, other.element, tells)
    if not isinstance(one, TensorType) or not isinstance(other, TensorType):
        return one is None and other is not None
    if one.shape is None or other.shape is None:
        return one.shape is None and other.shape is not None
    return any(a is None and tells(b) for a, b in zip(one.shape, other.shape, strict=False))


def contradiction(inferred: Type | None, contents: Any, symbols: Mapping[str, int]) -> str:
    """Reason why contents do not fit an inferred type; empty if they fit."""
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
            continue  # a symbol that inference created
        if value != side:
            where = ", ".join(f"{name}={symbols[name]}" for name in sorted(symbols_of(dim)))
            return f"dim {axis} would be {value}" + (f" for {where}" if where else "")
    return ""


def _check_against_onnx(case: Case, drawn: Call, known: list[Known | None], expected: tuple[Any, ...]) -> None:
    """Check that every dim inferred by ONNX is inferred here, too."""
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
