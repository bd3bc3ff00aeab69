"""Post-export hooks: edits of the message, forms of hooks, errors, and large models."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import ExternalDataInfo

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import InvalidCall, InvalidModel, PluginError
from tenonnx_cli import main
from tenonnx_cli.code import loaded
from tenonnx_convert import hooks as hooks_module


def dense(n=3):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (2, n))
    w = graph.variable("w", np.arange(n * n, dtype=np.float32).reshape(n, n))
    b = graph.variable("b", np.ones(n, np.float32))
    graph.output("y", x @ w + b)
    return graph


def exported(graph, *hooks, **options):
    stream = io.BytesIO()
    tx.export(graph, stream, post_export_hooks=list(hooks), **options)
    return onnx.load_from_string(stream.getvalue())


def arrays(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def initializer(model, name):
    return next(t for t in model.graph.initializer if t.name == name)


EXAMPLES = Path(__file__).parents[1] / "examples/hooks/hooks.py"


def example(name):
    return getattr(loaded(str(EXAMPLES)), name)


X = {"x": np.ones((2, 3), np.float32)}


def test_a_hook_sees_every_initializer_with_its_contents():
    seen = {}
    exported(dense(), lambda model: seen.update(arrays(model)))
    np.testing.assert_array_equal(seen["w"], np.arange(9).reshape(3, 3))
    assert list(seen) == ["w", "b"]


@pytest.mark.parametrize("large", [False, True], ids=["inline", "by reference"])
def test_a_hook_edits_a_weight(large, monkeypatch):
    if large:
        monkeypatch.setattr(hooks_module, "_INLINE", 0)
        monkeypatch.setattr(hooks_module, "_SMALL", 0)

    def doubled(model):
        tensor = initializer(model, "w")
        assert (tensor.data_location == onnx.TensorProto.EXTERNAL) is large
        array = numpy_helper.to_array(tensor, ExternalDataInfo(tensor).basepath)
        tensor.CopyFrom(numpy_helper.from_array(array * 2, "w"))

    model = exported(dense(), doubled)
    np.testing.assert_array_equal(arrays(model)["w"], 2 * np.arange(9).reshape(3, 3))
    assert tx.load(model).run(X)["y"].tolist() == [[19, 25, 31]] * 2


def test_a_hook_adds_renames_and_removes_initializers():
    def changed(model):
        node = next(node for node in model.graph.node if node.op_type == "Add")
        node.input[1] = "c"
        model.graph.initializer.remove(initializer(model, "b"))
        model.graph.initializer.append(numpy_helper.from_array(np.full(3, 5, np.float32), "c"))
        initializer(model, "w").name = "kernel"
        next(node for node in model.graph.node if node.op_type == "MatMul").input[1] = "kernel"

    model = exported(dense(), changed)
    assert sorted(arrays(model)) == ["c", "kernel"]
    assert tx.load(model).run(X)["y"].tolist() == [[14, 17, 20]] * 2


def test_each_hook_sees_what_the_one_before_left():
    def once(model):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "extra"))

    def twice(model):
        assert "extra" in arrays(model)
        model.graph.initializer.remove(initializer(model, "extra"))

    assert sorted(arrays(exported(dense(), once, twice))) == ["b", "w"]


def test_a_hook_may_refer_to_its_own_file(tmp_path):
    np.full((3, 3), 7, np.float32).tofile(tmp_path / "seven.bin")

    def referring(model):
        tensor = initializer(model, "w")
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "seven.bin"), ("length", "36"), ("basepath", str(tmp_path))):
            tensor.external_data.add(key=key, value=value)

    assert arrays(exported(dense(), referring))["w"].tolist() == [[7] * 3] * 3


def test_an_external_weight_may_get_another_shape(monkeypatch):
    monkeypatch.setattr(hooks_module, "_INLINE", 0)
    monkeypatch.setattr(hooks_module, "_SMALL", 0)

    def flat(model):
        del initializer(model, "w").dims[:]
        initializer(model, "w").dims.append(9)
        model.graph.node.insert(0, onnx.helper.make_node("Reshape", ["w", "s"], ["square"]))
        model.graph.initializer.append(numpy_helper.from_array(np.array([3, 3]), "s"))
        next(node for node in model.graph.node if node.op_type == "MatMul").input[1] = "square"

    model = exported(dense(), flat)
    assert arrays(model)["w"].tolist() == list(range(9))
    assert tx.load(model).run(X)["y"].tolist() == dense().run(X)["y"].tolist()


def test_a_hook_that_exits_does_not_end_the_program():
    def leaving(model):
        raise SystemExit(3)

    with pytest.raises(tx.PluginError, match="leaving failed") as caught:
        exported(dense(), leaving)
    assert caught.value.given == "SystemExit: 3"


def test_a_hook_with_two_parameters_gets_the_graph():
    given = []
    graph = dense()

    class Both:
        def post_process(self, model, graph):
            given.append((self, graph))

    exported(
        graph,
        lambda model, source: given.append(source),
        Both,
        Both(),
        lambda model, scale=2: given.append(scale),
        lambda model, *, graph: given.append(graph),
    )
    assert given[0] is given[4] is graph
    assert [each[1] for each in given[1:3]] == [graph, graph]
    assert given[3] == 2


def test_a_hook_that_is_a_class_with_arguments_is_refused():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def post_process(self, model):
            return model

    with pytest.raises(tx.InvalidCall, match=r"(?s)without arguments.*Scaled.*give an object of it"):
        exported(dense(), Scaled)


def test_an_error_in_a_hook_names_the_hook():
    class Careless:
        def post_process(self, model):
            raise KeyError("producer")

    with pytest.raises(PluginError, match=r"the hook .*Careless failed") as caught:
        exported(dense(), Careless())
    assert caught.value.given == "KeyError: 'producer'"
    with pytest.raises(PluginError, match="one_that_refuses failed: a rule"):
        exported(dense(), one_that_refuses)


def one_that_refuses(model):
    raise InvalidModel("a rule")


def test_a_dangling_external_reference_is_refused():
    def astray(model):
        tensor = initializer(model, "w")
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="nowhere.bin")

    with pytest.raises(InvalidModel, match="astray left a model that cannot be read"):
        exported(dense(), astray)


def test_an_unknown_hook_is_refused():
    with pytest.raises(InvalidCall, match='no installed package offers the hook "signed"'):
        exported(dense(), "signed")


def test_hooks_also_apply_to_native_files(tmp_path):
    def halved(model):
        tensor = initializer(model, "w")
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) / 2, "w"))

    tx.export(dense(), tmp_path / "model.safetensors", post_export_hooks=[halved])
    assert np.asarray(tx.load(tmp_path / "model.safetensors")["w"].data.array())[0, 1] == 0.5


def test_external_tensors_that_a_hook_leaves_stay_external(tmp_path):
    tx.export(dense(), tmp_path / "a.onnx", external_data_threshold=0)
    tx.export(tx.load(tmp_path / "a.onnx"), tmp_path / "b.onnx", post_export_hooks=[lambda model: None])
    written = onnx.load(tmp_path / "b.onnx", load_external_data=False)
    assert {t.data_location for t in written.graph.initializer} == {onnx.TensorProto.EXTERNAL}
    entries = {entry.key for t in written.graph.initializer for entry in t.external_data}
    assert entries == {"location", "offset", "length"}


def test_a_hook_on_a_large_model_reads_it_in_parts(tmp_path):
    """The file has 160 MB of weights; the process may only hold a part of them in memory."""
    path = tmp_path / "large.onnx"
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (1, 2048))
    for i in range(10):
        x = x @ graph.variable(f"w{i}", np.full((2048, 2048), i, np.float32))
    graph.output("y", x)
    tx.export(graph, path, external_data_threshold=1024)
    program = """
