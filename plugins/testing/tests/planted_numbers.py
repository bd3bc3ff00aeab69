"""Rules ``numpy`` and bodies that give wrong numbers: of certain contents, types, shapes, or by what is around them."""

from __future__ import annotations

import itertools
import threading

import numpy as np
from hypothesis import strategies as st
from planted import plant, planted

import tenonnx_standard as ops
from tenonnx.extend import op, static
from tenonnx_testing import axis_of, broadcastable, call, tensors
from tenonnx_testing.cases import Case

# ----- ops that are right ---------------------------------------------------------------------------------------------


def weighted():
    """``X * W + by``."""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by

    return made, lambda draw: call(*draw(broadcastable(2, ["float32", "float64"])), by=0.5)


def product():
    @op("Product", domain="com.example")
    def made(X, W):
        return X * W

    return made, lambda draw: call(*draw(broadcastable(2, ["int64", "int32", "uint8"])))


def inverse():
    @op("Inverse", domain="com.example")
    def made(X):
        return 1.0 / X

    return made, lambda draw: call(draw(tensors(exclude_near=(0.0,))))


def negated():
    @op("Negated", domain="com.example")
    def made(X):
        return ops.neg(X)

    return made, lambda draw: call(draw(tensors(["float32", "float64"])))


def greatest():
    @op("Greatest", domain="com.example")
    def made(X, W):
        return ops.where(ops.or_(X > W, ops.isnan(X)), X, W)

    def drawn(draw):
        x, w = draw(broadcastable(2, distinct=True))
        return call(x, w + np.float32(10))

    return made, drawn


def summed():
    @op("Summed", domain="com.example")
    def made(X, *, axis=-1):
        return ops.reduce_sum(X, [axis], keepdims=1)

    def drawn(draw):
        x = draw(tensors(min_rank=1))
        return call(x, axis=draw(axis_of(x)))

    return made, drawn


def twice_said():
    @op("TwiceSaid", domain="com.example")
    def made(X):
        return ops.string_concat(X, X)

    return made, lambda draw: call(draw(tensors("string")))


def clipped():
    """Optional bounds, both of which all cases give."""

    @op("Bounded", domain="com.example")
    def made(X, low=None, high=None):
        raised = X if low is None else ops.where(low > X, low, X)
        return raised if high is None else ops.where(high < raised, high, raised)

    def drawn(draw):
        low = draw(tensors(shape=(), min_value=-3, max_value=-1))
        return call(draw(tensors()), low, low + np.float32(2))

    return made, drawn


def times(X, W, by):
    return np.asarray(X * W + X.dtype.type(by))


def when(holds):
    """Right, but for one more where something holds."""
    return lambda X, W, *, by: times(X, W, by) + X.dtype.type(bool(holds(X, W)))


# ----- what is wrong --------------------------------------------------------------------------------------------------

plant("formula", "numpy=body", weighted, "numpy", {
    "another sign": lambda X, W, *, by: times(X, -W, by),
    "a sum for a product": lambda X, W, *, by: times(X, W, by) + X,
    "an attribute that is not read": lambda X, W, *, by: np.asarray(X * W),
    "an attribute by its default": lambda X, W, *, by: times(X, W, 2.0),
    "inputs that do not broadcast": lambda X, W, *, by: times(X, np.resize(W, X.shape), by),
    "an element type more narrow": lambda X, W, *, by: times(X, W, by).astype(np.float32),
    "a bare error of some ranks": lambda X, W, *, by: {0: 1, 1: 1, 3: 1}[X.ndim] and times(X, W, by),
    "two outputs": lambda X, W, *, by: (times(X, W, by), X),
    "an absolute value": lambda X, W, *, by: abs(times(X, W, by)),
    "a last element that is left out": lambda X, W, *, by: times(X, W, by) * (np.arange(X.size or 1).reshape(
        X.shape or ())[...] >= 0 if X.ndim == 0 else np.arange(X.shape[-1]) < max(1, X.shape[-1] - 1)),
})  # fmt: skip

plant("zero", "special values", inverse, "numpy", {
    "negative zero, lost in x + 0.0": lambda X: 1 / (X + X.dtype.type(0)),
    "negative zero, lost in an absolute value": lambda X: np.where(X == 0, np.inf, 1 / X).astype(X.dtype),
    "a division by zero that gives zero": lambda X: np.where(X == 0, 0, 1 / np.where(X == 0, 1, X)).astype(X.dtype),
})  # fmt: skip
plant("zero", "special values", negated, "numpy", {
    "a difference from zero for a negation": lambda X: 0 - X,
    "the sign of zero, lost in a product": lambda X: np.where(X == 0, 0, -X).astype(X.dtype),
})  # fmt: skip

