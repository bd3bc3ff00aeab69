"""Commands that extract, compose, rename, compare and draw models; messages about files that are not models."""

import io
import json
import xml.etree.ElementTree as ET

import numpy as np
import onnx
import pytest
from models import example

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import DType
from tenonnx_cli import main

CNN, BERT = str(example("digits_cnn/digits-cnn")), str(example("bert/bert"))


@pytest.fixture
def run(capsys):
    def call(*arguments, code=0):
        result = main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        assert result == code, output.err
        return output

    return call


def test_a_model_is_split_and_composed_again(run, tmp_path):
    head, tail, both = (tmp_path / f"{name}.onnx" for name in ("head", "tail", "both"))
    run("extract", CNN, "-o", head, "--output-names", "Relu")
    run("extract", CNN, "-o", tail, "-i", "Relu")
    run("compose", head, tail, "-o", both)
    assert "equal" in run("compare", CNN, both).out
    for path in (head, tail, both):
        onnx.checker.check_model(onnx.load(path), full_check=True)
    assert [v.name for v in tx.load(both).variables] == [v.name for v in tx.load(CNN).variables]


def test_composing_a_model_with_itself_renames_values(run, tmp_path):
    graph = tx.Graph("twice", opsets={"ai.onnx": 13})
    x = graph.input("x", "float32", (2,))
    graph.output("y", x * graph.variable("w", np.float32([2, 3])))
    tx.export(graph, tmp_path / "one.onnx")
    tx.export(graph, tmp_path / "other.onnx", opset_version=17)
    run("compose", tmp_path / "one.onnx", tmp_path / "other.onnx", "--map", "y=x", "-o", tmp_path / "both.onnx")
    both = tx.load(tmp_path / "both.onnx")
    assert both.opsets == {"ai.onnx": 17}
    assert sorted(v.name for v in both.variables) == ["w", "w_1"]
    assert next(iter(both.run({"x": np.float32([1, 1])}).values())).tolist() == [4, 9]


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
@pytest.mark.parametrize(
    "command", ["convert {} -o", "extract {} -o", "rename {} images=x -o", "compose {} {} --map Relu=images -o"]
)
def test_a_model_goes_to_standard_output(command, name, monkeypatch, tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("Relu", ops.relu(graph.input("images", "float32", (2,))))
    tx.export(graph, tmp_path / "m.onnx")
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written))
    assert main([*command.replace("{}", str(tmp_path / "m.onnx")).split(), name]) == 0
    assert [value.name for value in tx.load(written.getvalue()).outputs] == [
        "Relu_1" if "compose" in command else "Relu"
    ]


def joined_pair(folder):
    """Write a model with the output m, and one that adds its inputs p and q to s."""
    first, second = tx.Graph("first", opsets={"ai.onnx": 17}), tx.Graph("second", opsets={"ai.onnx": 17})
    first.output("m", -first.input("x", "float32", ("n",)))
    second.output("y", second.input("p", "float32", ("n",)) + second.input("q", "float32", ("n",)) * np.float32(2))
    paths = folder / "first.onnx", folder / "second.onnx"
    tx.export(first, paths[0])
    tx.export(second, paths[1])
    return paths


def test_an_output_goes_to_several_inputs(run, tmp_path):
    first, second = joined_pair(tmp_path)
    run("compose", first, second, "--map", "m=p", "--map", "m=q", "-o", tmp_path / "both.onnx")
    both = tx.load(tmp_path / "both.onnx")
    assert [value.name for value in both.inputs] == ["x"]
    assert both.run({"x": np.float32([1, 2])})["y"].tolist() == [-3, -6]
    assert [value.name for value in tx.compose(tx.load(first), tx.load(second), {"m": ["p", "q"]}).inputs] == ["x"]


NAMES = ["a,b", "b,a", "k=v", "k=v=w"]


