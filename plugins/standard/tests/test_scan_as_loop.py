"""A Scan of any length as a Loop, for targets without Scan."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import TensorType, subgraph
from tenonnx.extend.backends import Target, retarget_to
from tenonnx.extend.transforms import Builder, interpreting

#: All but Scan.
TARGET = Target({"ai.onnx": 22}, lambda op, *_: op.name != "Scan")


def scanned(axis, reverse, element="float32"):
    """Running sums of slices along an axis, in either order, and a captured value, stacked along either axis."""
    shape = [4, 4]
    shape[axis] = "n"
    graph = tx.Graph(opsets={"ai.onnx": 22})
    x, factor = graph.input("x", element, tuple(shape)), graph.input("factor", element, ())

    def step(total, row):
        total = total + row * factor
        return total, total * total

    kinds = [(name, TensorType(tx.DType.of(element), (4,))) for name in ("total", "row")]
    start = graph.variable("start", np.zeros(4, element))
    with interpreting(Builder(graph)):
        last, squares = ops.scan(
            start,
            x,
            body=subgraph(step, kinds),
            num_scan_inputs=1,
            scan_input_axes=[axis],
            scan_input_directions=[reverse],
            scan_output_axes=[axis - 2],
            scan_output_directions=[reverse],
        )
    graph.output("last", last)
    graph.output("squares", squares)
    return graph.infer()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_loop_computes_what_a_scan_does(axis, reverse, length):
    graph = scanned(axis, reverse)
    made = retarget_to(graph, TARGET).graph
    assert not [node for node in made.walk() if node.op_type == "Scan"]
    assert [node for node in made.walk() if node.op_type == "Loop"]
    x = np.random.default_rng(0).normal(size=(4, 4, 5)).astype(np.float32)[0][:, :length]
    feeds = {"x": x if axis else x.T.copy(), "factor": np.float32(0.5)}
    expected, result = (each.run(feeds, backend="numpy") for each in (graph, made))
    for name, contents in expected.items():
        np.testing.assert_allclose(result[name], contents, rtol=1e-6)


def test_a_loop_in_a_type_that_the_target_lacks_is_refused_by_name():
    narrow = Target({"ai.onnx": 22}, _float32_alone)
    with pytest.raises(tx.TenonnxError, match=r"no kernel of ai\.onnx::Scan at version 22 for"):
        retarget_to(scanned(0, 0, "float16"), narrow)


def _float32_alone(op, version, inputs, outputs):
    kinds = [kind for kind in (*inputs, *outputs) if kind is not None]
    return op.name in ("Cast", "Constant") or all(kind.dtype is not tx.DType.float16 for kind in kinds)
