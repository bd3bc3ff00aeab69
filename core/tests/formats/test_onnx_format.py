"""Reading and writing ONNX: unusual files are preserved, broken ones are refused with the reason."""

import io
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
import tiny
from onnx import TensorProto, helper

import tenonnx as tx
from tenonnx.errors import InvalidCall, InvalidModel, UnsafePath
from tenonnx.extend import primitive, same_type
from tenonnx.formats.onnx.ir import ir_version
from tenonnx.formats.onnx.reader import read
from tenonnx.formats.onnx.writer import to_model
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.registry.registry import Registry
from tenonnx_convert.convert import export

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])


def load(model, **keywords):
    """Read with an empty registry: every op is opaque, so that only the format is tested."""
    return read(model, registry=Registry(), **keywords)


def model_of(nodes, *, inputs=(X,), outputs=(Y,), opsets=(("", 17),), ir_version=8, **graph):
    made = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), **graph)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets]
    return helper.make_model(made, opset_imports=imports, ir_version=ir_version)


def node(op="Relu", inputs=("x",), outputs=("y",), **keywords):
    return helper.make_node(op, list(inputs), list(outputs), **keywords)


def tensor(name, *shape):
    return onnx.numpy_helper.from_array(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), name)


def subgraph(name, nodes, outputs, **keywords):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    return helper.make_graph(list(nodes), name, keywords.pop("inputs", []), infos, **keywords)


def nested(depth):
    graph = subgraph("leaf", [node("Relu", ["x"], ["leaf_y"])], ["leaf_y"])
    for k in range(depth):
        inner = node("If", ["c"], [f"y{k}"], then_branch=graph, else_branch=graph)
        graph = subgraph(f"g{k}", [inner], [f"y{k}"])
    return graph


def untidy_models():
    yield "no import of the default domain", model_of([node()], opsets=[("com.vendor", 1)])
    yield "no import of the vendor domain", model_of([node(domain="com.microsoft")])
    yield "no imports at all", model_of([node()], opsets=[])
    yield "two imports of one domain", model_of([node()], opsets=[("", 17), ("ai.onnx", 17)])
    listed = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])
    old = model_of([node("Add", ["x", "w"])], inputs=[X, listed], initializer=[tensor("w", 2)], ir_version=3)
    yield "old IR with listed initializers", old
    empty = [node(outputs=["a"], name=""), node(inputs=["a"], name="")]
    yield "empty node names", model_of(empty)
    yield "repeated node names", model_of([node(outputs=["a"], name="n"), node(inputs=["a"], name="n")])
    yield "absent inputs and outputs", model_of([node("Clip", ["x", "", ""], ["y", ""])])
    stale = helper.make_tensor_value_info("a", TensorProto.INT64, [7, 7, 7])
    two = [node(outputs=["a"]), node(inputs=["a"])]
    yield "stale value_info", model_of(two, value_info=[stale, helper.make_tensor_value_info("ghost", 1, [1])])
    yield "unused initializers", model_of([node()], initializer=[tensor("unused", 3)])
    many = [node("Reshape", ["x" if k == 0 else f"v{k}", "s"], [f"v{k + 1}"]) for k in range(2000)]
    shape = onnx.numpy_helper.from_array(np.array([-1, 2]), "s")
    yield "one shape for thousands", model_of([*many, node(inputs=["v2000"])], initializer=[shape])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    shadowing = subgraph("then", [node("Neg", ["x"], ["a"])], ["a"])
    other = subgraph("else", [node("Abs", ["a"], ["b"])], ["b"])
    shadow = [node(outputs=["a"]), node("If", ["c"], ["y"], then_branch=shadowing, else_branch=other)]
    yield "a subgraph that shadows", model_of(shadow, inputs=[X, condition])
    yield (
        "nested captures",
        model_of([node("If", ["c"], ["y"], then_branch=nested(5), else_branch=nested(1))], inputs=[X, condition]),
    )
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    called = model_of([node("F", domain="local")], opsets=[("", 17), ("local", 1)])
    called.functions.append(function)
    yield "a local function", called
    annotated = model_of([node(doc_string="why")], initializer=[tensor("w", 2)], doc_string="graph doc")
    annotated.graph.node[0].metadata_props.add(key="k", value="v")
    annotated.graph.node[0].overload = "o"
    annotated.graph.quantization_annotation.add(tensor_name="x").quant_parameter_tensor_names.add(key="S", value="w")
    annotated.metadata_props.add(key="author", value="me")
    annotated.doc_string, annotated.producer_name, annotated.model_version = "doc", "someone", 3
    training = annotated.training_info.add()
    training.algorithm.node.add().CopyFrom(node())
    annotated.graph.input[0].doc_string = "about x"
    annotated.graph.initializer[0].doc_string = "about w"
    yield "documentation and annotations", annotated
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [5.0])
    indices = helper.make_tensor("indices", TensorProto.INT64, [1], [2])
    sparse = helper.make_sparse_tensor(values, indices, [4])
    yield "sparse initializers", model_of([node("Add", ["x", "sparse"])], sparse_initializer=[sparse])
    typed = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    yield "tensors in typed fields", model_of([node("Add", ["x", "w"])], initializer=[typed])


