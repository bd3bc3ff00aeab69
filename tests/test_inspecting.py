"""``inspect`` of nodes, weights and modules, and ``compare`` of attributes, weights and renamed values."""

import json

import numpy as np
import onnx
import pytest

from tenonnx_cli import main

CHAIN = """<ir_version: 10, opset_import: ["": 21]> g (float[4, 8] x) => (float[4, 8] y)
<float[8, 8] w = {%s}> { a%s = MatMul (x, w)  b%s = Gelu%s (a%s)  c%s = MatMul (b%s, w)  y = Softmax (c%s) }"""
NUMBERS = [round(((i * 37) % 17 - 8) / 4, 2) for i in range(64)]


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def called(*arguments, code=0):
        capfd.readouterr()
        assert main([str(each) for each in arguments]) == code
        return capfd.readouterr()

    return called


def save(name, *, attributes="", suffix="", numbers=NUMBERS, old="", new=""):
    text = CHAIN % (", ".join(map(str, numbers)), suffix, suffix, attributes, *[suffix] * 4)
    onnx.save(onnx.parser.parse_model(text.replace(old, new) if old else text), name)


TIGHT = "--atol", "1e-6", "--rtol", "1e-6"


@pytest.mark.parametrize("suffix", ["", "_"])
def test_a_different_attribute_is_shown_and_its_node_diverges_first(run, suffix):
    save("a.onnx")
    save("b.onnx", attributes=' <approximate = "tanh">', suffix=suffix)
    output = run("compare", "a.onnx", "b.onnx", *TIGHT, code=1).out
    assert "attributes: 1 difference\n" in output
    assert "b, Gelu: approximate  none    tanh\n" in output
    assert "structure: equal" not in output
    assert "4 of 4 computed values of b.onnx paired with those of a.onnx" in output
    result = json.loads(run("compare", "a.onnx", "b.onnx", *TIGHT, "--json", code=1).out)
    assert result["first_divergence"]["value"] == f"b{suffix}"


def test_an_explicit_default_is_no_difference(run):
    save("a.onnx")
    save("b.onnx", attributes=' <approximate = "none">')
    assert "structure: equal" in run("compare", "a.onnx", "b.onnx").out


def test_different_weights_are_shown_by_their_largest_difference(run):
    save("a.onnx")
    save("b.onnx", numbers=[*NUMBERS[:9], NUMBERS[9] + 0.5, NUMBERS[10] + 0.25, *NUMBERS[11:]])
    result = json.loads(run("compare", "a.onnx", "b.onnx", "--json", code=1).out)["structure"]
    assert result == {
        "weights": [
            {
                "name": "w[1, 1], the largest of 2 in 64",
                "first": NUMBERS[9],
                "second": NUMBERS[9] + 0.5,
            }
        ]
    }


def test_values_after_another_op_are_paired_by_their_use(run):
    save("a.onnx")
    save("b.onnx", suffix="_", old="Gelu", new="Relu")
    result = json.loads(run("compare", "a.onnx", "b.onnx", "--json", code=1).out)
    assert (result["paired"], result["values"]) == (4, 4)
    assert result["first_divergence"]["value"] == "b_"


def test_renamed_inputs_get_a_hint(run):
    save("a.onnx")
    save("b.onnx", old="float[4, 8] x", new="float[4, 8] image")
    model = onnx.load("b.onnx")
    model.graph.node[0].input[0] = "image"
    onnx.save(model, "b.onnx")
    assert "hint: --map x=image" in run("compare", "a.onnx", "b.onnx", code=1).err
    assert "structure: equal" in run("compare", "a.onnx", "b.onnx", "--map", "x=image").out


def test_outputs_are_saved_and_compared(run):
    save("a.onnx")
    save("b.onnx", attributes=' <approximate = "tanh">')
    run("run", "a.onnx", "--seed", "3", "-o", "saved.npz")
    output = run("compare", "a.onnx", "--outputs", "saved.npz", "--seed", "3", "-q").out
    assert output.splitlines() == [output.rstrip()]
    assert output.startswith("a.onnx: verified ")
    assert "against saved.npz" in output
    run("compare", "a.onnx", "--outputs", "saved.npz", "--seed", "4", code=1)
    run("compare", "b.onnx", "--outputs", "saved.npz", "--seed", "3", *TIGHT, code=1)
    run("compare", "b.onnx", "--outputs", "saved.npz", "--seed", "3", "--atol", "0.1")
    np.savez("other.npz", none=np.zeros(3, np.float32))
    assert "holds no output of the model" in run("compare", "a.onnx", "--outputs", "other.npz", code=2).err
    assert "leave b.onnx out" in run("compare", "a.onnx", "b.onnx", "--outputs", "saved.npz", code=2).err
    assert "compare got no second model" in run("compare", "a.onnx", code=2).err


