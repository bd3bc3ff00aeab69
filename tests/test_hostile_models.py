"""Models that ask for too much or make no sense of an op: they are refused as one of our errors, and at once."""

import signal
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

import tenonnx as tx


def info(name, kind=TensorProto.FLOAT, dims=None):
    return helper.make_tensor_value_info(name, kind, dims)


def model_of(nodes, inputs=(), outputs=("y",), opset=21, **graph):
    made = helper.make_graph(list(nodes), "g", list(inputs), [info(name) for name in outputs], **graph)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def tensor(name, array):
    return onnx.numpy_helper.from_array(np.asarray(array), name)


BRANCH = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "branch", [], [info("b")])

#: Each kind of attribute as a file holds it.
VALUES = {
    "an integer": 3,
    "a number": 2.5,
    "text": "some",
    "a list of integers": [1, 2],
    "a list of numbers": [1.5],
    "a list of texts": ["a"],
    "a graph": BRANCH,
    "a tensor": tensor("t", np.float32([1])),
    "a type": helper.make_tensor_type_proto(TensorProto.FLOAT, [1]),
}

WANTED = [
    ("If", "then_branch", "a graph"),
    ("Loop", "body", "a graph"),
    ("Constant", "value", "a tensor"),
    ("ConstantOfShape", "value", "a tensor"),
    ("Optional", "type", "a type"),
    ("Softmax", "axis", "an integer"),
    ("LeakyRelu", "alpha", "a number"),
    ("Transpose", "perm", "a list of integers"),
    ("DepthToSpace", "mode", "text"),
]


@pytest.mark.parametrize(("op", "name", "kind"), WANTED, ids=lambda p: p)
def test_an_attribute_of_another_kind_is_refused_by_the_loader(op, name, kind):
    for given, value in VALUES.items():
        if given == kind:
            continue
        node = helper.make_node(op, [] if op == "Constant" else ["x"], ["y"])
        written = {"then_branch": BRANCH, "else_branch": BRANCH} if op == "If" else {}
        written |= {"blocksize": 2} if op == "DepthToSpace" else {}
        written[name] = value
        node.attribute.extend(helper.make_attribute(key, each) for key, each in written.items())
        with pytest.raises(tx.InvalidModel, match=f'attribute "{name}" must be {kind}'):
            tx.load(model_of([node], [info("x")]))


def test_a_list_of_graphs_is_no_graph():
    node = helper.make_node("If", ["x"], ["y"], else_branch=BRANCH)
    node.attribute.add(name="then_branch", type=AttributeProto.GRAPHS).graphs.extend([BRANCH])
    with pytest.raises(tx.InvalidModel, match='attribute "then_branch" must be a graph'):
        tx.load(model_of([node], [info("x")]))


def test_a_function_attribute_may_have_a_graph_as_default():
    doubled = helper.make_graph([helper.make_node("Constant", [], ["b"], value_float=2.0)], "two", [], [info("b")])
    chosen = helper.make_node("If", ["c"], ["y"], else_branch=doubled)
    chosen.attribute.add(name="then_branch", type=AttributeProto.GRAPH, ref_attr_name="branch")
    function = helper.make_function("local", "Choose", ["c"], ["y"], [chosen], [helper.make_opsetid("", 21)])
    function.attribute_proto.append(helper.make_attribute("branch", doubled))
    model = model_of([helper.make_node("Choose", ["c"], ["y"], domain="local")], [info("c", TensorProto.BOOL, [])])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    assert tx.load(model).run({"c": np.array(True)}, backend="numpy")["y"] == 2


# ----- time -----------------------------------------------------------------------------------------------------------


def endless():
    names = [info("n", TensorProto.INT64, []), info("k", TensorProto.BOOL, []), info("v")]
    nodes = [helper.make_node("Identity", ["k"], ["k1"]), helper.make_node("Identity", ["v"], ["w"])]
    body = helper.make_graph(nodes, "body", names, [info("k1", TensorProto.BOOL), info("w")])
    count = tensor("m", np.int64(2**62))
    node = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)
    return model_of([node], [info("x", dims=[2])], initializer=[count])


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_a_loop_that_never_ends_meets_its_deadline(backend):
    program = tx.load(endless()).compile(backend, deadline=0.2)
    with pytest.raises(tx.LimitExceeded, match="within its deadline"):
        program({"x": np.zeros(2, np.float32)})


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_ctrl_c_ends_a_run_at_once(backend, tmp_path):
    onnx.save(endless(), tmp_path / "m.onnx")
    script = """
import os, signal, sys, threading, time
from tenonnx.cli import main, output
def interrupt():
    while signal.getsignal(signal.SIGINT) is not signal.SIG_DFL: time.sleep(0.01)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
sys.exit(main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", script, "run", str(tmp_path / "m.onnx"), "--backend", backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGINT
    assert "Traceback" not in done.stderr


# ----- memory ---------------------------------------------------------------------------------------------------------


def test_what_is_too_large_is_not_folded():
    shape = tensor("s", np.int64([1 << 20, 1 << 13]))  # 32 GiB
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["large"]), helper.make_node("Shape", ["large"], ["y"])]
    program = tx.load(model_of(nodes, initializer=[shape])).compile("numpy")
    assert program({})["y"].tolist() == [1 << 20, 1 << 13]
