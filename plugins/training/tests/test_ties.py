"""Tied initializers: all their names, and untying on request."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from trained_models import X, Y, contents

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx.errors import InvalidCall
from tenonnx.extend import subgraph
from tenonnx.extend.formats import Role
from tenonnx.extend.transforms import Builder, interpreting
from tenonnx_cli import main
from tenonnx_training.tied_weights import separate

FOLDER = Path(__file__).parent / "pytorch"


@pytest.mark.parametrize("untie", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_a_net_of_merged_initializers_trains_as_in_pytorch(untie, backend):
    data, graph = np.load(FOLDER / "merged.npz"), tx.load(FOLDER / "merged.onnx")
    step = tt.TrainingStep(graph, "softmax_cross_entropy", tt.Momentum(0.05), untie=untie, backend=backend)
    batches = zip(data["x"], data["labels"], strict=True)
    losses = [step({"x": x, "labels": labels})["loss"] for x, labels in batches]
    np.testing.assert_allclose(losses, data["losses"], rtol=1e-4)
    held = contents(step.write_back())
    names = [name for name in data.files if name not in ("x", "labels", "losses")]
    assert {*held} == {*names}
    for name in names:
        np.testing.assert_allclose(held[name], data[name], rtol=2e-5, atol=2e-6, err_msg=name)


def moved(trainable, **options):
    graph = tx.load(FOLDER / "merged.onnx")
    step = tt.TrainingStep(graph, "softmax_cross_entropy", trainable=trainable, backend="numpy", **options)
    before = contents(graph)
    step({"x": np.ones((2, 1, 6, 6), np.float32), "labels": np.int64([1, 2])})
    after = contents(step.write_back())
    return {name for name in before if not np.array_equal(before[name], after[name])}, step.notes


def test_an_additional_name_is_trained_separately_and_its_layer_not_frozen():
    changed, notes = moved("norms.2.*")
    assert changed == {f"norms.2.{name}" for name in ("weight", "bias", "running_mean", "running_var")}
    assert any("stored once" in note and "norms.1.running_mean" in note for note in notes)


def twice():
    """``x @ w + b + c``, where ``c`` is an Identity of ``b``."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="/first/MatMul"),
        helper.make_node("Identity", ["b"], ["c"]),
        helper.make_node("Add", ["h", "b"], ["i"], name="/first/Add"),
        helper.make_node("Add", ["i", "c"], ["y"], name="/second/Add"),
    ]
    held = {"w": np.float32([[1], [2]]), "b": np.float32([0.5])}
    graph = helper.make_graph(
        nodes,
        "twice",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 1])],
        [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def trained(trainable, **options):
    graph = tx.load(twice())
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), trainable=trainable, backend="numpy", **options)
    step({"x": X, "labels": Y})
    return contents(step.write_back()), step.notes, step._step_graph.parameters


def test_patterns_see_all_names_and_notes_say_what_is_tied():
    tied, notes, parameters = trained("c", untie=False)
    assert parameters == ["b"]
    assert any("b: shared by 2 Add nodes" in note and "--untie" in note for note in notes)
    apart, notes, parameters = trained("c")
    assert parameters == ["c"]
    assert any("c from b" in note and "--no-untie" in note for note in notes)
    assert apart["b"] == np.float32(0.5)
    assert tied["b"] - 0.5 == pytest.approx(2 * (apart["c"] - 0.5))


@pytest.mark.parametrize("pattern", ["first.*", "/first/*", "*MatMul"])
def test_patterns_match_the_path_of_a_node_that_uses_a_variable(pattern):
    assert trained(pattern, untie=True)[2] == (["w"] if "MatMul" in pattern else ["w", "b"])
    with pytest.raises(InvalidCall, match=r'trainable "third\.\*" matches no') as caught:
        trained("third.*")
    assert caught.value.available == "w, b, c"


def test_the_command_line_unties(tmp_path):
    onnx.save(twice(), tmp_path / "twice.onnx")
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    tuned = tmp_path / "tuned.onnx"
    common = [str(tmp_path / "twice.onnx"), "--data", str(tmp_path / "data.npz"), "--loss", "mean_squared_error"]
    assert main(["train", *common, "--no-untie", "-o", str(tuned)]) == 0
    assert [tensor.name for tensor in onnx.load(tuned).graph.initializer] == ["w", "b"]
    assert main(["train", *common, "--trainable", "c", "--untie", "-o", str(tuned)]) == 0
    assert [tensor.name for tensor in onnx.load(tuned).graph.initializer] == ["w", "b", "c"]
    onnx.checker.check_model(onnx.load(tuned), full_check=True)


