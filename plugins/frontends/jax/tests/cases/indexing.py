"""Gathering and scattering, in and out of bounds."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import BATCH, bools, case, floats, integers

x, cube = floats(5, 4), floats(3, 4, 5)
near, far = integers(6, low=0, high=4), np.int32([-7, -1, 0, 3, 4, 9])
for _mode in ("clip", "fill", "promise_in_bounds", None):
    _where = near if _mode == "promise_in_bounds" else far
    case(f"get, {_mode}", lambda a, i, m=_mode: a.at[i].get(mode=m), x, _where, dims={1: {0: "n"}})
    case(f"get column, {_mode}", lambda a, i, m=_mode: a.at[:, i].get(mode=m), x, _where, dims=BATCH)
    for _way in ("set", "add", "multiply", "min", "max"):
        case(
            f"{_way}, {_mode}",
            lambda a, i, u, m=_mode, w=_way: getattr(a.at[i], w)(u, mode=m),
            x,
            np.unique(_where).astype(np.int32),
            floats(len(np.unique(_where)), 4),
            dims={1: {0: "n"}, 2: {0: "n"}} if _mode == "clip" and _way == "add" else None,
        )
case("take", lambda a, i: jnp.take(a, i, axis=1), x, near, dims=BATCH)
case("take fill of ints", lambda a, i: jnp.take(a, i, axis=0), integers(5, 4), far)
case("take clip", lambda a, i: jnp.take(a, i, axis=0, mode="clip"), x, far)
case(
    "take_along_axis",
    lambda a, i: jnp.take_along_axis(a, i, axis=1),
    x,
    integers(5, 2, low=0, high=4),
    dims={0: {0: "b"}, 1: {0: "b"}},
)
case("index by one", lambda a: (a[2], a[-1], a[:, 1]), x)
case("index the last of a batch", lambda a: a[-1], x, dims=BATCH)
case("index by a scalar", lambda a, i: a[i], x, np.int32(3))
case("index by two", lambda a, i: a[i, i], x, near)
case("index by two with a slice", lambda a, i: a[i, :, i], cube, integers(4, low=0, high=3))
case("index by a matrix", lambda a, i: a[i], x, integers(2, 3, low=0, high=5), dims={1: {0: "n"}})
case("index by mask", lambda a, m: jnp.where(m, a, 0).sum(1), x, bools(5, 4), dims={0: {0: "b"}, 1: {0: "b"}})
case("index by constants", lambda a: a[:, jnp.array([3, 0, 1])], x, dims=BATCH)
case("embedding", lambda i: jnp.asarray(floats(10, 6))[i], integers(3, 4, low=0, high=10), dims=BATCH)
case("one_hot", lambda i: jax.nn.one_hot(i, 5), integers(6, low=0, high=5), dims=BATCH)
case(
    "windows gathered",
    lambda a, i: lax.gather(a, i, lax.GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 3)),
    x,
    np.int32([[0, 0], [3, 1], [9, 9]]),
)
case(
    "windows gathered, filled",
    lambda a, i: lax.gather(a, i, lax.GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 3), mode="fill"),
    x,
    np.int32([[0, 0], [3, 1], [9, 9], [-1, 0]]),
)
case(
    "windows along an axis",
    lambda a, i: lax.gather(a, i, lax.GatherDimensionNumbers((1, 2), (), (0,)), (2, 4), mode="clip"),
    x,
    np.int32([[0], [3], [9]]),
)
case(
    "vmap of dynamic_slice",
    jax.vmap(lambda a, i: lax.dynamic_slice(a, (i,), (2,))),
    x,
    integers(5, low=0, high=4),
    dims={0: {0: "b"}, 1: {0: "b"}},
)
case("vmap of index", jax.vmap(lambda a, i: a[i]), x, integers(5, low=0, high=4), dims={0: {0: "b"}, 1: {0: "b"}})
case("vmap of update", jax.vmap(lambda a, i: a.at[i].set(7.0)), x, integers(5, low=0, high=4))
case("dynamic_slice", lambda a, i, j: lax.dynamic_slice(a, (i, j), (2, 3)), x, np.int32(1), np.int32(9))
case("dynamic_slice below", lambda a, i: lax.dynamic_slice(a, (i, 0), (2, 4)), x, np.int32(-9))
case("dynamic_index", lambda a, i: lax.dynamic_index_in_dim(a, i, axis=0), x, np.int32(3), dims=BATCH)
case("dynamic_update_slice", lambda a, u, i: lax.dynamic_update_slice(a, u, (i, i)), x, floats(2, 2), np.int32(2))
case(
    "dynamic_update_slice clamped",
    lambda a, u, i: lax.dynamic_update_slice(a, u, (i, i)),
    x,
    floats(2, 2),
    np.int32(20),
)
case(
    "dynamic_update one row",
    lambda a, u, i: lax.dynamic_update_index_in_dim(a, u, i, 0),
    x,
    floats(4),
    np.int32(2),
    dims=BATCH,
)
case("set a slice", lambda a: a.at[1:3].set(0.0), x)
case("set a column", lambda a: a.at[:, 1].set(0.0), x, dims=BATCH)
case("set strided", lambda a: a.at[:, ::2].add(5.0), x, dims=BATCH)
case("add twice to one", lambda a, i: a.at[i].add(1.0), floats(5), np.int32([1, 1, 3]))
case("add of ints", lambda a, i: a.at[i].add(3), integers(5), np.int32([1, 1, 3]))
case("set by two indices", lambda a, i: a.at[i, i].set(9.0), x, np.int32([0, 2]))
case(
    "scatter windows",
    lambda a, u: lax.scatter(a, jnp.array([[1, 0], [3, 1]]), u, lax.ScatterDimensionNumbers((1, 2), (), (0, 1))),
    x,
    floats(2, 1, 3),
)
case(
    "scatter windows out of bounds",
    lambda a, u: lax.scatter_add(
        a, jnp.array([[1, 0], [4, 3]]), u, lax.ScatterDimensionNumbers((1, 2), (), (0, 1)), mode="drop"
    ),
    x,
    floats(2, 1, 3),
)
case(
    "segment_sum",
    lambda a, i: jax.ops.segment_sum(a, i, num_segments=4),
    floats(6),
    integers(6, low=0, high=4),
    dims={0: {0: "n"}, 1: {0: "n"}},
)
case("segment_max", lambda a, i: jax.ops.segment_max(a, i, num_segments=3), floats(6), np.int32([0, 0, 1, 1, 2, 2]))
case("gather of bools", lambda a, i: a[i], bools(5, 4), near)
case("set of bools", lambda a, i: a.at[i].set(True), bools(5, 4), near)
case("scatter into complex", lambda a: jnp.real((a + 1j).at[1].set(2j)), x)
case("triangle indices", lambda a: a[jnp.triu_indices(4)], floats(4, 4))
case("permute by argsort", lambda a: a[jnp.argsort(a[:, 0])], x)
case("a function in places", lambda a: a.at[1:3].apply(jnp.sin), x)
