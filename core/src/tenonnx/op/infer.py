"""Types of outputs: by the op's type rule, else by running its body on values of known type."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from tenonnx.errors import InvalidCall, TypeMismatch, UnknownType
from tenonnx.graph.definitions import Definitions, definitions
from tenonnx.graph.graph import Graph
from tenonnx.graph.symbolic import Expr
from tenonnx.graph.types import TensorType, Type, join_types
from tenonnx.graph.values import ArrayConstant, Constant, Value
from tenonnx.op.binding import UNFORESEEN, invoke, numpy_arguments, pad, refused
from tenonnx.op.call import current, interpreting
from tenonnx.op.dtypes import check_dtypes
from tenonnx.op.memo import Memo, call_key, sizes_alone
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule

#: Contents of at most this many bytes are propagated through ops while types are inferred.
PROPAGATED_BYTES = 8192

#: The ranks that are tried where a body asks for one that is not known.
RANKS = range(7)


@dataclass(slots=True)
class Known:
    """What inference knows of one output: its type, and the contents where they are static or of symbolic dims."""

    type: Type | None
    elements: Any = None
    data: Constant | None = None

    def give(self, value: Value) -> None:
        value.type, value.elements, value.data = self.type, self.elements, self.data

    def copy(self) -> Known:
        return Known(self.type, self.elements, self.data)


#: One for each registry, as what inner ops are belongs to it.
_memos: WeakKeyDictionary[Definitions, Memo] = WeakKeyDictionary()


def infer_call(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
) -> list[Known | None]:
    """What is known of each output of a call; None for an output that the call leaves out.

    Raises ``TypeMismatch`` when the inputs are not what the op accepts, or when a type that must be known is not.
    """
    inputs = pad(op, list(inputs))
    rule = find_rule(op, "type")
    try:
        if rule is None:
            known = infer_by_body(op, inputs, attributes, outputs)
        else:
            check_dtypes(op, inputs)
            op.requirements.check(inputs, attributes)
            found = invoke(op, rule, inputs, attributes, outputs)
            known = [k if k is None or isinstance(k, Known) else Known(k) for k in found]
        _propagate(op, inputs, attributes, outputs, known)
    except UNFORESEEN as error:
        raise refused(op.title, inputs, attributes, error) from error
    return known


def infer_by_body(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None
) -> list[Known | None]:
    """What the body gives for values of these types, which it is asked once for calls that are alike.

    Raises ``TypeMismatch`` where the call breaks what must hold of it.
    """
    alike = sizes_alone(op, inputs)
    if op.requirements.read_contents and any(a is not b for a, b in zip(alike, inputs, strict=True)):
        op.requirements.check(inputs, attributes)
    try:
        key = call_key(op, alike, attributes, outputs)
        return _memos.setdefault(definitions(), Memo()).get(key, lambda: _infer_body(op, alike, attributes, outputs))
    except UnknownType:  # contents may tell
        return _infer_body(op, inputs, attributes, outputs)


def _infer_body(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None
) -> list[Known | None]:
    check_dtypes(op, inputs)
    narrowed = op.requirements.narrowed(inputs, op.requirements.check(inputs, attributes))
    try:
        return _run_body(op, narrowed, attributes, outputs)
    except UnknownType:
        known = None if _is_inside() else _known_of_any_rank(op, narrowed, attributes, outputs)
        if known is None:
            raise
        return known


def _is_inside() -> bool:
    """Whether types are being inferred by the body of an op around this call."""
    from tenonnx.op.build import Scratch

    return isinstance(current(), Scratch)


def _run_body(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None
) -> list[Known | None]:
    from tenonnx.op.build import Scratch

    with interpreting(Scratch()):
        results = invoke(op, op.function, inputs, attributes, outputs)
    return [None if r is None else Known(r.type, r.elements, r.data) for r in results]


def _known_of_any_rank(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None
) -> list[Known | None] | None:
    """What holds whichever ranks the inputs have whose rank is not known; None where the body takes none of them.

    That is the element types, and where one rank alone is not known and each was judged, of shapes what they share.
    """
    open_ = [v for v in inputs if v is not None and isinstance(v.type, TensorType) and v.type.shape is None]
    judged, found = len(open_) == 1, []
    for rank in RANKS if open_ else ():
        ranked = [_with_rank(v, rank) if v is not None and v in open_ else v for v in inputs]
        try:
            op.requirements.check(ranked, attributes)
            known = _run_body(op, ranked, attributes, outputs)
        except (InvalidCall, *UNFORESEEN) as error:
            judged = judged and type(error) is TypeMismatch
            continue
        found.append([None if k is None else k.type for k in known])
    joined = [functools.reduce(join_types, types) for types in zip(*found, strict=True)]
    return [Known(kind if judged else _without_shape(kind)) for kind in joined] if found else None


def _without_shape(kind: Type | None) -> Type | None:
    return kind.with_shape(None) if isinstance(kind, TensorType) else kind


def _with_rank(value: Value, rank: int) -> Value:
    return Value(value.name, value.tensor.with_shape((None,) * rank), graph=value.graph)


def _propagate(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None, known: list[Any]
) -> None:
    """Compute small static contents by numpy rule or body; on symbolic dims where the op's rule allows it."""
    import numpy as np

    rule = find_rule(op, "numpy")
    if (rule is None and op.primitive) or not op.pure or any(k is not None and k.data is not None for k in known):
        return
    if any(v is not None and v.data is None and v.elements is None for v in inputs):
        return
    if any(v is not None and v.data is not None and v.data.nbytes > PROPAGATED_BYTES for v in inputs):
        return
    if any(isinstance(a, Graph) or callable(a) for a in attributes.values()) or not _is_small(known):
        return
    arrays = numpy_arguments(inputs)
    symbolic = arrays is None
    if arrays is None:
        if rule is None or not op.symbolic or not all(k is None or _is_integer(k) for k in known):
            return
        arrays = [None if v is None else _symbolic_array(v) for v in inputs]
    try:
        with np.errstate(all="ignore"):
            results = (
                invoke(op, rule, arrays, attributes, outputs)
                if rule is not None
                else _by_body(op, arrays, attributes, outputs)
            )
    except ArithmeticError:
        return
    except TypeError:
        if symbolic:
            return  # arithmetic on unknown dims
        raise
    for entry, result in zip(known, results, strict=False):
        if (
            entry is not None
            and isinstance(entry.type, TensorType)
            and isinstance(result, np.ndarray | np.generic | int | Expr)
        ):
            _record(entry, entry.type, np.asarray(result, dtype=object if symbolic else None), symbolic)


