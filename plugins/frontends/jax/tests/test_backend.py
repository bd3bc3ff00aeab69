"""The JAX backend: programs, programs with state, and pure functions."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_jax
import tenonnx_training as tt
from tenonnx.extend.backends import DefaultsProgram
from tenonnx_jax import buckets, programs
from tenonnx_testing import backend_conformance

test_cases = backend_conformance("jax")

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
SUM = HEAD + "g (float[N, 3] x) => (float[N, 3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }"
LOOP = (
    HEAD
    + """
g (float[3] x, int64 n) => (float[3] y, float[K, 3] rows) <bool go = {1}> {
  y, rows = Loop(n, go, x) <body = b (int64 i, bool c, float[3] h) => (bool c1, float[3] h1, float[3] row) {
    c1 = Identity(c)  h1 = Add(h, h)  row = Identity(h1)
  }>
}"""
)
UNTIL = (
    HEAD
    + """
g (float x) => (float y) <int64 most = {1000}, float limit = {100}, bool go = {1}> {
  y = Loop(most, go, x) <body = b (int64 i, bool c, float h) => (bool c1, float h1) {
    h1 = Add(h, h)  c1 = Less(h1, limit)
  }>
}"""
)
BRANCH = (
    HEAD
    + """
g (float[3] x, bool c) => (float[3] y) {
  y = If(c) <then_branch = t () => (float[3] a) { a = Exp(x) }, else_branch = e () => (float[3] b) { b = Neg(x) }>
}"""
)
SCAN = (
    HEAD
    + """
