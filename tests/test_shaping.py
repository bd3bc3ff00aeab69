"""Static and dynamic dims, half precision, and random input sizes on real models, in Python and on the command line."""

import itertools
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from models import example

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx import InvalidCall, InvalidFeed
from tenonnx.extend import DType
from tenonnx_cli import main
from tenonnx_convert.verifying.precision import half_precision
from tenonnx_convert.verifying.sizes import feasible_feeds
from tenonnx_optimize.half_budget import lower_within

CNN, BERT = example("digits_cnn/digits-cnn"), example("bert/bert")


def images(count=4):
    return {"images": np.random.default_rng(0).standard_normal((count, 1, 8, 8), np.float32)}


def written(path):
    return {v.name: str(v.type) for v in (*tx.load(path).inputs, *tx.load(path).outputs)}


# ----- dims -----------------------------------------------------------------------------------------------------------


def test_fixed_dims_are_written_for_inputs_and_outputs(tmp_path):
    path = tmp_path / "m.onnx"
    assert main(["convert", str(CNN), "-o", str(path), "--fix-shapes", "images:1,1,8,8"]) == 0
    assert written(path) == {"images": "float32[1, 1, 8, 8]", "scores": "float32[1, 10]"}
    onnx.checker.check_model(onnx.load(path), full_check=True)


