"""Families of primitives with a common type rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tenonnx.errors import TypeMismatch
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Value
from tenonnx.graph.symbolic import broadcast_shapes
from tenonnx.graph.types import Shape, TensorType
from tenonnx.op.op import Define, Op, P, primitive


def elementwise(name: str, *, result: DType | None = None, mixed: Iterable[str] = (), **keywords: Any) -> Define:
    """Define an elementwise primitive with broadcast inputs.

    The output has the dtype ``result``, else that of the inputs, which must share one dtype except for the inputs
    ``mixed``.
    """
    exempt = frozenset(mixed)

    def define(function: Callable[P, Any]) -> Op[P]:
        op = primitive(name, broadcasts=True, elementwise=True, **keywords)(function)
        op.type(lambda *inputs, **_: _elementwise_type(op, inputs, result, exempt))
        return op

    return define


def _elementwise_type(
    op: Op, inputs: tuple[Value | None, ...], result: DType | None, exempt: frozenset[str]
) -> TensorType:
    dtype: DType | None = None
    for position, value in enumerate(inputs):
        if value is None or op.signature.input_at(position).name in exempt:
            continue
        if dtype is None:
            dtype = value.dtype
        elif value.dtype is not dtype:
            given = ", ".join(repr(v) for v in inputs if v is not None)
            raise TypeMismatch(f"{op.title}: the inputs have different dtypes", given=given, do="cast one of them")
    shape = broadcast_types(op, [v for v in inputs if v is not None])
    found = result if result is not None else dtype
    if found is None:
        raise TypeMismatch(f"{op.title} has no input")
    return TensorType(found, shape)


def broadcast_types(op: Op, values: Iterable[Value]) -> Shape | None:
    """The broadcast shape of the values; None if a rank is unknown.

    Raises ``TypeMismatch`` if they do not broadcast.
    """
    values = list(values)
    shapes = [value.tensor.shape for value in values]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    try:
        return broadcast_shapes(*known)
    except ValueError as error:
        given = ", ".join(map(repr, values))
        raise TypeMismatch(f"{op.title}: the inputs do not broadcast together", given=given) from error


def same_type(x: Value, *_: Any, **__: Any) -> TensorType:
    """Type rule: the output has the type of the first input."""
    return x.tensor
