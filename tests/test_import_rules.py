"""Import rules from packages, files and arguments: their nodes, order and failures."""

import json
import sys
import textwrap

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend.rules import ImportRule, import_rule
from tenonnx_cli import main

TEXT = """<ir_version: 8, opset_import: ["": 17, "org.lab": 1]>
    g (float[2] x) => (float[2] y) {
        a = org.lab.Mystery <by = 3.0> (x)
        b = Relu (a)
        y = org.lab.Mystery <by = 2.0> (b)
    }"""
X = np.array([1, 2], np.float32)


@pytest.fixture
def model():
    made = onnx.parser.parse_model(TEXT)
    for node, name in zip(made.graph.node, ("encoder/first", "encoder/relu", "decoder/last"), strict=True):
        node.name = name
    return made


def scaled(by):
    return lambda node, x: x * by


def result(graph):
    return graph.run({"x": X}, backend="numpy")["y"].tolist()


ATTRIBUTE = "lambda node, x: x * node.attributes['by']"


def offer(install, name, text, entry="mystery", value=None):
    install(name, "tenonnx.rules", entry, f"from tenonnx.extend.rules import import_rule\n{text}", value)


@pytest.mark.parametrize(
    "key",
    [
        "'org.lab::Mystery'",
        "'Mystery'",
        "domain='org.lab'",
        "name='*code*/[fl]*'",
        "'Mystery', domain='org.lab', name='*', frontend='onnx', priority=3",
    ],
)
def test_a_package_defines_nodes(install, model, key):
    offer(install, "acme-rules", f"mystery = import_rule({key})({ATTRIBUTE})")
    graph = tx.load(model)
    assert [node.op_type for node in graph.nodes] == ["Mul", "Relu", "Mul"]
    assert result(graph) == [6, 12]


def test_a_rule_may_decline(install, model):
    offer(install, "acme-rules", "mystery = import_rule('Mystery')(lambda node, x: None)")
    assert [node.op_type for node in tx.load(model).nodes] == ["Mystery", "Relu", "Mystery"]
    assert tx.load(model).to_proto() == model


def test_the_priority_decides_and_then_the_more_specific_rule(install, model):
    text = """
        low = import_rule('Mystery')(lambda node, x: x * 100.0)
        by_domain = import_rule('org.lab::Mystery')(lambda node, x: x * 10.0)
        by_name = import_rule(name='decoder/*')(lambda node, x: x * 7.0)
        high = import_rule('Mystery', priority=1)(lambda node, x: x * 5.0 if node.name == 'encoder/first' else None)
    """
    offer(install, "acme-rules", textwrap.dedent(text), "all", "acme_rules")
    assert result(tx.load(model)) == [35, 70]


def test_rules_of_the_call_come_first(install, model):
    offer(install, "acme-rules", f"mystery = import_rule('Mystery', priority=9)({ATTRIBUTE})")
    assert result(tx.load(model, rules={"encoder/first": scaled(10.0)})) == [20, 40]
    rules = [import_rule("Mystery", priority=1)(scaled(1.0)), import_rule("Mystery")(scaled(9.0))]
    assert result(tx.load(model, rules=rules)) == [1, 2]


def test_a_rule_is_for_one_front_end(install, model, tmp_path):
    offer(install, "acme-rules", f"mystery = import_rule('Mystery', frontend='safetensors')({ATTRIBUTE})")
    graph = tx.load(model)
    assert "Mystery" in {node.op_type for node in graph.nodes}
    graph.save(tmp_path / "model.safetensors")
    assert result(tx.load(tmp_path / "model.safetensors")) == [6, 12]


def test_every_front_end_applies_rules(install):
    """Import rules apply to front ends of packages as they do to files."""
    install(
        "acme-format",
        "tenonnx.frontends",
        "acme",
        """
        import tenonnx as tx, tenonnx_standard as ops
        class acme:
            def read(source, *, registry):
                graph = tx.Graph(opsets={"ai.onnx": 17})
                graph.output("y", ops.relu(graph.input("x", "float32", (2,))))
                return graph
    """,
    )
    rules = [import_rule("Relu", frontend="acme")(scaled(3.0)), import_rule("Relu")(scaled(9.0))]
    assert result(tx.load("model.acme", rules=rules)) == [3, 6]


def test_tenonnx_plugins_switches_rules(install, model, monkeypatch):
    offer(install, "acme-rules", f"mystery = import_rule('Mystery')({ATTRIBUTE})")
    monkeypatch.setenv("TENONNX_PLUGINS", "-acme-rules")
    assert "Mystery" in {node.op_type for node in tx.load(model).nodes}