def named_oddly(folder):
    """Write a chain of values with commas and equals signs in their names."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    value = graph.input("x", "float32", (2,))
    for name in NAMES:
        value = ops.relu(value)
        graph.rename(value, name)
    graph.output("y", value)
    graph.rename("y", NAMES[-1])
    tx.export(graph, folder / "odd.onnx")
    return folder / "odd.onnx"


@pytest.mark.parametrize(
    ("inputs", "outputs", "found"),
    [
        ("a,b", "k=v", (["a,b"], ["k=v"])),
        (r"a\,b", r"k=v,b\,a", (["a,b"], ["k=v", "b,a"])),
        ("x", r"k\=v", (["x"], ["k=v"])),
    ],
)
def test_extract_accepts_names_with_commas(inputs, outputs, found, run, tmp_path):
    run("extract", named_oddly(tmp_path), "-o", tmp_path / "part.onnx", "-i", inputs, "--output-names", outputs)
    part = tx.load(tmp_path / "part.onnx")
    assert ([value.name for value in part.inputs], [value.name for value in part.outputs]) == found


@pytest.mark.parametrize(
    ("renamed", "old", "new"),
    [
        ("k=v=new", "k=v", "new"),
        ("a,b=c=d", "a,b", "c=d"),
        (r"k\=v\=w=k", "k=v=w", "k"),
        (r"x=\=", "x", "="),
    ],
)
def test_names_with_equals_signs_can_be_renamed(renamed, old, new, run, tmp_path):
    path = named_oddly(tmp_path)
    run("rename", path, renamed, "-o", tmp_path / "new.onnx")
    before, after = ([value.name for value in tx.load(each).values()] for each in (path, tmp_path / "new.onnx"))
    assert after == [new if name == old else name for name in before]


def test_preprocessing_is_prepended(tmp_path):
    front = tx.Graph("front", opsets={"ai.onnx": 17})
    pixels = front.input("pixels", "uint8", ("batch", 1, 8, 8))
    front.output("scaled", ops.cast(pixels, to="float32") / 16.0)
    whole = tx.compose(front, tx.load(CNN), {"scaled": "images"})
    assert [v.name for v in whole.inputs] == ["pixels"]
    given = np.random.default_rng(0).integers(0, 17, (3, 1, 8, 8)).astype(np.uint8)
    assert whole.run({"pixels": given})["scores"].shape == (3, 10)
    onnx.checker.check_model(whole.to_proto(), full_check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compose", CNN, CNN, "-o", "m.onnx"], "does not accept"),
        (["compose", CNN, BERT, "-o", "m.onnx"], "cannot join outputs of the first graph"),
        (["compose", CNN, CNN, "--map", "scores=nothing", "-o", "m.onnx"], "cannot join outputs of the first graph"),
        (
            ["compose", CNN, CNN, "--map", "scores=images", "--map", "scores=images", "-o", "m.onnx"],
            "cannot join outputs",
        ),
        (["compose", CNN, CNN, "--map", "scores=images", "-o", "m.onnx"], "does not accept"),
        (["compose", CNN, CNN, "--map", "scores", "-o", "m.onnx"], "is not of the form"),
        (["compose", CNN, CNN, "--map", "scores=images", "-o", "m.txt"], "unknown file format"),
        (["extract", CNN, "-o", "m.onnx", "--output-names", "nothing"], "no value"),
        (
            ["extract", CNN, "-o", "m.onnx", "-i", "Relu", "--output-names", "Conv"],
            "the part reads inputs of the model",
        ),
        (["extract", CNN, "-o", "m.onnx", "--output-names", ","], "not a list"),
        (["rename", CNN, "images=scores", "-o", "m.onnx"], "already used"),
        (["rename", CNN, "images", "-o", "m.onnx"], "is not of the form"),
        (["convrt", CNN], "Did you mean convert"),
        (["simplify", CNN], "Did you mean convert --simplify?"),
        (["extract", CNN, "-o", "m.onnx", "--output-names", "Rely"], "did you mean Relu"),
        (["rename", CNN, "nothing=x", "-o", "m.onnx"], "available  images"),
        (["nonsense"], "No such command 'nonsense'."),
    ],
)
def test_invalid_requests_are_refused_and_write_nothing(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    output = run(*arguments, code=2)
    assert message in output.err
    assert not list(tmp_path.iterdir())


def test_two_names_are_swapped(run, tmp_path):
    run("rename", CNN, "images=scores", "scores=images", "-o", tmp_path / "m.onnx")
    graph = tx.load(tmp_path / "m.onnx")
    assert ([v.name for v in graph.inputs], [v.name for v in graph.outputs]) == (["scores"], ["images"])
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"), full_check=True)


def test_the_first_diverging_node_is_found(run, tmp_path):
    graph = tx.load(CNN)
    weight = next(v for v in graph.variables if v.name in {u.name for u in graph.nodes[4].inputs if u is not None})
    graph.assign({weight.name: weight.data.array() * np.float32(1.1)})
    tx.export(graph, tmp_path / "m.onnx")
    output = run("compare", CNN, tmp_path / "m.onnx", "--json", code=1)
    result = json.loads(output.out)
    (row,) = result["structure"].pop("weights")
    assert row["name"].startswith(f"{weight.name}[")
    assert float(row["second"]) == pytest.approx(float(row["first"]) * 1.1, rel=1e-4)
    assert result["structure"] == {}
    assert result["first_divergence"]["value"] == graph.nodes[4].outputs[0].name


@pytest.mark.parametrize("nodes_too", [False, True])
def test_the_first_diverging_node_is_found_despite_other_names(run, tmp_path, nodes_too):
    model = onnx.load(CNN)
    kept = {v.name for v in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    for place, node in enumerate(model.graph.node):
        node.name = f"other{place}" if nodes_too else node.name
        for names in (node.input, node.output):
            names[:] = [name if name in kept or not name else f"{name}_renamed" for name in names]
    del model.graph.value_info[:]
    graph = tx.load(model)
    changed = graph.nodes[4]
    weight = next(v for v in graph.variables if v in changed.inputs)
    graph.assign({weight.name: weight.data.array() * np.float32(1.1)})
    tx.export(graph, tmp_path / "m.onnx")
    result = json.loads(run("compare", CNN, tmp_path / "m.onnx", "--json", code=1).out)
    assert result["first_divergence"]["value"] == changed.outputs[0].name


def test_another_element_type_is_no_divergence(run, tmp_path):
    run("convert", CNN, "-o", tmp_path / "half.onnx", "--float16", "--half-interface")
    output = run("compare", CNN, tmp_path / "half.onnx", code=1).out
    assert "only element types differ on numpy" in output
    assert "the first node that diverges" not in output

    graph = tx.load(tmp_path / "half.onnx")
    changed = graph.nodes[4]
    weight = next(v for v in graph.variables if v in changed.inputs)
    graph.assign({weight.name: weight.data.array() * np.float16(1.5)})
    tx.export(graph, tmp_path / "wrong.onnx")
    result = json.loads(run("compare", CNN, tmp_path / "wrong.onnx", "--json", code=1).out)
    assert result["first_divergence"]["value"] == changed.outputs[0].name
    assert "may differ by" in result["first_divergence"]["reason"]


def test_equal_computations_correspond_by_their_order():
    from tenonnx_convert.verifying.value_map import corresponding

    def twins(prefix):
        graph = tx.Graph(opsets={"ai.onnx": 17})
        x = graph.input("x", "float32", (2,))
        with graph.building(prefix):
            first, second = ops.exp(x * np.float32(2)), ops.exp(x * np.float32(3))
            graph.output("y", ops.relu(first) + ops.sigmoid(second))
        for node in graph.nodes:
            node.name = ""
        return graph

    one, other = twins("a"), twins("b")
    pairs = [
        (a.name, b.name)
        for m, n in zip(one.nodes, other.nodes, strict=True)
        for a, b in zip(m.outputs, n.outputs, strict=True)
    ]
    assert corresponding(one, other) == {b: a for a, b in pairs}
    assert corresponding(one, tx.Graph()) == {}


def test_divergence_is_found_by_evaluating_few_values(monkeypatch):
    from tenonnx_convert.verifying import divergence as module

    def chain(wrong):
        graph = tx.Graph("chain", opsets={"ai.onnx": 17})
        value = graph.input("x", "float32", (2,))
        for step in range(60):
            with graph.building(f"step{step}"):
                value = value + (2.0 if step == wrong else 1.0)
        graph.output("y", value)
        return graph

    monkeypatch.setattr(module, "SHOWN", 3)
    for wrong in (0, 1, 17, 58, 59):
        result = tx.verify(chain(None), chain(wrong), backends=["numpy"])
        expected = chain(None).nodes[wrong].outputs[0].name
        assert result.first_divergence.value == expected


def test_another_structure_is_no_failure(run, tmp_path):
    run("convert", BERT, "-o", tmp_path / "m.onnx", "--domains", "ai.onnx")
    output = run("compare", BERT, tmp_path / "m.onnx")
    assert "com.microsoft::Attention" in output.out
    assert "numbers: equal" in output.out


@pytest.mark.parametrize("option", ["--dot", "--svg", "--html"])
def test_models_are_drawn(run, option):
    text = run("inspect", BERT, option).out
    assert text.count("BiasGelu") >= 2
    if option == "--svg":
        ET.fromstring(text)


def test_costs_are_counted(run):
    output = run("inspect", CNN, "--costs", "--json")
    costs = json.loads(output.out)["costs"]
    by_op = {each["op"]: each["multiplications"] for each in costs["nodes"] if each["node"] in ("Conv", "Gemm")}
    assert by_op == {"Conv": 16 * 8 * 8 * 9, "Gemm": 128 * 10}
    assert costs["sizes"] == {"batch": 1}
    seven = tx.costs(tx.load(CNN), {"images": (7, 1, 8, 8)})
    assert seven.multiplications == 7 * sum(each["multiplications"] for each in costs["nodes"])
    assert seven.peak == 7 * max(each["live"] for each in costs["nodes"])


def test_unknown_costs_are_none():
    header = '<ir_version: 8, opset_import: ["": 17, "local": 1]>'
    function = '<domain: "local", opset_import: ["": 17]> Twice (a) => (b) { b = Add(a, a) }'
    unknown = f"g (x) => (y) {{ y = local.Twice(x) }} {function}"
    scalar = "g (float x, float w, float[2, 2] r) => (y) { y = LSTM(x, w, r) }"
    for text in (unknown, scalar):
        graph = tx.load(onnx.parser.parse_model(f"{header} {text}"))
        assert [cost.multiplications for cost in tx.costs(graph).nodes] == [None]


def test_costs_of_bodies_and_unknown_dims():
    graph = tx.Graph("g", opsets={"ai.onnx": 23})
    x = graph.input("x", "float32", (2, 4, 8, 16))
    graph.output("y", ops.attention(x, x, x)[0])
    graph.output("z", ops.matmul(graph.input("a", "float32", (None, 3)), graph.variable("w", np.ones((3, 5), "f"))))
    attention, product = tx.costs(graph).nodes
    assert attention.multiplications >= 2 * (2 * 4 * 8 * 8 * 16)
    assert product.multiplications is None


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (b"a,b\n1,2\n3,4\n", "a table as text (CSV) whose first row is a,b"),
        (b"just words\nand more\n", "a text file that begins with 'just words'"),
        (b'{"a": 1}', "JSON"),
        (b"<html></html>", "HTML"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"\x80\x04\x95", "a pickle, which is never opened"),
        (b"", "an empty file"),
    ],
)
def test_the_message_for_another_file_names_its_type(run, tmp_path, contents, said):
    path = tmp_path / "m.onnx"
    path.write_bytes(contents)
    assert said in run("inspect", path, code=2).err


def test_an_output_that_is_an_input_is_reported(run, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(example("digits_cnn/digits-cnn").read_bytes())
    assert "is an input of this command" in run("convert", path, "-o", path, "--opset", "17").err


def test_parts_and_outputs_that_are_inputs_are_reported(run, tmp_path):
    path, array = tmp_path / "m.onnx", tmp_path / "x.npy"
    path.write_bytes(example("digits_cnn/digits-cnn").read_bytes())
    np.save(array, np.zeros((2, 1, 8, 8), np.float32))
    assert "is an input of this command" in run("run", path, "--input", f"images={array}", "-o", array).err
    assert "is an input of this command" in run("extract", path, "-o", path, "--output-names", "Relu").err
    assert "is an input of this command" in run("rename", "-o", path, path, "images=x").err


def test_two_values_cannot_get_one_name(run, tmp_path):
    path = tmp_path / "m.onnx"
    assert "two values get the same name" in run("rename", CNN, "images=x", "scores=x", "-o", path, code=2).err
    assert not path.exists()


def test_parts_with_the_same_functions_are_joined(run, tmp_path):
    def model(factor):
        return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
            g (float[n] x) => (float[n] y) {{ a = local.f(x) b = Exp(a) y = local.f(b) }}
            <domain: "local", opset_import: ["" : 17]> f (x) => (y) {{
              c = Constant<value_float = {factor}>() y = Mul(x, c) }}""")

    paths = whole, head, tail, other = [tmp_path / f"{name}.onnx" for name in ("whole", "head", "tail", "other")]
    onnx.save(model(2.0), whole)
    onnx.save(model(3.0), other)
    run("extract", whole, "-o", head, "--output-names", "b")
    run("extract", whole, "-o", tail, "-i", "b")
    run("compose", head, tail, "-o", tmp_path / "both.onnx")
    assert "equal" in run("compare", whole, tmp_path / "both.onnx").out
    assert len(onnx.load(tmp_path / "both.onnx").functions) == 1
    output = run("compose", paths[0], other, "--map", "y=x", "-o", tmp_path / "no.onnx", code=2)
    assert "differ between the two models" in output.err


