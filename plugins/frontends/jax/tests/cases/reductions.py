"""Reductions, sorting and matrix products."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import BATCH, bools, case, floats, integers, positive

x, cube, i = floats(3, 4), floats(2, 3, 4), integers(3, 4)
two = {0: {0: "batch"}, 1: {0: "batch"}}
for _name in [
    "sum",
    "mean",
    "max",
    "min",
    "prod",
    "std",
    "var",
    "argmax",
    "argmin",
    "median",
    "cumsum",
    "cumprod",
    "sort",
    "argsort",
    "nansum",
    "ptp",
]:
    case(f"jnp.{_name}", lambda a, f=getattr(jnp, _name): f(a, axis=1), x, dims=BATCH)
for _name in ["sum", "max", "min", "prod", "argmax", "cumsum", "sort", "argsort", "any", "all"]:
    case(f"jnp.{_name} of ints", lambda a, f=getattr(jnp, _name): f(a, axis=1), i, dims=BATCH)
for _name in ["sum", "mean", "max", "min"]:
    case(f"jnp.{_name} of all", getattr(jnp, _name), cube, dims=BATCH)
    case(f"jnp.{_name} keepdims", lambda a, f=getattr(jnp, _name): f(a, axis=(0, 2), keepdims=True), cube, dims=BATCH)
case("any all of bools", lambda a: (a.any(1), a.all(0), jnp.sum(a), a.max(1)), bools(3, 4), dims=BATCH)
case("count_nonzero", lambda a: jnp.count_nonzero(a, axis=1), i, dims=BATCH)
case("reduce_xor", lambda a: lax.reduce_xor(a, axes=(1,)), bools(3, 4), dims=BATCH)
case("mean of the batch", lambda a: a.mean(0), x, dims=BATCH)
case("norm", lambda a: (jnp.linalg.norm(a, axis=1), jnp.linalg.norm(a)), x, dims=BATCH)
case("average with weights", lambda a, b: jnp.average(a, axis=1, weights=b), x, positive(3, 4), dims=two)
case(
    "cumulative",
    lambda a: (lax.cummax(a, 1), lax.cummin(a, 1, reverse=True), lax.cumprod(a, 1), lax.cumlogsumexp(a, 1)),
    x,
    dims=BATCH,
)
case("cumulative along a dim that varies", lambda a: (lax.cummax(a, 0), lax.cumprod(a, 0, reverse=True)), x, dims=BATCH)
case("cumsum reverse", lambda a: lax.cumsum(a, 0, reverse=True), x, dims=BATCH)
case("sort descending", lambda a: jnp.sort(a, axis=0, descending=True), x, dims=BATCH)
case("sort of NaN", jnp.sort, np.float32([3, np.nan, np.inf, -np.inf, 1]))
case("lax.sort of several", lambda a, b: lax.sort((a, b), dimension=1, num_keys=1), i, floats(3, 4), dims=two)
case(
    "lax.sort by two keys",
    lambda a, b: lax.sort((a, b, a * 2), dimension=0, num_keys=2),
    integers(6, 4, low=0, high=2),
    floats(6, 4),
    dims=two,
)
case(
    "sort of bools and uint8", lambda a: (jnp.sort(a > 0, 1), jnp.sort(jnp.abs(a).astype(jnp.uint8), 1)), i, dims=BATCH
)
case("sort of uint32", lambda a: jnp.sort(a, 1), integers(3, 4, low=0, high=1 << 32, dtype=np.uint32), dims=BATCH)
case("top_k", lambda a: lax.top_k(a, 2), x, dims=BATCH)
case("top_k of ints", lambda a: lax.top_k(a, 3), i, dims=BATCH)
case("quantile", lambda a: jnp.quantile(a, 0.3, axis=1), x, dims=BATCH)
case("searchsorted", lambda a, b: jnp.searchsorted(a, b), np.float32([1, 2, 3, 5]), floats(6) + 2)
case("digitize", lambda a: jnp.digitize(a, jnp.array([-1.0, 0.0, 1.0])), x, dims=BATCH)
case("bincount", lambda a: jnp.bincount(a, length=5), integers(9, low=0, high=5))
case("histogram", lambda a: jnp.histogram(a, bins=4, range=(-2.0, 2.0))[0], floats(20))
case("unique with size", lambda a: jnp.unique(a, size=6), integers(9, low=0, high=5))
case("nonzero with size", lambda a: jnp.nonzero(a, size=6)[0], integers(9, low=0, high=2))
case("argmax of NaN", lambda a: (jnp.argmax(a), jnp.argmin(a)), np.float32([1, np.nan, 7, -3]))
case("logsumexp", lambda a: jax.nn.logsumexp(a, axis=1), x, dims=BATCH)
case("lax.reduce by a function", lambda a: lax.reduce(a, 0.0, lambda p, q: p * q + p + q, (1,)), x)
case(
    "lax.reduce of two",
    lambda a, b: lax.reduce(
        (a, b), (-np.inf, 0), lambda p, q: (jnp.maximum(p[0], q[0]), jnp.where(p[0] >= q[0], p[1], q[1])), (1,)
    ),
    x,
    i,
)

case("matmul", jnp.matmul, x, floats(4, 5), dims=BATCH)
case("matmul vector", lambda a, b: (a @ b, b @ a.T), x, floats(4), dims=BATCH)
case("matmul batched", jnp.matmul, cube, floats(2, 4, 5), dims=two)
case("matmul broadcast", jnp.matmul, cube, floats(4, 5), dims=BATCH)
case("matmul of ints", jnp.matmul, i, integers(4, 5), dims=BATCH)
case(
    "matmul of int8 to int32",
    lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
    integers(3, 4, dtype=np.int8),
    integers(4, 5, dtype=np.int8),
)
case("dot precision", lambda a, b: jnp.dot(a, b, precision="highest"), x, floats(4, 5), dims=BATCH)
case(
    "bfloat16 dot to float32",
    lambda a, b: lax.dot(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), preferred_element_type=jnp.float32),
    x,
    floats(4, 5),
    dims=BATCH,
)
case("outer", jnp.outer, floats(3), floats(4))
case("inner", jnp.inner, x, floats(5, 4), dims=BATCH)
case("tensordot", lambda a, b: jnp.tensordot(a, b, axes=([1, 2], [0, 1])), cube, floats(3, 4, 5), dims=BATCH)
for _text, _a, _b in (
    ("bij,bjk->bik", cube, floats(2, 4, 5)),
    ("bij,kj->bki", cube, floats(5, 4)),
    ("bhqd,bhkd->bhqk", floats(2, 3, 4, 5), floats(2, 3, 6, 5)),
    ("bij,bij->b", cube, cube),
    ("bi,bj->bij", x, x + 1),
    ("bij,jk,->bik", cube, floats(4, 2)),
):
    if _text.endswith(",->bik"):
        case(f"einsum {_text}", lambda a, b: jnp.einsum("bij,jk,->bik", a, b, 2.0), _a, _b, dims=BATCH)
    else:
        case(
            f"einsum {_text}",
            lambda a, b, text=_text: jnp.einsum(text, a, b),
            _a,
            _b,
            dims={0: {0: "b"}, **({1: {0: "b"}} if _text.split(",")[1][0] == "b" else {})},
        )
case("einsum trace", lambda a: jnp.einsum("ii->", a), floats(4, 4))
case("vdot", jnp.vdot, floats(5), floats(5, seed=1))
case("cross", jnp.cross, floats(4, 3), floats(4, 3, seed=1), dims=two)
case("convolve", lambda a, b: jnp.convolve(a, b, mode="same"), floats(8), floats(3))
case("polyval", lambda a: jnp.polyval(jnp.array([1.0, -2.0, 3.0]), a), x, dims=BATCH)
case("cov", lambda a: jnp.cov(a), x)
case("diff and trapezoid", lambda a: (jnp.diff(a, axis=1), jnp.trapezoid(a, axis=1)), x, dims=BATCH)
case("interp", lambda a: jnp.interp(a, jnp.array([-1.0, 0.0, 1.0]), jnp.array([0.0, 2.0, 1.0])), x, dims=BATCH)