import resource, sys, onnx, numpy as np
from onnx.external_data_helper import ExternalDataInfo
import tenonnx as tx
tx.export(tx.load(sys.argv[1]), sys.argv[2] + "/warm.onnx")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def hook(model):
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor, ExternalDataInfo(tensor).basepath)
        if tensor.name == "w3":
            tensor.CopyFrom(onnx.numpy_helper.from_array(array + 1, "w3"))
tx.export(tx.load(sys.argv[1]), sys.argv[2] + "/out.onnx", post_export_hooks=[hook])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 120
    result = tx.load(tmp_path / "out.onnx")
    assert [result[f"w{i}"].data.array()[0, 0] for i in range(10)] == [0, 1, 2, 4, 4, 5, 6, 7, 8, 9]


# ----- the examples, and the command line -----------------------------------------------------------------------------


def perceptron():
    rng = np.random.default_rng(0)
    graph = tx.Graph(opsets={"ai.onnx": 17})
    value = graph.input("x", "float32", ("batch", 4))
    for name, size in (("first", 5), ("second", 6)):
        weight = graph.variable(f"{name}.weight", rng.normal(size=(value.shape[1], size)).astype(np.float32))
        value = ops.relu(ops.gemm(value, weight, graph.variable(f"{name}.bias", np.ones(size, np.float32))))
    graph.output("y", value)
    return graph