# ----- files of PyTorch's dynamo exporter -----------------------------------------------------------------------------


def scoped(*layers, held):
    """A chain of layers ``(op_type, weights, module, attributes)``, with module paths in the metadata."""
    nodes, value = [], "x"
    for number, (op_type, weights, module, attributes) in enumerate(layers):
        node = helper.make_node(op_type, [value, *weights], [f"h{number}"], name=f"node_{number}", **attributes)
        around = ["", *(".".join(module.split(".")[: k + 1]) for k in range(module.count(".") + 1)), f"n{number}"]
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(around))
        nodes.append(node)
        value = f"h{number}"
    graph = helper.make_graph(
        nodes,
        "scoped",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [None, 4])],
        [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return tx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10))


ONES, ZEROS = np.ones(4, np.float32), np.zeros(4, np.float32)
SQUARE = np.arange(16, dtype=np.float32).reshape(4, 4) / 8


def separated(graph, untie=None):
    result = separate(graph, untie)
    graph.infer()
    return sorted(v.name for v in graph.variables), result


def test_new_normalizations_of_different_modules_are_different_weights():
    layers = [("LayerNormalization", ["n1.weight", "n1.bias"], name, {}) for name in ("n1", "n2", "deep.n3")]
    names, result = separated(scoped(*layers, held={"n1.weight": ONES, "n1.bias": ZEROS}))
    assert names == ["deep.n3.bias", "deep.n3.weight", "n1.bias", "n1.weight", "n2.bias", "n2.weight"]
    assert result.new_variables == {
        "n1.weight": ["n2.weight", "deep.n3.weight"],
        "n1.bias": ["n2.bias", "deep.n3.bias"],
    }
    tied = scoped(*layers, held={"n1.weight": ONES, "n1.bias": ZEROS})
    names, result = separated(tied, untie=False)
    assert names == ["n1.bias", "n1.weight"]
    assert "n1.weight: shared by 3 LayerNormalization nodes" in result.notes()[-1]


def test_a_module_that_is_called_twice_has_one_weight():
    layers = [("LayerNormalization", ["n.weight", "n.bias"], "n", {})] * 2
    names, result = separated(scoped(*layers, held={"n.weight": ONES, "n.bias": ZEROS}))
    assert names == ["n.bias", "n.weight"]
    assert not result.new_variables
    assert "n.weight: shared by 2 LayerNormalization nodes" in result.notes()[-1]


def test_matrices_of_copied_layers_are_apart_and_those_of_other_modules_stay_tied():
    copies = [("MatMul", ["layers.0.w"], f"layers.{k}", {}) for k in (0, 1)]
    assert separated(scoped(*copies, held={"layers.0.w": SQUARE}))[0] == ["layers.0.w", "layers.1.w"]
    others = [("MatMul", ["down.w"], name, {}) for name in ("down", "up")]
    assert separated(scoped(*others, held={"down.w": SQUARE}))[0] == ["down.w"]
    assert separated(scoped(*others, held={"down.w": SQUARE}), untie=True)[0] == ["down.w", "up.w"]
    assert separated(scoped(*others, held={"down.w": SQUARE}), untie="down.*")[0] == ["down.w", "up.w"]


def test_vectors_that_the_exporter_does_not_merge_stay_tied():
    long = np.ones(2048, np.float32)
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x, w = graph.input("x", "float32", ("n", 2048)), graph.variable("n1.weight", long)
    graph.output("y", ops.layer_normalization(ops.layer_normalization(x, w)[0], w)[0])
    assert separated(graph)[0] == ["n1.weight"]


def test_statistics_are_never_one_with_weights():
    layer = ("BatchNormalization", ["bn.weight", "bn.bias", "bn.bias", "bn.weight"], "bn", {})
    names, _ = separated(scoped(layer, held={"bn.weight": ONES, "bn.bias": ZEROS}), untie=False)
    assert names == ["bn.bias", "bn.running_mean", "bn.running_var", "bn.weight"]


