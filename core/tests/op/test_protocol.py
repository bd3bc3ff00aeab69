"""The op protocol: calling, binding, signatures, and errors of wrong calls."""

import inspect
from functools import partial
from types import FunctionType
from typing import Annotated, Any

import numpy as np
import pytest
import tiny

from tenonnx.errors import InvalidCall, InvalidModel, NotRepresentable, TypeMismatch
from tenonnx.extend import Index, TensorType, inline, op, primitive, subgraph
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node
from tenonnx.op import signature
from tenonnx.op.binding import bind
from tenonnx.op.evaluate import Evaluator
from tenonnx.op.signature import Signature
from tenonnx.op.versioned_signature import signature_at, unbind_attributes

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def test_a_call_on_arrays_computes():
    np.testing.assert_array_equal(tiny.affine(X, scale=3.0, shift=1.0), 3 * X + 1)


def test_a_call_on_values_adds_one_node_and_infers_its_type():
    graph = Graph()
    y = tiny.affine(graph.input("x", "float32", ("n", 2)), scale=3.0)
    assert [node.op for node in graph.nodes] == [tiny.affine]
    assert str(y.type) == "float32[n, 2]"
    assert graph.nodes[0].attributes == {"scale": 3.0}


def test_several_outputs_are_a_tuple():
    first, second = tiny.pair(X)
    np.testing.assert_array_equal(first, 2 * X)
    np.testing.assert_array_equal(second, np.exp(X))


def test_python_numbers_take_the_dtype_of_the_other_operand():
    assert tiny.add(X.astype(np.float16), 1.5).dtype == np.float16
    assert tiny.add(np.array([1, 2], np.int8), 1).dtype == np.int8


def test_a_float64_of_numpy_is_such_a_number_too():
    half = np.sqrt(0.25)
    assert tiny.add(X, half).dtype == tiny.add(half, X).dtype == np.float32
    assert tiny.add(half, half).dtype == np.float64
    with pytest.raises(TypeMismatch):
        tiny.add(np.array([1, 2]), half)


def test_a_float_with_integers_is_refused():
    with pytest.raises(TypeMismatch, match="float, and other inputs are tensors of"):
        tiny.add(np.array([1, 2]), 1.5)


def test_mixed_dtypes_are_refused_while_a_graph_is_built():
    graph = Graph()
    with pytest.raises(TypeMismatch, match="different dtypes") as caught:
        tiny.add(graph.input("x", "float32", (2,)), graph.input("y", "int64", (2,)))
    assert "int64" in str(caught.value)


def test_shapes_that_do_not_broadcast_are_refused():
    graph = Graph()
    with pytest.raises(TypeMismatch, match="broadcast"):
        tiny.add(graph.input("x", "float32", (2,)), graph.input("y", "float32", (3,)))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, 'input "x" is missing'),
        ((X, X, X), {}, "got more than 2 inputs"),
        ((X,), {"slope": 1.0}, '"slope" is not one of its'),
        ((X,), {"x": X}, '"x" is given twice'),
    ],
)
def test_wrong_calls_name_the_argument_and_what_there_is(args, kwargs, message):
    with pytest.raises(InvalidCall, match=message) as caught:
        tiny.affine(*args, **kwargs)
    assert "scale=2.0" in str(caught.value)


def test_an_op_cannot_have_positional_attributes():
    with pytest.raises(TypeError, match="name its attributes"):

        @op("Bad")
        def bad(x, **attributes): ...


def test_until_refuses_names_that_the_op_lacks():
    with pytest.raises(InvalidCall, match="axis"):
        tiny.double.until(3, attributes=["axis"])


@pytest.mark.parametrize(
    ("version", "inputs", "attributes"),
    [(5, ["x", "axes"], ["keep"]), (4, ["x"], ["keep", "axes"]), (3, ["x"], ["keepdims", "axes"])],
)
def test_forms_accumulate_downwards(version, inputs, attributes):
    form = signature_at(tiny.sum_, version)
    assert [p.name for p in form.inputs] == inputs
    assert list(form.attributes) == attributes


def test_binding_reads_an_old_signature_by_todays_names():
    graph = Graph()
    x = graph.input("x", "float32", (2, 2))
    inputs, attributes = bind(Node(tiny.sum_, 3, [x], {"axes": [1], "keepdims": 0, "hint": [7]}))
    assert inputs[0] is x
    assert inputs[1].data.array().tolist() == [1]
    assert inputs[1].dtype is DType.int64
    assert attributes == {"keep": 0}


def test_binding_refuses_attributes_that_the_version_lacks():
    graph = Graph()
    x = graph.input("x", "float32", (2, 2))
    with pytest.raises(InvalidModel, match='no attribute "hint"'):
        bind(Node(tiny.sum_, 4, [x], {"hint": [7]}))


def test_unbinding_is_the_inverse_of_binding():
    assert unbind_attributes(tiny.sum_, 3, {"keep": 0}, {"axes": [1]}) == {"keepdims": 0, "axes": [1]}
    assert unbind_attributes(tiny.sum_, 5, {"keep": 1}, {}) == {}


