"""Invalid models, and models that need too much memory or time: one of our errors refuses them at once."""

import io
import signal
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import op


def info(name, kind=TensorProto.FLOAT, dims=None):
    return helper.make_tensor_value_info(name, kind, dims)


def model_of(nodes, inputs=(), outputs=("y",), opset=21, **graph):
    made = helper.make_graph(list(nodes), "g", list(inputs), [info(name) for name in outputs], **graph)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def tensor(name, array):
    return onnx.numpy_helper.from_array(np.asarray(array), name)


BRANCH = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "branch", [], [info("b")])

#: A value for each kind of attribute.
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
        with pytest.raises(tx.InvalidModel, match=f'attribute "{name}" is not {kind}'):
            tx.load(model_of([node], [info("x")]))


def test_a_list_of_graphs_is_no_graph():
    node = helper.make_node("If", ["x"], ["y"], else_branch=BRANCH)
    node.attribute.add(name="then_branch", type=AttributeProto.GRAPHS).graphs.extend([BRANCH])
    with pytest.raises(tx.InvalidModel, match='attribute "then_branch" is not a graph'):
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
import tenonnx as tx
from tenonnx_cli import main
tx.load(sys.argv[2]).compile(sys.argv[4])  # a package that loads hears Ctrl-C by itself
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


def test_large_results_are_not_folded():
    shape = tensor("s", np.int64([1 << 20, 1 << 13]))  # 32 GiB
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["large"]), helper.make_node("Shape", ["large"], ["y"])]
    program = tx.load(model_of(nodes, initializer=[shape])).compile("numpy")
    assert program({})["y"].tolist() == [1 << 20, 1 << 13]


F, I = np.float32, np.int64  # noqa: E741
IMAGE = np.ones((1, 1, 4, 4), F)

#: Calls with a huge result, whose size is in the file: op, inputs, attributes.
GROWING = [
    ("ConstantOfShape", [I([1000])], {}),
    ("Range", [I(0), I(1000), I(1)], {}),
    ("Tile", [np.ones(4, F), I([250])], {}),
    ("Pad", [np.ones(4, F), I([500, 500])], {}),
    ("Pad", [np.ones(4, F), I([500, 500])], {"mode": "wrap"}),
    ("OneHot", [I([1, 2]), I(500), F([0, 1])], {}),
    ("Resize", [IMAGE, F([]), F([1, 1, 100, 100])], {}),
    ("Resize", [IMAGE, F([]), F([]), I([1, 1, 50, 50])], {"mode": "linear"}),
    ("ConvTranspose", [IMAGE, np.ones((1, 1, 2, 2), F)], {"output_shape": [100, 100]}),
    ("ConvTranspose", [IMAGE, np.ones((1, 1, 2, 2), F)], {"strides": [50, 50]}),
    ("ConvTranspose", [IMAGE, np.ones((1, 1, 2, 2), F)], {"dilations": [1, 60], "output_shape": [4, 4]}),
    ("MaxUnpool", [IMAGE, np.zeros((1, 1, 4, 4), I), I([1, 1, 90, 90])], {"kernel_shape": [1, 1]}),
    ("DFT", [np.ones((1, 8, 1), F), I(1000)], {}),
    ("RandomNormal", [], {"shape": [1000]}),
    ("RandomUniform", [], {"shape": [1000]}),
    ("HannWindow", [I(1000)], {}),
    ("RoiAlign", [IMAGE, F([[0, 0, 2, 2]]), I([0])], {"output_height": 100, "output_width": 100}),
    ("RoiAlign", [IMAGE, F([[0, 0, 2, 2]]), I([0])], {"sampling_ratio": 1000}),
    ("MaxRoiPool", [IMAGE, F([[0, 0, 0, 2, 2]])], {"pooled_shape": [50, 50]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "pads": [90, 90, 90, 90]}),
]


@pytest.mark.parametrize(("op", "inputs", "attributes"), GROWING, ids=[op for op, _, _ in GROWING])
def test_results_keep_to_the_limit_of_elements(op, inputs, attributes):
    names = [f"i{k}" if array is not None else "" for k, array in enumerate(inputs)]
    infos = [info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, inputs, strict=True)]
    program = tx.load(model_of([helper.make_node(op, names, ["y"], **attributes)], infos)).compile("numpy")
    feeds = dict(zip(names, map(np.asarray, inputs), strict=True))
    assert program(feeds)["y"].size >= 1
    with tx.limits.override(elements=150), pytest.raises(tx.LimitExceeded, match='"elements"'):
        program(feeds)