g (float[2] h, float[T, 2] xs) => (float[2] last, float[T, 2] all) {
  last, all = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] x) => (float[2] s1, float[2] o) {
    s1 = Add(s, x)  o = Identity(s1)
  }> (h, xs)
}"""
)
CHOSEN = HEAD + "g (float[N] x) => (int64[1, K] y) { y = NonZero(x) }"


def graph_of(text):
    return tx.load(onnx.parser.parse_model(text))


def counted(graph):
    made = []
    return DefaultsProgram(graph, lambda form: made.append(programs.JaxProgram(form, None)) or made[-1]), made


TURNED = SUM.replace("y = Add(x, w)", "z = Add(x, w) y = CumSum <reverse = 1> (z, axis)").replace(
    "<float[3] w", "<int64 axis = {0}, float[3] w"
)


def test_shapes_are_compiled_once_each_and_a_storm_of_them_is_not():
    program, made = counted(graph_of(TURNED))
    for rows in (2, 3, 2, 3, 2):
        assert program({"x": np.ones((rows, 3), np.float32)})["y"].shape == (rows, 3)
    assert made[0].compiled == 2
    for rows in range(4, 40):
        np.testing.assert_array_equal(program({"x": np.ones((rows, 3), np.float32)})["y"][-1], [2, 3, 4])
    assert made[0].compiled == programs.KINDS
    for _ in range(3):
        program({"x": np.ones((30, 3), np.float32)})
    assert made[0].compiled == programs.KINDS + 1


def test_sizes_of_rows_that_stay_apart_share_buckets():
    program, made = counted(graph_of(SUM))
    for rows in range(1, 100):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(program({"x": x})["y"], x + np.float32([1, 2, 3]))
    assert made[0].compiled <= 1 + 13  # 1, 2, 3, 4, 6, 8, 12, ... 96, 128
    assert [buckets.bucket(n) for n in (1, 2, 3, 4, 5, 6, 7, 9, 13, 65)] == [1, 2, 3, 4, 6, 6, 8, 12, 16, 96]


def rows_of(body, rest=""):
    return HEAD + f"g (float[N, 4] x) => (float[M, K] y) <float[3, 4] w = {{{', '.join('1' * 12)}}}{rest}> {{ {body} }}"


APART = {
    "products": "t = Transpose <perm = [1, 0]> (w) y = MatMul(x, t)",
    "softmax": "y = Softmax <axis = 1> (x)",
    "columns": "s = ReduceSum <keepdims = 1> (x, one) y = Div(x, s)",
    "sums so far": "y = CumSum(x, zero)",
    "pairs": "y = Reshape(x, pairs)",
    "windows": "b = Reshape(x, images) c = MaxPool <kernel_shape = [2]> (b) y = Squeeze(c, one)",
}
TOGETHER = {
    "mean": "y = ReduceMean <keepdims = 1> (x, zero_)",
    "softmax over rows": "y = Softmax <axis = 0> (x)",
    "sums of what follows": "y = CumSum <reverse = 1> (x, zero)",
    "first sorted": "y, k = TopK <axis = 0> (x, one)",
    "turned": "y = Transpose <perm = [1, 0]> (x) ",
    "products of rows": "t = Transpose <perm = [1, 0]> (x) y = MatMul(t, x)",
    "the number of rows": "s = Shape <start = 0, end = 1> (x) f = Cast <to = 1> (s) y = Div(x, f)",
    "the last row": "y = Slice(x, last, end)",
    "padded": "y = Pad(x, pads)",
    "rows beside each other": "y = Concat <axis = 0> (x, x)",
    "halves": "f = Reshape(x, halves) y = ReduceMax <keepdims = 0> (f, one)",
}
NUMBERS = (
    ", int64[1] one = {1}, int64[1] zero_ = {0}, int64 zero = {0}, int64[1] two = {2}, int64[2] pairs = {-1, 2}, "
    "int64[3] images = {-1, 1, 4}, int64[1] last = {-1}, int64[1] end = {100000}, int64[4] pads = {0, 0, 1, 0}, "
    "int64[3] halves = {2, -1, 4}"
)


@pytest.mark.parametrize("name", [*APART, *TOGETHER])
def test_every_size_agrees_with_numpy(name):
    graph = graph_of(rows_of((APART | TOGETHER)[name], NUMBERS))
    program, made = counted(graph)
    for rows in (4, 10, 22, 14, 26, 18, 30):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        expected = graph.run({"x": x}, backend="numpy")["y"]
        np.testing.assert_allclose(program({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)
    wider = [kind for kind, result in made[0]._buckets.items() if result != kind]
    assert bool(wider) == (name in APART or name == "turned")


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (LOOP, {"x": np.float32([1, 2, 3]), "n": np.int64(6)}),
        (UNTIL, {"x": np.float32(3)}),
        (BRANCH, {"x": np.float32([1, 2, 3]), "c": np.array(True)}),
        (BRANCH, {"x": np.float32([1, 2, 3]), "c": np.array(False)}),
        (SCAN, {"h": np.zeros(2, np.float32), "xs": np.arange(6, dtype=np.float32).reshape(3, 2)}),
        (CHOSEN, {"x": np.float32([0, 1, 0, 2])}),
    ],
)
def test_control_flow_and_shapes_of_data(text, feeds):
    graph = graph_of(text)
    result, expected = graph.compile("jax", strict=True)(feeds), graph.run(feeds, backend="numpy")
    for name, array in expected.items():
        np.testing.assert_allclose(result[name], array)
        assert result[name].dtype == array.dtype


def test_a_loop_is_traced_and_differentiated_where_its_length_is_known():
    graph = graph_of(LOOP.replace("float[3] x, int64 n)", "float[3] x)").replace("<bool go", "<int64 n = {6}, bool go"))
    f = tenonnx_jax.function(graph)
    slope = jax.jit(jax.grad(lambda x: f({}, {"x": x})["y"].sum()))(jnp.ones(3))
    np.testing.assert_allclose(slope, np.full(3, 64))


@pytest.mark.parametrize("text", [UNTIL, BRANCH, SCAN])
def test_control_flow_is_compiled(text):
    f = tenonnx_jax.function(graph_of(text))
    feeds = {"h": jnp.zeros(2), "xs": jnp.ones((4, 2)), "x": jnp.float32(2) if text is UNTIL else jnp.ones(3)}
    feeds = {name: feeds.get(name, jnp.array(True)) for name in f.input_names}
    expected = f({}, feeds)
    for name, array in jax.jit(f)({}, feeds).items():
        np.testing.assert_allclose(array, expected[name])


@pytest.mark.parametrize(
    ("text", "node"),
    [(CHOSEN, "NonZero"), (HEAD + "g (float[2] x) => (float[2] y) { y = RandomNormalLike(x) }", "RandomNormal")],
)
def test_untraceable_nodes_are_refused_by_name(text, node):
    f = tenonnx_jax.function(graph_of(text))
    with pytest.raises(tx.NotRepresentable, match=node):
        jax.jit(f)({}, {"x": jnp.ones(2)})


def test_text_is_computed_by_numpy():
    graph = graph_of(
        HEAD + "g (string[N] a, float[N] x) => (string[N] b, float[N] y) { b = StringConcat(a, a) y = Exp(x) }"
    )
    result = graph.compile("jax", strict=True)({"a": np.array(["u", "v"], object), "x": np.zeros(2, np.float32)})
    assert result["b"].tolist() == ["uu", "vv"]
    assert result["y"].tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint64"])
def test_element_types_stay(dtype):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    x = graph.input("x", dtype, (2,))
    graph.output("y", x + x)
    array = np.array([3, 5]).astype(getattr(ml_dtypes, dtype, dtype))
    result = graph.compile("jax", strict=True)({"x": array})["y"]
    assert result.dtype == array.dtype
    assert result.tolist() == [6, 10]


# ----- state ----------------------------------------------------------------------------------------------------------

COUNTER = (
    HEAD
    + """
