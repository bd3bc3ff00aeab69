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
    "wrong sign": lambda X, W, *, by: times(X, -W, by),
    "an input added to the result": lambda X, W, *, by: times(X, W, by) + X,
    "an attribute is ignored": lambda X, W, *, by: np.asarray(X * W),
    "the default of an attribute, whatever is given": lambda X, W, *, by: times(X, W, 2.0),
    "an input repeated instead of broadcast": lambda X, W, *, by: times(X, np.resize(W, X.shape), by),
    "the result in float32": lambda X, W, *, by: times(X, W, by).astype(np.float32),
    "a KeyError at some ranks": lambda X, W, *, by: {0: 1, 1: 1, 3: 1}[X.ndim] and times(X, W, by),
    "one output too many": lambda X, W, *, by: (times(X, W, by), X),
    "the absolute value of the result": lambda X, W, *, by: abs(times(X, W, by)),
    "a wrong last element": lambda X, W, *, by: times(X, W, by) * (np.arange(X.size or 1).reshape(
        X.shape or ())[...] >= 0 if X.ndim == 0 else np.arange(X.shape[-1]) < max(1, X.shape[-1] - 1)),
})  # fmt: skip

plant("zero", "special values", inverse, "numpy", {
    "the sign of zero, lost by x + 0.0": lambda X: 1 / (X + X.dtype.type(0)),
    "1 / -0.0 as +infinity": lambda X: np.where(X == 0, np.inf, 1 / X).astype(X.dtype),
    "1 / 0 as 0": lambda X: np.where(X == 0, 0, 1 / np.where(X == 0, 1, X)).astype(X.dtype),
})  # fmt: skip
plant("zero", "special values", negated, "numpy", {
    "0 - x for -x, which loses the sign of zero": lambda X: 0 - X,
    "-0.0 as 0.0": lambda X: np.where(X == 0, 0, -X).astype(X.dtype),
})  # fmt: skip

plant("not finite", "special values", weighted, "numpy", {
    "NaN as 0": lambda X, W, *, by: np.nan_to_num(times(X, W, by), posinf=np.inf, neginf=-np.inf),
    "infinities as 1e30": lambda X, W, *, by: np.clip(times(X, W, by), -1e30, 1e30).astype(X.dtype),
    "NaN for zeros and infinities, by adding 0 / x * x": lambda X, W, *, by: times(X, W, by) + 0 / X * X,
})  # fmt: skip
plant("not finite", "special values", greatest, "numpy", {
    "NaN of one input ignored": lambda X, W: np.fmax(X, W),
    "NaN of both inputs ignored": lambda X, W: np.nan_to_num(np.fmax(X, W), posinf=np.inf, neginf=-np.inf),
})  # fmt: skip

plant("large", "special values", weighted, "numpy", {
    "results clipped at 900": lambda X, W, *, by: np.clip(times(X, W, by), -900, 900).astype(X.dtype),
    "100 for all large inputs": lambda X, W, *, by: np.where(abs(X) < 100, times(X, W, by), np.float16(100)).astype(
        X.dtype),
})  # fmt: skip
plant("large", "special values", product, "numpy", {
    "64-bit integers computed in 32 bits": lambda X, W: (X.astype(np.int32) * W.astype(np.int32)).astype(X.dtype),
    "integers computed in float32": lambda X, W: (X.astype(np.float32) * W.astype(np.float32)).astype(X.dtype),
    "integers computed in float64": lambda X, W: (X.astype(np.float64) * W.astype(np.float64)).astype(X.dtype),
})  # fmt: skip

plant("denormal", "special values", inverse, "numpy", {
    "denormal inputs as zero": lambda X: 1 / np.where(abs(X) < np.finfo(X.dtype).tiny, 0, X).astype(X.dtype),
})  # fmt: skip
plant("denormal", "special values", negated, "numpy", {
    "a negation that gives 0 for denormal inputs":
        lambda X: np.where(abs(X) < np.finfo(X.dtype).tiny, 0, -X).astype(X.dtype),
})  # fmt: skip

plant("element type", "variations", weighted, "numpy", {
    "one too much in float16": when(lambda X, W: X.dtype == np.float16),
    "one too much in bfloat16": when(lambda X, W: X.dtype.name == "bfloat16"),
    "float32 results for float16":
        lambda X, W, *, by: np.asarray(X * np.float32(1) * W + np.float32(by)) if X.dtype.itemsize
        < 4 else times(X, W, by),
    "an error in bfloat16": lambda X, W, *, by: times(X, W, by) if X.dtype.kind == "f" else np.linalg.norm(
        X.view("V2")),
})  # fmt: skip

plant("rank", "variations", lambda: (weighted()[0], lambda draw: call(
    *draw(broadcastable(2, min_rank=2, max_rank=2)), by=0.5)), "numpy", {
    f"one too much at rank {rank}": when(lambda X, W, rank=rank: max(X.ndim, W.ndim) == rank) for rank in (0, 1, 3, 4)
})  # fmt: skip