@pytest.mark.parametrize("reader", ["Relu", "Identity", "SequenceConstruct", "NonZero", "ReduceSum"])
def test_a_view_keeps_to_the_limit_of_elements(reader):
    nodes = [helper.make_node("Expand", ["x", "s"], ["e"]), helper.make_node(reader, ["e"], ["y"])]
    model = model_of(nodes, [info("x", dims=[1, 1])], (), initializer=[tensor("s", I([1 << 20, 1 << 20]))])
    model.graph.output.append(onnx.ValueInfoProto(name="y"))
    with pytest.raises(tx.LimitExceeded, match='Expand@8 exceeds the limit "elements"'):
        tx.load(model).compile("numpy")({"x": np.ones((1, 1), F)})


LONG = 1 << 17

#: Calls with a huge result of small inputs: op, shapes of its inputs, attributes.
OUTER = [
    ("Add", {"x": [LONG, 1], "z": [1, LONG]}, {}),
    ("Where", {"c": [LONG, 1], "x": [1, LONG], "z": [1]}, {}),
    ("MatMul", {"x": [LONG, 1], "z": [1, LONG]}, {}),
    ("Gemm", {"x": [LONG, 1], "z": [1, LONG]}, {}),
    ("Einsum", {"x": [LONG], "z": [LONG]}, {"equation": "i,j->ij"}),
    ("Gather", {"x": [1, LONG], "i": [LONG]}, {}),
    ("Concat", {f"x{k}": [LONG, LONG >> 8] for k in range(9)}, {"axis": 0}),
]
KINDS = {"c": bool, "i": np.int64}


@pytest.mark.parametrize(("op", "shapes", "attributes"), OUTER, ids=[op for op, _, _ in OUTER])
def test_results_of_small_tensors_keep_to_the_limit_of_elements(op, shapes, attributes):
    """The model computes each input from a tiny one; the third call uses prepared kernels."""
    nodes = [helper.make_node("Expand", ["one" + name[0], "s" + name], [name]) for name in shapes]
    nodes.append(helper.make_node(op, list(shapes), ["y"], **attributes))
    contents = [tensor("s" + name, I(shape)) for name, shape in shapes.items()]
    kinds = {name[0]: helper.np_dtype_to_tensor_dtype(np.dtype(KINDS.get(name[0], F))) for name in shapes}
    model = model_of(nodes, [info("one" + name, kind, [1]) for name, kind in kinds.items()], initializer=contents)
    program = tx.load(model).compile("numpy")
    for _ in range(3):
        with pytest.raises(tx.LimitExceeded, match='a result exceeds the limit "elements"'):
            program({"one" + name: np.zeros(1, KINDS.get(name, F)) for name in kinds})


def test_a_loop_that_doubles_a_tensor_keeps_to_the_limit_of_elements():
    names = [info("n", TensorProto.INT64, []), info("k", TensorProto.BOOL, []), info("v", dims=[None])]
    nodes = [helper.make_node("Identity", ["k"], ["k1"]), helper.make_node("Concat", ["v", "v"], ["w"], axis=0)]
    body = helper.make_graph(nodes, "body", names, [info("k1", TensorProto.BOOL), info("w", dims=[None])])
    node = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)
    program = tx.load(model_of([node], [info("x", dims=[2])], initializer=[tensor("m", I(60))])).compile("numpy")
    with (
        tx.limits.override(elements=1000),
        pytest.raises(tx.LimitExceeded, match="a result exceeds the limit"),
    ):
        program({"x": np.zeros(2, F)})


def test_inputs_of_a_caller_may_be_larger():
    nodes = [helper.make_node("MatMul", ["x", "x"], ["p"]), helper.make_node("Add", ["p", "x"], ["q"])]
    program = tx.load(model_of(nodes, [info("x", dims=[9, 9])], ("q",))).compile("numpy")
    with tx.limits.override(elements=10):
        for _ in range(3):
            assert program({"x": np.ones((9, 9), F)})["q"].shape == (9, 9)


HUGE = 1 << 40