g (float[2] step, float[2] count) => (float[2] next, float[2] double) <float[2] count = {10, 20}> {
  next = Add(count, step)  double = Add(next, next)
}"""
)


def test_state_lives_in_the_program():
    program = graph_of(COUNTER).compile("jax", state={"count": "next"}, strict=True)
    first = program({"step": np.float32([1, 2])})
    second = program({"step": np.float32([1, 2])})  # reads the first result after its buffer was donated
    assert first["next"].tolist() == [11, 22]
    assert second["double"].tolist() == [24, 48]
    assert program.state["count"].tolist() == [12, 24]
    with pytest.raises(tx.InvalidFeed):
        program({"step": np.float32([1, 2, 3])})
    assert program.state["count"].tolist() == [12, 24]
    program.state["count"] = np.float32([0, 0])
    assert program({"step": np.float32([1, 2])})["next"].tolist() == [1, 2]


def network():
    graph, generator = tx.Graph(opsets={"ai.onnx": 21}), np.random.default_rng(0)
    import tenonnx_standard as ops

    x = graph.input("x", "float32", ("batch", 4))
    for k, (rows, columns) in enumerate(((4, 8), (8, 3))):
        x = ops.matmul(x, graph.variable(f"w{k}", (generator.standard_normal((rows, columns)) / 2).astype(np.float32)))
        x = ops.tanh(x) if k == 0 else x
    graph.output("scores", x)
    return graph


def test_a_hundred_steps_are_those_of_numpy():
    generator = np.random.default_rng(1)
    data = generator.standard_normal((200, 4)).astype(np.float32), generator.integers(0, 3, 200)
    held = {}
    for name in ("numpy", "jax"):
        graph = network()
        tt.fit(graph, data, loss="softmax_cross_entropy", optimizer=tt.Adam(1e-2), batch_size=8, epochs=4, backend=name)
        held[name] = {value.name: value.data.array() for value in graph.variables}
    for name, array in held["numpy"].items():
        np.testing.assert_allclose(held["jax"][name], array, rtol=2e-4, atol=2e-5)


# ----- functions ------------------------------------------------------------------------------------------------------


def test_gradients_are_ours_and_vmap_is_a_loop():
    graph = network()
    f = tenonnx_jax.function(graph)
    assert {name: p.shape for name, p in f.parameters.items()} == {"w0": (4, 8), "w1": (8, 3)}
    x = np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)
    slopes = jax.jit(jax.grad(lambda p: f(p, {"x": x})["scores"].sum()))(f.parameters)
    ours = tx.grad(graph, of="scores", wrt=["w0", "w1"], seeds={"scores": "g"})
    expected = ours.run({"x": x, "g": np.ones((5, 3), np.float32)}, backend="numpy")
    for name, slope in slopes.items():
        np.testing.assert_allclose(slope, expected[f"{name}/grad"], rtol=1e-4, atol=1e-5)
    many = np.stack([x, 2 * x, -x])
    mapped = jax.vmap(lambda each: f(f.parameters, {"x": each})["scores"])(many)
    for row, each in zip(mapped, many, strict=True):
        np.testing.assert_allclose(row, f(f.parameters, {"x": each})["scores"], rtol=1e-5, atol=1e-6)


def test_a_function_runs_over_many_devices_by_its_batch():
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    f = tenonnx_jax.function(network())
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    x = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("data")))
    mapped = jax.shard_map(
        lambda p, x: f(p, {"x": x})["scores"], mesh=mesh, in_specs=(P(), P("data")), out_specs=P("data")
    )
    np.testing.assert_allclose(mapped(f.parameters, x), f(f.parameters, {"x": x})["scores"], rtol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "inputs", "said"),
    [
        ({}, {"x": np.ones((2, 4), np.float32)}, "parameters are not those"),
        (None, {}, "inputs are missing, or unknown"),
        (None, {"x": np.ones((2, 5), np.float32)}, 'input "x" got a feed that is not'),
        (None, {"x": np.ones((2, 4), np.int32)}, 'input "x" got a feed that is not'),
    ],
)
def test_bad_calls_are_refused(parameters, inputs, said):
    f = tenonnx_jax.function(network())
    with pytest.raises(tx.TenonnxError, match=said):
        f(f.parameters if parameters is None else parameters, inputs)


def test_inputs_are_given_in_order_or_by_name():
    f, x = tenonnx_jax.function(network()), np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(f(f.parameters, x)["scores"], f(f.parameters, {"x": x})["scores"])
    with pytest.raises(tx.InvalidFeed, match=r"(?s)inputs are missing, or unknown.*2 arrays.*x: float32"):
        f(f.parameters, x, x)


def test_bits_that_jax_would_drop_are_refused():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", graph.input("x", "float64", (2,)) * 2.0)
    f = tenonnx_jax.function(graph)
    with pytest.raises(tx.InvalidCall, match="64-bit types"):
        f({}, {"x": np.ones(2)})
    with jax.enable_x64(True):
        assert f({}, {"x": np.ones(2)})["y"].dtype == np.float64


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(tx.InvalidCall, match="does not find the device"):
        network().compile("jax", device="tpu:7")


def test_a_large_weight_may_be_an_input_with_a_default() -> None:
    graph = tx.Graph(opsets={"ai.onnx": 21})
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096
    x, w = graph.input("x", "float32", (2, 64)), graph.variable("w", weight)
    graph.output("y", x @ w)
    graph.all_inputs.append(w)
    feeds = {"x": np.ones((2, 64), np.float32)}
    program = graph.compile("jax")
    np.testing.assert_allclose(program(feeds)["y"], feeds["x"] @ weight, rtol=1e-5)
    np.testing.assert_allclose(program({**feeds, "w": weight * 2})["y"], feeds["x"] @ weight * 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ('y = Einsum <equation = "ii,ij->j"> (a, b)', "A"),
        ('y = Einsum <equation = "ij,jk"> (a, b)', "A, B"),
        ("y = Gemm <transB = 1> (a, b)", "A, B"),
    ],
)
@pytest.mark.parametrize("kind", ["int32", "int64", "float16"])
def test_products_of_integers_are_compiled_too(body, shape, kind):
    graph = graph_of(HEAD + f"g ({kind}[3, 3] a, {kind}[3, 3] b) => ({kind}[{shape}] y) {{ {body} }}")
    feeds = {name: np.arange(9).reshape(3, 3).astype(kind) for name in "ab"}
    program = graph.compile("jax", strict=True)
    np.testing.assert_array_equal(program(feeds)["y"], graph.run(feeds, backend="numpy")["y"])


def test_a_quotient_is_rounded_once():
    """XLA would multiply by the reciprocal of a constant or repeated divisor."""
    graph = tx.Graph()
    x, y = graph.input("x", "float32", ("n",)), graph.input("y", "float32", ())
    graph.output("by a constant", x / np.float32(0.0371))
    graph.output("by a number", x / y)
    feeds = {"x": np.random.default_rng(3).standard_normal(1000).astype(np.float32), "y": np.float32(255)}
    result = graph.compile("jax", strict=True)(feeds)
    np.testing.assert_array_equal(result["by a constant"], feeds["x"] / np.float32(0.0371))
    np.testing.assert_array_equal(result["by a number"], feeds["x"] / np.float32(255))


INDEXED = {
    "Gather": ("float[4] x, int64[2] i", "y = Gather(x, i)", [1, 0]),
    "GatherElements": ("float[4] x, int64[2] i", "y = GatherElements(x, i)", [1, 0]),
    "GatherND": ("float[4] x, int64[2, 1] i", "y = GatherND(x, i)", [[1], [0]]),
    "GatherND of a batch": ("float[2, 4] x, int64[2, 1] i", "y = GatherND <batch_dims = 1> (x, i)", [[1], [0]]),
    "ScatterElements": ("float[4] x, int64[2] i", "y = ScatterElements(x, i, two)", [1, 0]),
    "ScatterND": ("float[4] x, int64[2, 1] i", "y = ScatterND(x, i, two)", [[1], [0]]),
}


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_range_is_refused(name):
    inputs, body, indices = INDEXED[name]
    graph = graph_of(HEAD + f"g ({inputs}) => (float[N] y) <float[2] two = {{1, 2}}> {{ {body} }}")
    x = np.arange(8 if "batch" in name else 4, dtype=np.float32).reshape(graph.inputs[0].shape)
    program, f = graph.compile("jax", strict=True), tenonnx_jax.function(graph)
    for wrong in (4, -5):
        feeds = {"x": x, "i": np.array(indices)}
        assert program(feeds)["y"].shape
        feeds["i"].flat[0] = -4
        np.testing.assert_array_equal(program(feeds)["y"], graph.run(feeds, backend="numpy")["y"])
        feeds["i"].flat[0] = wrong
        with pytest.raises(tx.TenonnxError, match="range"):
            program(feeds)
        with pytest.raises(tx.TenonnxError, match="out of range for an axis of length 4"):
            f({}, {"x": jnp.asarray(x), "i": jnp.asarray(feeds["i"])})


def test_an_index_out_of_range_is_refused_with_state():
    graph = graph_of(HEAD + "g (int64[1] i, float[3] s) => (float[3] t) { r = Gather(s, i) t = Add(s, r) }")
    graph.variable("held", np.zeros(3, np.float32))
    program = graph.compile("jax", state={"s": "t"}, strict=True)
    program.state["s"] = np.float32([1, 2, 3])
    assert program({"i": np.array([2])})["t"].tolist() == [4, 5, 6]
    with pytest.raises(tx.TenonnxError, match="range"):
        program({"i": np.array([3])})


def test_quantized_calls_are_compiled_completely():
    text = (
        HEAD + "g (float[N] x) => (float[N] y) <float s = {0.5}, uint8 z = {128}> "
        "{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
    )
    graph = graph_of(text)
    program, made = counted(graph)
    x = np.float32([-1e9, -0.75, 0.25, 3.2, np.inf])
    np.testing.assert_array_equal(program({"x": x})["y"], graph.run({"x": x}, backend="numpy")["y"])
    assert not made[0].eager


@pytest.mark.parametrize("k", [-1, 0, 2])
@pytest.mark.parametrize("upper", [0, 1])
def test_a_diagonal_may_be_traced(k, upper):
    graph = graph_of(HEAD + f"g (float[3, 4] x, int64 k) => (float[3, 4] y) {{ y = Trilu <upper = {upper}> (x, k) }}")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = jax.jit(tenonnx_jax.function(graph))({}, {"x": x, "k": np.int32(k)})["y"]
    np.testing.assert_array_equal(result, np.triu(x, k) if upper else np.tril(x, k))
