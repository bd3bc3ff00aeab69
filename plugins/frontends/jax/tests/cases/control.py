"""Loops, branches, random numbers, and nested functions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import BATCH, case, floats

x = floats(3, 4)
key = np.uint32([3, 77])
case("cond", lambda a: lax.cond(a.sum() > 0, lambda b: b * 2, lambda b: b - 1, a), x, dims=BATCH)
case(
    "cond of trees",
    lambda a: lax.cond(a[0, 0] > 0, lambda b: (b, b.sum()), lambda b: (b * 3, b.mean()), a),
    x,
    dims=BATCH,
)
case("switch", lambda i, a: lax.switch(i, [lambda b: b, lambda b: b * 2, lambda b: b - 5], a), np.int32(2), x)
case(
    "switch out of range",
    lambda i, a: lax.switch(i, [lambda b: b, lambda b: b * 2, lambda b: b - 5], a),
    np.int32(9),
    x,
)
case(
    "cond in cond", lambda a: lax.cond(a[0, 0] > 0, lambda b: lax.cond(b[1, 1] > 0, jnp.sin, jnp.cos, b), jnp.tan, a), x
)
case("vmap of cond", jax.vmap(lambda a: lax.cond(a.sum() > 0, jnp.sin, jnp.cos, a)), x, dims=BATCH)
case("while", lambda a: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5), (0, a))[1], x, dims=BATCH)
case("while by contents", lambda a: lax.while_loop(lambda b: jnp.abs(b).max() > 0.1, lambda b: b / 2, a), x, dims=BATCH)
case(
    "while that uses what is outside",
    lambda a, b: lax.while_loop(lambda s: s.sum() < b.sum() + 100, lambda s: jnp.abs(s) * 2 + b**2, a),
    x,
    floats(3, 4, seed=1),
)
case(
    "vmap of while",
    jax.vmap(lambda a: lax.while_loop(lambda b: b < 10, lambda b: b * 2, jnp.abs(a) + 0.1)),
    floats(4),
    dims=BATCH,
)
case("fori_loop", lambda a: lax.fori_loop(0, 4, lambda i, b: b + i, a), x, dims=BATCH)
case("fori_loop to a value", lambda a, n: lax.fori_loop(0, n, lambda i, b: b * 1.1 + i, a), x, np.int32(3))
case("fori_loop to a size", lambda a: lax.fori_loop(0, a.shape[0], lambda i, b: b + a[i], jnp.zeros(4)), x, dims=BATCH)
case("scan", lambda a: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), a), x, dims=BATCH)
case("scan reverse", lambda a: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), a, reverse=True), x, dims=BATCH)
case("scan without rows", lambda a: lax.scan(lambda c, _: (c * 1.1, c.sum()), a, None, length=5), x, dims=BATCH)
case(
    "scan without rows, reverse",
    lambda a: lax.scan(lambda c, _: (c * 1.1, c.sum()), a, None, length=5, reverse=True),
    x,
)
case(
    "scan of trees",
    lambda a: lax.scan(
        lambda c, r: ((c[0] + r["a"], c[1] * 2), {"y": r["b"]}), (jnp.zeros(4), 1.0), {"a": a, "b": a * 2}
    ),
    x,
)
case("scan in scan", lambda a: lax.scan(lambda c, r: lax.scan(lambda d, s: (d + s, d), c, r), 0.0, a), x, dims=BATCH)
case(
    "scan with weights",
    lambda a: lax.scan(lambda c, r: (jnp.tanh(c @ floats(4, 4) + r), c), jnp.zeros(4), a)[0],
    x,
    dims=BATCH,
)
case("map", lambda a: lax.map(lambda r: r.sum() * r, a), x, dims=BATCH)
case("associative_scan", lambda a: lax.associative_scan(jnp.add, a), floats(8, 4))
case(
    "cond in scan",
    lambda a: lax.scan(lambda c, r: (lax.cond(r.sum() > 0, lambda: c + r, lambda: c - r), c), jnp.zeros(4), a),
    x,
    dims=BATCH,
)
case("jit in jit", jax.jit(lambda a: jax.jit(lambda b: jax.jit(jnp.sin)(b) + 1)(a) * 2), x, dims=BATCH)
case("remat", jax.checkpoint(lambda a: jnp.sin(a) @ floats(4, 4)), x, dims=BATCH)
case("vmap", jax.vmap(lambda a, b: a @ b, in_axes=(0, None)), x, floats(4, 2), dims=BATCH)
case("vmap of vmap", jax.vmap(jax.vmap(lambda a: a * a.sum() if a.ndim else a * 2)), x, dims=BATCH)
case("custom_jvp", jax.nn.relu6, x, dims=BATCH)


@jax.custom_vjp
def _clipped(a):
    return jnp.sin(a)


_clipped.defvjp(lambda a: (jnp.sin(a), a), lambda a, g: (jnp.clip(g * a, -1, 1),))
case("custom_vjp", _clipped, x, dims=BATCH)
case("custom_vjp gradient", jax.grad(lambda a: (_clipped(a) ** 2).sum()), x, dims=BATCH)

for _name, _draw in {
    "uniform": lambda k: jax.random.uniform(k, (3, 4)),
    "normal": lambda k: jax.random.normal(k, (5,)),
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (6,)),
    "randint": lambda k: jax.random.randint(k, (6,), 0, 10),
    "bits": lambda k: jax.random.bits(k, (5,)),
    "split": lambda k: jax.random.key_data(jax.random.split(jax.random.wrap_key_data(k), 3)),
    "fold_in": lambda k: jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(k), 7)),
    "permutation": lambda k: jax.random.permutation(k, 6),
    "categorical": lambda k: jax.random.categorical(k, jnp.arange(4.0), shape=(5,)),
    "gumbel": lambda k: jax.random.gumbel(k, (4,)),
    "exponential": lambda k: jax.random.exponential(k, (4,)),
    "truncated_normal": lambda k: jax.random.truncated_normal(k, -1, 1, (4,)),
    "choice": lambda k: jax.random.choice(k, jnp.arange(7), (4,)),
    "bits of 8": lambda k: jax.random.bits(k, (5,), jnp.uint8),
    "laplace": lambda k: jax.random.laplace(k, (4,)),
}.items():
    case(f"random.{_name}", _draw, key)
    if _name in ("uniform", "normal", "randint"):
        case(f"random.{_name} of a fixed key", lambda a, d=_draw: a * d(jax.random.key(0)).ravel()[0], x, dims=BATCH)
case("random of a typed key", lambda k: jax.random.uniform(jax.random.wrap_key_data(k), (3,)), key)
case(
    "random of several keys",
    lambda k: jax.vmap(lambda one: jax.random.normal(one, (2,)))(jax.random.split(jax.random.wrap_key_data(k), 4)),
    key,
)
case("random seed", lambda s: jax.random.uniform(jax.random.key(s), (3,)), np.int32(42))
case("dropout by hand", lambda k, a: jnp.where(jax.random.bernoulli(k, 0.5, a.shape), a / 0.5, 0), key, x)
case(
    "random in scan",
    lambda k: lax.scan(
        lambda c, k: (c + jax.random.normal(k), c), 0.0, jax.random.split(jax.random.wrap_key_data(k), 3)
    ),
    key,
)