plant("not finite", "special values", weighted, "numpy", {
    "NaN as zero": lambda X, W, *, by: np.nan_to_num(times(X, W, by), posinf=np.inf, neginf=-np.inf),
    "infinities as large numbers": lambda X, W, *, by: np.clip(times(X, W, by), -1e30, 1e30).astype(X.dtype),
    "a product with the inverse of the inverse": lambda X, W, *, by: times(X, W, by) + 0 / X * X,
})  # fmt: skip
plant("not finite", "special values", greatest, "numpy", {
    "NaN of one input left out": lambda X, W: np.fmax(X, W),
    "NaN of both left out": lambda X, W: np.nan_to_num(np.fmax(X, W), posinf=np.inf, neginf=-np.inf),
})  # fmt: skip

plant("large", "special values", weighted, "numpy", {
    "a clip at 900": lambda X, W, *, by: np.clip(times(X, W, by), -900, 900).astype(X.dtype),
    "a way through half floats": lambda X, W, *, by: np.where(abs(X) < 100, times(X, W, by), np.float16(100)).astype(
        X.dtype),
})  # fmt: skip
plant("large", "special values", product, "numpy", {
    "64 bits in 32": lambda X, W: (X.astype(np.int32) * W.astype(np.int32)).astype(X.dtype),
    "integers by float32": lambda X, W: (X.astype(np.float32) * W.astype(np.float32)).astype(X.dtype),
    "integers by float64": lambda X, W: (X.astype(np.float64) * W.astype(np.float64)).astype(X.dtype),
})  # fmt: skip

plant("denormal", "special values", inverse, "numpy", {
    "denormal numbers as zero": lambda X: 1 / np.where(abs(X) < np.finfo(X.dtype).tiny, 0, X).astype(X.dtype),
})  # fmt: skip
plant("denormal", "special values", negated, "numpy", {
    "a negation that flushes": lambda X: np.where(abs(X) < np.finfo(X.dtype).tiny, 0, -X).astype(X.dtype),
})  # fmt: skip

plant("element type", "variations", weighted, "numpy", {
    "half floats with one more": when(lambda X, W: X.dtype == np.float16),
    "bfloat16 with one more": when(lambda X, W: X.dtype.name == "bfloat16"),
    "half floats as float32": lambda X, W, *, by: np.asarray(X * np.float32(1) * W + np.float32(by)) if X.dtype.itemsize
        < 4 else times(X, W, by),
    "bfloat16 that is refused by numpy": lambda X, W, *, by: times(X, W, by) if X.dtype.kind == "f" else np.linalg.norm(
        X.view("V2")),
})  # fmt: skip

plant("rank", "variations", lambda: (weighted()[0], lambda draw: call(
    *draw(broadcastable(2, min_rank=2, max_rank=2)), by=0.5)), "numpy", {
    f"one more at rank {rank}": when(lambda X, W, rank=rank: max(X.ndim, W.ndim) == rank) for rank in (0, 1, 3, 4)
})  # fmt: skip

plant("size", "variations", weighted, "numpy", {
    "an axis of 17 and more": when(lambda X, W: max(X.shape, default=0) > 16),
    "a thousand elements and more": when(lambda X, W: X.size >= 1000),
    "pieces of 16, of which the rest is left out": lambda X, W, *, by: times(X, W, by) * (
        1 if not X.ndim or X.shape[-1] < 16 else np.arange(X.shape[-1]) < X.shape[-1] // 16 * 16).astype(X.dtype)
        if X.ndim and X.shape[-1] >= 16 else times(X, W, by),
})  # fmt: skip
plant("size", "variations", summed, "numpy", {
    "sums of the first 16": lambda X, *, axis: X.take(range(min(16, X.shape[axis])), axis).sum(axis, keepdims=True),
})  # fmt: skip

plant("empty", "empty axes", weighted, "numpy", {
    "one element for none": lambda X, W, *, by: times(X, W, by) if X.size else np.ones(1, X.dtype),
    "an error for none": lambda X, W, *, by: times(X, W, by) * (X.max() > -np.inf),
})  # fmt: skip


def _by_memory(X, W, *, by):
    y = times(X, W, by)
    return y if X.flags.c_contiguous else y[..., ::-1]


plant("layout", "layout", weighted, "numpy", {
    "right for contiguous arrays alone": _by_memory,
    'ravel("K")': lambda X, W, *, by: times(X.ravel("K").reshape(X.shape), W, by),
    "a view of the memory": lambda X, W, *, by: times(
        X if X.flags.c_contiguous else np.ndarray(X.shape, X.dtype, np.asarray(X.base if X.base is not None and
        X.base.size >= X.size else X).tobytes()[:X.nbytes].ljust(X.nbytes)), W, by),
    "the order of memory for a result": lambda X, W, *, by: np.asarray(times(X, W, by).ravel("A").reshape(
        np.broadcast_shapes(X.shape, W.shape))),
    "right for Fortran order alone": lambda X, W, *, by: times(X, W, by) + X.dtype.type(
        X.ndim > 1 and X.size > 1 and not X.flags.forc),
})  # fmt: skip

plant("optional inputs", "variations", clipped, "numpy", {
    "zero for an upper bound that is absent": lambda X, low, high: np.clip(X, low, 0 if high is None else high),
    "zero for a lower bound that is absent": lambda X, low, high: np.clip(X, 0 if low is None else low, high),
    "a bare error without a lower bound": lambda X, low, high: np.clip(X, low.reshape(()), high),
})  # fmt: skip


def texts(change):
    """The text that is said twice, changed before."""
    return lambda X: np.asarray(np.frompyfunc(lambda text: 2 * change(text), 1, 1)(X), object)


plant("text", "special values", twice_said, "numpy", {
    "white space that is stripped": texts(str.strip),
    "white space that is one space": texts(lambda text: " ".join(text.split())),
    "white space at the end that is left out": texts(str.rstrip),
    "words alone": texts(lambda text: text if text.isprintable() and text == text.strip() else "".join(text.split())),
})  # fmt: skip

plant("axes", "negative axes", lambda: (_with_axis(), _from_the_front), "numpy", {
    "the axis before, counted from the end": lambda X, *, axis: X.sum(
        axis if axis >= 0 else max(-X.ndim, axis - 1), keepdims=True),
    "all axes for those counted from the end": lambda X, *, axis: X.sum(axis, keepdims=True) + (axis < 0),
})  # fmt: skip


def _with_axis():
    from tenonnx.extend import axis

    made, _ = summed()
    made.requires(axis("axis", of="X"))
    return made


def _from_the_front(draw):
    x = draw(tensors(min_rank=2))
    return call(x, axis=draw(st.integers(0, x.ndim - 1)))


# ----- what depends on more than the call -----------------------------------------------------------------------------


def _in_place(X, W, *, by):
    np.multiply(X, W, out=X)
    return X + X.dtype.type(by)


plant("around the call", "numpy=body", weighted, "numpy", {"inputs that are written": _in_place})


@planted("around the call", "repeated")
def _():
    """the last bit of every second call"""
    count = itertools.count()
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: np.nextafter(times(X, W, by), X.dtype.type(np.inf if next(count) % 2 else -np.inf)))
    return Case(made, drawn)


