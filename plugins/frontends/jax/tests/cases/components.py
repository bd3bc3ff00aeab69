"""Components that JAX converters typically cover, by name."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from cases import BATCH, case, floats, integers, made

x, image, sequence = floats(3, 4), floats(2, 8, 8, 3), floats(2, 5, 8)


def _rngs():
    return nnx.Rngs(0)


made("nnx.BatchNorm", lambda: nnx.BatchNorm(4, rngs=_rngs(), use_running_average=True), x, dims=BATCH)
made("nnx.BatchNorm of images", lambda: nnx.BatchNorm(3, rngs=_rngs(), use_running_average=True), image, dims=BATCH)
made("nnx.Conv", lambda: nnx.Conv(3, 6, (3, 3), rngs=_rngs()), image, dims=BATCH)
made(
    "nnx.Conv strided",
    lambda: nnx.Conv(3, 6, (3, 3), strides=2, padding="VALID", use_bias=False, rngs=_rngs()),
    image,
    dims=BATCH,
)
made("nnx.Conv of one axis", lambda: nnx.Conv(8, 6, (3,), rngs=_rngs()), sequence, dims=BATCH)
made("nnx.Conv causal", lambda: nnx.Conv(8, 6, (3,), padding="CAUSAL", rngs=_rngs()), sequence, dims=BATCH)
made("nnx.Conv circular", lambda: nnx.Conv(8, 6, (3,), padding="CIRCULAR", rngs=_rngs()), sequence, dims=BATCH)
made("nnx.ConvTranspose", lambda: nnx.ConvTranspose(3, 6, (3, 3), strides=2, rngs=_rngs()), image, dims=BATCH)
made("nnx.Dropout", lambda: nnx.Dropout(0.5, deterministic=True, rngs=_rngs()), x, dims=BATCH)
made("nnx.LayerNorm", lambda: nnx.LayerNorm(4, rngs=_rngs()), x, dims=BATCH)
made("nnx.RMSNorm", lambda: nnx.RMSNorm(4, rngs=_rngs()), x, dims=BATCH)
made("nnx.GroupNorm", lambda: nnx.GroupNorm(8, num_groups=2, rngs=_rngs()), sequence, dims=BATCH)
made("nnx.Linear", lambda: nnx.Linear(4, 6, rngs=_rngs()), x, dims=BATCH)
made("nnx.Linear in bfloat16", lambda: nnx.Linear(4, 6, dtype=jnp.bfloat16, rngs=_rngs()), x, dims=BATCH)
made("nnx.LinearGeneral", lambda: nnx.LinearGeneral((5, 8), (3, 2), axis=(-2, -1), rngs=_rngs()), sequence, dims=BATCH)
made("nnx.Einsum", lambda: nnx.Einsum("btd,dh->bth", (8, 3), (3,), rngs=_rngs()), sequence, dims=BATCH)
made("nnx.Embed", lambda: nnx.Embed(10, 4, rngs=_rngs()), integers(2, 5, low=0, high=10), dims=BATCH)
made("nnx.MultiHeadAttention", lambda: nnx.MultiHeadAttention(2, 8, rngs=_rngs(), decode=False), sequence, dims=BATCH)
made("nnx.PReLU", lambda: nnx.PReLU(), x, dims=BATCH)
made(
    "nnx.LSTMCell",
    lambda: (lambda cell: lambda a: cell((jnp.zeros((a.shape[0], 6)), jnp.zeros((a.shape[0], 6))), a))(
        nnx.LSTMCell(4, 6, rngs=_rngs())
    ),
    x,
    dims=BATCH,
)
made(
    "nnx.GRUCell",
    lambda: (lambda cell: lambda a: cell(jnp.zeros((a.shape[0], 6)), a))(nnx.GRUCell(4, 6, rngs=_rngs())),
    x,
    dims=BATCH,
)
made("nnx.RNN", lambda: nnx.RNN(nnx.GRUCell(8, 6, rngs=_rngs())), sequence)
made("nnx.LoRA", lambda: nnx.LoRA(4, 2, 6, rngs=_rngs()), x, dims=BATCH)
case("nnx.avg_pool", lambda a: nnx.avg_pool(a, (2, 2), (2, 2)), image, dims=BATCH)
case("nnx.max_pool", lambda a: nnx.max_pool(a, (2, 2), (2, 2)), image, dims=BATCH)
case(
    "nnx.dot_product_attention",
    nnx.dot_product_attention,
    *[floats(2, 5, 2, 4, seed=k) for k in range(3)],
    dims={k: {0: "b"} for k in range(3)},
)
case(
    "jax.nn.dot_product_attention",
    jax.nn.dot_product_attention,
    *[floats(2, 5, 2, 4, seed=k) for k in range(3)],
    dims={k: {0: "b", 1: "t"} for k in range(3)},
)
case(
    "causal attention",
    lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
    *[floats(2, 5, 2, 4, seed=k) for k in range(3)],
    dims={k: {0: "b"} for k in range(3)},
)
for _name in [
    "elu",
    "gelu",
    "leaky_relu",
    "log_softmax",
    "relu",
    "sigmoid",
    "softmax",
    "softplus",
    "tanh",
    "swish",
    "celu",
    "selu",
    "glu",
    "hard_tanh",
    "relu6",
    "log_sigmoid",
    "soft_sign",
    "hard_swish",
]:
    case(f"nn.{_name}", getattr(jax.nn, _name), x, dims=BATCH)
case("nn.gelu exact", lambda a: jax.nn.gelu(a, approximate=False), x, dims=BATCH)
case("nn.softmax axis 0", lambda a: jax.nn.softmax(a, axis=0), x, dims=BATCH)
case("nn.softmax masked", lambda a: jax.nn.softmax(a, where=a > 0, axis=1), x, dims=BATCH)
case(
    "lax.gather of rows",
    lambda a, i: lax.gather(a, i, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4)),
    x,
    integers(2, 1, low=0, high=3),
)
case("lax.slice of an array", lambda a: lax.slice(a, (1, 0), (3, 4)), x)
for _name, _function in {
    "add": lambda a: jnp.add(a, 1.0),
    "concat": lambda a: jnp.concatenate([a, a], 1),
    "matmul": lambda a: a @ a.T,
    "einsum": lambda a: jnp.einsum("ij,kj->ik", a, a),
    "reshape": lambda a: jnp.reshape(a, (-1, 2, 2)),
    "squeeze": lambda a: jnp.squeeze(a[:, None], 1),
    "tile": lambda a: jnp.tile(a, (2, 3)),
    "transpose": jnp.transpose,
}.items():
    case(f"jax.numpy {_name}", _function, x, dims=BATCH)