@pytest.mark.parametrize("contents", ["a,b\n1,2\n3,4\n", "words\n"])
def test_string_contents_are_named_in_the_message(run, tmp_path, contents):
    path = tmp_path / "x.txt"
    path.write_text(contents)
    assert "text" in run("run", CNN, "--input", f"images={path}", code=2).err


@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16])
def test_nan_and_infinity_are_noted(run, tmp_path, dtype):
    graph = tx.Graph("g", opsets={"ai.onnx": 19})
    graph.output("y", ops.cast(ops.log(graph.input("x", "float32", (3,))), to=dtype.value))
    tx.export(graph, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.float32([-1, 0, 1]))
    output = run("run", tmp_path / "m.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--backend", "numpy")
    assert "of the 3 numbers of y, 1 are NaN, 1 infinite" in output.err


def test_outputs_that_are_maps_form_one_table(run, tmp_path):
    run("run", example("iris/iris"), "-o", tmp_path / "o.csv")
    header, *rows = (tmp_path / "o.csv").read_text().splitlines()
    assert header == "output_label,output_probability[0],output_probability[1],output_probability[2]"
    assert all(len(row.split(",")) == 4 for row in rows)


def test_a_parquet_file_needs_its_package_or_is_written(run, tmp_path, monkeypatch):
    path = tmp_path / "o.parquet"
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    output = run("run", example("iris/iris"), "-o", path, code=2)
    assert '--find-links WHEELS "tenonnx[parquet]"' in output.err
    assert not path.exists()


def test_run_makes_random_inputs_of_suitable_sizes(run, tmp_path):
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    a, b = graph.input("a", "float32", (None, None)), graph.input("b", "float32", (None, None))
    graph.output("y", ops.matmul(a, b))
    tx.export(graph, tmp_path / "m.onnx")
    output = run("run", tmp_path / "m.onnx")
    assert "random inputs were drawn with" in output.err
