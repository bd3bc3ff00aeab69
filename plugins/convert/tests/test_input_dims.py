"""Fixed, freed and changed dims of inputs, and the dynamic batch."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tenonnx as tx

#: Nodes with the batch size, 1 or 2, in a constant shape.
NODES = {
    "Resize": ([helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")], (3, 4, 6)),
    "Reshape": ([helper.make_node("Reshape", ["x", "flat"], ["y"])], (48,)),
    "Reshape, the batch merged": (
        [helper.make_node("Reshape", ["x", "rows"], ["r"]), helper.make_node("Reshape", ["r", "flat"], ["y"])],
        (48,),
    ),
    "Expand": (
        [
            helper.make_node("ReduceMean", ["x"], ["m"], axes=[1, 2, 3]),
            helper.make_node("Expand", ["m", "flat1"], ["e"]),
            helper.make_node("Mul", ["e", "x"], ["y"]),
        ],
        (3, 4, 4),
    ),
    "several in a row": (
        [
            helper.make_node("Resize", ["x", "", "", "sizes"], ["r"], mode="nearest"),
            helper.make_node("GlobalAveragePool", ["r"], ["g"]),
            helper.make_node("Reshape", ["g", "three"], ["y"]),
        ],
        (3,),
    ),
}


def model(name, batch):
    nodes, tail = NODES[name]
    sizes = {
        "sizes": [batch, 3, 4, 6],
        "flat": [batch, 48],
        "rows": [batch * 3, 16],
        "flat1": [batch, 3, 4, 4],
        "three": [batch, 3],
    }
    read = {each for node in nodes for each in node.input}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 4, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, *tail])]
    constants = [
        numpy_helper.from_array(np.array(each, np.int64), name) for name, each in sizes.items() if name in read
    ]
    graph = helper.make_graph(nodes, "m", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture
def converted(tmp_path):
    """Convert a message; returns the written graph, and the report."""

    def convert(source, **options):
        report = tx.convert(tx.load(source), tmp_path / "m.onnx", **options)
        return tx.load(tmp_path / "m.onnx"), report

    return convert


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", [name for name in NODES if "merged" not in name])
def test_the_batch_becomes_dynamic_in_constants_too(name, batch, converted):
    source = model(name, batch)
    made, _ = converted(source, opset_version=13, dynamic_batch="yes")
    assert str(made.inputs[0].type) == "float32[batch, 3, 4, 4]"
    x = np.random.default_rng(0).standard_normal((6, 3, 4, 4)).astype(np.float32)
    result = made.run({"x": x})["y"]
    program = tx.load(source).compile("numpy")
    expected = np.concatenate([program({"x": x[k : k + batch]})["y"] for k in range(0, 6, batch)])
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_node_that_fixes_the_batch_is_named(batch, converted):
    source = model("Reshape, the batch merged", batch)
    with pytest.raises(tx.InvalidCall, match='cannot make the dim "batch" dynamic') as caught:
        converted(source, dynamic_batch="yes")
    assert "Reshape" in caught.value.given
    made, report = converted(source, dynamic_batch="try")
    assert made.inputs[0].shape[0] == batch
    (note,) = (each for each in report.notes if "batch" in each)
    assert note.startswith("the batch stays static")
    assert "Reshape" in note
    assert "\n" not in note


def parsed(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> m {text}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(float[2, 5] x) => (float[2, 5] y) { y = Softmax<axis = 0>(x) }", "depend on each other"),
        ("(float[2, 5] x, float[5, 2] z) => (float[2, 2] y) { y = MatMul(x, z) }", "do not form a batch"),
    ],
)
def test_other_dims_are_not_treated_as_batch(text, said, converted):
    with pytest.raises(tx.InvalidCall, match=said):
        converted(parsed(text), dynamic_batch="yes")
    _, report = converted(parsed(text), dynamic_batch="try")
    assert any(said in note for note in report.notes)
    assert report.verification.equal


def test_a_size_replaces_another(converted):
    text = """(float[1, 3, 8, 8] x) => (float[1, 192] y)
        <float[3, 3, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, int64[2] flat = {1, 192}>
        { c = Conv(x, w)  y = Reshape(c, flat) }"""
    made, _ = converted(parsed(text), fix_shapes={"x": [4, None, None, None]})
    assert [str(made.inputs[0].type), str(made.outputs[0].type)] == ["float32[4, 3, 8, 8]", "float32[4, 192]"]
    pooled = text.replace("(float[1, 192] y)", "(float[1, 3, 1, 1] y)").replace(
        "Reshape(c, flat)", "GlobalAveragePool(c)"
    )
    made, _ = converted(parsed(pooled), fix_shapes={"x": [None, None, 5, 7]})
    assert str(made.inputs[0].type) == "float32[1, 3, 5, 7]"


def test_a_size_that_a_node_depends_on_is_not_changed(converted):
    text = """(float[1, 8] x) => (float[1, 2] y) <float[8, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}>
        { y = MatMul(x, w) }"""
    with pytest.raises((tx.InvalidCall, tx.InvalidModel)):
        converted(parsed(text), fix_shapes={"x": [1, 9]})