plant("size", "variations", weighted, "numpy", {
    "one too much where an axis is longer than 16": when(lambda X, W: max(X.shape, default=0) > 16),
    "one too much from a thousand elements on": when(lambda X, W: X.size >= 1000),
    "blocks of 16, without the remainder": lambda X, W, *, by: times(X, W, by) * (
        1 if not X.ndim or X.shape[-1] < 16 else np.arange(X.shape[-1]) < X.shape[-1] // 16 * 16).astype(X.dtype)
        if X.ndim and X.shape[-1] >= 16 else times(X, W, by),
})  # fmt: skip
plant("size", "variations", summed, "numpy", {
    "only the first 16 elements summed":
        lambda X, *, axis: X.take(range(min(16, X.shape[axis])), axis).sum(axis, keepdims=True),
})  # fmt: skip

plant("empty", "empty axes", weighted, "numpy", {
    "one element for an empty input": lambda X, W, *, by: times(X, W, by) if X.size else np.ones(1, X.dtype),
    "an error for an empty input": lambda X, W, *, by: times(X, W, by) * (X.max() > -np.inf),
})  # fmt: skip


def _by_memory(X, W, *, by):
    y = times(X, W, by)
    return y if X.flags.c_contiguous else y[..., ::-1]


plant("layout", "layout", weighted, "numpy", {
    "wrong for arrays that are not contiguous": _by_memory,
    'ravel("K"), in the order of memory': lambda X, W, *, by: times(X.ravel("K").reshape(X.shape), W, by),
    "the memory read without its strides": lambda X, W, *, by: times(
        X if X.flags.c_contiguous else np.ndarray(X.shape, X.dtype, np.asarray(X.base if X.base is not None and
        X.base.size >= X.size else X).tobytes()[:X.nbytes].ljust(X.nbytes)), W, by),
    "the result in the order of memory": lambda X, W, *, by: np.asarray(times(X, W, by).ravel("A").reshape(
        np.broadcast_shapes(X.shape, W.shape))),
    "wrong for arrays that are not contiguous in any order": lambda X, W, *, by: times(X, W, by) + X.dtype.type(
        X.ndim > 1 and X.size > 1 and not X.flags.forc),
})  # fmt: skip

plant("optional inputs", "variations", clipped, "numpy", {
    "0 for an absent upper bound": lambda X, low, high: np.clip(X, low, 0 if high is None else high),
    "0 for an absent lower bound": lambda X, low, high: np.clip(X, 0 if low is None else low, high),
    "an AttributeError where the lower bound is absent": lambda X, low, high: np.clip(X, low.reshape(()), high),
})  # fmt: skip


def texts(change):
    """The text that is said twice, changed before."""
    return lambda X: np.asarray(np.frompyfunc(lambda text: 2 * change(text), 1, 1)(X), object)


plant("text", "special values", twice_said, "numpy", {
    "leading and trailing white space stripped": texts(str.strip),
    "white space collapsed to one space": texts(lambda text: " ".join(text.split())),
    "trailing white space stripped": texts(str.rstrip),
    "white space removed from all but plain words":
        texts(lambda text: text if text.isprintable() and text == text.strip() else "".join(text.split())),
})  # fmt: skip

plant("axes", "negative axes", lambda: (_with_axis(), _from_the_front), "numpy", {
    "a negative axis off by one": lambda X, *, axis: X.sum(
        axis if axis >= 0 else max(-X.ndim, axis - 1), keepdims=True),
    "one too much for negative axes": lambda X, *, axis: X.sum(axis, keepdims=True) + (axis < 0),
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


plant("around the call", "numpy=body", weighted, "numpy", {"the input is overwritten": _in_place})


@planted("around the call", "repeated")
def _():
    """another last bit in every second call"""
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
    """a thread-local table that only one thread has"""
    table = threading.local()
    table.one = 1
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: times(X, W, by) * X.dtype.type(table.one))
    return Case(made, drawn)


@planted("around the call", "layout")
def _():
    """an output buffer that the next call overwrites"""
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
    """results cached by shape"""
    kept = {}
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: kept.setdefault((X.shape, W.shape, X.dtype, by), times(X, W, by)).copy())
    return Case(made, drawn)


@planted("around the call", "numpy=body")
def _():
    """a wrong result in every fifth call"""
    count = itertools.count(1)
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: times(X, W, by) + X.dtype.type(next(count) % 5 == 0))
    return Case(made, drawn)


# ----- bodies ---------------------------------------------------------------------------------------------------------


@planted("constants", "numpy=body")
def _():
    """another body where a weight is constant"""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by if static(W) is None else X * W - by

    made.numpy(lambda X, W, *, by: times(X, W, by))
    return Case(made, weighted()[1])


@planted("constants", "constants")
def _():
    """another body where a weight is constant, of an op without a numpy rule"""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by if static(W) is None else X * W - by

    return Case(made, weighted()[1])


@planted("constants", "constants")
def _():
    """another body where an input is constant"""

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
    """wrong sign"""

    def body(X):
        return ops.neg(X * X)

    return judged(body, one, lambda X: X * X)


@planted("vendor", "expected")
def _():
    """swapped outputs"""

    def body(X):
        return ops.reduce_min(X, keepdims=0), ops.reduce_max(X, keepdims=0)

    return judged(body, one, lambda X: (X.max(), X.min()))


@planted("vendor", "expected")
def _():
    """a clip at 8 instead of 6, where drawn inputs are at most 4"""

    def body(X):
        return ops.where(X > 8.0, 8.0, X)

    return judged(body, one, lambda X: np.minimum(X, np.float32(6)))


@planted("vendor", "expected")
def _():
    """a missing lower bound, where drawn inputs are at least -4"""

    def body(X):
        return X * 1.0

    return judged(body, one, lambda X: np.maximum(X, np.float32(-10)))
