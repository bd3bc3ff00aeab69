"""Planted defects in types, gradients, versions, rewrites and traits."""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import strategies as st
from planted import DEFECTS, Defect, plant, planted
from planted_numbers import one
from right_ops import times, weighted

import tenonnx_standard as ops
from tenonnx.extend import DType, Index, TensorType, one_of, op, static
from tenonnx_testing import broadcastable, call, tensors
from tenonnx_testing.cases import Case


def broadcasting():
    made, drawn = weighted()
    made.broadcasts = True
    return made, drawn


def known_dims(X):
    return X.shape is not None and all(isinstance(dim, int) for dim in X.shape)


def like(X, W):
    """Return the correct type of ``X * W``."""
    return ops.mul.rules["type"](X, W)


# ----- types ----------------------------------------------------------------------------------------------------------

plant(
    "type",
    "broadcast",
    lambda: (weighted()[0], lambda draw: call(*(draw(tensors(shape=(2, 3))) for _ in range(2)), by=0.5)),
    "type",
    {
        "the type of the second input": lambda X, W, *, by: W.tensor,
        "the type of the second input where that begins with 1": lambda X, W, *, by: (
            W.tensor if W.shape and W.shape[0] == 1 else like(X, W)
        ),
    },
)

plant(
    "type",
    "types",
    weighted,
    "type",
    {
        "one axis too many": lambda X, W, *, by: X.tensor.with_shape((1, *(X.tensor.shape or ()))),
        "the type of the first input, without broadcasting": lambda X, W, *, by: X.tensor,
        "float32 for every element type": lambda X, W, *, by: TensorType(DType.float32, None),
        "bool for every element type": lambda X, W, *, by: TensorType(DType.bool, None),
        "a list instead of a type": lambda X, W, *, by: [X.type],
        "no shape where the body knows one": lambda X, W, *, by: X.tensor.with_shape(None),
    },
)

plant(
    "type",
    "variations",
    lambda: (weighted()[0], lambda draw: call(*draw(broadcastable(2, min_rank=2, max_rank=2)), by=0.5)),
    "type",
    {
        f"one axis too many at rank {rank}": lambda X, W, *, by, rank=rank: (
            like(X, W) if max(X.rank, W.rank) != rank else X.tensor.with_shape((7,) * (rank + 1))
        )
        for rank in (0, 1, 3, 4)
    },
)
plant(
    "type",
    "variations",
    weighted,
    "type",
    {
        "float32 for float16": lambda X, W, *, by: (
            like(X, W) if X.dtype is not DType.float16 else X.tensor.with_dtype(DType.float32)
        ),
        "float16 for bfloat16": lambda X, W, *, by: (
            like(X, W) if X.dtype is not DType.bfloat16 else X.tensor.with_dtype(DType.float16)
        ),
        "wrong where an axis is longer than 16": lambda X, W, *, by: (
            like(X, W) if max(X.shape, default=0) < 17 else X.tensor.with_shape(tuple(min(16, dim) for dim in X.shape))
        ),
    },
)
plant(
    "constants",
    "constants",
    weighted,
    "type",
    {
        "one element where an input is constant": lambda X, W, *, by: (
            like(X, W) if static(X) is None else X.tensor.with_shape((1,) * 5)
        ),
    },
)

# ----- gradients ------------------------------------------------------------------------------------------------------

plant(
    "gradient",
    "gradient",
    broadcasting,
    "vjp",
    {
        "twice the gradient": lambda g, y, X, W, *, by: (g * W * 2.0, g * X),
        "wrong sign": lambda g, y, X, W, *, by: (g * W, ops.neg(g * X)),
        "the gradient of the other input": lambda g, y, X, W, *, by: (g * W, g * W),
        "None for an input that has a gradient": lambda g, y, X, W, *, by: (g * W, None),
        "a gradient of another shape": lambda g, y, X, W, *, by: (g * W, ops.reduce_sum(g * X)),
        "the cotangent is ignored": lambda g, y, X, W, *, by: (W + g * 0.0, g * X),
        "wrong for symbolic dims": lambda g, y, X, W, *, by: (g * W, g * X if known_dims(X) else g),
        "wrong for static dims": lambda g, y, X, W, *, by: (g * W, g if known_dims(X) else g * X),
    },
)
plant(
    "gradient",
    "gradient",
    weighted,
    "vjp",
    {
        "not summed over broadcast axes": lambda g, y, X, W, *, by: (g * W, g * X),
    },
)
plant(
    "constants",
    "constants",
    broadcasting,
    "vjp",
    {
        "wrong where a weight is constant": lambda g, y, X, W, *, by: (
            g * W if static(W) is None else g * W * 3.0,
            g * X,
        ),
    },
)


def two_floats(draw):
    x, w = draw(broadcastable(2, distinct=True))
    return call(x, w + np.float32(10))


def of_one(body):
    """Return a base for an op with one input, drawn away from 0."""
    return lambda: (op("Curved", domain="com.example")(body), lambda draw: call(draw(tensors(exclude_near=(0.0,)))))


