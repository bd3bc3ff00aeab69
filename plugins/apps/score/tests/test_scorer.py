"""Record batches through a scorer: columns, types and results."""

import io
import pickle
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import TensorProto, helper
from PIL import Image

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_score import Scorer


def one(**columns):
    return pa.RecordBatch.from_pydict(columns)


def test_a_column_is_fed_to_the_input_of_its_name(scale):
    result = Scorer(scale, keep=["id"])(one(x=[1.0, 2.0], id=["a", "b"]))
    assert result.schema.names == ["id", "y", "w"]
    assert result.to_pydict() == {"id": ["a", "b"], "y": [3.0, 5.0], "w": [[1.0, -1.0], [2.0, -2.0]]}
    assert result.schema.field("w").type == pa.list_(pa.float32(), 2)


def test_a_table_is_scored_to_a_table(scale):
    assert Scorer(scale, batch=2, outputs=["y"])(pa.table({"x": [0.0, 1.0, 2.0]})).to_pydict() == {"y": [1.0, 3.0, 5.0]}


def test_all_columns_are_the_only_input_in_their_order(matrix, table):
    scorer = Scorer(matrix, keep=["id", "name"])
    result = scorer(table)
    rows = np.stack([table[name].to_numpy() for name in "abcd"], axis=1).astype(np.float32)
    expected = tx.load(matrix).run({"x": rows})
    assert np.array_equal(result["label"].to_numpy(), expected["label"])
    assert np.allclose(np.stack(result["p"].to_numpy()), expected["p"], atol=1e-6)


