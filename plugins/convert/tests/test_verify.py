"""Verification: structure, outputs, and the first node that diverges."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import tiny
from onnx import TensorProto, helper

from tenonnx import limits
from tenonnx.errors import InvalidCall, InvalidFeed, PluginError, TypeMismatch, UnsupportedOp, VerificationFailed
from tenonnx.extend import op, primitive, same_type
from tenonnx.formats.onnx.writer import to_model
from tenonnx.graph.graph import Graph
from tenonnx.loading import load
from tenonnx.registry.registry import Registry
from tenonnx.transforms.decompose import decompose
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_convert.verifying import structure
from tenonnx_convert.verifying.precision import accumulation
from tenonnx_convert.verifying.structure import structure_problems
from tenonnx_convert.verifying.verification import Verification
from tenonnx_convert.verifying.verify import verify


@pytest.fixture(autouse=True)
def _numpy_alone(monkeypatch):
    monkeypatch.setenv("TENONNX_PLUGINS", "")
    # graphs built here use a registry without plugins
    monkeypatch.setattr("tenonnx.registry.registry._default", Registry())


def chain(weight=2.0):
    """``exp(2 * x * w)`` with named inner values."""
    graph = Graph("chain", opsets={"tiny": 4})
    x = graph.input("x", "float32", ("n", 3))
    doubled = tiny.double(x)
    scaled = tiny.multiply(doubled, graph.variable("w", np.full(3, weight, np.float32)))
    graph.output("y", tiny.exp(scaled))
    return graph


def test_a_graph_equals_itself_and_its_expansion():
    graph = chain()
    result = verify(graph, decompose(graph, keep=lambda call: call.op.primitive))
    assert result.equal
    assert [output.name for output in result.outputs] == ["y"]
    assert result.raise_if_failed() is result
    assert "equal" in str(result)


def test_a_graph_that_only_one_backend_has_run_is_not_verified():
    result = verify(chain())
    assert not result.verified
    assert result.outputs == []
    assert "y: not verified: computed on numpy alone" in result.summary()
    assert result.raise_if_failed() is result
    with pytest.raises(InvalidFeed):
        verify(chain(), feeds={})


def test_a_file_and_a_message_can_be_compared(tmp_path, monkeypatch):
    monkeypatch.setattr("tenonnx.registry.registry._default", tiny.registry())
    graph = chain()
    onnx.save(to_model(graph), tmp_path / "same.onnx")
    assert verify(graph, tmp_path / "same.onnx").equal
    assert not verify(graph, to_model(chain(3.0))).equal


def test_numbers_that_differ_are_reported_with_the_first_node():
    graph, other = chain(), chain(2.5)
    result = verify(graph, other)
    assert not result.equal
    (output,) = result.outputs
    assert output.backend == "numpy"
    assert output.difference.absolute > 0.1
    assert result.first_divergence.value == "Mul"
    assert 'node "Mul"' in result.first_divergence.node
    assert not result.to_dict()["equal"]
    assert result.to_dict()["first_divergence"]["value"] == "Mul"
    with pytest.raises(VerificationFailed, match="y \\(numpy\\)") as raised:
        result.raise_if_failed()
    assert "the first node that diverges" in str(raised.value)


def test_tolerances_can_be_replaced():
    graph, other = chain(2.0), chain(2.0001)
    assert not verify(graph, other).equal
    assert verify(graph, other, rtol=0.01, atol=0.01).equal
    almost = np.nextafter(np.float32(2), np.float32(3))
    assert verify(graph, chain(almost)).equal
    assert not verify(graph, chain(almost), atol=0.0, rtol=0.0).equal


def test_feeds_that_are_given_are_used():
    graph = chain()
    zero = {"x": np.zeros((1, 3), np.float32)}
    assert verify(graph, chain(5.0), feeds=zero).equal
    assert not verify(graph, chain(5.0), feeds={"x": np.ones((1, 3), np.float32)}).equal


def test_other_inputs_or_outputs_are_a_problem():
    other = chain()
    other.rename(other.outputs[0], "z")
    result = verify(chain(), other)
    assert not result.equal
    assert result.problems == ["outputs are not y, but z"]
    assert "outputs are not y" in str(result)


def test_structure_counts_where_the_original_was_sound():
    graph, other = chain(), chain()
    other.nodes.reverse()  # violates the order that onnx.checker requires
    assert structure_problems(graph) == []
    assert "topologically sorted" in structure_problems(other)[0]
    result = verify(graph, other)
    assert "onnx.checker" in result.problems[0]


def test_an_original_that_the_checker_refuses_only_causes_a_note():
    def undeclared():
        graph = chain()
        model = to_model(graph)
        del model.opset_import[:]
        model.opset_import.add(domain="", version=17)
        return load(model, registry=tiny.registry())

    graph = undeclared()
    result = verify(graph, undeclared())
    assert result.equal
    assert any(note.startswith("onnx.checker rejects the original too") for note in result.notes)


def test_large_and_external_tensors_are_not_read_by_the_checker(tmp_path):
    graph = chain()
    graph.variable("unused", np.zeros((600, 600), np.float32))
    assert structure_problems(graph) == []
    model = to_model(graph)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    external = load(tmp_path / "m.onnx", registry=tiny.registry())
    assert structure_problems(external) == []
    assert structure_problems(tmp_path / "m.onnx") == []


def slices_an_axis_of_minus_two():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-2])
    names = ["x", "starts", "ends"]
    node = helper.make_node("Slice", names, ["y"])
    bounds = [onnx.numpy_helper.from_array(np.int64([bound]), name) for name, bound in (("starts", 0), ("ends", 1))]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    made = helper.make_graph([node], "g", [x], [y], initializer=bounds)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_model_that_ends_the_checker_ends_not_us(tmp_path):
    model = slices_an_axis_of_minus_two()
    onnx.save(model, tmp_path / "m.onnx")
    for source in (tmp_path / "m.onnx", load(model)):
        (problem,) = structure_problems(source)
        assert problem.startswith("its process crashed on this model, by ")


def test_a_model_on_which_the_checker_hangs_takes_the_time_limit():
    path = Path(__file__).parents[3] / "tests" / "hostile" / "einsum_that_the_checker_never_leaves.onnx"
    with limits.override(seconds=1):
        assert structure_problems(path) == ['no answer within 1 s, the limit "seconds"']


def test_a_model_too_large_for_one_message_is_not_asked_about(monkeypatch):
    class Large:
        def SerializeToString(self):
            raise ValueError("more than 2 GB")

    monkeypatch.setattr(structure, "_without_weights", lambda graph: Large())
    assert structure_problems(chain()) == ["skipped, as the model does not fit in one protobuf message: more than 2 GB"]


def test_random_outputs_are_not_compared():
    graph = chain()
    graph.output("noise", tiny.double(tiny.draw(graph.all_inputs[0])))
    result = verify(graph, copy_graph(graph))
    assert [output.name for output in result.outputs] == ["y"]
    assert result.unverified == {"noise": "drawn at random"}
    assert not result.verified
    assert [(s.name, s.state) for s in result.states] == [("y", "verified"), ("noise", "not verified")]
    assert "noise: not verified: drawn at random" in result.summary()


@op("Noisy", domain=tiny.DOMAIN, pure=False)
def noisy(x, *, training=0):
    return tiny.draw(x) if training else tiny.identity(x)


@pytest.mark.parametrize("training", [0, 1])
def test_an_op_that_is_random_only_in_training_is_compared_without_the_optimizer(monkeypatch, training):
    monkeypatch.setattr("tenonnx_convert.verifying.drawn.find_extension", lambda name: None)
    graph = chain()
    graph.output("z", noisy(graph.all_inputs[0], training=training))
    result = verify(graph, copy_graph(graph))
    assert result.unverified == ({"z": "drawn at random"} if training else {})
    assert [node.op_type for node in graph.nodes][-1] == "Noisy"


def test_ops_that_no_package_provides_cannot_be_verified():
    model = to_model(chain())
    model.graph.node[0].op_type = "Unheard"
    graph = load(model, registry=tiny.registry())
    with pytest.raises(UnsupportedOp, match="cannot be run"):
        verify(graph)


def test_inputs_that_cannot_run_ask_for_better_ones():
    @primitive("Picky", domain="tiny", type=same_type)
    def picky(x): ...

    @picky.numpy
    def picky_numpy(x):
        raise TypeMismatch("Picky wants other inputs")

    graph = Graph("picky", opsets={"tiny": 4})
    graph.output("y", picky(graph.input("x", "float32", (2,))))
    with pytest.raises(InvalidFeed, match="found no sizes of random inputs") as raised:
        verify(graph)
    assert "--input name=file.npy" in str(raised.value)
    with pytest.raises(TypeMismatch, match="Picky wants"):
        verify(graph, feeds={"x": np.zeros(2, np.float32)})


def test_a_candidate_that_breaks_while_it_runs_is_a_problem(monkeypatch):
    graph = chain()

    def broken(array, *_):
        raise ValueError("no such buffer")

    other = copy_graph(graph)
    healthy = verify(graph, other)
    assert healthy.equal
    calls = iter([np.exp, broken])
    monkeypatch.setitem(vars(tiny.exp), "rules", {**tiny.exp.rules, "numpy": lambda x: next(calls)(x)})
    result = verify(graph, other)
    assert "no such buffer" in result.problems[0]


def test_a_longer_way_may_differ_more():
    assert accumulation(chain()) == 3 + 1
    graph = Graph(opsets={"tiny": 4})
    graph.variable("linear", np.zeros((100, 7), np.float32))
    assert accumulation(graph) == 7
    graph.variable("convolution", np.zeros((64, 32, 3, 3), np.float32))
    assert accumulation(graph) == 32 * 9
    graph.variable("empty", np.zeros((0, 3), np.float32))
    assert accumulation(graph) == 32 * 9


def test_the_largest_difference_is_that_of_a_failure():
    assert Verification("numpy").largest is None
    result = verify(chain(), chain(2.5))
    assert result.largest is result.outputs[0]


def test_a_difference_from_zero_is_valid_json():
    zero, other = (Graph("g", opsets={"tiny": 4}) for _ in range(2))
    for graph, factor in ((zero, 0), (other, 1)):
        x = graph.input("x", "float32", (1,))
        graph.output("y", tiny.multiply(x, graph.variable("w", np.array([factor], np.float32))))
    result = verify(zero, other, feeds={"x": np.ones(1, np.float32)}, backends=["numpy"]).to_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    (output,) = result["outputs"]
    assert (output["absolute"], output["relative"]) == (1.0, None)


def test_avoided_sizes_of_unknown_symbols_are_refused():
    assert verify(chain(), unlike={"n": 2}).equal
    with pytest.raises(InvalidCall, match="no input has a dim of that name") as caught:
        verify(chain(), unlike={"rows": 2})
    assert (caught.value.given, caught.value.available) == ("rows", "n")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InvalidCall('no backend "onnxruntime" is installed', do="install it"), "is installed; install it"),
        (PluginError("plugin could not be imported", given="no such name"), "imported: no such name"),
    ],
)
def test_a_backend_that_cannot_be_used_is_named_with_the_reason(monkeypatch, error, said):
    def load_backend(name):
        raise error

    monkeypatch.setattr("tenonnx_convert.verifying.verify.load_backend", load_backend)
    result = verify(chain())
    assert result.equal
    assert result.unverified == {"y": "computed on numpy alone"}
    assert result.notes[0].startswith("not compared on onnxruntime: ")
    assert result.notes[0].endswith(said)
    with pytest.raises(type(error), match=error.what):
        verify(chain(), backends=["numpy", "onnxruntime"])