def test_dynamic_dims_accept_other_sizes(tmp_path):
    fixed, freed = tmp_path / "fixed.onnx", tmp_path / "freed.onnx"
    assert main(["convert", str(CNN), "-o", str(fixed), "--fix-shapes", "images:1,1,8,8", "--for-inference"]) == 0
    assert main(["convert", str(fixed), "-o", str(freed), "--free-dims", "images:0=n"]) == 0
    assert written(freed) == {"images": "float32[n, 1, 8, 8]", "scores": "float32[n, 10]"}
    assert tx.load(freed).run(images(7))["scores"].shape == (7, 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fix-shapes", "pixels:1"], "no graph input"),
        (["--fix-shapes", "images:1,8"], "does not have the rank of graph input"),
        (["--fix-shapes", "images:1,2,8,8"], "are not those of X divided by group"),
        (["--fix-shapes", "images"], "is not a shape"),
        (["--free-dims", "pixels:0=n"], "no graph input"),
        (["--free-dims", "images:7=n"], "no axis 7"),
        (["--free-dims", "images:1=a b"], "the name of a dynamic dim is not an identifier"),
        (["--free-dims", "images:batch"], "is not of the form"),
        (["--free-dims", "images:--1=n"], "is not of the form"),
        (["--free-dims", "images:\N{SUPERSCRIPT TWO}=n"], "is not of the form"),
        (["--free-dims", "images:1=channels"], "the model runs only where it is"),
        (["--budget", "0"], "budget"),
        (["--float16", "--bfloat16"], "two half precisions"),
        (["--half-interface"], "--half-interface"),
        (["--ir-version", "3"], "IR version"),
        (["--functions", "burn"], "functions"),
    ],
)
def test_invalid_requests_are_refused_and_write_nothing(tmp_path, capsys, options, message):
    assert main(["convert", str(CNN), "-o", str(tmp_path / "m.onnx"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_size_that_contents_depend_on_is_found_by_running(tmp_path, capsys):
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (1, 6))
    graph.output("y", ops.reshape(x, np.array([2, 3], np.int64)))
    tx.export(graph, tmp_path / "m.onnx")
    code = main(["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "n.onnx"), "--free-dims", "x:0=n"])
    assert code == 2
    assert "Reshape" in capsys.readouterr().err
    assert not (tmp_path / "n.onnx").exists()


def test_a_dim_of_a_default_can_become_dynamic(tmp_path):
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x, w = graph.input("x", "float32", (2, 3)), graph.input("w", "float32", (4, 3))
    graph.output("y", ops.reduce_sum(x, [0]) + ops.reduce_sum(w, [0]))
    model = graph.to_proto()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w"))
    source, freed = tmp_path / "m.onnx", tmp_path / "n.onnx"
    onnx.save(model, source)
    assert main(["convert", str(source), "-o", str(freed), "--free-dims", "w:0=rows"]) == 0
    assert onnx.load(freed).graph.input[1].type.tensor_type.shape.dim[0].dim_param == "rows"


@pytest.mark.parametrize("options", [[], ["--float16"], ["--free-dims", "x:0=n"]])
def test_given_shapes_apply_to_all_random_inputs(tmp_path, options):
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x, open_ = graph.input("x", "float32", (2, 3)), graph.input("open", "float32")
    graph.output("y", x * 2.0)
    graph.output("z", ops.relu(open_))
    source, path = str(tmp_path / "m.onnx"), str(tmp_path / "n.onnx")
    tx.export(graph, source)
    assert main(["convert", source, "-o", path, "--verify", "--input-shapes", "open:2,3", *options]) == 0


def test_the_ir_version_is_the_requested_one(tmp_path):
    assert main(["convert", str(CNN), "-o", str(tmp_path / "m.onnx"), "--ir-version", "8"]) == 0
    assert onnx.load(tmp_path / "m.onnx").ir_version == 8


def test_functions_are_inlined(tmp_path):
    body = onnx.helper.make_function(
        "my",
        "Twice",
        ["a"],
        ["b"],
        [onnx.helper.make_node("Add", ["a", "a"], ["b"])],
        [onnx.helper.make_opsetid("", 17)],
    )
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Twice", ["x"], ["y"], domain="my")], "g", [info("x", 1, [2])], [info("y", 1, [2])]
    )
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("my", 1)]
    onnx.save(onnx.helper.make_model(graph, functions=[body], opset_imports=imports), tmp_path / "m.onnx")
    assert main(["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "n.onnx"), "--functions", "inline"]) == 0
    model = onnx.load(tmp_path / "n.onnx")
    assert [node.op_type for node in model.graph.node] == ["Add"]
    assert not model.functions


WINDOWS = """g (float[n, h, w, 4] x) => (float[a, b, c, d] y) <int64[4] whole = {-1, 7, 7, 4}> {
    s = Shape(x) first, rows, columns, last = Split<axis = 0>(s) seven = Constant<value_ints = [7]>()
    down = Div(rows, seven) right = Div(columns, seven)
    wanted = Concat<axis = 0>(first, down, seven, right, seven, last) apart = Reshape(x, wanted)
    turned = Transpose<perm = [0, 1, 3, 2, 4, 5]>(apart) y = Reshape(turned, whole) }"""


@pytest.mark.parametrize("stride", [1, 4])
def test_sizes_for_windows_of_seven_after_a_stride_are_found(stride):
    front = tx.Graph("front", opsets={"ai.onnx": 17})
    image = front.input("image", "float32", ("n", 4, "high", "wide"))
    weight = front.variable("weight", np.full((4, 4, stride, stride), 0.1, np.float32))
    front.output("x", ops.transpose(ops.conv(image, weight, strides=[stride, stride]), perm=[0, 2, 3, 1]))
    windows = tx.load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {WINDOWS}'))
    graph = tx.compose(front, windows)
    result = tx.verify(graph, graph.copy()).raise_if_failed()
    assert any("high=224, wide=224" in note for note in result.notes)


def tried_while(monkeypatch, work):
    """Number of sizes tried on a model that accepts the sixth, if each trial takes ``work`` seconds of this thread."""
    worked, passed = itertools.count(step=work), itertools.count(step=100)
    clocks = {"thread_time": lambda: next(worked), "monotonic": lambda: next(passed), "time": lambda: next(passed)}
    monkeypatch.setattr("tenonnx_convert.verifying.sizes.time", SimpleNamespace(**clocks))
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    graph.output("y", ops.relu(graph.input("x", "float32", ("a", "b"))))
    tried = []

    def run(feeds):
        tried.append(feeds["x"].shape)
        if len(tried) < 6:
            raise InvalidCall("not yet")
        return {}

    try:
        feasible_feeds(graph, run)
    except InvalidFeed:
        assert len(tried) < 6
    return len(tried)


def test_sizes_are_tried_within_a_limit_of_processor_time(monkeypatch):
    assert tried_while(monkeypatch, work=7) == 2  # the limit is 20 seconds


def test_time_of_other_threads_does_not_count(monkeypatch):
    assert tried_while(monkeypatch, work=0) == 6


# ----- half precision -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--float16", "--bfloat16"])
@pytest.mark.parametrize("model", [BERT, example("decoder/decoder")], ids=lambda path: path.stem)
def test_half_precision_halves_the_file_and_keeps_the_interface(tmp_path, model, option):
    path = tmp_path / "m.onnx"
    assert main(["convert", str(model), "-o", str(path), option, "--budget", "0.03"]) == 0
    assert path.stat().st_size < 0.65 * model.stat().st_size
    assert written(path) == written(model)
    lowered = tx.load(path)
    halves = [v for v in lowered.variables if v.dtype in (DType.float16, DType.bfloat16)]
    assert len(halves) > 0.8 * len(lowered.variables)


def test_the_interface_is_converted_on_request(tmp_path):
    path = tmp_path / "m.onnx"
    arguments = ["convert", str(CNN), "-o", str(path), "--float16", "--half-interface", "--for-inference"]
    assert main(arguments) == 0
    assert written(path) == {"images": "float16[batch, 1, 8, 8]", "scores": "float16[batch, 10]"}


def test_a_model_in_half_precision_is_converted_again(tmp_path):
    """Its outputs are float32 but computed in half precision, which backends round differently."""
    half, plain = tmp_path / "half.onnx", tmp_path / "again.onnx"
    assert main(["convert", str(CNN), "-o", str(half), "--for-inference", "--float16"]) == 0
    assert main(["convert", str(half), "-o", str(plain), "--opset", "18", "--verify"]) == 0
    assert half_precision(tx.load(half)) is DType.float16
    assert half_precision(tx.load(CNN)) is None


@pytest.mark.parametrize("options", [[], ["--half-interface"]])
def test_sequences_stay_in_float32(tmp_path, options):
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 3))
    graph.output("y", ops.sequence_construct(x * 2.0, ops.exp(x)))
    tx.export(graph, tmp_path / "m.onnx")
    assert main(["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "n.onnx"), "--float16", *options]) == 0
    assert written(tmp_path / "n.onnx")["y"] == "sequence(float32[n, 3])"
    assert any(node.op_type == "Cast" for node in tx.load(tmp_path / "n.onnx").nodes)


def _overflowing():
    """A chain with intermediate values beyond the range of float16: y = (300 x)^2 W / 90000"""
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    scaled = graph.input("x", "float32", (2, 64)) * 300.0
    weight = graph.variable("w", np.eye(64, dtype=np.float32))
    graph.output("y", ops.matmul(scaled * scaled, weight) * (1 / 90000))
    return graph


def test_overflowing_nodes_stay_in_float32_and_are_named():
    feeds = {"x": np.linspace(0.5, 3, 128, dtype=np.float32).reshape(2, 64)}
    graph = _overflowing()
    plain = tx.lower_precision(graph, "float16").graph.run(feeds, backend="numpy")["y"]
    assert not np.isfinite(plain).all()
    lowered = lower_within(graph, "float16", 0.01, feeds=feeds)
    assert list(lowered.float32_nodes.values()) == ["its values exceed the range"] * 3
    assert lowered.graph["w"].dtype is DType.float16
    assert "within 0.01" in lowered.notes[0]
    np.testing.assert_allclose(lowered.graph.run(feeds, backend="numpy")["y"], feeds["x"] ** 2, rtol=0.01)


def test_early_nodes_stay_in_float32_if_rounding_errors_grow(monkeypatch):
    """In a map that doubles each difference, the first steps need more precision than the last."""
    monkeypatch.setattr("tenonnx_optimize.half_budget.ROUNDS", 1)
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (8,))
    for step in range(60):
        x = 4.0 * x * (1.0 - x) if step < 14 else ops.sqrt(x)
    graph.output("y", x)
    feeds = {"x": np.linspace(0.11, 0.89, 8, dtype=np.float32)}
    lowered = lower_within(graph, "float16", 1e-3, feeds=feeds)
    assert "within 0.001" in lowered.notes[0]
    first = [node.label for node in graph.nodes][: len(lowered.float32_nodes)]
    assert list(lowered.float32_nodes) == first
    assert 10 < len(first) < 60
    expected = graph.run(feeds, backend="numpy")["y"]
    np.testing.assert_allclose(lowered.graph.run(feeds, backend="numpy")["y"], expected, atol=1e-3)


def test_a_budget_below_half_precision_leaves_all_in_float32():
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (8,))
    for _ in range(20):
        x = ops.sqrt(x)
    graph.output("y", x)
    lowered = lower_within(graph, "float16", 1e-9, feeds={"x": np.linspace(0.1, 0.9, 8, dtype=np.float32)})
    assert len(lowered.float32_nodes) == 20
    assert "within 1e-09" in lowered.notes[0]


def test_a_budget_does_not_count_4_bit_integers():
    graph = tx.Graph("g", opsets={"ai.onnx": 21})
    x = graph.input("x", "float32", (4, 3))
    graph.output("y", ops.cast(ops.relu(x), to=DType.int4.value))
    lowered = lower_within(graph, "float16", 1e-6, feeds={"x": np.full((4, 3), 0.9999999, np.float32)})
    assert not lowered.float32_nodes
    assert lowered.largest == 0


def test_a_square_and_an_epsilon_survive_half_precision():
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (1, 4))
    epsilon = graph.variable("epsilon", np.float32(1e-12))
    graph.output("y", x / ops.sqrt(ops.reduce_mean(ops.pow_(x, 2.0), [-1]) + epsilon))
    lowered = tx.lower_precision(graph, "float16")
    assert lowered.clipped == ["epsilon"]
    assert len(lowered.float32_nodes) == 2
    for given in (np.zeros((1, 4)), np.full((1, 4), 10.0)):
        result = lowered.graph.run({"x": given.astype(np.float32)}, backend="numpy")["y"]
        np.testing.assert_allclose(result, np.sign(given), atol=1e-2)


def test_weights_beyond_the_range_stay_and_scalars_are_clipped():
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (2, 3))
    large = ops.mul(x, graph.variable("large", np.float32([1e6, 1, 2])))
    graph.output("y", ops.where(ops.greater(x, 0.0), x, graph.variable("least", np.float32(-3.4e38))) + large)
    lowered = tx.lower_precision(graph, "float16")
    assert '"large" has values beyond the range' in lowered.float32_nodes.values()
    assert lowered.clipped == ["least"]
    assert lowered.graph["least"].data.array() == np.float16(-65504)


