"""Planted defects in numpy rules and bodies: contents, types, shapes, and state."""

from __future__ import annotations

import itertools
import threading

import numpy as np
from hypothesis import strategies as st
from planted import plant, planted
from right_ops import clipped, greatest, inverse, negated, product, summed, times, twice_said, weighted, when

import tenonnx_standard as ops
from tenonnx.extend import op, static
from tenonnx_testing import broadcastable, call, tensors
from tenonnx_testing.cases import Case

plant(
    "formula",
    "numpy=body",
    weighted,
    "numpy",
    {
        "wrong sign": lambda X, W, *, by: times(X, -W, by),
        "an input added to the result": lambda X, W, *, by: times(X, W, by) + X,
        "an attribute is ignored": lambda X, W, *, by: np.asarray(X * W),
        "the default of an attribute instead of its value": lambda X, W, *, by: times(X, W, 2.0),
        "an input repeated instead of broadcast": lambda X, W, *, by: times(X, np.resize(W, X.shape), by),
        "the result in float32": lambda X, W, *, by: times(X, W, by).astype(np.float32),
        "a KeyError at some ranks": lambda X, W, *, by: {0: 1, 1: 1, 3: 1}[X.ndim] and times(X, W, by),
        "one output too many": lambda X, W, *, by: (times(X, W, by), X),
        "the absolute value of the result": lambda X, W, *, by: abs(times(X, W, by)),
        "a wrong last element": lambda X, W, *, by: (
            times(X, W, by)
            * (
                np.arange(X.size or 1).reshape(X.shape or ())[...] >= 0
                if X.ndim == 0
                else np.arange(X.shape[-1]) < max(1, X.shape[-1] - 1)
            )
        ),
    },
)

plant(
    "zero",
    "special values",
    inverse,
    "numpy",
    {
        "the sign of zero, lost by x + 0.0": lambda X: 1 / (X + X.dtype.type(0)),
        "1 / -0.0 as +infinity": lambda X: np.where(X == 0, np.inf, 1 / X).astype(X.dtype),
        "1 / 0 as 0": lambda X: np.where(X == 0, 0, 1 / np.where(X == 0, 1, X)).astype(X.dtype),
    },
)
plant(
    "zero",
    "special values",
    negated,
    "numpy",
    {
        "0 - x for -x, which loses the sign of zero": lambda X: 0 - X,
        "-0.0 as 0.0": lambda X: np.where(X == 0, 0, -X).astype(X.dtype),
    },
)

plant(
    "not finite",
    "special values",
    weighted,
    "numpy",
    {
        "NaN as 0": lambda X, W, *, by: np.nan_to_num(times(X, W, by), posinf=np.inf, neginf=-np.inf),
        "infinities as 1e30": lambda X, W, *, by: np.clip(times(X, W, by), -1e30, 1e30).astype(X.dtype),
        "NaN for zeros and infinities, by adding 0 / x * x": lambda X, W, *, by: times(X, W, by) + 0 / X * X,
    },
)
plant(
    "not finite",
    "special values",
    greatest,
    "numpy",
    {
        "NaN of one input ignored": lambda X, W: np.fmax(X, W),
        "NaN of both inputs ignored": lambda X, W: np.nan_to_num(np.fmax(X, W), posinf=np.inf, neginf=-np.inf),
    },
)

plant(
    "large",
    "special values",
    weighted,
    "numpy",
    {
        "results clipped at 900": lambda X, W, *, by: np.clip(times(X, W, by), -900, 900).astype(X.dtype),
        "100 for all large inputs": lambda X, W, *, by: np.where(abs(X) < 100, times(X, W, by), np.float16(100)).astype(
            X.dtype
        ),
    },
)
plant(
    "large",
    "special values",
    product,
    "numpy",
    {
        "64-bit integers computed in 32 bits": lambda X, W: (X.astype(np.int32) * W.astype(np.int32)).astype(X.dtype),
        "integers computed in float32": lambda X, W: (X.astype(np.float32) * W.astype(np.float32)).astype(X.dtype),
        "integers computed in float64": lambda X, W: (X.astype(np.float64) * W.astype(np.float64)).astype(X.dtype),
    },
)

plant(
    "denormal",
    "special values",
    inverse,
    "numpy",
    {
        "denormal inputs as zero": lambda X: 1 / np.where(abs(X) < np.finfo(X.dtype).tiny, 0, X).astype(X.dtype),
    },
)
plant(
    "denormal",
    "special values",
    negated,
    "numpy",
    {
        "a negation that gives 0 for denormal inputs": lambda X: np.where(
            abs(X) < np.finfo(X.dtype).tiny, 0, -X
        ).astype(X.dtype),
    },
)