def test_columns_are_chosen_for_an_input(matrix, table):
    scorer = Scorer(matrix, columns={"x": ["d", "c", "b", "a"]}, outputs=["p"])
    rows = np.stack([table[name].to_numpy() for name in "dcba"], axis=1).astype(np.float32)
    expected = tx.load(matrix).run({"x": rows})["p"]
    assert np.allclose(np.stack(scorer(table)["p"].to_numpy()), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "4 columns that make it"),
        ({"columns": {"x": ["a", "b"]}}, "is not made of 4 columns"),
        ({"columns": {"z": ["a"]}}, "columns were assigned to unknown inputs"),
        ({"columns": {"x": ["a", "b", "c", "e"]}}, 'has no column "e"'),
        ({"columns": {"x": ["a", "b", "c", "name"]}}, 'column "name" does not fit the input "x"'),
        ({"keep": ["date"]}, 'has no column "date"'),
        ({"outputs": ["q"]}, "unknown outputs"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(matrix, table, options, said):
    with pytest.raises(tx.InvalidCall, match=said):
        Scorer(matrix, **options)(table)


def test_a_pickled_scorer_is_its_path_and_options(scale):
    scorer = Scorer(scale, keep=["id"])
    batch = one(x=[1.0], id=[7])
    expected = scorer(batch)
    data = pickle.dumps(scorer)
    assert len(data) < 2000, "neither session nor weights"
    assert pickle.loads(data)(batch).equals(expected)


def test_a_scorer_of_bytes_and_of_a_graph(scale):
    graph = tx.load(scale)
    for model in (graph, Path(scale).read_bytes()):
        assert pickle.loads(pickle.dumps(Scorer(model)))(one(x=[1.0])).column(0).to_pylist() == [3.0]
    with pytest.raises(tx.InvalidCall, match="the model is not a path"):
        Scorer(3)


# ----- types ----------------------------------------------------------------------------------------------------------


def echo(dtype, dims=()):
    """A model that returns its input."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", dtype, ("rows", *dims))
    graph.output("y", ops.identity(x))
    return graph


def scored(graph, column, **options):
    """Results of the valid rows of a column, and the bad rows with their reasons."""
    scorer = Scorer(graph, **options)
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    result = scorer.compute(scorer.prepare(batch))
    return (result.rows.column(0).to_pylist() if result.rows.num_columns else []), result.bad


@pytest.mark.parametrize(
    ("dtype", "column", "expected"),
    [
        ("float32", pa.array([1, 2], pa.int8()), [1.0, 2.0]),
        ("float32", pa.array([True, False]), [1.0, 0.0]),
        ("float64", pa.array(["1.5", "2"], pa.string()).cast(pa.decimal128(10, 2)), [1.5, 2.0]),
        ("int64", pa.array([1.0, -2.0]), [1, -2]),
        ("int32", pa.array([1, 2], pa.uint64()), [1, 2]),
        ("bool", pa.array([0, 1]), [False, True]),
        ("float16", pa.array([0.5, 2.0]), [0.5, 2.0]),
        ("string", pa.array(["a", "é"]), ["a", "é"]),
        ("string", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        ("string", pa.array(["a", None]), ["a", ""]),
        ("float32", pa.array([1, 1, 2]).dictionary_encode(), [1.0, 1.0, 2.0]),
    ],
)
def test_values_are_fed_as_the_type_of_the_input(dtype, column, expected):
    assert scored(echo(dtype), column) == (expected, {})


def test_numbers_that_are_missing_are_nan():
    values, bad = scored(echo("float32"), pa.array([1, None, 3]))
    assert not bad
    assert np.array_equal(values, [1, np.nan, 3], equal_nan=True)
    values, bad = scored(echo("float64"), pa.nulls(2))
    assert np.isnan(values).all()
    assert not bad


@pytest.mark.parametrize(
    ("dtype", "column", "good", "said"),
    [
        ("int64", pa.array([1, None]), [1], "missing"),
        ("int64", pa.array([1.0, 2.5]), [1], "2.5 is not a value of int64"),
        ("int64", pa.array([1.0, float("nan")]), [1], "nan is not a value"),
        ("int64", pa.array([1.0, 1e19]), [1], "1e"),
        ("int8", pa.array([1, 300]), [1], "300 is not a value of int8"),
        ("uint8", pa.array([1, -1]), [1], "-1 is not a value of uint8"),
        ("int64", pa.array([1, 2**63 + 1], pa.uint64()), [1], "is not a value of int64"),
        ("float32", pa.array([1.0, 1e300]), [1.0], "is not a value of float32"),
        ("bool", pa.array([1, 2]), [True], "2 is not a value of bool"),
    ],
)
def test_a_value_that_does_not_fit_makes_its_row_bad(dtype, column, good, said):
    values, bad = scored(echo(dtype), column)
    assert values == good
    assert list(bad) == [1]
    assert said in bad[1]


def test_infinities_are_values_of_floats():
    assert scored(echo("float32"), pa.array([np.inf, -np.inf])) == ([np.inf, -np.inf], {})


# ----- lists ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2), pa.list_(pa.int16())]
)
def test_lists_are_tensors(kind):
    column = pa.array([[9, 9], [1, 2], [3, 4]], kind).slice(1)
    assert scored(echo("float32", (2,)), column) == ([[1.0, 2.0], [3.0, 4.0]], {})


def test_lists_of_lists_and_flat_lists():
    nested = pa.array([[[1, 2, 3], [4, 5, 6]]] * 2, pa.list_(pa.list_(pa.float32())))
    flat = pa.array([[1, 2, 3, 4, 5, 6]] * 2, pa.list_(pa.float32(), 6))
    expected = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]] * 2
    for column in (nested, flat):
        assert scored(echo("float32", (2, 3)), column) == (expected, {})
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(2, 2, 3))
    assert scored(echo("float32", (2, 3)), tensors)[0] == np.arange(12.0).reshape(2, 2, 3).tolist()


def test_lists_of_several_lengths_are_scored_apart_and_stay_in_order(lengths):
    scorer = Scorer(lengths)
    batch = pa.RecordBatch.from_pydict({"x": [[1.0, 3.0], [5.0], [2.0, 4.0], [], [6.0]]})
    result = scorer.compute(scorer.prepare(batch))
    assert result.rows["mean"].to_pylist()[:3] == [2.0, 5.0, 3.0]
    assert result.rows["sums"].to_pylist() == [[1.0, 4.0], [5.0], [2.0, 6.0], [], [6.0]]


def test_a_list_that_does_not_fit_makes_its_row_bad():
    column = pa.array([[1.0, 2.0], [3.0], None, [4.0, 5.0]])
    values, bad = scored(echo("float32", (2,)), column)
    assert values == [[1.0, 2.0], [4.0, 5.0]]
    assert "has the shape [1]" in bad[1]
    assert "missing" in bad[2]
    values, bad = scored(echo("int64", (2,)), pa.array([[1, 2], [3, None]]))
    assert (values, list(bad)) == ([[1, 2]], [1])
    assert "element 1" in bad[1]


# ----- outputs --------------------------------------------------------------------------------------------------------


def test_maps_are_structs():
    nodes = [helper.make_node("ZipMap", ["x"], ["map"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"])]
    value = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    made = helper.make_graph(
        nodes,
        "maps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2])],
        [helper.make_value_info("map", helper.make_sequence_type_proto(value))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    values, bad = scored(tx.load(model.SerializeToString()), pa.array([[0.25, 0.75]]))
    assert (values, bad) == ([{"no": 0.25, "yes": 0.75}], {})


def test_an_output_of_the_whole_batch_is_refused_by_name(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("rows",))
    graph.output("y", x * 2.0)
    graph.output("total", ops.reduce_sum(x, keepdims=0))
    with pytest.raises(tx.InvalidModel, match='"total" does not have one entry for each row'):
        Scorer(graph)(one(x=[1.0, 2.0]))
    assert Scorer(graph, outputs=["y"])(one(x=[1.0, 2.0])).to_pydict() == {"y": [2.0, 4.0]}


def test_a_model_of_a_fixed_number_of_rows():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", graph.input("x", "float32", (4, 2)) * 2.0)
    rows = pa.array([[float(k), 0.0] for k in range(10)])
    assert scored(graph, rows) == ([[2.0 * k, 0.0] for k in range(10)], {})


def test_rows_that_the_model_refuses_are_found():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    index = graph.input("x", "int64", ("rows",))
    graph.output("y", ops.gather(graph.variable("t", np.arange(5, dtype=np.float32)), index))
    values, bad = scored(graph, pa.array([0, 1, 9, 3, 4]), backend="onnxruntime")
    assert values == [0.0, 1.0, 3.0, 4.0]
    assert list(bad) == [2]


def test_a_bad_row_of_a_call_is_an_error_that_names_it(scale):
    scorer = Scorer(scale, columns={"x": ["v"]}, batch=2)
    with pytest.raises(tx.InvalidFeed, match='row 2: column "v": 1e\\+300 is not a value of float32'):
        scorer(one(v=[0.0, 1.0, 1e300]))


# ----- files ----------------------------------------------------------------------------------------------------------


def encoded(array, kind="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, kind, **options)
    return stream.getvalue()


def test_images_are_decoded_to_the_layout_of_the_model(pictures):
    pixels = np.random.default_rng(3).integers(0, 256, (8, 6, 3), np.uint8)
    expected = (pixels / 255.0).mean(axis=(0, 1))
    batch = pa.RecordBatch.from_pydict({"content": [encoded(pixels)]})
    result = Scorer(pictures, pixels="0:1")(batch)
    assert np.allclose(result["mean"].to_pylist()[0], expected, atol=1e-5)
    result = Scorer(pictures, pixels="-1:1")(batch)
    assert np.allclose(result["mean"].to_pylist()[0], expected * 2 - 1, atol=1e-5)
    result = Scorer(pictures, pixels="0:1", mean=[0.1, 0.2, 0.3], std=[0.5, 0.5, 0.25])(batch)
    assert np.allclose(result["mean"].to_pylist()[0], (expected - [0.1, 0.2, 0.3]) / [0.5, 0.5, 0.25], atol=1e-5)


def test_the_range_of_pixels_has_to_be_given(pictures):
    batch = pa.RecordBatch.from_pydict({"content": [encoded(np.zeros((8, 6, 3), np.uint8))]})
    with pytest.raises(tx.InvalidCall, match="cannot convert pixels to the float32"):
        Scorer(pictures)(batch)


def test_images_of_another_size_channels_and_layout():
    gray = encoded(np.full((16, 12), 100, np.uint8))
    column = pa.array([gray])
    values, bad = scored(echo("uint8", (8, 6, 3)), column)
    assert not values
    assert "12 wide and 16 high" in bad[0]
    values, _ = scored(echo("uint8", (8, 6, 3)), column, resize="stretch")
    assert np.array_equal(values[0], np.full((8, 6, 3), 100))
    values, _ = scored(echo("uint8", (1, 8, 8)), column, resize="crop")
    assert np.array_equal(values[0], np.full((1, 8, 8), 100))
    values, _ = scored(echo("uint8", (3, "height", "width")), column)
    assert np.shape(values[0]) == (3, 16, 12)


def test_files_that_are_not_tensors_are_bad_rows():
    stream = io.BytesIO()
    np.save(stream, np.ones((2, 3), np.float32))
    good = stream.getvalue()
    deep = encoded(np.full((2, 3), 1000, np.uint16))
    column = pa.array([good, good[:-4], b"", None, deep])
    values, bad = scored(echo("float32", (2, 3)), column, pixels="0:1")
    assert values == [[[1.0] * 3] * 2]
    assert list(bad) == [1, 2, 3, 4]
    assert "not a .npy file" in bad[1]
    assert "not an image" in bad[2]
    assert "missing" in bad[3]
    assert "more than 8 bits" in bad[4]


def test_no_pickle_in_a_npy_file_is_run():
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], object), allow_pickle=True)
    assert scored(echo("float32", (1, 1)), pa.array([stream.getvalue()]))[1].keys() == {0}
