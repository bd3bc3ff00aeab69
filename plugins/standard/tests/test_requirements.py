"""Requirements: violations are refused by name; unknown types and dims are accepted."""

import numpy as np
import onnx
import pytest
from onnx import helper

import tenonnx as tx
from tenonnx.errors import InvalidCall, InvalidFeed, InvalidModel, TypeMismatch
from tenonnx.extend import (
    at_least,
    axis,
    broadcasts_to,
    divides,
    dtypes,
    every,
    floats,
    holds,
    integers,
    one_of,
    op,
    same_dtype,
    shapes,
    together,
)
from tenonnx.graph.graph import Value
from tenonnx.graph.symbolic import symbol
from tenonnx.graph.types import SequenceType, TensorType
from tenonnx.op.infer import infer_by_body
from tenonnx.registry.registry import Registry


def define(*requirements):
    @op("Probe", domain="com.acme")
    def probe(x, y=None, *rest, count=1, mode="a", sizes: list[int] | None = None):
        return x

    return probe.requires(*requirements)


def value(name, dtype="float32", shape=None):
    return Value(name, TensorType(tx.DType[dtype], shape))


def check(requirement, x, y=None, *rest, **attributes):
    made = define(requirement) if not isinstance(requirement, tuple) else define(*requirement)
    made.requirements.check([x, y, *rest], {"count": 1, "mode": "a", "sizes": None} | attributes)


def refused(requirement, *inputs, **attributes):
    with pytest.raises(TypeMismatch) as caught:
        check(requirement, *inputs, **attributes)
    assert caught.value.what.startswith("com.acme::Probe@1: ")
    return str(caught.value).removeprefix("com.acme::Probe@1: ")


def f32(*shape):
    return value("v", "float32", shape)


MATRICES = shapes(x="rows inner", y="inner columns")


def test_names_are_one_size_wherever_they_stand():
    check(MATRICES, f32(2, 3), f32(3, 4))
    message = refused(MATRICES, f32(2, 3), f32(4, 4))
    assert '"y" does not have the shape [inner, columns], where inner is 3' in message
    assert "given      y float32[4, 4], x float32[2, 3]" in message


def test_unknown_types_and_dims_are_accepted():
    for x in (value("x"), Value("x"), f32(2, None), f32("n", "m")):
        check(MATRICES, x, f32(3, 4))
    check(MATRICES, f32(2, "n"), f32(3, 4))


def test_a_size_known_later_applies_from_there():
    assert "where n is 4" in refused(shapes(x="n n n"), f32("s", 4, 5))


def test_a_body_sees_one_size_for_one_name():
    @op("Shift", domain="com.acme")
    def shift(x, y):
        return x + y

    def shape(*shapes_of):
        return infer_by_body(shift, [value("v", shape=given) for given in shapes_of], {}, None)[0].type.shape

    assert shape((symbol("n"), 2), (symbol("m"), 2)) == (None, 2)
    shift.requires(shapes(x="rows ... last", y="rows ... last"))
    assert shape((symbol("n"), 5, symbol("k")), (symbol("m"), None, 2)) == (symbol("n"), 5, 2)


def test_a_run_of_axes_is_one_run():
    @op("Shift", domain="com.acme")
    def shift(x, y):
        return x + y

    shift.requires(shapes(x="sizes...", y="_ sizes..."))
    known = infer_by_body(
        shift, [value("x", shape=(symbol("n"), None)), value("y", shape=(1, symbol("m"), 3))], {}, None
    )
    assert known[0].type.shape == (1, symbol("n"), 3)


def test_ranks():
    assert '"x" does not have the shape [rows, inner]\n' in refused(MATRICES, f32(2, 3, 4))
    check(shapes(x="batch ..."), f32(2))
    check(shapes(x="batch ... last"), f32(2, 3, 4, 5))
    assert "does not have the shape [batch, ..., last]" in refused(shapes(x="batch ... last"), f32(2))
    check(shapes(x=""), f32())
    assert "does not have the shape []" in refused(shapes(x=""), f32(1))
    assert '"x" is not a tensor' in refused(shapes(x=""), Value("x", SequenceType(None)))