plant(
    "element type",
    "variations",
    weighted,
    "numpy",
    {
        "1 added in float16": when(lambda X, W: X.dtype == np.float16),
        "1 added in bfloat16": when(lambda X, W: X.dtype.name == "bfloat16"),
        "float32 results for float16": lambda X, W, *, by: (
            np.asarray(X * np.float32(1) * W + np.float32(by)) if X.dtype.itemsize < 4 else times(X, W, by)
        ),
        "an error in bfloat16": lambda X, W, *, by: (
            times(X, W, by) if X.dtype.kind == "f" else np.linalg.norm(X.view("V2"))
        ),
    },
)

plant(
    "rank",
    "variations",
    lambda: (weighted()[0], lambda draw: call(*draw(broadcastable(2, min_rank=2, max_rank=2)), by=0.5)),
    "numpy",
    {f"1 added at rank {rank}": when(lambda X, W, rank=rank: max(X.ndim, W.ndim) == rank) for rank in (0, 1, 3, 4)},
)

plant(
    "size",
    "variations",
    weighted,
    "numpy",
    {
        "1 added where an axis is longer than 16": when(lambda X, W: max(X.shape, default=0) > 16),
        "1 added from 1,000 elements on": when(lambda X, W: X.size >= 1000),
        "blocks of 16, without the remainder": lambda X, W, *, by: (
            times(X, W, by)
            * (1 if not X.ndim or X.shape[-1] < 16 else np.arange(X.shape[-1]) < X.shape[-1] // 16 * 16).astype(X.dtype)
            if X.ndim and X.shape[-1] >= 16
            else times(X, W, by)
        ),
    },
)
plant(
    "size",
    "variations",
    summed,
    "numpy",
    {
        "only the first 16 elements summed": lambda X, *, axis: X.take(range(min(16, X.shape[axis])), axis).sum(
            axis, keepdims=True
        ),
    },
)

plant(
    "empty",
    "empty axes",
    weighted,
    "numpy",
    {
        "one element for an empty input": lambda X, W, *, by: times(X, W, by) if X.size else np.ones(1, X.dtype),
        "an error for an empty input": lambda X, W, *, by: times(X, W, by) * (X.max() > -np.inf),
    },
)


def _by_memory(X, W, *, by):
    y = times(X, W, by)
    return y if X.flags.c_contiguous else y[..., ::-1]


plant(
    "layout",
    "layout",
    weighted,
    "numpy",
    {
        "wrong for arrays that are not contiguous": _by_memory,
        'ravel("K"), in the order of memory': lambda X, W, *, by: times(X.ravel("K").reshape(X.shape), W, by),
        "the memory read without its strides": lambda X, W, *, by: times(
            X
            if X.flags.c_contiguous
            else np.ndarray(
                X.shape,
                X.dtype,
                np.asarray(X.base if X.base is not None and X.base.size >= X.size else X)
                .tobytes()[: X.nbytes]
                .ljust(X.nbytes),
            ),
            W,
            by,
        ),
        "the result in the order of memory": lambda X, W, *, by: np.asarray(
            times(X, W, by).ravel("A").reshape(np.broadcast_shapes(X.shape, W.shape))
        ),
        "wrong for arrays that are not contiguous in any order": lambda X, W, *, by: (
            times(X, W, by) + X.dtype.type(X.ndim > 1 and X.size > 1 and not X.flags.forc)
        ),
    },
)

plant(
    "optional inputs",
    "variations",
    clipped,
    "numpy",
    {
        "0 for an absent upper bound": lambda X, low, high: np.clip(X, low, 0 if high is None else high),
        "0 for an absent lower bound": lambda X, low, high: np.clip(X, 0 if low is None else low, high),
        "an AttributeError where the lower bound is absent": lambda X, low, high: np.clip(X, low.reshape(()), high),
    },
)


def texts(change):
    """Return a numpy rule that repeats a text after applying ``change``."""
    return lambda X: np.asarray(np.frompyfunc(lambda text: 2 * change(text), 1, 1)(X), object)


plant(
    "text",
    "special values",
    twice_said,
    "numpy",
    {
        "leading and trailing white space stripped": texts(str.strip),
        "white space collapsed to one space": texts(lambda text: " ".join(text.split())),
        "trailing white space stripped": texts(str.rstrip),
        "white space removed from all but plain words": texts(
            lambda text: text if text.isprintable() and text == text.strip() else "".join(text.split())
        ),
    },
)

plant(
    "axes",
    "negative axes",
    lambda: (_with_axis(), _from_the_front),
    "numpy",
    {
        "a negative axis off by one": lambda X, *, axis: X.sum(
            axis if axis >= 0 else max(-X.ndim, axis - 1), keepdims=True
        ),
        "1 added for negative axes": lambda X, *, axis: X.sum(axis, keepdims=True) + (axis < 0),
    },
)


def _with_axis():
    from tenonnx.extend import axis

    made, _ = summed()
    made.requires(axis("axis", of="X"))
    return made


def _from_the_front(draw):
    x = draw(tensors(min_rank=2))
    return call(x, axis=draw(st.integers(0, x.ndim - 1)))


# ----- state and side effects -----------------------------------------------------------------------------------------


def _in_place(X, W, *, by):
    np.multiply(X, W, out=X)
    return X + X.dtype.type(by)


plant("side effects", "numpy=body", weighted, "numpy", {"the input is overwritten": _in_place})


@planted("side effects", "repeated")
def around_the_call_planted():
    """a different last bit in every second call"""
    count = itertools.count()
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: np.nextafter(times(X, W, by), X.dtype.type(np.inf if next(count) % 2 else -np.inf)))
    return Case(made, drawn)


