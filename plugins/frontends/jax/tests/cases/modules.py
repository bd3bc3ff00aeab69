"""Modules of Flax linen and Equinox."""

import equinox as eqx
import flax.linen as nn
import jax

from cases import BATCH, floats, integers, made

x, image, sequence = floats(3, 4), floats(2, 8, 8, 3), floats(2, 5, 8)


def _bound(module, *examples):
    return module.bind(module.init(jax.random.key(0), *examples))


made("linen.Dense", lambda: _bound(nn.Dense(5), x), x, dims=BATCH)
made("linen.Sequential", lambda: _bound(nn.Sequential([nn.Dense(5), nn.relu, nn.Dense(2)]), x), x, dims=BATCH)
made("linen.Conv", lambda: _bound(nn.Conv(4, (3, 3)), image), image, dims=BATCH)
made("linen.LayerNorm", lambda: _bound(nn.LayerNorm(), x), x, dims=BATCH)
made("linen.GroupNorm", lambda: _bound(nn.GroupNorm(2), sequence), sequence, dims=BATCH)
made("linen.BatchNorm", lambda: _bound(nn.BatchNorm(use_running_average=True), x), x, dims=BATCH)
made(
    "linen.Embed",
    lambda: _bound(nn.Embed(10, 4), integers(2, 5, low=0, high=10)),
    integers(2, 5, low=0, high=10),
    dims=BATCH,
)
made(
    "linen.MultiHeadDotProductAttention",
    lambda: _bound(nn.MultiHeadDotProductAttention(2), sequence),
    sequence,
    dims=BATCH,
)
made("linen.RNN", lambda: _bound(nn.RNN(nn.LSTMCell(6)), sequence), sequence)
made("eqx.nn.Linear", lambda: eqx.nn.Linear(4, 3, key=jax.random.key(0)), floats(4))
made("eqx.nn.MLP", lambda: eqx.nn.MLP(4, 2, 8, 2, key=jax.random.key(0)), floats(4))
made("eqx vmap of MLP", lambda: jax.vmap(eqx.nn.MLP(4, 2, 8, 2, key=jax.random.key(0))), x, dims=BATCH)
made("eqx.nn.Conv2d", lambda: eqx.nn.Conv2d(3, 4, 3, key=jax.random.key(0)), floats(3, 8, 8))
made("eqx.nn.LayerNorm", lambda: eqx.nn.LayerNorm(4), floats(4))
made("eqx.nn.GRUCell", lambda: eqx.nn.GRUCell(4, 3, key=jax.random.key(0)), floats(4), floats(3))
made(
    "eqx.nn.MultiheadAttention",
    lambda: eqx.nn.MultiheadAttention(2, 8, key=jax.random.key(0)),
    floats(5, 8),
    floats(5, 8),
    floats(5, 8),
)
