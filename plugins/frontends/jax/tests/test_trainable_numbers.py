"""Parameters with zeros, ones or scalars, as after initialization, are trained as with JAX's gradients."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenonnx as tx
import tenonnx_training as tt


def number(module, value):
    return module.param("number", lambda _: jnp.asarray(value))


KINDS = {
    "bias": lambda module, x: nn.relu(nn.Dense(5)(x)),
    "normalization": lambda module, x: nn.gelu(nn.LayerNorm()(nn.Dense(4)(x))),
    "residual of nothing": lambda module, x: x + number(module, 0.0) * nn.relu(nn.Dense(4)(x)),
    "scale of a layer": lambda module, x: x + number(module, np.ones(4, np.float32)) * nn.relu(nn.Dense(4)(x)),
    "gate": lambda module, x: x * nn.sigmoid(number(module, 1.702) * x),
}


class Network(nn.Module):
    kind: str

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(KINDS[self.kind](self, x))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_trained(kind):
    random = np.random.default_rng(0)
    x, labels = random.normal(size=(32, 4)).astype(np.float32), random.integers(0, 3, 32)
    module = Network(kind)
    parameters = module.init(jax.random.key(0), x[:8])
    graph = tx.load(module.bind(parameters), x[:8], dims={"x": {0: "batch"}})
    tt.fit(
        graph, (x, labels), loss="softmax_cross_entropy", optimizer=tt.SGD(0.1), epochs=2, batch_size=8, shuffle=False
    )

    @jax.jit
    def step(parameters, x, labels):
        def loss(parameters):
            return -jnp.take_along_axis(nn.log_softmax(module.apply(parameters, x)), labels[:, None], 1).mean()

        return jax.tree.map(lambda held, gradient: held - 0.1 * gradient, parameters, jax.grad(loss)(parameters))

    for start in [*range(0, 32, 8)] * 2:
        parameters = step(parameters, x[start : start + 8], labels[start : start + 8])
    (result,) = graph.run({"x": x}).values()
    np.testing.assert_allclose(result, module.apply(parameters, x), rtol=1e-5, atol=1e-5)