@planted("side effects", "repeated")
def around_the_call_planted_2():
    """a different result in another thread"""
    made, drawn = weighted()
    main = threading.main_thread()
    made.numpy(lambda X, W, *, by: times(X, W, by) + X.dtype.type(threading.current_thread() is not main))
    return Case(made, drawn)


@planted("side effects", "repeated")
def around_the_call_planted_3():
    """a thread-local table that only one thread has"""
    table = threading.local()
    table.one = 1
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: times(X, W, by) * X.dtype.type(table.one))
    return Case(made, drawn)


@planted("side effects", "layout")
def around_the_call_planted_4():
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


@planted("side effects", "special values")
def around_the_call_planted_5():
    """results cached by shape"""
    kept = {}
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: kept.setdefault((X.shape, W.shape, X.dtype, by), times(X, W, by)).copy())
    return Case(made, drawn)


@planted("side effects", "numpy=body")
def around_the_call_planted_6():
    """a wrong result in every fifth call"""
    count = itertools.count(1)
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: times(X, W, by) + X.dtype.type(next(count) % 5 == 0))
    return Case(made, drawn)


# ----- bodies ---------------------------------------------------------------------------------------------------------


@planted("constants", "numpy=body")
def constants_planted():
    """a body that differs where a weight is constant"""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by if static(W) is None else X * W - by

    made.numpy(lambda X, W, *, by: times(X, W, by))
    return Case(made, weighted()[1])


@planted("constants", "constants")
def constants_planted_2():
    """a body that differs where a weight is constant, in an op without a numpy rule"""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by if static(W) is None else X * W - by

    return Case(made, weighted()[1])


@planted("constants", "constants")
def constants_planted_3():
    """a body that differs where an input is constant"""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        known = static(X)
        return (X if known is not None and np.all(known >= 0) else X + 0.0) * W + (by if known is None else by + 1)

    made.numpy(lambda X, W, *, by: times(X, W, by))
    return Case(made, weighted()[1])


def judged(body, drawn, reference):
    """Return a case of a vendor op without a numpy rule, so that only the reference of the case checks its body."""
    return Case(op("Vendor", domain="com.example")(body), drawn, reference=reference)


def one(draw):
    return call(draw(tensors()))


@planted("vendor", "expected")
def vendor_planted():
    """wrong sign"""

    def body(X):
        return ops.neg(X * X)

    return judged(body, one, lambda X: X * X)


@planted("vendor", "expected")
def vendor_planted_2():
    """swapped outputs"""

    def body(X):
        return ops.reduce_min(X, keepdims=0), ops.reduce_max(X, keepdims=0)

    return judged(body, one, lambda X: (X.max(), X.min()))


@planted("vendor", "expected")
def vendor_planted_3():
    """a clip at 8 instead of 6, where drawn inputs are at most 4"""

    def body(X):
        return ops.where(X > 8.0, 8.0, X)

    return judged(body, one, lambda X: np.minimum(X, np.float32(6)))


@planted("vendor", "expected")
def vendor_planted_4():
    """a missing lower bound, where drawn inputs are at least -4"""

    def body(X):
        return X * 1.0

    return judged(body, one, lambda X: np.maximum(X, np.float32(-10)))
