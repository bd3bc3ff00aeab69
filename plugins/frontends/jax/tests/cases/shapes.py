"""Functions that move elements."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import BATCH, bools, case, floats, integers

x, cube = floats(3, 4), floats(2, 3, 4)
two = {0: {0: "batch"}, 1: {0: "batch"}}

case("reshape", lambda a: a.reshape(a.shape[0], 2, 2), x, dims=BATCH)
case("reshape -1", lambda a: a.reshape(-1), x, dims=BATCH)
case(
    "reshape joins two dims that vary",
    lambda a: a.reshape(a.shape[0] * a.shape[1], 4),
    cube,
    dims={0: {0: "b", 1: "n"}},
)
case("reshape to three", lambda a: jnp.reshape(a, (a.shape[0], a.shape[1], 2, 2)), cube, dims={0: {0: "b", 1: "n"}})
case("transpose", lambda a: jnp.transpose(a, (2, 0, 1)), cube, dims=BATCH)
case("swapaxes", lambda a: jnp.swapaxes(a, 0, 2), cube, dims=BATCH)
case("moveaxis", lambda a: jnp.moveaxis(a, 0, -1), cube, dims=BATCH)
case("reshape that swaps lengths", lambda a: a.reshape(4, 1, 3), x)
case("squeeze", jnp.squeeze, floats(1, 3, 1))
case("squeeze axis", lambda a: jnp.squeeze(a, 1), floats(3, 1, 4), dims=BATCH)
case("expand_dims", lambda a: jnp.expand_dims(a, (0, 2)), x, dims=BATCH)
case("broadcast_to", lambda a: jnp.broadcast_to(a, (5, *a.shape)), x, dims=BATCH)
case("lax.broadcast", lambda a: lax.broadcast(a, (2, 3)), x, dims=BATCH)
case("lax.broadcast_in_dim", lambda a: lax.broadcast_in_dim(a, (2, 4, 3), (2, 1)), floats(3, 4))
case("ones like", lambda a: jnp.ones_like(a) + jnp.zeros((a.shape[0], 1)), x, dims=BATCH)
case("full", lambda a: jnp.full((a.shape[0], 2), 7), x, dims=BATCH)
case("concatenate", lambda a, b: jnp.concatenate([a, b, a], 0), x, floats(3, 4, seed=1), dims=two)
case("concatenate axis 1", lambda a, b: jnp.concatenate([a, b], 1), x, floats(3, 4, seed=1), dims=two)
case("stack", lambda a, b: jnp.stack([a, b], 1), x, floats(3, 4, seed=1), dims=two)
case("hstack vstack", lambda a, b: (jnp.hstack([a, b]), jnp.vstack([a, b])), x, floats(3, 4, seed=1), dims=two)
case("split", lambda a: jnp.split(a, 2, axis=1), x, dims=BATCH)
case("array_split", lambda a: jnp.array_split(a, 3, axis=1), x, dims=BATCH)
case("lax.split", lambda a: lax.split(a, (1, 3), 1), x, dims=BATCH)
case("tile", lambda a: jnp.tile(a, (2, 3)), x, dims=BATCH)
case("tile more axes", lambda a: jnp.tile(a, (2, 1, 3)), x, dims=BATCH)
case("repeat", lambda a: jnp.repeat(a, 3, axis=1), x, dims=BATCH)
case("repeat by counts", lambda a: jnp.repeat(a, jnp.array([1, 0, 2, 3]), axis=1, total_repeat_length=6), x, dims=BATCH)
case("flip", lambda a: jnp.flip(a, 1), x, dims=BATCH)
case("flip all", jnp.flip, x, dims=BATCH)
case("roll", lambda a: jnp.roll(a, 1, axis=1), x, dims=BATCH)
case("roll batch", lambda a: jnp.roll(a, 2, axis=0), x)
case("rot90", jnp.rot90, floats(3, 4))
case("pad", lambda a: jnp.pad(a, ((1, 2), (0, 3))), x, dims=BATCH)
case("pad by value", lambda a: jnp.pad(a, 1, constant_values=5.0), x, dims=BATCH)
case("pad edge", lambda a: jnp.pad(a, ((0, 0), (2, 2)), mode="edge"), x, dims=BATCH)
case("pad reflect", lambda a: jnp.pad(a, ((0, 0), (2, 2)), mode="reflect"), x, dims=BATCH)
case("pad wrap", lambda a: jnp.pad(a, ((0, 0), (2, 2)), mode="wrap"), x, dims=BATCH)
case("lax.pad negative", lambda a: lax.pad(a, 0.5, ((0, 0, 0), (-1, 2, 0))), x, dims=BATCH)
case("lax.pad interior", lambda a: lax.pad(a, 0.5, ((1, 0, 2), (0, 1, 1))), x, dims=BATCH)
case("lax.pad of bools", lambda a: jnp.pad(a, 1), bools(3, 4), dims=BATCH)
case("slices", lambda a: (a[1:, ::2], a[:, -2:], a[::-1, 1:3]), floats(4, 4), dims=BATCH)
case("strided slice", lambda a: a[:, 3:0:-1], x, dims=BATCH)
case("lax.slice", lambda a: lax.slice(a, (0, 1), (2, 4), (1, 2)), x)
case("newaxis and ellipsis", lambda a: a[..., None, :2], cube, dims=BATCH)
case("arange", lambda a: a + jnp.arange(4) + jnp.arange(a.shape[0])[:, None], x, dims=BATCH)
case("linspace", lambda a: a + jnp.linspace(0, 1, 4), x, dims=BATCH)
case("eye", lambda a: a @ jnp.eye(4, 5), x, dims=BATCH)
case("tril triu", lambda a: (jnp.tril(a), jnp.triu(a, 1)), x)
case("meshgrid", lambda a, b: jnp.meshgrid(a, b, indexing="ij"), floats(3), floats(4))
case("iota 2d", lambda a: a + lax.broadcasted_iota(jnp.float32, (a.shape[0], 4), 0), x, dims=BATCH)
case("diag", lambda a: (jnp.diag(a), jnp.diagonal(a, 1)), floats(4, 4))
case("size as value", lambda a: a.sum() / a.shape[0] + a.size, x, dims=BATCH)
case("size in arithmetic", lambda a: a[: a.shape[0] // 2 + 1] * (a.shape[0] % 3), floats(4, 4), dims=BATCH)
case("window of half", lambda a: a[a.shape[0] // 2 :], floats(5, 4), dims=BATCH)
case("max of dims", lambda a: jnp.zeros((max(2, 3), a.shape[0])) + a.sum(), x, dims=BATCH)
case("ravel and unravel", lambda a: jnp.ravel(a)[None] * 2, x, dims=BATCH)
case(
    "einshape",
    lambda a: a.reshape(a.shape[0], 2, 2, -1).transpose(0, 2, 1, 3).reshape(a.shape[0], 4, -1),
    floats(3, 4, 6),
    dims=BATCH,
)
case("kron", jnp.kron, floats(2, 3), floats(3, 2))
case("ints moved", lambda a: jnp.concatenate([a[:, ::-1], a], 1).T, integers(3, 4), dims=BATCH)
case("int8 moved", lambda a: jnp.concatenate([a[:, ::-1], a], 1).T, integers(3, 4, dtype=np.int8), dims=BATCH)
case("bools moved", lambda a: jnp.concatenate([a[:, ::-1], a], 1).T, bools(3, 4), dims=BATCH)
case("trees", lambda tree: {"a": tree["x"] * 2, "b": (tree["y"][0], tree["y"][1] + 1)}, {"x": x, "y": (x + 1, x + 2)})
case("an input as output", lambda a: (a, a), x, dims=BATCH)
case("a constant as output", lambda a: (a * 2, jnp.ones((2, 3)), 5), x, dims=BATCH)
