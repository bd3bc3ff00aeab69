"""The conformance suite of framework front ends, on randomly drawn calls."""

import jax
import jax.numpy as jnp
from hypothesis import strategies as st

from tenonnx_testing import SourceCase, source_conformance, tensors

rows = st.integers(1, 4)


def module():
    from flax import nnx

    return nnx.Sequential(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.relu, nnx.LayerNorm(4, rngs=nnx.Rngs(0)))


CASES = {
    "a function of two": SourceCase(
        lambda: lambda x, y: {"sum": jnp.tanh(x) + y, "rows": x.shape[0] * jnp.ones(2)},
        rows.flatmap(lambda n: st.tuples(tensors(shape=(n, 3)), tensors(shape=(n, 3)))),
        {"x": {0: "n"}, "y": {0: "n"}},
    ),
    "a gradient": SourceCase(
        lambda: jax.grad(lambda x: jnp.sum(jax.nn.softmax(x) ** 2)),
        rows.flatmap(lambda n: st.tuples(tensors(shape=(n, 5)))),
        {0: {0: "batch"}},
    ),
    "a module": SourceCase(module, rows.flatmap(lambda n: st.tuples(tensors(shape=(n, 3)))), {0: {0: "batch"}}),
    "integers of a fixed size": SourceCase(
        lambda: lambda x: jnp.sort(x)[::-1] // 3, st.tuples(tensors("int32", shape=(5,)))
    ),
}

test = source_conformance(CASES, frontend="jax", examples=3)