@pytest.mark.parametrize(("what", "model"), list(untidy_models()), ids=lambda p: p if isinstance(p, str) else "")
def test_untidy_files_come_back_as_they_were(what, model):
    assert to_model(load(model)) == model
    stream = io.BytesIO()
    tx.export(load(model), stream)
    assert onnx.ModelProto.FromString(stream.getvalue()) == model


@pytest.mark.parametrize(("ir_version", "listed_inputs"), [(3, ["x"]), (4, ["x", "w"])])
def test_initializers_are_not_inputs(ir_version, listed_inputs):
    listed = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])
    graph = load(
        model_of([node("Add", ["x", "w"])], inputs=[X, listed], initializer=[tensor("w", 2)], ir_version=ir_version)
    )
    assert [v.name for v in graph.inputs] == ["x"]
    assert [v.name for v in graph.variables] == ["w"]
    assert [v.name for v in graph.all_inputs] == listed_inputs


def test_contents_are_read_only():
    graph = load(model_of([node("Add", ["x", "w"])], initializer=[tensor("w", 2)]))
    with pytest.raises(ValueError, match="read-only"):
        graph.variables[0].data.array()[0] = 7


def test_nodes_out_of_order_are_sorted_stably():
    graph = load(model_of([node(inputs=["b"]), node("Abs", outputs=["a"]), node("Neg", ["a"], ["b"])]))
    assert [n.op_type for n in graph.nodes] == ["Abs", "Neg", "Relu"]


def test_captures_are_explicit():
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    branches = {k: subgraph(k, [node("Neg", ["a"], [f"{k}_y"])], [f"{k}_y"]) for k in ("then_branch", "else_branch")}
    graph = load(model_of([node(outputs=["a"]), node("If", ["c"], ["y"], **branches)], inputs=[X, condition]))
    branch = graph.nodes[1].subgraphs[0]
    assert [v.name for v in graph.nodes[1].captures] == ["a"]
    assert [v.name for v in branch.captures] == ["a"]
    assert branch.nodes[0].inputs[0] is branch.captures[0]


# ----- bad input --------------------------------------------------------------------------------------------------


def overflowing():
    big = TensorProto(name="w", data_type=1, dims=[1 << 40, 1 << 40])
    return model_of([node("Add", ["x", "w"])], initializer=[big])


