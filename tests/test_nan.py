"""NaN on numpy and on onnxruntime, compared with docs/reference/nan.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tenonnx as tx

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "nan.md"
NAN = np.nan
ROWS = np.array([[1, NAN, 2, 3], [3, 2, 1, NAN], [NAN, 1, 2, 3], [NAN] * 4, [-1, 0, NAN, 5]], np.float32)
IMAGES, ONES = ROWS[:, None], np.ones_like(ROWS)
AXIS = np.array([1])
FIRST, WHOLE = np.zeros((5, 4), np.int64), np.tile(np.arange(4), (5, 1))

#: Calls of each op that compares, selects, sorts or rounds: inputs, attributes, number of outputs.
CALLS: dict[str, list[tuple[list[np.ndarray], dict[str, object], int]]] = {
    "ReduceMax": [([ROWS, AXIS], {}, 1), ([ROWS, np.array([0])], {}, 1), ([ROWS], {}, 1)],
    "ReduceMin": [([ROWS, AXIS], {}, 1), ([ROWS, np.array([0])], {}, 1), ([ROWS], {}, 1)],
    "ArgMax": [([ROWS], {"axis": 1}, 1), ([ROWS], {"axis": 1, "select_last_index": 1}, 1)],
    "ArgMin": [([ROWS], {"axis": 1}, 1), ([ROWS], {"axis": 1, "select_last_index": 1}, 1)],
    "Hardmax": [([ROWS], {}, 1)],
    "MaxPool": [([IMAGES], {"kernel_shape": [2]}, 1)],
    "MaxPool with Indices": [([IMAGES], {"kernel_shape": [2]}, 2)],
    "GlobalMaxPool": [([IMAGES], {}, 1)],
    "MaxRoiPool": [([ROWS[None, None], np.array([[0, 0, 0, 3, 4]], np.float32)], {"pooled_shape": [2, 2]}, 1)],
    **{
        f"ScatterElements with {kind}": [
            ([ONES, FIRST, ROWS], {"axis": 1, "reduction": kind}, 1),
            ([ROWS, FIRST, ONES], {"axis": 1, "reduction": kind}, 1),
        ]
        for kind in ("max", "min")
    },
    "ScatterElements": [([ONES, WHOLE, ROWS], {"axis": 1}, 1)],
    **{
        f"ScatterND with {kind}": [
            ([ONES, np.arange(5)[:, None], ROWS], {"reduction": kind}, 1),
            ([ROWS, np.arange(5)[:, None], ONES], {"reduction": kind}, 1),
        ]
        for kind in ("max", "min")
    },
    "Unique": [([ROWS], {}, 1)],
    "Sign of float16": [([ROWS.astype(np.float16)], {}, 1)],
    "Sign": [([ROWS], {}, 1)],
    "Max": [([ROWS, ONES], {}, 1), ([ONES[0], ROWS], {}, 1)],
    "Min": [([ROWS, ONES], {}, 1), ([ONES[0], ROWS], {}, 1)],
    "Clip": [([ROWS, np.array(0, np.float32), np.array(2, np.float32)], {}, 1)],
    "TopK": [([ROWS, np.array([k])], {"largest": n}, 2) for k in (1, 2, 4) for n in (0, 1)],
    **{name: [([ROWS, ONES], {}, 1), ([ONES, ROWS], {}, 1)] for name in ("Greater", "Less", "Equal", "PRelu", "Pow")},
    **{name: [([ROWS, ONES], {}, 1)] for name in ("GreaterOrEqual", "LessOrEqual")},
    **{name: [([ROWS], {}, 1)] for name in ("Relu", "LeakyRelu", "Elu", "HardSigmoid", "ThresholdedRelu", "Shrink")},
    **{name: [([ROWS], {}, 1)] for name in ("Floor", "Ceil", "Round", "Abs", "Softmax", "NonZero", "IsNaN", "IsInf")},
    **{name: [([ROWS, AXIS], {}, 1)] for name in ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceLogSumExp")},
}


def both(name, inputs, attributes, count):
    """Outputs of one node on numpy and on onnxruntime."""
    feeds = {f"x{k}": array for k, array in enumerate(inputs)}
    outputs = [f"y{k}" for k in range(count)]
    node = helper.make_node(name.split()[0], list(feeds), outputs, **attributes)
    declared = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for key, array in feeds.items()
    ]
    made = helper.make_graph([node], "nan", declared, [onnx.ValueInfoProto(name=key) for key in outputs])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(tx.load(model).run(feeds, backend="numpy").values()), session.run(None, feeds)


def alike(first, second):
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-3, equal_nan=a.dtype.kind == "f")
        for a, b in zip(first, second, strict=True)
    )


def test_the_page_names_every_op_that_differs():
    lines = PAGE.read_text("utf-8").partition("## In frameworks")[0].splitlines()
    named = {line.split("|")[1].strip() for line in lines if line.startswith("| ")} - {"op", "---"}
    differing = {name for name, calls in CALLS.items() if not all(alike(*both(name, *call)) for call in calls)}
    assert named == differing


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_the_extreme_of_numbers_and_nan_is_nan_on_numpy(name):
    result, _ = both(name, *CALLS[name][0])
    assert np.isnan(result[0]).all()


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_is_the_greatest_number_in_top_k(dtype, largest):
    drawn = np.random.default_rng(0)
    for size, counts in (
        (5, (1, 3, 5)),
        (300, (1, 7, 300)),
    ):  # large ones are filtered first
        x = drawn.integers(-3, 4, (9, size)).astype(dtype)
        x[drawn.random(x.shape) < 0.02] = NAN
        x[0], x[1, :3], x[2, 1] = NAN, np.inf, NAN
        for count in counts:
            (values, places), expected = both("TopK", [x, np.array([count])], {"largest": largest}, 2)
            np.testing.assert_array_equal(values, expected[0])
            np.testing.assert_array_equal(np.take_along_axis(x, places, -1), values)
            order = np.lexsort((-x if largest else x, np.isnan(x) ^ bool(largest)), axis=1)
            np.testing.assert_array_equal(places, order[:, :count])