def greatest(X, W):
    return ops.max_(X, W)


plant(
    "ties",
    "kinks",
    lambda: (_broadcasts(op("Greatest", domain="com.example")(greatest)), two_floats),
    "vjp",
    {
        "the full gradient for both of two equal inputs": lambda g, y, X, W: (
            ops.where(X >= W, g, 0.0),
            ops.where(X <= W, g, 0.0),
        ),
        "no gradient for either of two equal inputs": lambda g, y, X, W: (
            ops.where(X > W, g, 0.0),
            ops.where(X < W, g, 0.0),
        ),
        "NaN for two equal inputs, by a division by their difference": lambda g, y, X, W: (
            g * (X - W + ops.abs_(X - W)) / (2.0 * ops.abs_(X - W)),
            g * (W - X + ops.abs_(X - W)) / (2.0 * ops.abs_(X - W)),
        ),
    },
)


def _broadcasts(made):
    made.broadcasts = True
    return made


def rounded_root(X):
    """sqrt(1 + X * X)"""
    return ops.sqrt(X * X + 1.0)


def soft(X):
    """log(1 + exp(X)), without overflow."""
    return ops.softplus(X)


def cubed(X):
    return X * X * X


plant(
    "gradient at 0",
    "kinks",
    of_one(cubed),
    "vjp",
    {
        "3 y / x, which is NaN at 0": lambda g, y, X: g * y * 3.0 / X,
        "computed by log(x), which is NaN at 0": lambda g, y, X: (
            g * 3.0 * ops.exp(ops.log(ops.abs_(X)) * 2.0) * (X / X)
        ),
        "1 at 0, of x ** 3": lambda g, y, X: ops.where(ops.equal(X, 0.0), g, g * X * X * 3.0),
    },
)
plant(
    "gradient at 0",
    "kinks",
    of_one(rounded_root),
    "vjp",
    {
        "a factor x / abs(x), which is NaN at 0": lambda g, y, X: g * ops.abs_(X) / y * (X / ops.abs_(X)),
        "1 at 0, of sqrt(1 + x * x)": lambda g, y, X: ops.where(ops.equal(X, 0.0), g, g * X / y),
    },
)
plant(
    "gradient at 100",
    "kinks",
    of_one(soft),
    "vjp",
    {
        "a factor exp(8 x) / exp(8 x), which overflows": lambda g, y, X: (
            g * ops.exp(X * 8.0) / ops.exp(X * 8.0) * ops.sigmoid(X)
        ),
        "0 above 20": lambda g, y, X: ops.where(X > 20.0, 0.0, g * ops.sigmoid(X)),
        "1 below -20": lambda g, y, X: ops.where(X < -20.0, g, g * ops.sigmoid(X)),
    },
)


@planted("gradient", "gradient")
def gradient_planted():
    """the rule residuals returns different outputs"""
    made, drawn = broadcasting()
    made.residuals(lambda demand, X, W, *, by: ((X * W - by,), (X, W)))
    made.vjp(lambda g, kept, X, W, *, by: (g * kept[1], g * kept[0]))
    return Case(made, drawn)


@planted("gradient", "gradient")
def gradient_planted_2():
    """only one of repeated indices counts"""

    @op("Taken", domain="com.example")
    def taken(X, places: Index):
        return ops.gather(X, places)

    def anywhere(draw):
        x = draw(tensors(min_rank=1))
        return call(x, draw(tensors("int64", min_rank=1, max_rank=1, min_value=0, max_value=x.shape[0] - 1)))

    taken.vjp(lambda g, y, X, places: (ops.scatter_nd(X * 0.0, ops.unsqueeze(places, [-1]), g), None))
    return Case(taken, anywhere)


# ----- other versions -------------------------------------------------------------------------------------------------


def taken(lowered, once=lambda X, W: X - W, drawn=None):
    """Return a case of ``X - W * by``, which was ``X - W`` below version 3."""

    @op("Taken", domain="com.example", since=1)
    def made(X, W, *, by=2.0, mode="product"):
        return X - (W * by if mode == "product" else W + by)

    def taken_once(X, W):
        return once(X, W)

    before = made.until(3)(taken_once)

    def say(X, W, *, by, mode):
        return lowered(before, X, W, by, mode)

    made.lower(to=before)(say)
    return Case(made, drawn or (lambda draw: call(*draw(broadcastable(2)), by=0.5)))


def right(before, X, W, by, mode):
    return before(X, W * by if mode == "product" else W + by)