def test_a_transposed_weight_is_transposed_for_each_reader():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x, w = graph.input("x", "float32", ("n", 4)), graph.variable("w", SQUARE)
    turned = ops.transpose(w)
    graph.output("y", x @ turned @ turned)
    before = graph.run({"x": np.eye(4, dtype=np.float32)}, backend="numpy")["y"]
    names, _ = separated(graph, untie=True)
    assert len(names) == 2
    np.testing.assert_array_equal(graph.run({"x": np.eye(4, dtype=np.float32)}, backend="numpy")["y"], before)


def test_weights_whose_role_the_file_states_stay_tied():
    layers = [("LayerNormalization", ["n1.weight", "n1.bias"], name, {}) for name in ("n1", "n2")]
    graph = scoped(*layers, held={"n1.weight": ONES, "n1.bias": ZEROS})
    for value in graph.variables:
        value.role = Role("parameter")
    assert separated(graph)[0] == ["n1.bias", "n1.weight"]


def test_a_pattern_that_matches_no_shared_weight_is_refused():
    graph = scoped(("MatMul", ["w"], "a", {}), held={"w": SQUARE})
    with pytest.raises(InvalidCall, match='untie "v" matches no shared weight'):
        separate(graph, "v")


# ----- bodies and functions -------------------------------------------------------------------------------------------