@planted("around the call", "repeated")
def _():
    """another result in another thread"""
    made, drawn = weighted()
    main = threading.main_thread()
    made.numpy(lambda X, W, *, by: times(X, W, by) + X.dtype.type(threading.current_thread() is not main))
    return Case(made, drawn)


@planted("around the call", "repeated")
def _():
    """a thread-local table that other threads lack"""
    table = threading.local()
    table.one = 1
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: times(X, W, by) * X.dtype.type(table.one))
    return Case(made, drawn)


@planted("around the call", "layout")
def _():
    """an output that is given again and written again"""
    kept = {}

    def rule(X, W, *, by):
        y = times(X, W, by)
        held = kept.setdefault((y.shape, y.dtype), y)
        held[...] = y
        return held

    made, drawn = weighted()
    made.numpy(rule)
    return Case(made, drawn)


@planted("around the call", "special values")
def _():
    """results that are remembered by shape"""
    kept = {}
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: kept.setdefault((X.shape, W.shape, X.dtype, by), times(X, W, by)).copy())
    return Case(made, drawn)


@planted("around the call", "numpy=body")
def _():
    """every fifth call"""
    count = itertools.count(1)
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: times(X, W, by) + X.dtype.type(next(count) % 5 == 0))
    return Case(made, drawn)


# ----- bodies ---------------------------------------------------------------------------------------------------------


@planted("constants", "numpy=body")
def _():
    """a body that is another where a weight is known"""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by if static(W) is None else X * W - by

    made.numpy(lambda X, W, *, by: times(X, W, by))
    return Case(made, weighted()[1])


@planted("constants", "constants")
def _():
    """a body without a numpy rule that is another where a weight is known"""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by if static(W) is None else X * W - by

    return Case(made, weighted()[1])


@planted("constants", "constants")
def _():
    """a body that leaves out what it knows to be positive"""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        known = static(X)
        return (X if known is not None and np.all(known >= 0) else X + 0.0) * W + (by if known is None else by + 1)

    made.numpy(lambda X, W, *, by: times(X, W, by))
    return Case(made, weighted()[1])


def judged(body, drawn, reference):
    """An op of a vendor that nothing but the reference of its case judges."""
    return Case(op("Vendor", domain="com.example")(body), drawn, reference=reference)


def one(draw):
    return call(draw(tensors()))


@planted("vendor", "expected")
def _():
    """another sign"""

    def body(X):
        return ops.neg(X * X)

    return judged(body, one, lambda X: X * X)


@planted("vendor", "expected")
def _():
    """outputs that are swapped"""

    def body(X):
        return ops.reduce_min(X, keepdims=0), ops.reduce_max(X, keepdims=0)

    return judged(body, one, lambda X: (X.max(), X.min()))


@planted("vendor", "expected")
def _():
    """a clip at 6 that is at 8, of numbers up to 4"""

    def body(X):
        return ops.where(X > 8.0, 8.0, X)

    return judged(body, one, lambda X: np.minimum(X, np.float32(6)))


@planted("vendor", "expected")
def _():
    """a lower bound that is missing, of numbers down to -4"""

    def body(X):
        return X * 1.0

    return judged(body, one, lambda X: np.maximum(X, np.float32(-10)))
