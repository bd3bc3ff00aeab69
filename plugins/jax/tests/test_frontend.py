"""How functions and modules are read: names, dims, parameters, verification, and what is refused."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import floats
from flax import nnx

import tenonnx as tx
from tenonnx.extend import InvalidCall, NotRepresentable
from tenonnx.extend.checks import compare
from tenonnx_jax import frontend, rule
from tenonnx_jax.rules import RULES

x = floats(3, 4)


def types(graph):
    return [str(v.type) for v in (*graph.inputs, *graph.outputs)]


def test_inputs_are_called_like_parameters_and_outputs_like_keys():
    graph = tx.load(lambda image, mask: {"scores": image + mask, "image": image}, x, x)
    assert [v.name for v in graph.inputs] == ["image", "mask"]
    assert [v.name for v in graph.outputs] == ["output_image", "scores"]


def test_names_may_be_given():
    graph = tx.load(lambda a: (a + 1, a * 2), x, input_names=["pixels"], output_names=["more", "twice"])
    assert [v.name for v in (*graph.inputs, *graph.outputs)] == ["pixels", "more", "twice"]


@pytest.mark.parametrize("dims", [{"a": {0: "n"}}, {0: {0: "n"}}, {"a": ["n", None]}, '{"a": {"0": "n"}}'])
def test_dims_are_named(dims):
    assert types(tx.load(lambda a: a + 1, x, dims=dims)) == ["float32[n, 4]", "float32[n, 4]"]


def test_a_dynamic_batch():
    assert types(tx.load(lambda a, b: a @ b.T, x, x, dynamic_batch=True))[-1] == "float32[batch, batch]"


def test_dims_are_computed_with():
    graph = tx.load(lambda a: a.reshape(-1) / a.shape[0], x, dynamic_batch=True)
    assert np.array_equal(graph.run({"a": floats(7, 4)})["output"], floats(7, 4).ravel() / 7)


def test_parameters_have_the_paths_of_their_tree():
    module = nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), nnx.relu)
    assert {v.name for v in tx.load(module, x).variables} == {"layers.0.bias", "layers.0.kernel"}
    linen = nn.Dense(3)
    bound = linen.bind(linen.init(jax.random.key(0), x))
    assert {v.name for v in tx.load(bound, x).variables} == {"bias", "kernel"}
    tree = eqx.nn.Linear(4, 3, key=jax.random.key(0))
    assert {v.name for v in tx.load(tree, x[0]).variables} == {"bias", "weight"}


def test_a_linen_module_needs_its_variables():
    with pytest.raises(InvalidCall, match="bound to its variables"):
        tx.load(nn.Dense(3), x)
    assert tx.load(nn.Dense(3), x, variables=nn.Dense(3).init(jax.random.key(0), x)).outputs


def test_primitives_without_a_rule_are_named_together_with_lines():
    unknown = [jax.extend.core.Primitive(f"unknown_{k}") for k in range(2)]
    for primitive in unknown:
        primitive.def_abstract_eval(lambda a: a)
    with pytest.raises(NotRepresentable, match=r"(?s)unknown_0: .*test_frontend\.py.*unknown_1: "):
        tx.load(lambda a: unknown[1].bind(unknown[0].bind(a)), x)


def test_a_rule_for_a_primitive_of_ones_own():
    import tenonnx_standard as ops

    tripled = jax.extend.core.Primitive("tripled")
    tripled.def_abstract_eval(lambda a: a)
    tripled.def_impl(lambda a: a * 3)
    rule("tripled")(lambda equation, a: ops.mul(a, 3.0))
    try:
        assert tx.load(lambda a: tripled.bind(a), x).outputs
    finally:
        del RULES["tripled"]


def test_callbacks_are_refused_by_name():
    def calls_back(a):
        return jax.pure_callback(lambda b: b, jax.ShapeDtypeStruct((3, 4), jnp.float32), a)

    with pytest.raises(NotRepresentable, match="leave out pure_callback"):
        tx.load(calls_back, x)


def test_a_branch_that_fixes_a_dim_is_told_by_its_line():
    def fixed(a):
        return a * 2 if a.shape[0] == 3 and bool(a.shape[0] > 2) and a.sum() > 0 else a

    with pytest.raises(NotRepresentable, match=r"test_frontend\.py.*fixed"):
        tx.load(fixed, x)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dims": {"nothing": {0: "n"}}}, "must name inputs"),
        ({"dims": {"a": {5: "n"}}}, "of its axes"),
        ({"dims": {"a": {0: 3}}}, "must have a name"),
        ({"dims": "{"}, "must be JSON"),
        ({"input_names": ["a", "b"]}, "names of inputs"),
        ({"output_names": ["a", "b"]}, "names of outputs"),
        ({"verify": "yes"}, "verify must be"),
        ({"dims": {"a": {0: "n", 1: "n"}}}, "must be one number"),
    ],
)
def test_what_does_not_fit_is_refused(options, said):
    with pytest.raises(InvalidCall, match=said):
        tx.load(lambda a: a + 1, x, **options)


def test_examples_that_a_function_does_not_take():
    with pytest.raises(InvalidCall, match="must be what"):
        tx.load(lambda a, b: a + b, x)


def test_verification_finds_other_numbers():
    graph = tx.load(lambda a: a + 1, x)
    assert frontend.verifier(lambda a: a + 1, x)(graph).verified
    assert not frontend.verifier(lambda a: a + 2, x)(graph).verified


def test_verification_looks_at_other_sizes():
    found = frontend.verifier(lambda a: a + 1, x, dynamic_batch=True)(tx.load(lambda a: a + 1, x, dynamic_batch=True))
    assert len(found.outputs) == 3


def test_softmax_gelu_and_layer_norm_stay_whole():
    graph = tx.load(lambda a: jax.nn.gelu(jax.nn.softmax(a), approximate=False), x, dynamic_batch=True)
    assert [node.op_type for node in graph.nodes] == ["Softmax", "Gelu"]


def test_random_bits_are_those_of_jax():
    def drawn(words):
        return jax.random.bits(jax.random.wrap_key_data(words), (5,))

    words = np.uint32([1, 2])
    assert compare(
        tx.load(drawn, words).run({"words": words})["output"], np.asarray(drawn(words)), accumulation=1
    ).equal
