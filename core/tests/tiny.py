"""A small family of ops in its own domain, for testing core without packages of operators."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import (
    Index,
    Known,
    Operators,
    TensorType,
    constant,
    elements,
    elementwise,
    op,
    primitive,
    same_type,
)
from tenonnx.graph.dtypes import DType
from tenonnx.registry.registry import Registry

DOMAIN = "tiny"


@elementwise("Add", domain=DOMAIN)
def add(a, b): ...


add.symbolic(add.numpy(np.add))
add.vjp(lambda g, y, a, b: (g, g))


@elementwise("Mul", domain=DOMAIN)
def multiply(a, b): ...


multiply.symbolic(multiply.numpy(np.multiply))
multiply.vjp(lambda g, y, a, b: (multiply(g, b), multiply(g, a)))


@elementwise("Exp", domain=DOMAIN)
def exp(x): ...


exp.numpy(np.exp)
exp.vjp(lambda g, y, x: multiply(g, y))


@elementwise("Round", domain=DOMAIN)
def round_(x): ...


round_.numpy(np.round)


@primitive("Identity", domain=DOMAIN, type=same_type)
def identity(x): ...


identity.numpy(lambda x: x)
identity.vjp(lambda g, y, x: g)


@primitive("Draw", domain=DOMAIN, type=same_type, pure=False)
def draw(x): ...


draw.numpy(lambda x: np.random.default_rng().random(x.shape).astype(x.dtype))


def _sum_type(x, axes=None, *, keep=1):
    which = elements(axes) if axes is not None else list(range(x.ndim))
    if which is None:
        return x.tensor.with_shape((None,) * x.ndim if keep else None)
    kept = [1 if i in which else d for i, d in enumerate(x.shape) if keep or i not in which]
    return x.tensor.with_shape(tuple(kept))


@primitive("Sum", domain=DOMAIN, type=_sum_type, since=3)
def sum_(x, axes: Index = None, *, keep=1): ...


sum_.numpy(
    lambda x, axes, keep: np.sum(x, axis=None if axes is None else tuple(axes), keepdims=bool(keep), dtype=x.dtype)
)
sum_.vjp(lambda g, y, x, axes, keep: (multiply(g, ones_like(x)), None))
sum_.until(5, attributes=["axes"])
sum_.until(4, renamed={"keep": "keepdims"}, ignored=["hint"])


@primitive("OnesLike", domain=DOMAIN, type=same_type)
def ones_like(x): ...


ones_like.numpy(np.ones_like)


@primitive("Shape", domain=DOMAIN)
def shape(x): ...


@shape.type
def shape_type(x):
    dims = np.empty(x.ndim, dtype=object)
    dims[:] = x.shape
    return Known(TensorType(DType.int64, (x.ndim,)), symbolic_contents=dims)


shape.numpy(lambda x: np.array(x.shape, dtype=np.int64))


@op("Double", domain=DOMAIN)
def double(x):
    """Twice ``x``."""
    return add(x, x)


@op("Affine", domain=DOMAIN, since=1)
def affine(x, b=None, *, scale=2.0, shift=0.0):
    """``scale * x + shift`` since version 4; before, the shift was applied first."""
    y = add(multiply(x, scale), shift)
    return y if b is None else add(y, b)


@affine.until(4)
def shift_first(x, *, scale=2.0, shift=0.0):
    """``scale * (x + shift)``."""
    return affine(affine(x, scale=1.0, shift=shift), scale=scale)


@affine.lower(to=shift_first)
def affine_to_shift_first(x, b, *, scale, shift):
    return shift_first(x, scale=scale) if b is None and shift == 0.0 else None


@op("Looping", domain=DOMAIN)
def looping(x):
    return looping(x)


@op("Pair", domain=DOMAIN)
def pair(x):
    return double(x), exp(x)


@op("OnlyNew", domain=DOMAIN, since=4)
def only_new(x):
    return multiply(x, constant(np.float32(3.0)))


@elementwise("Opaque", domain=DOMAIN, since=4)
def newest_primitive(x): ...


newest_primitive.numpy(np.negative)

OPS = (
    add,
    multiply,
    exp,
    round_,
    identity,
    draw,
    sum_,
    ones_like,
    shape,
    double,
    affine,
    looping,
    pair,
    only_new,
    newest_primitive,
)

OPERATORS = Operators(
    add=add,
    multiply=multiply,
    identity=identity,
    ones_like=ones_like,
    zeros_like=lambda x: multiply(x, 0.0),
    sum_to=lambda g, x: g if g.shape == x.shape else multiply(sum_(g, keep=0), ones_like(x)),
)


def registry() -> Registry:
    made = Registry()
    made.add(*OPS)
    made.add_operators(lambda: OPERATORS)
    return made