def _by_body(op: Op, arrays: Sequence[Any], attributes: Mapping[str, Any], outputs: int | None) -> tuple[Any, ...]:
    from tenonnx.op.evaluate import Evaluator

    evaluator = Evaluator()
    with interpreting(evaluator):
        found = evaluator.call(op, [None if a is None else evaluator.wrap(a) for a in arrays], attributes, outputs)
    return tuple(None if value is None else evaluator.contents(value) for value in found)


def _record(entry: Known, kind: TensorType, result: Any, symbolic: bool) -> None:
    if not symbolic:
        entry.data = ArrayConstant(result, kind.dtype)
        entry.type = entry.data.type
    elif all(isinstance(e, int) for e in result.reshape(-1)):
        entry.data = ArrayConstant(result.astype(kind.dtype.numpy))
        entry.type = entry.data.type
    else:
        entry.elements = result
        entry.type = kind.with_shape(result.shape)


def _is_integer(known: Known) -> bool:
    return isinstance(known.type, TensorType) and (known.type.dtype.is_integer or known.type.dtype.name == "bool")


def _is_small(known: Sequence[Known | None]) -> bool:
    for entry in known:
        if entry is None:
            continue
        if not isinstance(entry.type, TensorType) or entry.type.shape is None:
            return False
        size = 1
        for dim in entry.type.shape:
            if not isinstance(dim, int):
                return False
            size *= dim
        if size * 8 > PROPAGATED_BYTES:
            return False
    return True


def _symbolic_array(value: Value) -> Any:
    if value.elements is not None:
        return value.elements
    assert value.data is not None
    array = value.data.array()
    return array.astype(object) if array.dtype.kind in "iu" else array