def test_a_zero_is_written_where_the_default_is_the_other_zero():
    @op("Zeroed", domain="tiny")
    def zeroed(x, *, alpha=0.0):
        return x

    graph = Graph()
    x = graph.input("x", "float32", (2,))
    written = [zeroed(x, alpha=alpha).producer.attributes for alpha in (0.0, -0.0)]
    assert list(map(str, written)) == ["{}", "{'alpha': -0.0}"]


def test_an_attribute_of_a_newer_version_needs_its_neutral_value():
    @op("Newer", domain="tiny")
    def newer(x, *, mode=0, kind="", axis=0):
        return x

    newer.until(7, lacks=["mode", "kind", "axis"])
    plain = {"mode": 0, "kind": "", "axis": 0}
    assert unbind_attributes(newer, 6, plain, {}) == {}
    with pytest.raises(NotRepresentable, match='"mode" does not exist at version 6'):
        unbind_attributes(newer, 6, plain | {"mode": 1}, {})
    # whatever the hash seed is
    with pytest.raises(NotRepresentable, match='"mode" and "kind" and "axis" do not exist'):
        unbind_attributes(newer, 6, {"mode": 1, "kind": "x", "axis": 2}, {})


def test_axes_become_non_negative_for_older_versions():
    @op("Joined", domain="tiny")
    def joined(x, axes: Index = None, *, axis):
        return x

    joined.until(7, attributes=["axes"])
    joined.until(5, positive=["axis", "axes"])
    assert unbind_attributes(joined, 5, {"axis": -1}, {"axes": [0, -2]}, 3) == {"axis": -1, "axes": [0, -2]}
    assert unbind_attributes(joined, 4, {"axis": -1}, {"axes": [0, -2]}, 3) == {"axis": 2, "axes": [0, 1]}
    assert unbind_attributes(joined, 4, {"axis": 1}, {"axes": [0]}) == {"axis": 1, "axes": [0]}
    with pytest.raises(NotRepresentable, match="cannot be negative at version 4"):
        unbind_attributes(joined, 4, {"axis": -1}, {})
    for wrong in ("first", [1, "second"], [1.5]):
        with pytest.raises(NotRepresentable, match='attribute "axis" does not hold whole numbers'):
            unbind_attributes(joined, 4, {"axis": wrong}, {}, 3)
    with pytest.raises(InvalidCall, match="positive names"):
        joined.until(3, positive=["missing"])


def test_meanings_divide_the_versions():
    assert [(m.since, m.before) for m in tiny.affine.meanings] == [(4, None), (1, 4)]


def test_an_op_can_be_evaluated_by_its_body_though_it_has_a_rule():
    @op("Triple", domain="tiny")
    def triple(x):
        return tiny.multiply(x, 3.0)

    triple.numpy(lambda x: x * 30)
    evaluator = Evaluator(body_of=triple)
    by_body = evaluator.call(triple, [evaluator.wrap(X)], {})
    np.testing.assert_array_equal(triple(X), X * 30)
    np.testing.assert_array_equal(evaluator.contents(by_body[0]), X * 3)


def test_an_input_has_no_default_except_none():
    with pytest.raises(InvalidCall, match="a default other than None") as caught:

        @op("Positioned", domain="tiny")
        def positioned(x, k=2):
            return x

    assert "positioned(x, k=2)" in str(caught.value)
    assert "keyword-only" in caught.value.do


@pytest.mark.parametrize("made", [partial(lambda x, n: x, n=1), len, dict, print, type("Callable", (), {})()])
def test_an_op_is_made_of_a_function(made):
    with pytest.raises(InvalidCall, match="tiny::Made: an op is not made of a function written in Python"):
        op("Made", domain="tiny")(made)


def test_an_unknown_rule_is_refused():
    with pytest.raises(InvalidCall, match=r"tiny::Thing: a rule is not a function") as caught:
        op("Thing", domain="tiny", pur=False)(lambda x: x)
    assert "pur=False" in str(caught.value)


def test_a_body_returns_values():
    @op("Silent", domain="tiny")
    def silent(x):
        tiny.double(x)

    @op("Number", domain="tiny")
    def number(x):
        return 2.0

    graph = Graph()
    x = graph.input("x", "float32", (2,))
    for each in (silent, number):
        for given in (X, x):
            with pytest.raises(InvalidCall, match="did not return a value"):
                each(given)
    with pytest.raises(InvalidCall, match='output "y" is not a value'):
        graph.output("y", None)


def test_a_type_rule_returns_types():
    @op("Listed", domain="tiny", type=lambda x: [x.type])
    def listed(x):
        return tiny.double(x)

    with pytest.raises(
        InvalidCall, match="the type rule of tiny::Listed@1 did not return a type, or a tuple"
    ) as caught:
        listed(Graph().input("x", "float32", (2,)))
    assert caught.value.given == "[TensorType(dtype=<DType.float32: 1>, shape=(2,))]"


def test_a_primitive_without_a_type_rule_is_reported():
    @primitive("Untyped", domain="tiny", numpy=np.negative)
    def untyped(x):
        """Only its numbers are known."""

    with pytest.raises(InvalidCall, match="Untyped@1 is a primitive, but lacks the rule numpy or type"):
        untyped(Graph().input("x", "float32", (2,)))