BAD = {
    "not a protobuf": (b"this is no model", "is not an ONNX model"),
    "truncated": (model_of([node()]).SerializeToString()[:-7], "is not an ONNX model"),
    "empty": (b"", "no graph"),
    "a cycle": (
        model_of([node(inputs=["a"], outputs=["b"]), node(inputs=["b"], outputs=["a"])]),
        "has a cycle|no value",
    ),
    "a name computed twice": (
        model_of([node(outputs=["a"]), node(outputs=["a"]), node(inputs=["a"])]),
        "two values have the name",
    ),
    "an input listed twice": (model_of([node()], inputs=[X, X]), "two inputs named"),
    "an initializer listed twice": (model_of([node()], initializer=[tensor("w", 1)] * 2), "two initializers named"),
    "an unknown name": (model_of([node(inputs=["nowhere"])]), '"nowhere"'),
    "an output nobody computes": (model_of([node(outputs=["z"])]), 'compute its output "y"'),
    "dims that overflow": (overflowing(), "more elements than any memory holds"),
    "an unknown element type": (
        model_of([node()], initializer=[TensorProto(name="w", data_type=99, dims=[1])]),
        "unknown element type",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_broken_models_are_refused_with_the_reason(what):
    source, message = BAD[what]
    with pytest.raises(InvalidModel, match=message):
        load(source)


def test_deep_nesting_is_refused_in_bounded_time():
    with pytest.raises(InvalidModel, match="nested too deeply"):
        load(_nested_message(10_000))


def _nested_message(depth):
    """An If in an If in an If ...: graph field 7, node 1, attribute 5, g 6."""
    message = b""
    for _ in range(depth):
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            message = tag + _varint(len(message)) + message
    return b"\x3a" + _varint(len(message)) + message


def _varint(number):
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def test_other_objects_and_missing_files_are_refused():
    with pytest.raises(InvalidCall, match="neither ONNX"):
        tx.load(7)
    with pytest.raises(InvalidCall, match="cannot read"):
        tx.load("no/such/file.onnx")


# ----- external data ----------------------------------------------------------------------------------------------


def external_model(location="data.bin", offset=0, length=16):
    weight = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        weight.external_data.add(key=key, value=str(value))
    return model_of([node("Add", ["x", "w"])], initializer=[weight])


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "model"
    home.mkdir()
    np.arange(8, dtype=np.float32).tofile(home / "data.bin")
    np.arange(8, dtype=np.float32).tofile(tmp_path / "outside.bin")
    return home


def save(folder, model):
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_tensors_are_mapped(folder):
    graph = load(save(folder, external_model(offset=8)))
    np.testing.assert_array_equal(graph.variables[0].data.array(), [2, 3, 4, 5])


def test_external_tensors_are_written_to_a_new_file_next_to_the_model(folder, tmp_path):
    graph = load(save(folder, external_model(offset=8)))
    tx.export(graph, tmp_path / "copy.onnx")
    again = load(tmp_path / "copy.onnx")
    assert again.variables[0].data.proto.data_location == TensorProto.EXTERNAL
    np.testing.assert_array_equal(again.variables[0].data.array(), [2, 3, 4, 5])


def test_a_threshold_decides_what_is_external(folder, tmp_path):
    model = model_of([node("Add", ["x", "w"])], initializer=[tensor("w", 100), tensor("v", 2)])
    tx.export(load(model), tmp_path / "m.onnx", external_data_threshold=100)
    again = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert [t.data_location for t in again.graph.initializer] == [TensorProto.EXTERNAL, TensorProto.DEFAULT]
    np.testing.assert_array_equal(load(tmp_path / "m.onnx").variables[0].data.array(), np.arange(100))


@pytest.mark.parametrize(
    ("location", "offset", "length"),
    [("missing.bin", 0, 16), ("data.bin", 24, 16), ("data.bin", 0, 12), ("data.bin", -4, 16), ("data.bin", "x", 16)],
)
def test_missing_external_data_is_refused(folder, location, offset, length):
    with pytest.raises(InvalidModel) as caught:
        load(save(folder, external_model(location, offset, length)))
    assert "w" in str(caught.value)


@pytest.mark.parametrize("how", ["absolute", "parent", "symlink", "hardlink"])
def test_external_data_stays_in_the_folder(folder, how):
    outside = folder.parent / "outside.bin"
    location = {"absolute": str(outside), "parent": "../outside.bin"}.get(how, "inside.bin")
    if how == "symlink":
        (folder / "inside.bin").symlink_to(outside)
    if how == "hardlink":
        os.link(outside, folder / "inside.bin")
    with pytest.raises(UnsafePath):
        load(save(folder, external_model(location)))


def test_a_model_from_memory_needs_the_folder(folder):
    data = external_model().SerializeToString()
    with pytest.raises(InvalidModel, match="folder"):
        load(data)
    assert load(data, base_dir=folder).variables[0].data.array()[1] == 1


def test_exporting_over_the_source_keeps_the_contents(folder):
    path = save(folder, external_model(offset=8))
    graph = load(path)
    tx.export(graph, path)
    tx.export(load(path), path)
    np.testing.assert_array_equal(load(path).variables[0].data.array(), [2, 3, 4, 5])


def test_an_export_that_fails_writes_nothing(folder):
    path = save(folder, external_model())
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def fail(model):
        raise RuntimeError("hook")

    with pytest.raises(tx.PluginError, match=r"hook .*fail failed"):
        tx.export(load(path), path, post_export_hooks=[fail])
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    with pytest.raises(InvalidCall):
        tx.export(load(path), folder / "no" / "such" / "folder.onnx")


def test_a_killed_export_leaves_the_source(folder):
    path = save(folder, external_model())
    before = path.read_bytes()
    script = textwrap.dedent(
        """
        import os, signal, sys
        import tenonnx as tx
        from tenonnx.formats.onnx import streaming
        from tenonnx.formats.onnx.reader import read
        from tenonnx.registry.registry import Registry
        write = streaming._write_message
        def killed(*arguments):
            write(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        streaming._write_message = killed
        tx.export(read(sys.argv[1], registry=Registry()), sys.argv[1])
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert load(path).variables[0].data.array()[3] == 3


def test_packed_elements_are_written_packed(tmp_path):
    import ml_dtypes

    graph = tx.Graph("nibbles", opsets={"ai.onnx": 21})
    graph.variable("w", np.array([1, -2, 3], ml_dtypes.int4))
    graph.variable("v", np.arange(5.0))
    graph.outputs.append(graph.input("x", "float32", (2,)))
    for threshold in (None, 0):
        tx.export(graph, tmp_path / "m.onnx", external_data_threshold=threshold)
        w, v = (variable.data.array() for variable in load(tmp_path / "m.onnx").variables)
        assert w.tolist() == [1, -2, 3]
        assert v.tolist() == [0, 1, 2, 3, 4]


def test_external_tensors_of_subgraphs_come_along(tmp_path):
    inner = subgraph("inner", [node("Use", ["v"], ["z"], domain="acme")], ["z"], initializer=[tensor("v", 3)])
    model = model_of([helper.make_node("Call", ["x"], ["y"], domain="acme", body=inner)])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    (tmp_path / "elsewhere").mkdir()
    tx.export(load(tmp_path / "m.onnx"), tmp_path / "elsewhere" / "m.onnx")
    (moved,) = load(tmp_path / "elsewhere" / "m.onnx").nodes[0].subgraphs[0].variables
    assert moved.data.array().tolist() == [0, 1, 2]


def test_documentation_of_tensors_is_preserved(tmp_path):
    weight = tensor("w", 4)
    weight.doc_string = "what it is for"
    weight.metadata_props.add(key="origin", value="layer 1")
    model = model_of([node("Add", ["x", "w"])], initializer=[weight, tensor("v", 4)])
    tx.export(load(model), tmp_path / "m.onnx", external_data_threshold=0)
    assert not onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer[1].HasField("doc_string")
    tx.export(load(tmp_path / "m.onnx"), tmp_path / "m.onnx", external_data_threshold=1 << 20)
    assert onnx.load(tmp_path / "m.onnx") == model


@pytest.mark.parametrize(
    "path",
    [
        ("producer_name",),
        ("doc_string",),
        ("graph", "name"),
        ("graph", "node", 0, "name"),
        ("graph", "node", 0, "op_type"),
        ("graph", "node", 0, "input", 0),
        ("metadata_props", 0, "value"),
        ("graph", "input", 0, "type", "tensor_type", "shape", "dim", 0, "dim_param"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_invalid_utf_8_is_refused(path):
    """Protobuf does not check it, and returns bytes."""
    model = model_of([node("Relu", name="first")])
    model.metadata_props.add(key="license", value="none")
    holder = model
    for step in path[:-1]:
        holder = holder[step] if isinstance(step, int) else getattr(holder, step)
    if isinstance(path[-1], int):
        holder[path[-1]] = "MARKER!"
    else:
        setattr(holder, path[-1], "MARKER!")
    with pytest.raises(InvalidModel):
        load(model.SerializeToString().replace(b"MARKER!", b"\xff" * 7))


def test_a_cycle_of_names_with_invalid_utf_8_is_reported():
    model = model_of([node("Relu", ["MARKER!"], ["a"]), node("Relu", ["a"], ["MARKER!"]), node("Relu", ["a"])])
    with pytest.raises(InvalidModel, match="has a cycle"):
        load(model.SerializeToString().replace(b"MARKER!", b"\xff" * 7))


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype > DType.bfloat16], ids=str)
def test_a_file_has_the_ir_version_that_its_element_types_came_with(dtype):
    published = helper.find_min_ir_version_for([helper.make_opsetid("", dtype.first_opset)])
    graph = Graph(opsets={"ai.onnx": 13})
    graph.input("x", dtype, (2,))
    assert ir_version(graph) == dtype.first_ir_version == published


def test_a_function_draws_where_its_body_does():
    @primitive("Roll", domain="com.dice", since=1, pure=False, type=same_type)
    def roll(x): ...

    bodies = {
        "Draws": node("Roll", domain="com.dice"),
        "Calls": node("Draws", domain="own"),
        "Does": node("Relu"),
        "Repeats": node("Repeats", domain="own"),
    }
    model = model_of([node("Calls", domain="own")], opsets=(("", 17), ("own", 1), ("com.dice", 1)))
    for name, body in bodies.items():
        model.functions.append(helper.make_function("own", name, ["x"], ["y"], [body], model.opset_import))
    registry = Registry()
    registry.add(roll)
    functions = {op.name: op for op in read(model, registry=registry).functions.values()}
    assert {name: op.pure for name, op in functions.items()} == {
        "Draws": False,
        "Calls": False,
        "Does": True,
        "Repeats": True,
    }


def test_a_hook_may_return_a_model():
    def renamed(model):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        other.producer_name = "hook"
        return other

    stream = io.BytesIO()
    export(tiny_graph(), stream, post_export_hooks=[renamed])
    assert onnx.load_from_string(stream.getvalue()).producer_name == "hook"


@pytest.mark.parametrize(
    ("left", "match"), [(7, "neither a ModelProto nor None"), (None, "left a model that cannot be read")]
)
def test_the_result_of_a_hook_is_checked_before_the_file_is_replaced(tmp_path, left, match):
    def hook(model):
        del model.graph.node[:]
        return left

    (tmp_path / "model.onnx").write_bytes(b"before")
    with pytest.raises(InvalidModel, match=match) as caught:
        export(tiny_graph(), tmp_path / "model.onnx", post_export_hooks=[hook])
    assert "hook" in str(caught.value)
    assert (tmp_path / "model.onnx").read_bytes() == b"before"


@pytest.mark.parametrize("left", ["nothing", "no outputs"])
def test_a_hook_leaves_outputs(left):
    def hook(model):
        if left == "nothing":
            return onnx.ModelProto()
        del model.graph.output[:]
        return None

    with pytest.raises(InvalidModel, match=r"hook left a model without its outputs") as caught:
        export(tiny_graph(), io.BytesIO(), post_export_hooks=[hook])
    assert caught.value.given == "none of 1"


@pytest.mark.parametrize("hooks", [print, 3, [print, None]])
def test_hooks_are_functions_in_a_list(hooks):
    with pytest.raises(InvalidCall, match="post_export_hooks are not functions of a model, in a list"):
        export(tiny_graph(), io.BytesIO(), post_export_hooks=hooks)


def tiny_graph():
    graph = Graph("g", opsets={"tiny": 5}, ir_version=8)
    graph.registry = tiny.registry()
    graph.output("y", tiny.exp(graph.input("x", "float32", (2,))))
    return graph