def steps(model, feeds):
    """Operations that users apply to a model, to be tried one by one."""
    return {
        "infer": lambda: tx.infer(tx.load(model), strict=False),
        "retarget": lambda: tx.retarget(tx.load(model), 9),
        "narrow": lambda: tx.retarget(tx.load(model), 17, domains=["ai.onnx"]),
        "run": lambda: tx.load(model).compile("numpy", deadline=5)(feeds),
        "grad": lambda: tx.grad(tx.load(model), of="y", wrt="x", seeds={"y": "g"}),
        "costs": lambda: tx.costs(tx.load(model)),
    }


#: Calls with a huge attribute: op, attributes, shape of the input, further inputs.
HUGE_ATTRIBUTES = [
    ("GroupNormalization", {"num_groups": HUGE}, [1, "channels", 2], {"s": np.ones(3, F), "b": np.ones(3, F)}),
    ("Split", {"num_outputs": HUGE, "axis": 1}, [1, 0], {}),
    ("Scan", {"num_scan_inputs": HUGE, "body": BRANCH}, [2], {}),
    ("Col2Im", {}, [1, 4, 1], {"image": I([2, 2]), "block": I([1 << 20, 1 << 20])}),
    ("Where", {}, [1 << 20, 1 << 20], {"a": np.ones(1, F), "b": np.ones(1, F)}),
    ("MaxPool", {"kernel_shape": [1 << 20] * 2, "strides": [1 << 20] * 2}, [1, 1, 1 << 20, 1 << 20], {}),
    ("AveragePool", {"kernel_shape": [1 << 20] * 2, "strides": [1 << 20] * 2}, [1, 1, 1 << 20, 1 << 20], {}),
    ("Sum", {}, [1 << 20, 1], {"w": np.ones((1, 1 << 20), F)}),
    ("AveragePool", {"kernel_shape": [1, 1], "pads": [HUGE, 0, 0, 0]}, [1, 1, 4, 4], {}),
    ("AveragePool", {"kernel_shape": [1, 1], "pads": [0, 0, 0, HUGE], "strides": [1, 3]}, [1, 1, 4, 4], {}),
    ("Slice", {}, [HUGE], {"b": I([0]), "e": I([HUGE]), "a": I([0]), "s": I([2])}),
    ("Multinomial", {"sample_size": HUGE}, [1, 4], {}),
    ("ConvInteger", {}, [1, HUGE, 4], {"w": np.ones((1, 1, 2), np.uint8)}),
    ("DequantizeLinear", {"block_size": 2, "axis": 0}, [HUGE, 2], {"s": np.ones((2, 2), F)}),
    (
        "com.microsoft::MatMulBnb4",
        {"K": HUGE, "N": 2, "block_size": 16, "quant_type": 1},
        [1, "k"],
        {"B": np.ones(16, np.uint8), "absmax": np.ones(2, F)},
    ),
    ("ai.onnx.ml::OneHotEncoder", {"cats_int64s": list(range(20000))}, [HUGE], {}),
    ("ai.onnx.ml::FeatureVectorizer", {"inputdimensions": [HUGE]}, [2, 2], {}),
    (
        "ai.onnx.ml::SVMClassifier",
        {
            "classlabels_ints": list(range(300)),
            "vectors_per_class": [1] * 300,
            "support_vectors": [1.0] * 300,
            "coefficients": [1.0] * 300 * 299,
            "rho": [1.0],
            "prob_a": [1.0],
            "prob_b": [1.0],
            "kernel_type": "LINEAR",
        },
        [1, 1],
        {},
    ),
    ("LRN", {"size": HUGE}, [1, 3, 8, 8], {}),
    ("LRN", {"size": HUGE}, [1, "channels", 8, 8], {}),
    ("Split", {"num_outputs": HUGE, "axis": 1}, [1, 4], {}),
    ("MaxPool", {"kernel_shape": [1 << 31, 1 << 31]}, [1, 1, 4, 4], {}),
    ("MaxPool", {"kernel_shape": [1 << 31, 1], "auto_pad": "SAME_UPPER", "strides": [1, 3]}, [1, 1, 4, 4], {}),
    ("AveragePool", {"kernel_shape": [1 << 31, 1 << 31]}, [1, 1, 4, 4], {}),
    ("LpPool", {"kernel_shape": [1 << 31, 1 << 31]}, [1, 1, 4, 4], {}),
    ("Conv", {"kernel_shape": [1 << 31, 1 << 31]}, [1, 1, 4, 4], {"w": np.ones((1, 1, 2, 2), F)}),
    ("DepthToSpace", {"blocksize": HUGE}, [1, 4, 2, 2], {}),
    ("GroupNormalization", {"num_groups": HUGE}, [1, 4, 2], {"s": np.ones(4, F), "b": np.ones(4, F)}),
]