def test_requirements_use_requirement_words():
    @op("Vague", domain="tiny")
    def vague(x):
        return x

    with pytest.raises(InvalidCall, match=r"Vague@1\.requires was given no requirement") as caught:
        vague.requires("x is float")
    assert caught.value.given == "'x is float'"


def test_the_body_of_an_op_inlines_a_subgraph_with_what_it_captures():
    @op("Twice", domain="tiny")
    def twice(x, *, body):
        (once,) = inline(body, [x])
        return inline(body, [once])[0]

    graph = Graph()
    x, w = (graph.input(name, "float32", (2,)) for name in "xw")
    with graph.building():
        body = subgraph(lambda v: tiny.add(v, w), [("v", x.type)])
    graph.output("y", twice(x, body=body))
    assert str(graph.outputs[0].type) == "float32[2]"
    assert graph.run({"x": [1, 2], "w": [10, 20]}, backend="numpy")["y"].tolist() == [21, 42]


def test_subgraphs_are_inlined_with_a_sequence_and_traced_with_pairs():
    x = Graph().input("x", "float32", (2,))
    with pytest.raises(InvalidCall, match="the inputs of body are not pairs of a name and a type") as caught:
        subgraph(tiny.double, {"x": x.type})
    assert caught.value.given == "{'x': TensorType(dtype=<DType.float32: 1>, shape=(2,))}"
    with pytest.raises(InvalidCall, match="are not pairs"):
        subgraph(tiny.double, x)

    @op("Once", domain="tiny")
    def once(x, *, body):
        return inline(body, x)[0]

    with pytest.raises(TypeMismatch, match='inputs for graph "body" are not a sequence of at most 1'):
        once(x, body=subgraph(tiny.double, [("v", x.type)]))


def test_an_input_has_an_element_type():
    graph = Graph()
    assert graph.input("x", np.float32, (2,)).dtype is DType.float32
    assert graph.input("y", np.dtype("int64")).dtype is DType.int64
    assert graph.input("w", TensorType("float16", (2, "n"))).dtype is DType.float16
    with pytest.raises(InvalidCall, match=r"element type .* is not one of ONNX"):
        graph.input("z", "float33")
    with pytest.raises(InvalidCall, match=r"element type .* is not one of ONNX"):
        TensorType("float33")


def test_values_cannot_be_converted_to_python_numbers():
    graph = Graph()
    n = tiny.exp(graph.input("x", "float32", ()))
    for use in (range, int, float):
        with pytest.raises(TypeError, match="is not a Python number"):
            use(n)


def test_values_refuse_to_be_branched_on():
    graph = Graph()
    x = graph.input("x", "float32", (2,))
    with pytest.raises(TypeError, match="not known while a graph is built"):
        bool(x)
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(x)


def test_an_unknown_rank_names_the_value_and_the_option():
    graph = Graph()
    with pytest.raises(TypeMismatch, match='rank of value "x"') as caught:
        graph.input("x", "float32").ndim  # noqa: B018
    assert "--input-shapes" in str(caught.value)


def test_symbolic_contents_flow_through_shape_arithmetic():
    graph = Graph()
    x = graph.input("x", "float32", ("n", 3))
    doubled = tiny.add(tiny.shape(x), tiny.shape(x))
    assert [str(e) for e in doubled.symbolic_contents] == ["2*n", "6"]


NAMES = {"Index": Index, "signature": signature, "I": Index, "Any": Any}


def annotated(*annotations):
    """An op of inputs with these annotations; strings as with postponed evaluation."""
    parameters = [
        inspect.Parameter(f"x{k}", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=a)
        for k, a in enumerate(annotations)
    ]
    function = FunctionType((lambda: None).__code__, NAMES)
    function.__signature__ = inspect.Signature(parameters)
    return Signature.of(function)


@pytest.mark.parametrize(
    "annotation", [Index, Index | None, list[Index], "Index", "Index | None", "signature.Index", "I", "extend.Index"]
)
def test_an_index_is_recognized_by_its_annotation(annotation):
    assert annotated(annotation).inputs[0].index


@pytest.mark.parametrize(
    "annotation",
    [Any, int, list[Any], inspect.Parameter.empty, "Any", "Value", "Index_", "list[int]"],
)
def test_other_annotations_are_not_an_index(annotation):
    assert not annotated(annotation).inputs[0].index


def test_an_index_may_be_annotated_further():
    assert annotated(Annotated[Index, "more"]).inputs[0].index
    assert not annotated(Annotated[Any, "more"]).inputs[0].index


def test_an_int_is_int64_for_an_index_and_a_float_with_floats():
    @op("Repeated", domain="tiny")
    def repeated(x, count: Index, *others: Index):
        return tiny.identity(count)

    assert repeated(np.float32([1]), 3).dtype == np.int64
    assert repeated.signature.inputs[2].index


def test_an_op_has_the_signature_of_its_function():
    assert str(inspect.signature(tiny.affine)) == "(x, b=None, *, scale=2.0, shift=0.0)"