@pytest.mark.parametrize("words", ['""', "[n]", "batch,size", "-1", "4x", "...n"])
def test_a_word_that_no_axis_can_have_is_refused(words):
    with pytest.raises(InvalidCall, match=r"unknown word in shapes\(scale=") as caught:
        shapes(scale=words)
    assert caught.value.given == words
    assert '"" as a whole for a scalar' in caught.value.available


def test_two_runs_of_axes_are_refused():
    with pytest.raises(InvalidCall, match="two runs of axes in shapes"):
        shapes(x="a... 3 ...")


def test_runs_of_axes_are_the_same_wherever_they_stand():
    labels = shapes(x="batch sizes...", y="batch classes sizes...")
    check(labels, f32(2, 5, 6), f32(2, 7, 5, 6))
    assert "where sizes... is [5, 6]" in refused(labels, f32(2, 5, 6), f32(2, 7, 5, 5))
    assert "where sizes... is [5]" in refused(labels, f32(2, 5), f32(2, 7, 5, 5))


def test_alternatives_numbers_and_attributes():
    either = shapes(x="features | rows features", y="features")
    for x in (f32(3), f32(9, 3)):
        check(either, x, f32(3))
    assert "[features] or [rows, features]" in refused(either, f32(1, 2, 3), f32(3))
    assert "where features is 3" in refused(either, f32(9, 3), f32(4))
    check(shapes(x="same same | one two"), f32(2, 3))
    assert "does not have the shape [4]" in refused(shapes(x="4"), f32(3))
    assert "where count is 7" in refused(shapes(x="count"), f32(3), count=7)


def test_every_variadic_input_is_judged():
    check(shapes(rest="n 2"), f32(), None, f32(3, 2), f32(3, 2))
    assert "where n is 3" in refused(shapes(rest="n 2"), f32(), None, f32(3, 2), f32(4, 2))


def test_broadcasting():
    check(broadcasts_to("x", "y"), f32(2, 3), f32(3))
    check(broadcasts_to("x", "y"), f32(2, "n"), f32(1, 3))
    for y in (f32(2), f32(1, 2, 3)):
        assert '"y" does not broadcast to "x"' in refused(broadcasts_to("x", "y"), f32(2, 3), y)


def test_axes():
    check(axis("count", of="x"), f32(2, 3), count=-2)
    check(axis("count", of="x"), value("x"), count=9)
    assert "count is outside of [-2, 1]" in refused(axis("count", of="x"), f32(2, 3), count=2)
    assert "names an axis of a scalar" in refused(axis("count", of="x"), f32(), count=0)
    check(axis("count", of="x", end=True), f32(2, 3), count=2)
    check(axis("count", of="x", end=True), f32(2, 3), count=-3)
    assert "count is outside of [-1, 0]" in refused(axis("count", of="x", end=True), f32(), count=1)
    assert "sizes names an axis twice" in refused(axis("sizes", of="x"), f32(2, 3), sizes=[1, -1])


def test_element_types():
    check(dtypes(x="bool integer"), value("x", "int8"))
    message = refused(dtypes(x="bool integer"), f32())
    assert '"x" does not hold bool or integers\n' in message
    assert "do         cast it" in message
    assert '"x" does not hold floats' in refused(floats("x"), value("x", "int8"))
    assert '"y" does not hold integers' in refused(integers("y"), f32(), f32())
    with pytest.raises(InvalidCall, match="unknown word in dtypes"):
        dtypes(x="flaot")


def test_one_element_type():
    check(same_dtype("x", "y", "rest"), f32(), None, f32())
    message = refused(same_dtype("x", "y"), f32(), value("y", "float64"))
    assert '"y" has another element type than "x"' in message
    assert "given      x float32[], y float64" in message


def test_presence_and_numbers():
    check(together("y", "sizes"), f32(), f32(), sizes=[1])
    assert "given      no sizes" in refused(together("y", "sizes"), f32(), f32())
    assert "count is less than 1\n  given      count=0" in refused(at_least(count=1), f32(), count=0)
    assert "sizes is less than 1" in refused(at_least(sizes=1), f32(), sizes=[1, 0])
    message = refused(one_of(mode=("a", "b")), f32(), mode="c")
    assert "unknown mode" in message
    assert "available  'a', 'b'" in message
    width = shapes(x="batch width"), divides("count", "width")
    check(width, f32(2, 6), count=3)
    check(width, f32(2, None), count=3)
    assert "count does not divide width\n  given      count=4, width=6" in refused(width, f32(2, 6), count=4)
    assert "count is not positive" in refused(width, f32(2, None), count=0)