LOWERINGS = {
    "swapped inputs": ("own versions", lambda before, X, W, by, mode: before(W * by, X)),
    "an attribute is ignored": ("own versions", lambda before, X, W, by, mode: before(X, W)),
    "wrong where a dim is 1": (
        "own versions",
        lambda before, X, W, by, mode: before(X, W if X.shape and X.shape[0] == 1 else W * by),
    ),
    "the absolute value of an attribute": (
        "other attributes",
        lambda before, X, W, by, mode: right(before, X, W, abs(by), mode),
    ),
    "the default for an attribute of 0": (
        "other attributes",
        lambda before, X, W, by, mode: right(before, X, W, by or 2.0, mode),
    ),
    "one mode for all values of an attribute": (
        "other attributes",
        lambda before, X, W, by, mode: right(before, X, W, by, "product"),
    ),
    "wrong where a weight is constant": (
        "own versions",
        lambda before, X, W, by, mode: right(before, X, W, by if static(W) is None else 2 * by, mode),
    ),
}


def _taken(lowered):
    case = taken(lowered)
    case.op.requires(one_of(mode=("product", "sum")))
    return case


DEFECTS += [
    Defect("lowering", what, check, functools.partial(_taken, lowered)) for what, (check, lowered) in LOWERINGS.items()
]


@planted("older meaning", "own versions")
def older_meaning_planted():
    """addition instead of subtraction"""
    return taken(right, lambda X, W: X + W)


@planted("older meaning", "own versions")
def older_meaning_planted_2():
    """a wrong formula for one of three modes"""
    reductions = {"sum": ops.reduce_sum, "mean": ops.reduce_mean, "max": ops.reduce_max}

    @op("Chosen", domain="com.example")
    def chosen(X, *, mode="sum", keep=1):
        return reductions[mode](X, keepdims=keep)

    @chosen.until(3)
    def chosen_once(X, *, mode="sum"):
        return (reductions | {"max": ops.reduce_min})[mode](X)

    chosen.lower(to=chosen_once)(lambda X, *, mode, keep: chosen_once(X, mode=mode) if keep else None)
    return Case(
        chosen,
        lambda draw: call(
            draw(tensors(min_rank=1)), mode=draw(st.sampled_from(list(reductions))), keep=draw(st.integers(0, 1))
        ),
    )


# ----- rewrites -------------------------------------------------------------------------------------------------------

plant(
    "rewrite",
    "rewrite",
    weighted,
    "rewrite",
    {
        "wrong sign": lambda X, W, *, by: X * W - by,
        "wrong for symbolic dims": lambda X, W, *, by: X * W + by if known_dims(X) else X * W,
        "wrong where a weight is constant": lambda X, W, *, by: X * W + by if static(W) is None else X * W,
    },
)
plant(
    "rewrite",
    "other attributes",
    weighted,
    "rewrite",
    {
        "1 for an attribute of 0": lambda X, W, *, by: X * W + (by or 1.0),
        "the absolute value of an attribute": lambda X, W, *, by: X * W + abs(by),
        "0 for a negative attribute": lambda X, W, *, by: X * W + max(by, 0.0),
    },
)
plant("rewrite", "rewrite", weighted, "rewrite.if_fewer", {"wrong formula": lambda X, W, *, by: X + W})


# ----- traits ---------------------------------------------------------------------------------------------------------


@planted("claim", "numpy=body")
def claim_planted():
    """marked pure, but random"""
    made = op("Noisy", domain="com.example")(lambda X: X + ops.random_uniform_like(X))
    return Case(made, one)


@planted("claim", "data movement")
def claim_planted_2():
    """marked data_movement, but it computes"""

    @op("Moved", domain="com.example", data_movement=True)
    def moved(X):
        return X / 3.0

    return Case(moved, one)


@planted("claim", "symbolic")
def claim_planted_3():
    """the rule symbolic is wrong"""

    @op("Longer", domain="com.example")
    def longer(X):
        return X + 1

    longer.rule("symbolic", lambda X: X + 2)
    return Case(longer, lambda draw: call(draw(tensors("int64", max_rank=1))))


@planted("kernel", "specialized")
def kernel_planted():
    """a result that the next call overwrites"""

    def prepare(X, W, *, by):
        held = np.empty(np.broadcast_shapes(X.shape, W.shape), X.dtype)

        def kernel(X, W):
            held[...] = times(X, W, by)
            return held

        return kernel

    return _with_kernel(prepare)


@planted("kernel", "specialized")
def kernel_planted_2():
    """an input is overwritten"""
    negated = lambda X: np.negative(X, out=X) if X.flags.writeable else X  # noqa: E731
    return _with_kernel(lambda X, W, *, by: lambda X, W: times(negated(X), W, by))


@planted("kernel", "specialized")
def kernel_planted_3():
    """an attribute is ignored"""
    return _with_kernel(lambda X, W, *, by: lambda X, W: np.asarray(X * W))


@planted("kernel", "specialized")
def kernel_planted_4():
    """a kernel that rounds constant weights"""
    return _with_kernel(
        lambda X, W, *, by: lambda X, W2: times(X, W2 if W.contents is None else np.round(W.contents), by)
    )


def _with_kernel(prepare):
    made, drawn = weighted()
    made.numpy(lambda X, W, *, by: times(X, W, by))
    made.specialize(prepare)
    return Case(made, drawn)