#: Element types of the first input other than float32.
OF_OTHER_INPUTS = {"Where": bool, "ConvInteger": np.uint8, "DequantizeLinear": np.int8}


@pytest.mark.parametrize("step", ["infer", "narrow", "costs"])
def test_determinants_of_huge_matrices_are_refused_before_allocation(step):
    model = model_of([helper.make_node("Det", ["x"], ["y"])], [info("x", dims=[1 << 20, 1 << 20])])
    steps(model, {})[step]()


@pytest.mark.parametrize("step", steps(None, None))
@pytest.mark.parametrize(("op", "attributes", "shape", "further"), HUGE_ATTRIBUTES, ids=lambda p: str(p)[:9])
def test_huge_attributes_are_handled_at_once(op, attributes, shape, further, step):
    """A result or one of our errors, without a large allocation; LRN once took for ever."""
    domain, _, name = op.rpartition("::")
    node = helper.make_node(name, ["x", *further], ["y"], domain=domain, **attributes)
    tensors = [tensor(name, array) for name, array in further.items()]
    dtype = np.dtype(OF_OTHER_INPUTS.get(op, F))
    model = model_of([node], [info("x", helper.np_dtype_to_tensor_dtype(dtype), shape)], initializer=tensors)
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 4 if domain == "ai.onnx.ml" else 1))
    feeds = {"x": np.ones([3 if isinstance(dim, str) else min(dim, 3) for dim in shape], dtype)}
    ended: BaseException | None = None
    try:
        steps(model, feeds)[step]()
    except tx.TenonnxError as error:
        ended = error
    while ended is not None:
        assert not isinstance(ended, MemoryError)
        ended = ended.__cause__


def test_a_scan_of_huge_length_is_not_unrolled():
    formals, results = [info("s", dims=[2]), info("e", dims=[2])], [info("t", dims=[2])]
    body = helper.make_graph([helper.make_node("Add", ["s", "e"], ["t"])], "body", formals, results)
    node = helper.make_node("Scan", ["x", "z"], ["y"], body=body, num_scan_inputs=1)
    model = model_of([node], [info("x", dims=[2]), info("z", dims=[HUGE, 2])])
    with pytest.raises(tx.LimitExceeded, match='written out step by step exceeds the limit "nodes"'):
        tx.retarget(tx.load(model), 7)


@op("Rounds", domain="com.acme")
def rounds(x, *, count: int):
    for _ in range(count):
        x = ops.relu(x)
    return x


def in_rounds(count):
    graph = tx.Graph(opsets={"com.acme": 1, "ai.onnx": 21})
    graph.output("y", rounds(graph.input("x", "float32", (2,)), count=count))
    return graph


TOO_OFTEN = r'the number of calls of .* exceeds the limit "nodes"'


def test_the_rounds_of_a_body_are_limited():
    """The attribute may ask for any number of rounds; such a loop once never ended."""
    graph = in_rounds(40)
    with tx.limits.override(nodes=50):
        assert len(tx.retarget(graph, 21, domains=["ai.onnx"]).nodes) == 40
        with pytest.raises(tx.LimitExceeded, match=TOO_OFTEN):
            graph.nodes[0].attributes["count"] = HUGE
        assert graph.nodes[0].attributes["count"] == 40


def test_retargeting_applies_the_current_limits():
    graph = in_rounds(400)
    with tx.limits.override(nodes=50), pytest.raises(tx.LimitExceeded, match=TOO_OFTEN):
        tx.retarget(graph, 21, domains=["ai.onnx"])


def test_a_sample_of_thirty_axes_is_refused():
    """Its body has a term for each of 2^28 corners."""
    shapes = {"x": [1] * 30, "grid": [*[1] * 29, 28]}
    node = helper.make_node("GridSample", list(shapes), ["y"])
    model = model_of([node], [info(name, dims=dims) for name, dims in shapes.items()], outputs=())
    model.graph.output.append(onnx.ValueInfoProto(name="y"))
    with pytest.raises(tx.LimitExceeded, match='so many axes is made of exceeds the limit "nodes"'):
        tx.retarget(tx.load(model), 16, domains=["ai.onnx"])