def branches(twice=False):
    """A LayerNormalization followed by one in each branch of an If, with shared weight and bias."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    weight, bias = graph.variable("n0.weight", ONES), graph.variable("n0.bias", ZEROS)

    def norm(value):
        return ops.layer_normalization(value, weight, bias)[0]

    first = norm(x)

    with interpreting(Builder(graph)):
        then = subgraph(lambda: norm(norm(first)) if twice else norm(first) * 2.0, name="then")
        other = subgraph(lambda: norm(first) - 1.0, name="else")
        positive = ops.greater(ops.reduce_sum(x, keepdims=0), 0.0)
        graph.output("y", ops.if_(positive, then_branch=then, else_branch=other))
    return graph


@pytest.mark.parametrize(("untie", "count"), [(None, 3), (True, 3), (False, 1), ("n0.weight", 3)])
def test_weights_of_bodies_are_separated(untie, count):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    before = [branches().run({"x": sign * x}, backend="numpy")["y"] for sign in (1, -1)]
    graph = branches()
    names, result = separated(graph, untie)
    assert sum("weight" in name for name in names) == count
    assert any("3 LayerNormalization nodes" in note for note in result.notes()) == (untie is False)
    written = tx.load(graph.to_proto())
    for made in (graph, written):
        after = [made.run({"x": sign * x}, backend="numpy")["y"] for sign in (1, -1)]
        np.testing.assert_array_equal(before, after)


def test_a_weight_read_twice_in_one_body_stays_tied_and_is_named():
    names, result = separated(branches(twice=True))
    assert sum("weight" in name for name in names) == 3
    assert any("tied" in note and "2 LayerNormalization nodes" in note for note in result.notes())
    names, _ = separated(branches(twice=True), untie=True)
    assert sum("weight" in name for name in names) == 4


def test_a_separated_weight_of_a_branch_is_trained_separately():
    graph = branches()
    step = tt.TrainingStep(graph, "mean_squared_error", tt.SGD(0.1), backend="numpy")
    x = np.float32([[1, 2, 3, 5]])
    step({"x": x, "labels": np.zeros_like(x)})
    after = contents(step.write_back())
    moved = {name for name, array in after.items() if name != "n0.weight" and "weight" in name and (array != 1).any()}
    assert len(moved) == 1  # that of the executed branch
    assert (after["n0.bias"] != 0).any() or (after["n0.weight"] != 1).any()


def of_functions(model_scopes=True):
    """Two calls of a function with two normalizations, all sharing one weight, which is passed to two inputs."""
    body = [
        helper.make_node("LayerNormalization", ["x", "w1", "b1"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "w2", "b2"], ["y"]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Block", ["x", "w1", "b1", "w2", "b2"], ["y"], body, opsets)
    nodes = [
        helper.make_node("Block", [x, "w", "b", "w", "b"], [y], name=f"block_{y}", domain="own")
        for x, y in (("x", "h"), ("h", "y"))
    ]
    for number, node in enumerate(nodes):
        if model_scopes:
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'layers.{number}', 'block']")
    graph = helper.make_graph(
        nodes,
        "functions",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 4])],
        [onnx.numpy_helper.from_array(ONES, "w"), onnx.numpy_helper.from_array(ZEROS, "b")],
    )
    return tx.load(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[function]))


def test_each_input_of_a_function_call_is_a_separate_weight():
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    graph = of_functions()
    before = graph.run({"x": x}, backend="numpy")["y"]
    names, _ = separated(graph)
    assert len(names) == 8
    np.testing.assert_array_equal(graph.run({"x": x}, backend="numpy")["y"], before)
    names, result = separated(of_functions(), untie=False)
    assert names == ["b", "w"]
    assert "w: shared by 2 Block nodes" in result.notes()[-1]
    assert len(separated(of_functions(model_scopes=False), untie=True)[0]) == 8


def test_a_running_statistic_of_a_function_is_never_a_weight():
    body = [helper.make_node("BatchNormalization", ["x", "w", "b", "m", "v"], ["y"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Norm", ["x", "w", "b", "m", "v"], ["y"], body, opsets)
    graph = helper.make_graph(
        [helper.make_node("Norm", ["x", "w", "b", "b", "w"], ["y"], domain="own")],
        "functions",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 4])],
        [onnx.numpy_helper.from_array(ONES, "w"), onnx.numpy_helper.from_array(ZEROS, "b")],
    )
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[function])
    assert len(separated(tx.load(model), untie=False)[0]) == 4


# ----- files with the traced call of each node ------------------------------------------------------------------------


def traced(*layers, held):
    """``scoped`` with the arguments of each call: ``(op_type, weights, module, parameters)``."""
    graph = scoped(*((kind, weights, module, {}) for kind, weights, module, _ in layers), held=held)
    for node, (*_, parameters) in zip(graph.nodes, layers, strict=True):
        arguments = ", ".join(["%x", "[4]", *(f"%{name}" for name in parameters)])
        call = (
            f"%y : [num_users=1] = call_function[target=torch.ops.aten.any](args = ({arguments}, 1e-05), kwargs = {{}})"
        )
        node.origin.metadata_props.add(key="pkg.torch.onnx.fx_node", value=call)
    return graph


def test_the_arguments_of_traced_calls_tell_ties_from_merged_weights():
    layers = [
        ("LayerNormalization", ["n1.weight", "n1.bias"], name, [f"p_{of}_weight", f"p_{name}_bias"])
        for name, of in (("n1", "n1"), ("n2", "n1"), ("n3", "n3"))
    ]
    names, result = separated(traced(*layers, held={"n1.weight": ONES, "n1.bias": ZEROS}))
    assert names == ["n1.bias", "n1.weight", "n2.bias", "n3.bias", "n3.weight"]
    assert any("n1.weight: shared by 2 LayerNormalization nodes" in note for note in result.notes())


def test_a_weight_that_was_stored_transposed_again_is_one():
    layers = [("MatMul", [name], module, ["p_head_weight"]) for name, module in (("head.weight", "a"), ("val_1", "b"))]
    held = {"head.weight": SQUARE, "val_1": SQUARE.T.copy()}
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    graph = traced(*layers, held=held)
    before = graph.run({"x": x}, backend="numpy")
    names, result = separated(graph)
    assert names == ["head.weight"]
    assert any("val_1 is head.weight" in note and "--untie" in note for note in result.notes())
    after = graph.run({"x": x}, backend="numpy")
    np.testing.assert_array_equal(*(next(iter(each.values())) for each in (before, after)))
    assert separated(traced(*layers, held=held), untie=True)[0] == ["head.weight", "val_1"]
    other = {"head.weight": SQUARE, "val_1": SQUARE.T + 1}
    assert separated(traced(*layers, held=other))[0] == ["head.weight", "val_1"]


def test_a_bias_that_was_removed_as_zero_comes_back():
    graph = traced(("Gemm", ["a.weight"], "a", ["p_a_weight", "p_a_bias"]), held={"a.weight": SQUARE})
    graph.nodes[0].origin.metadata_props.add(
        key="pkg.onnxscript.rewriter.rule_name", value="RemoveOptionalBiasFromGemm"
    )
    names, result = separated(graph)
    assert names == ["a.bias", "a.weight"]
    assert any("restored biases" in note and "a.bias" in note for note in result.notes())
    plain = traced(("Gemm", ["a.weight"], "a", ["p_a_weight"]), held={"a.weight": SQUARE})
    assert separated(plain)[0] == ["a.weight"]