def test_a_constant_that_is_used_in_both_types_has_two_names():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x) => (float[2, 3] y) {
          two = Constant <value_float = 2.0> ()
          square = Pow (x, two)
          y = Mul (square, two)
        }""")
    lowered = tx.lower_precision(tx.simplify(tx.load(model)), "float16").graph
    onnx.checker.check_model(lowered.to_proto(), full_check=True)
    np.testing.assert_allclose(lowered.run({"x": np.full((2, 3), 3, np.float32)})["y"], 18)


def test_nested_graphs_are_lowered_inside():
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x, flag = graph.input("x", "float32", (2, 3)), graph.input("flag", "bool", ())
    weight = graph.variable("w", np.eye(3, dtype=np.float32))
    from tenonnx.extend import subgraph

    with graph.building():
        branches = [subgraph(lambda each=each: each(ops.matmul(x, weight))) for each in (ops.exp, ops.relu)]
        graph.output("y", ops.if_(flag, then_branch=branches[0], else_branch=branches[1]))
    lowered = tx.lower_precision(graph, "float16").graph
    onnx.checker.check_model(lowered.to_proto(), full_check=True)
    inner = [v for nested in lowered.nested() for v in nested.values() if v.type is not None]
    assert any(v.dtype is DType.float16 for v in inner)
    feeds = {"x": np.float32([[0, 1, 2], [-1, 0.5, 1]]), "flag": np.array(True)}
    np.testing.assert_allclose(lowered.run(feeds)["y"], graph.run(feeds)["y"], rtol=1e-2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: tx.lower_precision(g, "float64"), "unknown half precision"),
        (lambda g: tx.lower_precision(g, "float16", keep=["nothing"]), "by their labels"),
        (lambda g: lower_within(g, "float16", -1.0), "is not positive"),
    ],
)
def test_invalid_options_of_half_precision(call, message):
    with pytest.raises(InvalidCall, match=message):
        call(_overflowing())


# ----- random input sizes ---------------------------------------------------------------------------------------------


def _strided():
    """Five convolutions of stride 2, and an upsampled branch that is concatenated with its source."""
    graph = tx.Graph("detector", opsets={"ai.onnx": 17})
    value = graph.input("images", "float32", ("batch", 3, "h", "w"))
    levels = []
    for level, channels in enumerate((3, 4, 4, 4, 4)):
        weight = np.random.default_rng(level).standard_normal((4, channels, 3, 3), np.float32)
        value = ops.relu(ops.conv(value, graph.variable(f"w{level}", weight), strides=[2, 2], pads=[1, 1, 1, 1]))
        levels.append(value)
    doubled = ops.resize(value, None, np.float32([1, 1, 2, 2]))
    graph.output("y", ops.concat(doubled, levels[3], axis=1))
    return graph


def _mask_as_long_as_both():
    graph = tx.Graph("cache", opsets={"ai.onnx": 17})
    past, new = graph.input("past", "float32", ("b", "p", 4)), graph.input("new", "float32", ("b", "s", 4))
    mask = graph.input("mask", "float32", ("b", "m", 1))
    graph.output("y", ops.concat(past, new, axis=1) * mask)
    return graph


def _unknown_dims_that_must_differ():
    graph = tx.Graph("matrices", opsets={"ai.onnx": 17})
    a, b = graph.input("a", "float32", (None, None)), graph.input("b", "float32", (None, None))
    graph.output("y", ops.matmul(a, b))
    return graph


@pytest.mark.parametrize("make", [_strided, _mask_as_long_as_both, _unknown_dims_that_must_differ])
def test_sizes_are_found_at_which_a_graph_runs(make):
    result = tx.verify(make())
    assert result.equal
    assert result.outputs
    assert "random inputs were drawn with" in result.notes[0]


def test_a_graph_without_suitable_sizes_raises_the_first_error():
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n",))
    graph.output("y", ops.reshape(ops.concat(x, x, np.float32([1]), axis=0), np.array([2, -1], np.int64)))
    with pytest.raises(tx.InvalidFeed, match="found no sizes of random inputs") as caught:
        tx.verify(graph)
    assert "choices of sizes" in str(caught.value)


# ----- proofs of dynamic dims -----------------------------------------------------------------------------------------


def of_an_image(node, held, output="1, 108"):
    """A model of one node on ``x`` of ``[1, 3, 6, 6]``, with constant sizes ``s``."""
    text = f"g (float[1, 3, 6, 6] x) => (float[{output}] y) <int64[{len(held)}] s = {{{str(held)[1:-1]}}}> {{ {node} }}"
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text)


HELD = {
    "reshape": ("[last] y = Reshape (x, s)", [1, 108]),
    "reshape that mixes the batch": ("[last] y = Reshape (x, s)", [1, -1]),
    "resize": ("[last] y = Resize (x, , , s)", [1, 3, 12, 12], "1, 3, 12, 12"),
}


#: Dims that occur in a constant together with other sizes, and therefore cannot become dynamic.
MERGED = {
    "reshape": ("[last] y = Reshape (x, s)", [3, 36], "3, 36"),
    "reshape to one row": ("[last] y = Reshape (x, s)", [108], "108"),
}

FREED = ["x:0=batch", "x:0=batch,2=h", "x:0=batch,2=h,3=w"]


@pytest.mark.parametrize("kind", MERGED)
@pytest.mark.parametrize("dims", FREED)
def test_a_dim_that_a_node_fixes_is_refused(kind, dims, tmp_path, capsys):
    onnx.save(of_an_image(*MERGED[kind]), tmp_path / "m.onnx")
    arguments = ["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--free-dims", dims]
    assert main(arguments) == 2
    output = capsys.readouterr().err
    assert 'cannot make the dim "batch" dynamic: the model runs only where it is 1' in output
    assert '"last"' in output
    assert not list(tmp_path.glob("*o.onnx*"))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("kind", "dims"), [(kind, dims) for kind in HELD for dims in FREED if kind != "reshape" or dims == "x:0=batch"]
)
def test_a_batch_dim_in_a_constant_becomes_dynamic(kind, dims, tmp_path):
    model = of_an_image(*HELD[kind])
    onnx.save(model, tmp_path / "m.onnx")
    assert main(["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--free-dims", dims]) == 0
    x = np.random.default_rng(0).standard_normal((5, 3, 6, 6)).astype(np.float32)
    program = tx.load(model).compile("numpy")
    expected = np.concatenate([program({"x": x[k : k + 1]})["y"] for k in range(5)])
    np.testing.assert_allclose(tx.load(tmp_path / "o.onnx").run({"x": x})["y"], expected)


@pytest.mark.parametrize("dims", ["x:2=h", *FREED[1:]])
@pytest.mark.parametrize("node", ["", "p = MaxPool <kernel_shape = [2, 2]> (x) "])
def test_a_reshape_to_rows_of_constant_length_refuses_a_dynamic_height(dims, node, tmp_path, capsys):
    """With a constant length and a computed number of rows, rows of a taller image would become samples."""
    length = 75 if node else 108
    reshape = f"{node}[last] y = Reshape ({'p' if node else 'x'}, s)"
    onnx.save(of_an_image(reshape, [1, length], f"1, {length}"), tmp_path / "m.onnx")
    assert main(["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--free-dims", dims]) == 2
    assert 'cannot make the dim "h" dynamic: the model runs only where it is 6' in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("dims", ["x:2=h", "x:2=h,3=w"])
def test_the_size_of_a_resized_image_becomes_dynamic(dims, tmp_path):
    """The model resizes every image to the same size."""
    onnx.save(of_an_image(*HELD["resize"]), tmp_path / "m.onnx")
    arguments = ["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--free-dims", dims]
    assert main(arguments) == 0
    feeds = {"x": np.ones((1, 3, 8, 6) if dims == "x:2=h" else (1, 3, 8, 7), np.float32)}
    assert tx.load(tmp_path / "o.onnx").run(feeds)["y"].shape == (1, 3, 12, 12)


def test_equal_dims_become_dynamic_together(tmp_path):
    """Two dims of equal length may only become dynamic together."""
    text = "g (float[1, 4] x, float[1, 4] m) => (float[1, 4] y) { y = Sub (x, m) z = Concat <axis = 0> (x, m) }"
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text), tmp_path / "m.onnx")
    common = ["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--free-dims"]
    assert main([*common, "x:1=a", "--free-dims", "m:1=b"]) == 0
    assert main([*common, "x:1=a"]) == 2