def test_a_tolerance_of_one_output_leaves_the_others(run):
    save("a.onnx")
    save("b.onnx", attributes=' <approximate = "tanh">')
    name = onnx.load("a.onnx").graph.output[0].name
    loose = "--atol", f"{name}=0.1", "--rtol", f"{name}=0.1"
    run("compare", "a.onnx", "b.onnx", *TIGHT, code=1)
    run("compare", "a.onnx", "b.onnx", *TIGHT, *loose)
    run("verify", "a.onnx", "b.onnx", *TIGHT, *loose)
    run("convert", "a.onnx", "-o", "c.onnx", *TIGHT, *loose)
    assert "which is not an output" in run("compare", "a.onnx", "b.onnx", "--atol", "none=1", code=2).err
    assert "OUTPUT=NUMBER" in run("compare", "a.onnx", "b.onnx", "--atol", "much", code=2).err
    assert "OUTPUT=NUMBER" in run("compare", "a.onnx", "b.onnx", "--atol", "-1", code=2).err


def test_quantiles_of_differences(run):
    save("a.onnx")
    save("b.onnx", attributes=' <approximate = "tanh">')
    result = json.loads(run("compare", "a.onnx", "b.onnx", "--quantiles", "--json", code=1).out)
    (row,) = result["quantiles"].values()
    assert list(row) == ["0.5", "0.9", "0.99", "0.999", "1"]
    assert list(row.values()) == sorted(row.values())
    assert 0 < row["1"] == pytest.approx(max(each["absolute"] for each in result["outputs"]), rel=1e-3)
    assert "99.9%" in run("compare", "a.onnx", "b.onnx", "--quantiles", code=1).out
    assert json.loads(run("compare", "a.onnx", "a.onnx", "--json").out)["quantiles"] is None


def test_long_lists_end_with_the_number_of_omitted_lines(run):
    nodes = " ".join(f"v{k} = Add(x, w{k})" for k in range(30))
    weights = ", ".join(f"float w{k} = {{{k}}}" for k in range(30))
    graph = f'<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] v0) <{weights}> {{ {nodes} }}'
    onnx.save(onnx.parser.parse_model(graph), "many.onnx")
    onnx.save(onnx.parser.parse_model(graph.replace("float w", "float u").replace("x, w", "x, u")), "other.onnx")
    output = run("compare", "many.onnx", "other.onnx").out
    assert "variables: 60 differences" in output
    assert "and 40 more (-v lists all)" in output
    assert " more (" not in run("compare", "many.onnx", "other.onnx", "-v").out


def test_nodes_are_listed_with_attributes_and_single_ones_completely(run):
    save("a.onnx", attributes=' <approximate = "tanh">')
    assert "approximate=tanh" in run("inspect", "a.onnx", "--nodes").out
    whole = run("inspect", "a.onnx", "--node", "b").out
    assert whole.splitlines()[0] == "Gelu@21"
    assert "attribute  approximate  tanh" in whole
    assert run("inspect", "a.onnx", "--op", "MatMul").out.count("MatMul") == 2
    assert "did you mean" in run("inspect", "a.onnx", "--op", "MatMull", code=2).err
    assert 'the model has no node "none"' in run("inspect", "a.onnx", "--node", "none", code=2).err
    result = json.loads(run("inspect", "a.onnx", "--op", "Gelu", "--json").out)["nodes"]
    assert [node["attributes"] for node in result] == [{"approximate": "tanh"}]


def test_variables_are_shown_with_their_range(run):
    save("a.onnx")
    numbers = np.asarray(NUMBERS, np.float32)
    result = json.loads(run("inspect", "a.onnx", "--variables", "--json").out)["variables"][0]
    assert (result["minimum"], result["maximum"]) == (numbers.min(), numbers.max())
    assert result["mean"] == pytest.approx(numbers.mean(), abs=1e-6)
    assert result["zeros"] == (numbers == 0).mean()
    assert f"{(numbers == 0).mean():.1%}" in run("inspect", "a.onnx", "--variables").out


def test_nodes_are_folded_by_module(run):
    save("a.onnx")
    model = onnx.load("a.onnx")
    for node, name in zip(
        model.graph.node, ["/body/0/MatMul", "/body/1/Gelu", "/head/MatMul", "/Softmax"], strict=True
    ):
        node.name = name
    onnx.save(model, "a.onnx")
    tree = json.loads(run("inspect", "a.onnx", "--tree", "--json").out)["modules"]
    assert (tree["nodes"], tree["weights"], tree["ops"]) == (4, 64, {"Softmax": 1})
    assert [(each["name"], each["nodes"]) for each in tree["modules"]] == [("body", 2), ("head", 1)]
    rows = run("inspect", "a.onnx", "--tree").out
    assert "    1" in rows
    node = model.graph.node[0]
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'layers', 'layers.3', 'linear']")
    onnx.save(model, "a.onnx")
    tree = json.loads(run("inspect", "a.onnx", "--tree", "--json").out)["modules"]
    assert tree["modules"][0]["name"] == "layers"
    assert [each["name"] for each in tree["modules"][0]["modules"]] == ["3"]
