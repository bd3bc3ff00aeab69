"""Random inputs: of the declared types, reproducible by seed, refused for unknown types."""

import ml_dtypes
import numpy as np
import pytest

from tenonnx.errors import InvalidCall, InvalidFeed
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.symbolic import parse
from tenonnx.graph.types import MapType, OptionalType, SequenceType, TensorType
from tenonnx_convert.verifying.generate import generate_feeds


def graph_of(**inputs):
    graph = Graph()
    for name, (dtype, *shape) in inputs.items():
        graph.input(name, dtype, *shape)
    return graph


def test_a_symbol_has_one_size_and_expressions_follow():
    graph = graph_of(x=("float32", ("n", "m", 3)), y=("float32", ("m", "2*n + 1")), z=("float32", (None, "n", None)))
    feeds = generate_feeds(graph)
    n, m, _ = feeds["x"].shape
    assert n != m
    assert feeds["y"].shape == (m, 2 * n + 1)
    assert feeds["z"].shape[1] == n


def test_unknown_dims_of_one_axis_agree():
    feeds = generate_feeds(graph_of(x=("float32", (None, 4)), y=("int64", (None,))))
    assert feeds["x"].shape[0] == feeds["y"].shape[0]


def test_the_seed_decides():
    graph = graph_of(x=("float32", (4, 4)), s=("string", (8,)))
    first, again, other = generate_feeds(graph, 1), generate_feeds(graph, 1), generate_feeds(graph, 2)
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["x"] != other["x"]).any()


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.undefined], ids=str)
def test_every_element_type(dtype):
    array = generate_feeds(graph_of(x=(dtype, (2, 3))))["x"]
    assert array.dtype == dtype.numpy
    assert array.shape == (2, 3)
    if dtype.is_integer:
        assert set(array.astype(int).flat) <= {0, 1}
    if dtype is DType.string:
        assert all(isinstance(text, str) for text in array.flat)
    if dtype is DType.float8e8m0:
        assert (array.astype(ml_dtypes.bfloat16) > 0).all()


def test_masks_let_everything_pass():
    feeds = generate_feeds(graph_of(attention_mask=("int64", (4, 4)), MaskBits=("bool", (4, 4))))
    assert feeds["attention_mask"].all()
    assert feeds["MaskBits"].all()


def test_containers_have_contents_of_their_element_type():
    tensor = TensorType(DType.float32, (parse("n"),))
    graph = graph_of(
        s=(SequenceType(tensor),),
        o=(OptionalType(tensor),),
        m=(MapType(DType.string, tensor),),
        i=(MapType(DType.int64, tensor),),
    )
    feeds = generate_feeds(graph)
    assert [each.shape for each in feeds["s"]] == [(2,), (2,)]
    assert feeds["o"].shape == (2,)
    assert list(feeds["m"]) == ["0", "1"]
    assert list(feeds["i"]) == [0, 1]


def test_given_shapes_bind_symbols_and_do_not_change_the_graph():
    graph = graph_of(x=("float32", ("n", 3)), y=("float32", ("n", "total")))
    feeds = generate_feeds(graph, input_shapes={"x": (5, 3), "y": (None, "past + n")})
    assert feeds["x"].shape == (5, 3)
    assert feeds["y"].shape[0] == 5
    assert feeds["y"].shape[1] > 5
    assert str(graph.inputs[0].type) == "float32[n, 3]"


def test_inputs_with_a_default_are_not_generated():
    graph = graph_of(x=("float32", (2,)))
    default = graph.variable("w", np.zeros(2, np.float32))
    graph.all_inputs.append(default)
    assert list(generate_feeds(graph)) == ["x"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ((DType.float32,), "rank is not known"),
        ((SequenceType(None),), "rank is not known"),
        ((DType.float32, ("n - 7",)), "a dim is negative"),
        ((DType.float32, (1 << 20, 1 << 20)), "elements"),
    ],
    ids=["rank", "element", "negative", "huge"],
)
def test_inputs_that_cannot_be_generated_have_to_be_given(kind, text):
    with pytest.raises(InvalidFeed, match=text) as raised:
        generate_feeds(graph_of(x=kind))
    assert "--input name=file.npy" in str(raised.value)


def test_shapes_of_no_input_are_refused():
    with pytest.raises(InvalidCall, match='no graph input "z"'):
        generate_feeds(graph_of(x=("float32", (2,))), input_shapes={"z": (2,)})
