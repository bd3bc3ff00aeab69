"""Gradients of functions, and other transformations."""

import jax
import jax.numpy as jnp
from jax import lax

from cases import BATCH, case, floats, integers, positive

x, w = floats(3, 4), floats(4, 2)
for _name in [
    "relu",
    "gelu",
    "silu",
    "softplus",
    "elu",
    "selu",
    "leaky_relu",
    "sigmoid",
    "tanh",
    "log_sigmoid",
    "celu",
    "soft_sign",
    "hard_tanh",
    "mish",
    "hard_swish",
    "hard_sigmoid",
]:
    case(f"grad of {_name}", jax.grad(lambda a, f=getattr(jax.nn, _name): f(a).sum()), x, dims=BATCH)
for _name in ["softmax", "log_softmax", "logsumexp", "standardize"]:
    case(f"grad of {_name}", jax.grad(lambda a, f=getattr(jax.nn, _name): (f(a, axis=1) ** 2).sum()), x, dims=BATCH)
for _name in ["sin", "exp", "tanh", "sqrt", "log", "arctan", "sinh", "cbrt", "log1p", "expm1"]:
    case(f"grad of jnp.{_name}", jax.grad(lambda a, f=getattr(jnp, _name): f(a).sum()), positive(3, 4), dims=BATCH)
for _name in ["max", "min", "prod", "sort", "cumsum", "cumprod", "std", "median"]:
    _dims = BATCH if _name != "prod" else None  # JAX differentiates products only at static sizes
    case(f"grad of jnp.{_name}", jax.grad(lambda a, f=getattr(jnp, _name): (f(a, axis=1) ** 2).sum()), x, dims=_dims)
case("grad of matmul", jax.grad(lambda a, b: ((a @ b) ** 2).sum(), (0, 1)), x, w, dims=BATCH)
case("value_and_grad", jax.value_and_grad(lambda a: jnp.tanh(a).sum()), x, dims=BATCH)
case("grad of a gather", jax.grad(lambda a: (a[:, jnp.array([0, 2, 2])] ** 2).sum()), x, dims=BATCH)
case("grad of a scatter", jax.grad(lambda a: (a.at[:, 1].set(0.0) ** 3).sum()), x, dims=BATCH)
case("grad of a gather by input", jax.grad(lambda a, i: (a[i] ** 2).sum()), x, integers(5, low=0, high=3))
case(
    "grad of scan",
    jax.grad(lambda a: lax.scan(lambda c, r: (jnp.sin(c) * r, None), jnp.ones(4), a)[0].sum()),
    x,
    dims=BATCH,
)
case("grad of cond", jax.grad(lambda a: lax.cond(a.sum() > 0, jnp.sin, jnp.cos, a).sum()), x, dims=BATCH)
case("grad of a norm", jax.grad(lambda a: jnp.linalg.norm(a)), x, dims=BATCH)
case(
    "jvp",
    lambda a, t: jax.jvp(lambda b: jnp.sin(b) @ w, (a,), (t,)),
    x,
    floats(3, 4, seed=2),
    dims={0: {0: "b"}, 1: {0: "b"}},
)
case(
    "vjp",
    lambda a, g: jax.vjp(lambda b: jnp.sin(b) @ w, a)[1](g)[0],
    x,
    floats(3, 2, seed=2),
    dims={0: {0: "b"}, 1: {0: "b"}},
)
case("hessian", jax.hessian(lambda a: (jnp.sin(a) ** 2).sum()), floats(3))
case("jacobian", jax.jacrev(lambda a: jnp.tanh(a @ floats(3, 3))), floats(3))
case("jacfwd", jax.jacfwd(lambda a: jnp.tanh(a @ floats(3, 3))), floats(3))
case("grad of grad", jax.grad(lambda a: jax.grad(lambda b: (b**4).sum())(a).sum()), x, dims=BATCH)
case("vmap of grad", jax.vmap(jax.grad(lambda a: jnp.sin(a).sum())), x, dims=BATCH)
case(
    "cross entropy",
    jax.grad(lambda a, y: -jnp.take_along_axis(jax.nn.log_softmax(a), y[:, None], 1).mean()),
    x,
    integers(3, low=0, high=4),
    dims={0: {0: "b"}, 1: {0: "b"}},
)
case(
    "a step of training",
    lambda p, a: jax.tree.map(
        lambda q, g: q - 0.1 * g, p, jax.grad(lambda q: ((jnp.tanh(a @ q["w"]) + q["b"]) ** 2).mean())(p)
    ),
    {"w": w, "b": floats(2)},
    x,
)
case(
    "attention gradient",
    jax.grad(lambda q: (jax.nn.dot_product_attention(q, q, q) ** 2).sum()),
    floats(2, 5, 2, 4),
    dims=BATCH,
)