def test_numbers_wherever_they_are_known():
    @op("Root", domain="com.example")
    def root(x):
        return x

    root.requires(every("at least 0", lambda x: x >= 0, "x"))
    assert root(np.float32([0, 4])).tolist() == [0, 4]
    assert root(np.array([-1])).tolist() == [-1], "integers are not judged"
    with pytest.raises(
        TypeMismatch, match=r'Root@1: "x" holds numbers that are not at least 0\n  given      x float32\[2\], \[-1\.0\]'
    ):
        root(np.float32([2, -1]))
    graph = tx.Graph(opsets={"com.example": 1})
    with pytest.raises(TypeMismatch, match="holds numbers that are not at least 0"):
        root(graph.variable("held", np.float32([-2])))
    graph.output("y", root(graph.input("fed", "float32", ("n",))))
    program = graph.compile("numpy")
    assert program({"fed": np.float32([3])})["y"].tolist() == [3]
    for feed in (np.float32([-3]), [-3.0]):
        with pytest.raises(
            InvalidFeed, match=r'Root@1.*: "x", which is fed as "fed", holds numbers that are not at least 0\n.*-3'
        ):
            program({"fed": feed})


def test_anything_else():
    def fits(x, count):
        return None if x.ndim == count else "the rank is not count"

    check(holds(fits), f32(2), count=1)
    assert "the rank is not count\n  given      x float32[2], count=3" in refused(holds(fits), f32(2), count=3)

    def raises(**attributes):
        raise TypeMismatch("nothing fits", given=attributes["mode"], do="give up")

    message = refused(holds(raises), f32())
    assert "nothing fits\n  given      a\n  do         give up" in message


def test_a_requirement_names_what_there_is():
    with pytest.raises(InvalidCall, match=r"no input, attribute or named dim width") as caught:
        define(divides("count", "width"))
    assert "inputs (x, y?, *rest?)" in str(caught.value)


def test_calls_are_refused_on_arrays_in_graphs_and_by_inference():
    probe = define(shapes(x="n 2"), one_of(mode=("a", "b")))
    bad = np.ones((2, 3), np.float32)
    with pytest.raises(TypeMismatch, match=r"shape \[n, 2\]"):
        probe(bad)
    graph = tx.Graph(opsets={"com.acme": 1})
    with pytest.raises(TypeMismatch, match=r"shape \[n, 2\]"):
        probe(graph.input("x", "float32", (2, 3)))
    assert probe(bad[:, :2]).shape == (2, 2)


def test_files_are_refused_for_their_attributes_when_they_are_loaded():
    registry = Registry()
    registry.add(define(one_of(mode=("a", "b")), shapes(x="n count")))
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    node = helper.make_node("Probe", ["x"], ["y"], domain="com.acme", mode="c")
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("com.acme", 1)])
    with pytest.raises(InvalidModel, match="unknown mode") as caught:
        tx.load(model, registry=registry)
    assert "-> y" in caught.value.what


@pytest.mark.parametrize(
    "first", ["length hidden | batch length hidden | 1 length hidden", "1 length hidden | batch length hidden"]
)
def test_only_what_all_alternatives_that_fit_agree_on_is_known(first):
    """A dim of 1 may be broadcast or be the batch, so it implies nothing about the batch."""

    @op("Joined", domain="com.acme")
    def joined(x, y):
        return x

    joined.requires(shapes(x="batch length hidden", y=first))
    x = f32(symbol("n"), symbol("m"), 8)
    (result,) = infer_by_body(joined, [x, f32(1, symbol("m"), 8)], {}, 1)
    assert result.type.shape == (symbol("n"), symbol("m"), 8)
    (result,) = infer_by_body(joined, [x, f32(1, 5, 8)], {}, 1)
    assert result.type.shape == (symbol("n"), 5, 8)
    (result,) = infer_by_body(joined, [x, f32(3, 5, 8)], {}, 1)
    assert result.type.shape == (3, 5, 8)
    with pytest.raises(TypeMismatch, match="where batch is 3"):
        infer_by_body(joined, [f32(3, 4, 8), f32(2, 4, 8)], {}, 1)
