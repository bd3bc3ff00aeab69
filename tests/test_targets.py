"""Named targets on the examples: plans, outputs, and limits compared with the installed runtime."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from models import SAMPLES, example, feeds

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable
from tenonnx.transforms.retarget import retarget_to
from tenonnx.transforms.target import Target, target_for
from tenonnx_cli import main
from tenonnx_onnx_ml.preprocessing import scaler
from tenonnx_onnxruntime.kernels import newest, newest_ir
from tenonnx_targets.files import runtimes

TARGETS, _ = runtimes()


def test_the_file_of_the_installed_runtime_is_right():
    runtime = TARGETS["onnxruntime-" + ".".join(onnxruntime.__version__.split(".")[:2])]
    assert runtime.opsets == {domain: newest(domain) for domain in runtime.opsets}
    assert runtime.ir_version == newest_ir()


def test_the_lists_hold_ops_of_onnx():
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain}
    never = {"ATen", "Affine", "ConstantFill", "Crop", "ImageScaler", "IsFinite", "ParametricSoftplus", "ScaledTanh"}
    never |= {"MemcpyFromHost", "MemcpyToHost"}
    for runtime in TARGETS.values():
        listed = {name for domain, name in runtime.ops or () if domain == "ai.onnx"}
        assert listed <= known | never | {"SimplifiedLayerNormalization"}


@pytest.mark.parametrize("target", ["onnxruntime-1.14", "onnxruntime-1.20", "openvino-2024", "tensorrt-10"])
@pytest.mark.parametrize("name", ["decoder/decoder", "digits/digits"])
def test_examples_reach_targets_with_the_same_numbers(name, target, tmp_path):
    graph, path = tx.load(example(name)), tmp_path / "moved.onnx"
    report = tx.export(graph, path, target=target)
    runtime = TARGETS[target]
    assert report.ir_version <= (runtime.ir_version or report.ir_version)
    moved = tx.load(path)
    for domain, version in moved.opsets.items():
        assert runtime.nearest(domain, version) == version
    if runtime.ops is not None:
        assert {(node.domain, node.op_type) for node in moved.walk()} <= set(runtime.ops)
    if all(node.op.is_specified_at(node.version) for node in moved.walk()):
        onnx.checker.check_model(path, full_check=True)
    tx.verify(graph, moved, feeds=feeds(name)).raise_if_failed()


@pytest.mark.parametrize("name", ["digits/digits-int8", "iris/iris", "iris/tree"])
def test_obstacles_are_reported_with_a_remedy(name, capfd):
    code = main(["plan", str(example(name)), "--target", "tensorrt-10", "--json"])
    plan = json.loads(capfd.readouterr().out)
    refused = [entry for entry in plan["nodes"] if entry["action"] == "refused"]
    assert code == 1
    assert plan["possible"] is False
    assert plan["summary"]["actions"]["refused"] == len(refused)
    assert all(entry["reason"] and entry["do"] for entry in refused)
    with pytest.raises(NotRepresentable) as caught:
        tx.retarget(tx.load(example(name)), target="tensorrt-10")
    for entry in refused:
        assert entry["node"] in caught.value.given


def branching(inner, called="Stranger"):
    """A model with a node in a branch, and one in a function."""
    info = onnx.helper.make_tensor_value_info
    make = onnx.helper.make_node
    then = onnx.helper.make_graph([make(inner, ["f"], ["t"], "deep")], "one", [], [info("t", 1, ["n"])])
    other = onnx.helper.make_graph([make("Neg", ["f"], ["e"], "plain")], "two", [], [info("e", 1, ["n"])])
    body = [
        make("Abs", ["a"], ["b"], "first"),
        make(called, ["b"], ["c"], "second", domain="acme" if called == "Stranger" else ""),
    ]
    function = onnx.helper.make_function(
        "local", "Twofold", ["a"], ["c"], body, [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("acme", 1)]
    )
    nodes = [
        make("Twofold", ["x"], ["f"], "call", domain="local"),
        make("If", ["c"], ["y"], "choice", then_branch=then, else_branch=other),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", 1, ["n"]), info("c", onnx.TensorProto.BOOL, [])], [info("y", 1, ["n"])]
    )
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in (("", 21), ("local", 1), ("acme", 1))]
    return tx.load(onnx.helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10))


def plan_of(graph, **where):
    return {change.node: change for change in retarget_to(graph, target_for(graph, **where), refuse=False).changes}


def test_plans_show_the_path_to_nodes_in_branches_and_functions():
    result = plan_of(branching("Det"), name="tensorrt-10")
    assert {node: change.action for node, change in result.items()} == {
        "call": "refused",
        "choice/then_branch/deep": "refused",
        "choice/else_branch/plain": "kept",
        "choice": "kept",
    }
    assert "ai.onnx::Det is not on the list" in result["choice/then_branch/deep"].reason
    assert 'node "second" (acme::Stranger@1)' in result["call"].reason


def test_a_node_with_rewritten_subgraphs_keeps_its_own_action():
    result = plan_of(branching("Mish", called="Neg"), opset_version=13)
    assert result["choice/then_branch/deep"].action == "expanded"
    assert result["choice"].action == "kept"


def test_a_target_without_a_cast_refuses():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.sin(graph.input("x", "float16", ("n",))))
    target = Target({"ai.onnx": 17}, accepts=lambda op, *_: op.name == "Add")
    with pytest.raises(NotRepresentable, match="cannot be expressed in the target"):
        retarget_to(graph, target)


@pytest.mark.parametrize(
    ("op", "contents", "expected"),
    [
        (ops.neg, np.float32([0.0, -0.0, 1.5, np.inf]), ["Mul"]),
        (ops.neg, np.int64([1, -5]), ["Mul"]),
        (ops.reciprocal, np.float32([0.5, -0.0, 3]), ["Div"]),
        (ops.ceil, np.float32([-0.5, 0.5, 2]), ["Mul", "Floor", "Mul"]),
        (ops.not_, np.array([True, False]), ["Equal"]),
    ],
)
def test_an_op_that_is_not_listed_is_lowered_to_others(op, contents, expected):
    graph = tx.Graph(opsets={"ai.onnx": 19})
    graph.output("y", op(graph.input("x", str(contents.dtype), ("n",))))
    moved = tx.retarget(graph, target="rknn-2")
    assert [node.op_type for node in moved.nodes] == expected
    result, wanted = (each.run({"x": contents}, backend="numpy")["y"] for each in (moved, graph))
    np.testing.assert_array_equal(result, wanted)
    if contents.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(result), np.signbit(wanted))


def test_ops_that_static_shapes_fold_need_no_support():
    graph = tx.load(example("decoder/decoder"))
    past = {f"past_key_values.{k}.{kind}": (1, 2, 5, 8) for k in range(2) for kind in ("key", "value")}
    graph.infer({"input_ids": (1, 3), "attention_mask": (1, 8), **past})
    moved = tx.retarget(graph, target="rknn-2")
    assert not {"Range", "NonZero", "Neg", "Reciprocal"} & {node.op_type for node in moved.nodes}
    random = np.random.default_rng(0)
    fed = {name: random.standard_normal(shape, np.float32) for name, shape in past.items()}
    fed |= {"input_ids": np.int64([[1, 2, 3]]), "attention_mask": np.ones((1, 8), np.int64)}
    tx.verify(graph, moved, feeds=fed).raise_if_failed()


def test_advice_names_the_first_version_that_has_a_form():
    graph = tx.load(example("decoder/decoder"))
    for domains in (None, ["ai.onnx"]):
        refused = retarget_to(graph, target_for(graph, 8, domains), refuse=False).refused
        assert {"mask.running", "position_ids"} <= {change.node for change in refused}
        for change in refused:
            assert change.do.startswith("go to version 9 of ai.onnx or newer")
            assert len(change.reason.split("; ")) <= 2
            assert change.to_dict()["reasons"]
        assert not retarget_to(graph, target_for(graph, 9, domains), refuse=False).refused


def test_a_plan_for_the_present_opset_agrees_with_convert(capfd):
    assert main(["plan", str(example("decoder/decoder")), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["summary"]["actions"] == {"kept": 42}


def test_iris_reaches_a_runtime_that_supports_its_domain(tmp_path):
    graph = tx.load(example("iris/iris"))
    tx.export(graph, tmp_path / "iris.onnx", target="onnxruntime-1.16")
    tx.verify(graph, tx.load(tmp_path / "iris.onnx"), feeds=feeds("iris/iris")).raise_if_failed()


def test_every_example_has_a_plan_for_every_target(capfd):
    for path in map(example, SAMPLES):
        for name in ("tensorrt-8", "rknn-2", "coreml-onnx"):
            code = main(["plan", str(path), "--target", name, "--json"])
            out, err = capfd.readouterr()
            assert code in (0, 1), err
            assert json.loads(out)["possible"] is (code == 0)


TREE = """
<ir_version: 8, opset_import: ["ai.onnx.ml" : 3]>
one (float[n, 2] x) => (float[n, 1] y) {
    y = ai.onnx.ml.TreeEnsembleRegressor <
        n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [1, 0, 0],
        nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values = [0.5, 0.0, 0.0],
        nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0],
        target_treeids = [0, 0], target_nodeids = [1, 2], target_ids = [0, 0], target_weights = [3.0, 4.0]
    > (x)
}
"""


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_a_model_of_other_domains_only_may_use_the_newest_ops(backend):
    graph = tx.load(onnx.parser.parse_model(TREE))
    moved = tx.retarget(graph, domains=["ai.onnx"])
    assert {node.domain for node in moved.nodes} == {"ai.onnx"}
    x = np.float32([[0, 0], [0, 1]])
    for each in (graph, moved):
        np.testing.assert_array_equal(each.run({"x": x}, backend=backend)["y"], [[3], [4]])


def test_a_graph_built_of_another_domain_runs_where_its_ops_are():
    graph = tx.Graph()
    graph.output("y", scaler(graph.input("x", "float32", (1, 2)), offset=[1.0, 2.0], scale=[2.0, 3.0]))
    program = graph.compile("onnxruntime", strict=True)
    np.testing.assert_array_equal(program({"x": np.float32([[1, 3]])})["y"], [[0, 3]])


def test_an_output_that_needs_an_unsupported_identity_is_refused():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = ops.relu(graph.input("x", "float32", (2, 3)))
    graph.output("a", x)
    graph.output("b", ops.dropout(x, _outputs=1))
    target = Target({"ai.onnx": 17}, lambda op, *_: op.name == "Relu")
    (refused,) = retarget_to(graph, target, refuse=False).refused
    assert (refused.node, refused.op) == ("b", "graph output")
    with pytest.raises(NotRepresentable, match="cannot be expressed") as caught:
        retarget_to(graph, target)
    assert 'graph output "b": the target has no kernel of ai.onnx::Identity' in caught.value.given
