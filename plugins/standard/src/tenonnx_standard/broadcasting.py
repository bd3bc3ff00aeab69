"""Types of elementwise ops, and the broadcasting rules of opsets below 7."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Op, TypeMismatch, Value, broadcast_types, constant, limits


def check_one_dtype(op: Op, inputs: Iterable[Value]) -> None:
    """Raise ``TypeMismatch`` unless all inputs have the same dtype."""
    inputs = list(inputs)
    if any(v.dtype is not inputs[0].dtype for v in inputs):
        raise TypeMismatch(
            f"{op.title}: inputs have different dtypes", given=", ".join(map(repr, inputs)), do="cast one of them"
        )


def one_way(op: Op, *, swapped: Callable[[], Op] | None = None, consumed_inputs: bool = False) -> Op:
    """Define the binary ``op`` below opset 7: B broadcasts to A, and only if ``broadcast`` is set.

    B is then a single element, or its axes equal consecutive axes of A from ``axis`` on, by default the last ones.
    ``swapped`` returns the op that is equal with swapped inputs.
    """
    if [p.name for p in op.signature.inputs] == ["X", "Y"]:

        def older(X, Y, *, axis: int | None = None, broadcast=0):
            return op(X, _aligned(old, X, Y, axis, broadcast))

    else:

        def older(A, B, *, axis: int | None = None, broadcast=0):
            return op(A, _aligned(old, A, B, axis, broadcast))

    older.__name__ = older.__qualname__ = f"{op.__name__.rstrip('_')}_one_way"
    older.__doc__ = f"{op.name}, B being broadcast to A along consecutive axes where ``broadcast`` is set."
    older.__module__ = op.__module__
    old = op.until(7)(older)
    if consumed_inputs:
        old.until(6, ignored=["consumed_inputs"])

    @op.lower(to=old)
    def op_to_old(a: Value, b: Value) -> Value | None:
        if a.rank is None or b.rank is None:
            return None
        said = _to_one_way(old, a, b)
        if said is None and swapped is not None and (other := swapped().older) is not None:
            said = _to_one_way(other, b, a)
        return said

    return old


def one_shape(op: Op) -> Op:
    """Define the variadic ``op`` below opset 8, where all inputs have one shape."""

    def older(*data_0):
        shapes = [v for v in data_0 if v.rank is not None]
        if any(not _may_be_equal(shapes[0], v) for v in shapes):
            raise TypeMismatch(f"{old.title}: inputs have different shapes", given=", ".join(map(repr, data_0)))
        return op(*data_0)

    older.__name__ = older.__qualname__ = f"{op.__name__.rstrip('_')}_of_one_shape"
    older.__doc__ = f"{op.name} of inputs of one shape."
    older.__module__ = op.__module__
    old = op.until(8)(older)
    old.until(6, ignored=["consumed_inputs"])

    @op.lower(to=old)
    def op_to_old_2(*data_0: Value) -> Value | None:
        """Broadcast inputs of different static shapes by adding zeros."""
        shapes = [v.tensor.shape for v in data_0]
        if any(shape is None or None in shape for shape in shapes):
            return None
        whole = broadcast_types(op, data_0)
        assert whole is not None
        if all(shape == whole for shape in shapes):
            return old(*data_0)  # type: ignore[no-any-return]
        if not data_0[0].dtype.is_float or not all(isinstance(dim, int) for dim in whole):
            return None
        zeros = constant(np.zeros(limits.sized(whole, op.title)), data_0[0].dtype)
        return old(*(v if v.shape == whole else v + zeros for v in data_0))  # type: ignore[no-any-return]

    return old


def _aligned(op: Op, a: Value, b: Value, axis: int | None, broadcast: int) -> Value:
    """``b`` with trailing axes of length 1, so that it broadcasts to ``a`` by the rules of opset 7."""
    if not broadcast:
        if a.rank is not None and b.rank is not None and not _may_be_equal(a, b):
            raise TypeMismatch(
                f"{op.title}: inputs have different shapes, without broadcasting",
                given=f"{a!r}, {b!r}",
                do="set broadcast=1",
            )
        return b
    if axis is None or axis == -1 or (b.rank is not None and all(dim == 1 for dim in b.shape)):
        return b
    behind = a.ndim - (axis + a.ndim if axis < 0 else axis) - b.ndim
    if behind < 0 or axis < -a.ndim:
        raise TypeMismatch(
            f"{op.title}: axes of B do not match those of A from axis {axis} on", given=f"axis={axis}, {a!r}, {b!r}"
        )
    return ops.unsqueeze(b, list(range(b.ndim, b.ndim + behind))) if behind else b


def _may_be_equal(a: Value, b: Value) -> bool:
    pairs = zip(a.shape, b.shape, strict=False)
    return a.ndim == b.ndim and all(m == n for m, n in pairs if isinstance(m, int) and isinstance(n, int))


def _to_one_way(old: Op, a: Value, b: Value) -> Value | None:
    """Express broadcasting ``b`` to ``a`` in the old op's signature; None where that is impossible."""
    if b.ndim > a.ndim or None in b.shape:
        return None
    if a.shape == b.shape:
        return old(a, b)  # type: ignore[no-any-return]
    kept = [axis for axis, dim in enumerate(b.shape) if dim != 1]
    if not kept:
        return old(a, b, broadcast=1)  # type: ignore[no-any-return]
    first, last = kept[0], kept[-1]
    place = a.ndim - b.ndim + first
    if b.shape[first : last + 1] != a.shape[place : place + last + 1 - first]:
        return None
    ones = [axis for axis in range(b.ndim) if not first <= axis <= last]
    return old(a, ops.squeeze(b, ones) if ones else b, broadcast=1, axis=place)  # type: ignore[no-any-return]