def test_ngrams_with_huge_skips_take_no_time():
    attributes = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": HUGE}
    pool = {"ngram_counts": [0, 1], "ngram_indexes": [0, 1], "pool_int64s": [1, 2, 3]}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes, **pool)
    model = model_of([node], [info("x", TensorProto.INT64, [4])])
    assert tx.load(model).run({"x": I([1, 2, 3, 1])}, backend="numpy")["y"].tolist() == [2, 1]


def test_lrn_clips_its_window_to_the_channels():
    x = np.arange(1, 7, dtype=F).reshape(1, 3, 2)
    model = model_of(
        [helper.make_node("LRN", ["x"], ["y"], size=HUGE + 1, alpha=float(HUGE))], [info("x", dims=[1, 3, 2])]
    )
    graph = tx.decompose(tx.load(model), keep=lambda call: call.op.name != "LRN")
    expected = x / (1 + (x * x).sum(1, keepdims=True)) ** 0.75
    np.testing.assert_allclose(graph.run({"x": x}, backend="numpy")["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(tx.load(model).run({"x": x}, backend="numpy")["y"], expected, rtol=1e-5)


def test_a_list_of_sizes_keeps_to_the_limit_of_entries():
    shape = info("s", TensorProto.INT64, [1 << 32])  # a file of 76 bytes
    with pytest.raises(tx.LimitExceeded, match='"entries"'):
        tx.infer(tx.load(model_of([helper.make_node("ConstantOfShape", ["s"], ["y"])], [shape])))


def test_a_huge_opset_does_not_try_every_version():
    model = model_of([helper.make_node("Gelu", ["x"], ["y"])], [info("x")], opset=2**62)
    with pytest.raises(tx.NotRepresentable):
        tx.retarget(tx.load(model), 7, domains=["com.microsoft"])
    with pytest.raises(tx.TenonnxError):
        tx.retarget(tx.load(model), 7)


def test_an_unknown_type_is_refused_at_its_declaration():
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [info("x")])
    model.graph.output[0].type.tensor_type.elem_type = 999
    with pytest.raises(tx.InvalidModel, match='value "y" has a type that ONNX does not define'):
        tx.load(model)


# ----- functions ------------------------------------------------------------------------------------------------------


def functions_that_call_the_next_twice(count, *, in_a_circle):
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    model = model_of([helper.make_node("F0", ["x"], ["y"], domain="local")], [info("x", dims=[2])])
    model.opset_import.append(imports[1])
    for k in range(count):
        following = f"F{(k + 1) % count}"
        nodes = [
            helper.make_node(following, ["a"], ["t"], domain="local"),
            helper.make_node(following, ["t"], ["b"], domain="local"),
        ]
        if k == count - 1 and not in_a_circle:
            nodes = [helper.make_node("Relu", ["a"], ["b"])]
        model.functions.append(helper.make_function("local", f"F{k}", ["a"], ["b"], nodes, imports))
    return tx.load(model)


EXPANDING = {
    "narrow": lambda graph: tx.retarget(graph, 13, domains=["ai.onnx"]),
    "compile": lambda graph: graph.compile("numpy"),
    "compile for onnxruntime": lambda graph: graph.compile("onnxruntime"),
    "grad": lambda graph: tx.grad(graph, of="y", wrt="x", seeds={"y": "g"}),
    "export": lambda graph: tx.export(graph, io.BytesIO(), opset_version=13, domains=["ai.onnx"]),
}


@pytest.mark.parametrize("way", EXPANDING)
def test_functions_that_call_the_next_twice_keep_to_the_limit_of_nodes(way):
    with tx.limits.override(nodes=300), pytest.raises(tx.LimitExceeded, match=r'"(nodes|depth)"'):
        EXPANDING[way](functions_that_call_the_next_twice(30, in_a_circle=False))


def test_functions_are_inferred_once_for_identical_calls():
    graph = functions_that_call_the_next_twice(30, in_a_circle=False)
    with tx.limits.override(nodes=300):
        assert tx.infer(graph) == []
    assert str(graph.outputs[0].type) == "float32[2]"


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("way", [*EXPANDING, "infer"])
def test_recursive_functions_are_reported(way, count):
    use = EXPANDING.get(way, tx.infer)
    with pytest.raises(tx.LimitExceeded):
        use(functions_that_call_the_next_twice(count, in_a_circle=True))
