"""Output types of a call: by the op's type rule, else by running its body on abstract values."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tenonnx.errors import InvalidCall, TypeMismatch, UnknownType
from tenonnx.graph.definitions import Definitions, definitions
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Value
from tenonnx.graph.training import Role
from tenonnx.graph.types import TensorType, Type, join_types
from tenonnx.limits import count_call, work
from tenonnx.op.binding import UNFORESEEN, cannot_compute, invoke, pad
from tenonnx.op.call import constant_value, current, interpreting
from tenonnx.op.dtypes import check_dtypes
from tenonnx.op.inference_cache import Memo, call_key, sizes_alone
from tenonnx.op.known_values import Known, know_contents
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule

if TYPE_CHECKING:
    import numpy as np

#: Ranks to try if a body needs the rank of an input of unknown rank.
RANKS = range(7)


#: One cache for each registry, which defines the inner ops.
_memos: WeakKeyDictionary[Definitions, Memo] = WeakKeyDictionary()


def forget_types(registry: Definitions) -> None:
    """Drop the cached types of ``registry``, after one of its ops got another type rule."""
    _memos.pop(registry, None)


def infer_call(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
) -> list[Known | None]:
    """Infer the outputs of a call; None for an output that the call leaves out.

    Raises ``TypeMismatch`` if the op does not accept the inputs, or if a required type is unknown.
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
            known = [_known(op, each) for each in found]
        know_contents(op, inputs, attributes, outputs, known)
    except UNFORESEEN as error:
        raise cannot_compute(op.title, inputs, attributes, error) from error
    return known


def _known(op: Op, said: Any) -> Known | None:
    """The output of a type rule as known values."""
    if said is None or isinstance(said, Known):
        return said
    if not isinstance(said, Type):
        what = f"the type rule of {op.title} did not return a type, or a tuple with one or None for each output"
        raise InvalidCall(what, given=repr(said)[:200])
    return Known(said)


class Abstract:
    """Abstract interpretation: executes calls on values of known type and returns values of inferred type.

    With ``guessing``, a call whose body needs an unknown rank returns the facts that hold for every rank, so that
    inference continues after it.
    """

    def __init__(self, guessing: bool = False) -> None:
        self.guessing = guessing

    def call(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
    ) -> tuple[Value | None, ...]:
        count_call(op.title)
        return tuple(None if k is None else k.value(op.name) for k in infer_call(op, inputs, attributes, outputs))

    def constant(self, array: np.ndarray[Any, Any], dtype: DType, role: Role | None = None) -> Value:
        return constant_value(array, dtype, None, "constant")


def infer_by_body(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None
) -> list[Known | None]:
    """Infer types by abstract interpretation of the body, once for similar calls.

    Raises ``TypeMismatch`` if the call violates a requirement.
    """
    alike = sizes_alone(op, inputs)
    if op.requirements.read_contents and any(a is not b for a, b in zip(alike, inputs, strict=True)):
        op.requirements.check(inputs, attributes)
    interpreter = current()
    guessing = not isinstance(interpreter, Abstract) or interpreter.guessing
    try:
        key = call_key(op, alike, attributes, outputs)
        memo = _memos.setdefault(definitions(), Memo())
        return memo.get(key, guessing, lambda: _infer_body(op, alike, attributes, outputs, guessing))
    except UnknownType:  # retry with the contents, which may determine the type
        return _infer_body(op, inputs, attributes, outputs, guessing)[0]


def _infer_body(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None, guessing: bool
) -> tuple[list[Known | None], UnknownType | None]:
    """Inferred outputs and, for guesses, the error that names the missing facts."""
    check_dtypes(op, inputs)
    narrowed = op.requirements.narrowed(inputs, op.requirements.check(inputs, attributes))
    try:
        return _run_body(op, narrowed, attributes, outputs, Abstract()), None
    except UnknownType as reason:
        if not guessing:
            raise
        known = _known_of_any_rank(op, narrowed, attributes, outputs)
        if known is None:
            known = _run_body(op, narrowed, attributes, outputs, Abstract(guessing=True))
        return known, reason


def _run_body(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None, interpreter: Abstract
) -> list[Known | None]:
    with work(), interpreting(interpreter):
        results = invoke(op, op.function, inputs, attributes, outputs)
    return [None if r is None else Known(r.type, r.symbolic_contents, r.data) for r in results]


def _known_of_any_rank(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None
) -> list[Known | None] | None:
    """Facts that hold for every rank of the inputs of unknown rank; None if the body accepts none of the tried ranks.

    These are the element types and, if a single rank is unknown and every rank was tried, what the shapes have in
    common.
    """
    open_ = [v for v in inputs if v is not None and isinstance(v.type, TensorType) and v.type.shape is None]
    judged, found = len(open_) == 1, []
    for rank in RANKS if open_ else ():
        ranked = [_with_rank(v, rank) if v is not None and v in open_ else v for v in inputs]
        try:
            op.requirements.check(ranked, attributes)
            known = _run_body(op, ranked, attributes, outputs, Abstract())
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
