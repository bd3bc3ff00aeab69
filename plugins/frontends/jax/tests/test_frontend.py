"""Reading functions and modules: names, dims, parameters, verification, errors."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from cases import floats, load_all
from flax import nnx
from test_element_types import in_session

import tenonnx as tx
import tenonnx_training as tt
from tenonnx.extend import InvalidCall, NotRepresentable, op
from tenonnx.extend.checks import compare
from tenonnx_jax import frontend, rule
from tenonnx_jax.rules import RULES

x = floats(3, 4)
EXAMPLES = {name: case for name, case in load_all().items() if case.make.__module__ == "cases.networks"}


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


@op("Tripled", domain="com.acme", since=1)
def tripled_op(a):
    import tenonnx_standard as ops

    return ops.mul(a, 3.0)


def test_a_rule_may_call_an_op_of_another_domain(monkeypatch):
    tripled = jax.extend.core.Primitive("tripled")
    tripled.def_abstract_eval(lambda a: a)
    tripled.def_impl(lambda a: a * 3)
    monkeypatch.setitem(RULES, "tripled", lambda equation, a: tripled_op(a))
    graph = tx.load(lambda a: tripled.bind(a) + 1, x)
    assert graph.opsets["com.acme"] == 1
    assert {each.domain: each.version for each in graph.to_proto().opset_import}["com.acme"] == 1


def test_callbacks_are_refused_by_name():
    def calls_back(a):
        return jax.pure_callback(lambda b: b, jax.ShapeDtypeStruct((3, 4), jnp.float32), a)

    with pytest.raises(NotRepresentable, match="leave out pure_callback"):
        tx.load(calls_back, x)


def test_a_branch_that_fixes_a_dim_is_reported_with_its_line():
    def fixed(a):
        return a * 2 if a.shape[0] == 3 and bool(a.shape[0] > 2) and a.sum() > 0 else a

    with pytest.raises(NotRepresentable, match=r"test_frontend\.py.*fixed"):
        tx.load(fixed, x)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dims": {"nothing": {0: "n"}}}, "name no input"),
        ({"dims": {"a": {5: "n"}}}, "name an axis that it does not have"),
        ({"dims": {"a": {0: 3}}}, "has no name"),
        ({"dims": "{"}, "are neither JSON"),
        ({"input_names": ["a", "b"]}, "names of inputs"),
        ({"output_names": ["a", "b"]}, "names of outputs"),
        ({"verify": "yes"}, "verify is neither"),
        ({"dims": {"a": {0: "n", 1: "n"}}}, "has two sizes"),
    ],
)
def test_mismatched_arguments_are_refused(options, said):
    with pytest.raises(InvalidCall, match=said):
        tx.load(lambda a: a + 1, x, **options)


def test_examples_that_a_function_does_not_take():
    with pytest.raises(InvalidCall, match="does not take these examples"):
        tx.load(lambda a, b: a + b, x)


def test_verification_finds_other_numbers():
    graph = tx.load(lambda a: a + 1, x)
    assert frontend.verifier(lambda a: a + 1, x)(graph).verified
    assert not frontend.verifier(lambda a: a + 2, x)(graph).verified


def test_verification_looks_at_other_sizes():
    result = frontend.verifier(lambda a: a + 1, x, dynamic_batch=True)(tx.load(lambda a: a + 1, x, dynamic_batch=True))
    assert len(result.outputs) == 3


def test_softmax_gelu_and_layer_norm_are_single_nodes():
    graph = tx.load(lambda a: jax.nn.gelu(jax.nn.softmax(a), approximate=False), x, dynamic_batch=True)
    assert [node.op_type for node in graph.nodes] == ["Softmax", "Gelu"]


def test_random_bits_are_those_of_jax():
    def drawn(words):
        return jax.random.bits(jax.random.wrap_key_data(words), (5,))

    words = np.uint32([1, 2])
    assert compare(
        tx.load(drawn, words).run({"words": words})["output"], np.asarray(drawn(words)), accumulation=1
    ).equal


# ----- modules with state ---------------------------------------------------------------------------------------------


def test_statistics_of_a_batch_become_outputs_and_inputs_with_a_default():
    module = nnx.BatchNorm(4, rngs=nnx.Rngs(0))
    module.train()
    graph = tx.load(module, x)
    assert [v.name for v in graph.outputs] == ["output", "mean_next", "var_next"]
    assert [v.name for v in graph.inputs] == ["x"]
    assert {v.name for v in graph.all_inputs} == {"x", "mean", "var"}
    assert {v.name: v.role.kind for v in graph.variables} == {
        "bias": "parameter",
        "scale": "parameter",
        "mean": "buffer",
        "var": "buffer",
    }
    program = graph.compile(state={"mean": "mean_next", "var": "var_next"})
    result = [program({"x": x + k}) for k in range(3)]
    for k in range(3):
        expected = module(jnp.asarray(x + k))
        assert compare(result[k]["output"], np.asarray(expected), accumulation=3).equal
    after = {name: np.asarray(value) for name, value in program.state.items()}
    np.testing.assert_allclose(after["mean"], module.mean[...], rtol=1e-5)
    module.eval()
    assert [v.name for v in tx.load(module, x).outputs] == ["output"]


def test_dropout_in_training_draws_what_jax_draws_and_counts_on():
    module = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    graph = tx.load(module, x)
    assert [v.name for v in graph.outputs] == ["output", "rngs.count_next"]
    again = graph.run({"inputs": x, "rngs.count": np.uint32(1)})
    module(x)
    assert compare(again["output"], np.asarray(module(x)), accumulation=1).equal


def test_collections_of_linen_that_may_change_are_named():
    module = nn.BatchNorm(use_running_average=False)
    variables = module.init(jax.random.key(0), x)
    with pytest.raises(NotRepresentable, match="immutable"):
        tx.load(module, x, variables=variables)
    graph = tx.load(module, x, variables=variables, mutable="batch_stats")
    assert [v.name for v in graph.outputs] == ["output", "batch_stats.mean_next", "batch_stats.var_next"]
    with pytest.raises(InvalidCall, match="mutable was given for something other than a module of flax"):
        tx.load(nnx.Linear(4, 2, rngs=nnx.Rngs(0)), x, mutable="batch_stats")


def test_keys_of_linen_are_inputs():
    module = nn.Dropout(0.5, deterministic=False)
    graph = tx.load(module, x, variables={}, keywords={"rngs": {"dropout": jax.random.key(3)}})
    assert [str(v.type) for v in graph.inputs] == ["float32[3, 4]", "uint32[2]"]


# ----- the interface --------------------------------------------------------------------------------------------------


def test_inputs_and_outputs_may_lie_otherwise():
    module, image = nnx.Conv(3, 6, (3, 3), rngs=nnx.Rngs(0)), floats(2, 8, 8, 3)
    first = (0, 3, 1, 2)
    graph = tx.simplify(tx.load(module, image, dynamic_batch=True))  # weights keep their names
    graph = tx.simplify(tx.channels_first(tx.transpose_interface(graph, {"inputs": first}, {"output": first})))
    assert {value.name for value in graph.variables} == {"kernel", "bias"}
    assert types(graph) == ["float32[batch, 3, 8, 8]", "float32[batch, 6, 8, 8]"]
    assert [node.op_type for node in graph.nodes] == ["Conv"]
    result = graph.run({"inputs": image.transpose(0, 3, 1, 2)})["output"]
    assert compare(result.transpose(0, 2, 3, 1), np.asarray(module(image)), accumulation=27).equal


@pytest.mark.parametrize(("shapes", "inner"), [("all", True), ("interface", False)])
def test_inner_shapes_are_written_or_left_out(shapes, inner, tmp_path):

    graph = tx.load(lambda a: jnp.tanh(a) @ a.T + 1, x, dynamic_batch=True)
    tx.export(graph, tmp_path / "m.onnx", shapes=shapes)
    assert bool(onnx.load(tmp_path / "m.onnx").graph.value_info) is inner


def test_a_convolution_has_no_transpositions_around_it():
    def network(a):
        for k in range(3):
            a = jax.nn.relu(nnx.Conv(3, 3, (3, 3), rngs=nnx.Rngs(k))(a))
        return a

    result = [node.op_type for node in tx.load(network, floats(2, 8, 8, 3)).nodes]
    assert result == ["Transpose", *["Conv", "Relu"] * 3, "Transpose"]


def test_normalizations_are_single_nodes():
    assert [n.op_type for n in tx.load(nnx.LayerNorm(4, rngs=nnx.Rngs(0)), x).nodes] == ["LayerNormalization"]
    assert [n.op_type for n in tx.load(lambda a: jax.nn.log_softmax(a), x).nodes] == ["LogSoftmax"]


def test_exported_programs_are_refused_by_name(tmp_path):
    exported = jax.export.export(jax.jit(lambda a: a + 1))(x)
    with pytest.raises(InvalidCall, match="StableHLO"):
        tx.load(exported, x)
    path = tmp_path / "model.stablehlo"
    path.write_bytes(exported.serialize())
    with pytest.raises(InvalidCall, match="without the exported function"):
        tx.load(path)


def test_the_command_line_reads_what_a_function_makes(tmp_path, capsys):
    from tenonnx_cli import main

    (tmp_path / "net.py").write_text(
        "from flax import nnx\n\ndef make():\n    return nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), nnx.relu)\n"
    )
    file = tmp_path / "net.onnx"
    given = [f"{tmp_path / 'net.py'}:make", "--example", "batch=3,4", "--opset", "17", "-o", str(file)]
    assert main(["convert", *given, "--output-names", "scores", "--verify"]) == 0
    graph = tx.load(file)
    assert graph.opsets["ai.onnx"] == 17
    assert str(graph.outputs[0].type) == "float32[batch, 3]"
    (tmp_path / "net.py").write_text(
        "import jax\n\ndef make():\n    return lambda a: jax.debug.print('{a}', a=a) or a\n"
    )
    assert main(["convert", *given]) != 0
    assert "debug_print" in (output := capsys.readouterr().err) or "debug_callback" in output
    assert "Traceback" not in output


# ----- training -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.endswith("of any batch")])
def test_examples_fine_tune_as_files(name, tmp_path):
    case = EXAMPLES[name]
    graph = tx.load(case.make(), *case.examples, dims=case.dims, verify=False)
    tx.export(graph, tmp_path / "m.onnx", opset_version=17)
    graph = tx.load(tmp_path / "m.onnx")
    feeds = {graph.inputs[0].name: case.examples[0]}
    result = graph.run(feeds)[graph.outputs[0].name]
    target = result + floats(*result.shape, seed=1)
    step = tt.TrainingStep(graph, tt.MeanSquaredError(), tt.Adam(1e-3))
    losses = [step({**feeds, "labels": target})["loss"] for _ in range(4)]
    assert losses[-1] < losses[0]


def test_sizes_that_a_function_refuses_are_replaced_by_larger_ones():
    def valid(image):
        return jax.lax.conv_general_dilated(image, np.ones((4, 3, 5), np.float32), (1,), "VALID")

    image = np.ones((2, 3, 8), np.float32)
    graph = tx.load(valid, image, dims={"image": {2: "width"}})
    result = frontend.verifier(valid, image, dims={"image": {2: "width"}})(graph)
    assert {output.run for output in result.outputs} == {"width=8", "width=12", "width=17"}
    assert len(result.notes) == 1
    assert "width=1)" in result.notes[0]


@pytest.mark.parametrize("shape", [(2, 6), (12,), (1, 3, 4)])
def test_a_dim_of_one_size_is_refused(shape):
    with pytest.raises(tx.VerificationFailed, match='"batch" cannot vary: JAX takes 3 alone'):
        tx.load(lambda a: a.reshape(shape), x, dynamic_batch=True)


def test_sizes_below_a_window_are_not_compared():
    kernel = np.ones((4, 3, 3, 3), np.float32)
    for padding in ("VALID", [(0, 0), (0, 1)]):
        graph = tx.load(
            lambda x, padding=padding: jax.lax.conv_general_dilated(x, kernel, (1, 1), padding),
            np.ones((2, 3, 8, 9), np.float32),
            dims={"x": {2: "height", 3: "width"}},
        )
        assert str(graph.outputs[0].shape[2]) == "height - 2"


NO_ROWS = {
    "carry and rows": lambda a: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.ones(4), a),
    "reverse": lambda a: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.ones(4), a, reverse=True),
    "carry alone": lambda a: jax.lax.scan(lambda c, r: (c + r, None), jnp.ones(4), a)[0],
    "complex": lambda a: jnp.abs(jax.lax.scan(lambda c, r: (c, r * 1j), jnp.ones(4), a)[1]),
    "sums": lambda a: (jnp.cumsum(a, 0), jnp.cumprod(a, 0)),
}


@pytest.mark.parametrize("kind", NO_ROWS)
def test_a_scan_of_no_rows_runs_on_onnxruntime(kind, tmp_path):
    empty = np.zeros((0, 4), np.float32)
    graph = tx.load(NO_ROWS[kind], empty)
    tx.export(graph, tmp_path / "m.onnx", opset_version=17)
    got = in_session(tmp_path / "m.onnx", empty)
    for actual, expected in zip(got, jax.tree.leaves(NO_ROWS[kind](empty)), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", [np.int16, np.uint16])
def test_a_choice_of_16_bits_runs_on_onnxruntime(dtype, tmp_path):
    import onnxruntime

    x = np.array([5, 2, 9, 0], dtype)
    tx.export(tx.load(lambda x: jax.numpy.where(x > 3, x, x[::-1]), x), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_array_equal(result, np.where(x > 3, x, x[::-1]))