def test_rules_are_listed_and_conflicts_named(install, capsys):
    for name in ("acme-one", "acme-two"):
        offer(install, name, f"mystery = import_rule('org.lab::Mystery', priority=2)({ATTRIBUTE})")
    assert main(["plugins", "--check"]) == 1
    output = capsys.readouterr()
    assert "tenonnx.rules" in output.out
    assert "acme-one 1.0: org.lab::Mystery, priority 2" in output.out
    assert "acme-one 1.0 and acme-two 1.0 have rules for org.lab::Mystery with priority 2" in output.err
    assert main(["plugins", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["group"] == "tenonnx.rules"]
    assert [row["rules"] for row in rows] == [["org.lab::Mystery, priority 2"]] * 2


WRONG = {
    "raises": ("import_rule('Mystery')(lambda node, x: 1 / 0)", tx.PluginError, "acme-rules 1.0 could not replace"),
    "exits": ("import_rule('Mystery')(lambda node, x: exit())", tx.TenonnxError, "acme-rules"),
    "assigns": (
        "import_rule('Mystery')(lambda node, x: setattr(node, 'op_type', 'Relu'))",
        tx.InvalidCall,
        'raised by the rule "Mystery" of acme-rules 1.0',
    ),
    "too few": (
        "import_rule('Mystery')(lambda node, x: ())",
        tx.InvalidCall,
        "acme-rules 1.0 .* did not return 1 value,",
    ),
    "no value": (
        "import_rule('Mystery')(lambda node, x: 3)",
        tx.InvalidCall,
        "returned something other than values, or None",
    ),
    "other parameters": ("import_rule('Mystery')(lambda node: 3)", tx.InvalidCall, "does not take the node and its 1"),
}


@pytest.mark.parametrize(("text", "error", "message"), WRONG.values(), ids=WRONG)
def test_a_fault_of_a_rule_names_its_package(install, model, text, error, message):
    offer(install, "acme-rules", f"mystery = {text}")
    with pytest.raises(error, match=message):
        tx.load(model)


@pytest.mark.parametrize("text", ["mystery = 3", "1 / 0", "mystery = [3]"])
def test_a_package_with_invalid_rules_is_left_out_with_a_warning(install, model, text):
    offer(install, "acme-rules", text)
    with pytest.warns(tx.PluginWarning, match="acme-rules"):
        assert tx.load(model).nodes
    assert main(["plugins", "--check"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [{}, {"key": ""}, {"key": 3}, {"key": "a::B", "domain": "c"}, {"key": "B", "priority": "1"}, {"name": ""}],
)
def test_a_rule_needs_nodes_to_apply_to(arguments):
    with pytest.raises(tx.InvalidCall, match="an import rule"):
        import_rule(**arguments)


@pytest.mark.parametrize("rules", [3, "rules.py", [print], {"Mystery": 3}, {3: print}])
def test_invalid_rules_are_refused(model, rules):
    with pytest.raises(tx.InvalidCall, match=r"rules (are neither a mapping|do not map)"):
        tx.load(model, rules=rules)


def test_a_decorated_rule_is_still_a_function():
    rule = import_rule("Mystery")(lambda node, x: x + 1)
    assert isinstance(rule, ImportRule)
    assert rule(None, 2) == 3


# ----- functions of the model, and forbidden actions ------------------------------------------------------------------

FUNCTIONS = """<ir_version: 8, opset_import: ["": 17, "org.lab": 1, "own": 1]>
    g (float[n] x) => (float[n] y) { y = own.F <k = 3.0> (x) }
    <domain: "own", opset_import: ["": 17, "org.lab": 1, "own": 1]>
    F <k> (a) => (b) { t = org.lab.Mystery <by: float = @k> (a)  b = own.G (t) }
    <domain: "own", opset_import: ["": 17, "org.lab": 1]>
    G (a) => (b) {
        c = Constant <value = bool {1}> ()
        b = If (c) <then_branch = t () => (u) { u = org.lab.Mystery <by = 2.0> (a) },
                    else_branch = e () => (v) { v = Neg (a) }>
    }"""


@pytest.mark.parametrize("rules", [{"Mystery": eval(ATTRIBUTE)}, [import_rule(domain="org.lab")(eval(ATTRIBUTE))]])
def test_rules_apply_in_functions_and_their_subgraphs(rules):
    graph = tx.load(onnx.parser.parse_model(FUNCTIONS), rules=rules)
    assert result(graph) == [6, 12]
    assert not graph.functions


def test_a_function_whose_nodes_no_rule_replaces_stays():
    rules = [import_rule("Mystery")(lambda node, x: None)]
    graph = tx.load(onnx.parser.parse_model(FUNCTIONS), rules=rules)
    assert [node.op_type for node in graph.nodes] == ["F"]
    assert len(graph.functions) == 2


def test_an_error_of_a_rule_inside_a_function_names_the_function():
    with pytest.raises(tx.TenonnxError, match=r"division by zero; raised by the rule .Mystery. for node"):
        tx.load(onnx.parser.parse_model(FUNCTIONS), rules={"Mystery": lambda node, x: 1 / 0})


def test_rules_keep_the_types_of_the_outputs():
    wide = lambda node, x: ops.cast(x, to="float64")  # noqa: E731
    with pytest.raises(tx.TypeMismatch, match='the rules returned for output "y" a value of another type'):
        tx.load(onnx.parser.parse_model(FUNCTIONS), rules={"Mystery": wide})


def _renamed(node, x):
    x.name = "other"
    return x


def _removed(node, x):
    del x.graph.nodes[0]
    return x


@pytest.mark.parametrize("rule", [_renamed, _removed])
def test_a_rule_does_not_change_the_graph(model, rule):
    with pytest.raises(tx.InvalidCall, match=r"changed the (node|graph)"):
        tx.load(model, rules={"Relu": rule, "Mystery": eval(ATTRIBUTE)})


def test_a_rule_may_return_a_list(model):
    assert result(tx.load(model, rules={"Mystery": lambda node, x: [x * node.attributes["by"]]})) == [6, 12]


def test_a_rule_that_exits_does_not_end_the_program(model):
    with pytest.raises(tx.PluginError, match=r'the rule "Mystery" for node .* ended the program'):
        tx.load(model, rules={"Mystery": lambda node, x: sys.exit(0)})


# ----- on the command line --------------------------------------------------------------------------------------------

FILES = {
    "decorated": "@import_rule('Mystery')\ndef mystery(node, x):\n    return x * node.attributes['by']\n",
    "a mapping": f"rules = {{'org.lab::Mystery': {ATTRIBUTE}}}\n",
    "a list": f"rules = [import_rule(domain='org.lab')({ATTRIBUTE})]\n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_commands_take_rules_of_a_file(tmp_path, model, text, capsys):
    path, rules, out = tmp_path / "m.onnx", tmp_path / "lab_rules.py", tmp_path / "out.onnx"
    onnx.save(model, path)
    rules.write_text(f"from tenonnx.extend.rules import import_rule\n{text}")
    np.savez(tmp_path / "x.npz", x=X)
    options = ["--rules", str(rules)]
    assert main(["convert", str(path), "-o", str(out), "--domains", "ai.onnx"]) == 2
    assert main(["convert", str(path), "-o", str(out), "--domains", "ai.onnx", *options]) == 0
    assert result(tx.load(out)) == [6, 12]
    for command in (
        ["run", str(path), "--inputs", str(tmp_path / "x.npz")],
        ["inspect", str(path)],
        ["check", str(path)],
        ["plan", str(path)],
        ["bench", str(path)],
        ["compare", str(path), str(out)],
        ["grad", str(path), "--of", "y", "--wrt", "x", "--cotangent", "c", "-o", str(tmp_path / "g.onnx")],
        ["rename", str(path), "x=z", "-o", str(tmp_path / "r.onnx")],
        ["extract", str(path), "-o", str(tmp_path / "e.onnx"), "--output-names", "b"],
        ["compose", str(path), str(path), "--map", "y=x", "-o", str(tmp_path / "c.onnx")],
    ):
        capsys.readouterr()
        assert main([*command, *options]) == 0, (command, capsys.readouterr())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "has no import rule"),
        ("1 / 0", "lab_rules.py failed"),
        ("rules = 3", "has no import rule"),
        (None, "no such Python file"),
    ],
)
def test_a_file_without_rules_is_refused(tmp_path, model, text, said, capsys):
    onnx.save(model, tmp_path / "m.onnx")
    if text is not None:
        (tmp_path / "lab_rules.py").write_text(text)
    assert main(["inspect", str(tmp_path / "m.onnx"), "--rules", str(tmp_path / "lab_rules.py")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("body", ["import sys; sys.exit(0)", "1 / 0"])
def test_a_rule_of_a_file_that_ends_the_program_fails_the_command(tmp_path, model, body, capsys):
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "r.py").write_text(
        f"from tenonnx.extend.rules import import_rule\n@import_rule('Mystery')\ndef r(node, x):\n    {body}\n"
    )
    options = ["-o", str(tmp_path / "out.onnx"), "--rules", str(tmp_path / "r.py")]
    assert main(["convert", str(tmp_path / "m.onnx"), *options]) == 2
    assert "r.py failed" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()