def test_gemm_and_relu_are_put_together():
    graph = perceptron()
    model = exported(graph, example("gemm_with_relu"), verify=True)
    assert [node.op_type for node in model.graph.node][:2] == ["FusedGemm", "FusedGemm"]
    feeds = {"x": np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["y"], feeds)[0], graph.run(feeds, "numpy")["y"], rtol=1e-5)


def test_matrices_are_pruned():
    model = exported(perceptron(), example("Pruned")(0.75))
    held = arrays(model)
    assert np.count_nonzero(held["first.weight"]) == 5
    assert np.count_nonzero(held["first.bias"]) == 5
    with pytest.raises(tx.VerificationFailed):
        exported(perceptron(), example("Pruned"), verify=True)


def test_the_layout_of_images_is_changed():
    graph = tx.load(Path(__file__).parents[1] / "examples/digits_cnn/digits-cnn.onnx")
    images = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32)
    changed = tx.load(exported(graph, example("images_channels_last")))
    assert str(changed.inputs[0].type) == "float32[batch, 8, 8, 1]"
    turned = changed.run({"images": images.transpose(0, 2, 3, 1)}, "numpy")["scores"]
    np.testing.assert_allclose(turned, graph.run({"images": images}, "numpy")["scores"], rtol=1e-5)


def test_a_hook_of_a_file_by_the_command_line(tmp_path, capsys):
    tx.export(perceptron(), tmp_path / "a.onnx")
    hook = f"{EXAMPLES}:gemm_with_relu"
    assert main(["convert", str(tmp_path / "a.onnx"), "-o", str(tmp_path / "b.onnx"), "--hook", hook]) == 0
    assert onnx.load(tmp_path / "b.onnx").graph.node[0].op_type == "FusedGemm"
    assert main(["rename", str(tmp_path / "a.onnx"), "x=z", "-o", str(tmp_path / "c.onnx"), "--hook", hook]) == 0
    assert onnx.load(tmp_path / "c.onnx").graph.node[0].op_type == "FusedGemm"
    for wrong in ("no_such_hook", f"{EXAMPLES}:no_such_function", "nowhere.py:hook"):
        assert main(["convert", str(tmp_path / "a.onnx"), "-o", str(tmp_path / "d.onnx"), "--hook", wrong]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "d.onnx").exists()


def test_a_hook_of_a_package_is_found_by_name(tmp_path, install, capsys):
    text = """
        class signed:
            def post_process(self, model):
                model.producer_name = "acme"
    """
    install("acme-hooks", "tenonnx.hooks", "signed", text)
    assert exported(dense(), "signed").producer_name == "acme"
    tx.export(perceptron(), tmp_path / "a.onnx")
    assert main(["convert", str(tmp_path / "a.onnx"), "-o", str(tmp_path / "b.onnx"), "--hook", "signed"]) == 0
    assert onnx.load(tmp_path / "b.onnx").producer_name == "acme"
    assert main(["plugins"]) == 0
    assert "tenonnx.hooks" in capsys.readouterr().out


def test_a_hook_that_leaves_too_few_bytes_is_named(tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }""")

    def widened(message):
        message.graph.initializer[0].dims[0] = 3

    with pytest.raises(tx.InvalidModel, match=r"the hook .*widened left a model that cannot be read"):
        tx.export(tx.load(model), tmp_path / "m.onnx", post_export_hooks=[widened])
    assert not (tmp_path / "m.onnx").exists()
