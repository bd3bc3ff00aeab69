"""Faulty third-party packages, installed together with ours."""

import json
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

#: A program that does not use the faulty package: it runs a model of Softmax and Relu and prints the results.
INNOCENT = """
import io, json, sys, warnings
import numpy as np
import onnx
import tenonnx as tx

warned = []
with warnings.catch_warnings():
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, category, *_: warned.append(f"{category.__name__}: {message}")
    graph = tx.load(onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { s = Softmax(x)  y = Relu(s) }'
    ))
    y = graph.run({"x": np.arange(6, dtype=np.float32).reshape(2, 3)})["y"]
    again = io.BytesIO()
    tx.export(graph, again, opset_version=12)
print(json.dumps({"y": y.round(4).tolist(), "warned": warned, "bytes": len(again.getvalue())}))
"""

HEAD = "from tenonnx.extend import add_rule, hookimpl, op, primitive\nimport tenonnx_standard as ops\n"
SOFTMAX = '@op("Softmax", domain="ai.onnx")\ndef softmax(input, *, axis=-1): return input\n'
HALVE = '@op("Halve", domain="com.acme")\ndef halve(X): return X / 2.0\n'


def hook(*lines, name="register_ops"):
    return f"@hookimpl\ndef {name}(registry):\n" + "".join(f"    {line}\n" for line in lines)


def tables(line):
    tables = "NO_FLOATS = {'Softmax': {'1': {'inputs': [{7}], 'outputs': [{7}], 'shared': []}}}\n"
    return HEAD + tables + hook(line, name="register_tables") + hook("pass")


OPS = HEAD + SOFTMAX + hook("registry.add(softmax)")
BACKEND = "speed = 1000\ndef compile(graph, **options):\n    "


def program(line, state="{}"):
    """Source code of a backend whose program executes ``line`` when it is called."""
    head = f'class Fast:\n    backend, state = "fast", {state}\n    def __call__(self, feeds):\n        {line}\n'
    return head + BACKEND + "return Fast()"


GIVES = "import numpy; return {'y': numpy.zeros"
NO_OPS = "\nfrom tenonnx.extend import hookimpl\n@hookimpl\ndef register_ops(registry): pass\n"

#: Faulty packages: entry-point group and name, source, and the warning of an unrelated program, None without one.
HURTFUL = {
    "an op of ours": ("ops", "ai.onnx", OPS, "ai.onnx::Softmax of aaa-stranger 1.0 left out, as tenonnx-standard"),
    "an exit at import": ("ops", "ai.onnx", "raise SystemExit(7)", ""),
    "an error half-way": ("ops", "ai.onnx", OPS + "    raise RuntimeError('half-way')", ""),
    "an exit half-way": ("ops", "ai.onnx", OPS + "    raise SystemExit(3)", ""),
    "no Python": ("ops", "ai.onnx", "def broken(:", ""),
    "a missing module": ("ops", "ai.onnx", "import no_such_module", ""),
    "an assertion at import": ("ops", "ai.onnx", "assert False, 'on this machine'", ""),
    "a newer api": ("ops", "ai.onnx", "api = 99\n" + OPS, ""),
    "a hook with a parameter more": ("ops", "ai.onnx", HEAD + "@hookimpl\ndef register_ops(registry, more): pass", ""),
    "a hook of no name": ("ops", "ai.onnx", HEAD + "@hookimpl\ndef register_opps(registry): pass", ""),
    "a number for an op": ("ops", "ai.onnx", HEAD + hook("registry.add(3)"), ""),
    "one op twice": ("ops", "ai.onnx", HEAD + HALVE + hook("registry.add(halve)") + "    registry.add(halve)", None),
    "a signature of no form": ("ops", "ai.onnx", HEAD + "@op('A', domain='ai.onnx')\ndef a(x, y=3): return x", ""),
    "a rule for an op of ours": (
        "ops",
        "ai.onnx",
        HEAD + hook("registry.add_rule(ops.relu, 'numpy', lambda X: X * 0)"),
        "",
    ),
    "a rule at import": ("ops", "ai.onnx", HEAD + "add_rule(ops.softmax, 'numpy', lambda input, axis: input)", ""),
    "a rule of no name": ("ops", "ai.onnx", HEAD + HALVE + "halve.rule('nunpy', lambda X: X)", ""),
    "tables that raise": ("ops", "ai.onnx", HEAD + hook("raise OSError('no table')", name="register_tables"), ""),
    "a meaning of the future": (
        "ops",
        "ai.onnx",
        HEAD + SOFTMAX.replace('onnx")', 'onnx", since=14)') + hook("registry.add(softmax)"),
        "",
    ),
    "an op at import": (
        "ops",
        "ai.onnx",
        HEAD + SOFTMAX + "from tenonnx.registry.registry import default_registry\n" + "default_registry().add(softmax)",
        "ai.onnx::Softmax of aaa-stranger 1.0 left out",
    ),
    "element types of ours": ("ops", "ai.onnx", tables("registry.add_dtypes('ai.onnx', lambda: NO_FLOATS)"), None),
    "element types that raise": ("ops", "ai.onnx", tables("registry.add_dtypes('ai.onnx', lambda: 1 / 0)"), None),
    "operators": ("ops", "ai.onnx", tables("registry.add_operators(lambda: 1 / 0)"), ""),
    "operators of another domain": ("ops", "aaa", tables("registry.add_operators(lambda: 1 / 0)"), ""),
    "a rule by a backend": (
        "backends",
        "fast",
        HEAD + "add_rule(ops.softmax, 'rewrite', max)",
        "registers a rewrite rule for it",
    ),
    "a rule by a command": ("commands", "odd", HEAD + "add_rule(ops.softmax, 'simplify', max)", ""),
    "a backend that divides by zero": ("backends", "fast", BACKEND + "raise ZeroDivisionError('oh')", "Error: oh"),
    "a backend that errs inside": ("backends", "fast", BACKEND + "raise SystemError", "SystemError"),
    "a backend without memory": ("backends", "fast", BACKEND + "raise MemoryError", "MemoryError"),
    "a backend that gives nothing": ("backends", "fast", BACKEND + "return None", "compile returned NoneType"),
    "a backend of no speed": ("backends", "fast", "speed = 'very'", "is not an object with a number speed"),
    "a backend that compiles nothing": ("backends", "fast", "speed = 1000", "is not an object with a number speed"),
    "a backend that lacks a module": ("backends", "fast", "import no_such_module", "No module named 'no_such_module'"),
    "a backend that exits": ("backends", "fast", "raise SystemExit(1)", "SystemExit"),
    "a backend of a newer api": (
        "backends",
        "fast",
        "api = 2\n" + BACKEND + "return 1",
        "a newer API of tenonnx than 1",
    ),
    "a backend named numpy": (
        "backends",
        "numpy",
        BACKEND + "raise OSError",
        '"numpy" in tenonnx.backends is already registered by',
    ),
    "a backend named auto": (
        "backends",
        "auto",
        BACKEND + "raise OSError",
        '"auto" in tenonnx.backends is already registered by',
    ),
    "a backend named as ours": (
        "backends",
        "onnxruntime",
        BACKEND + "raise OSError",
        "is already registered by tenonnx-onnxruntime",
    ),
    "a backend that leaves": ("backends", "fast", BACKEND + "raise SystemExit(3)", "SystemExit: 3"),
    "a program that divides by zero": ("backends", "fast", program("1 / 0"), "ZeroDivisionError"),
    "a program that leaves": ("backends", "fast", program("raise SystemExit(3)"), "SystemExit: 3"),
    "a program that gives nothing": ("backends", "fast", program("return None"), "NoneType; the graph has ['y']"),
    "a program of other outputs": ("backends", "fast", program("return {'z': 1}"), "['z']; the graph has ['y']"),
    "a program without state": ("backends", "fast", program("return {}", "None"), "whose state or backend is of"),
    "a format named onnx": ("frontends", "onnx", "def read(*a): raise OSError", ""),
    "a format named safetensors": ("frontends", "safetensors", "def read(*a): raise OSError", ""),
    "a format that reads nothing": ("frontends", "odd", "x = 1", ""),
    "a format that exits": ("frontends", "odd", "raise SystemExit", ""),
    "a command named convert": ("commands", "convert", "def command(group): pass", ""),
    "a command that exits": ("commands", "odd", "raise SystemExit(5)", ""),
    "a command that is none": ("commands", "odd", "x = 1", ""),
    "a transform named as an option": ("transforms", "tidy", "def tidy(graph): return graph", ""),
    "a transform that is none": ("transforms", "odd", "x = 1", ""),
    "targets in no package": ("targets", "odd", "x = 1", ""),
    "a transform named simplify": ("transforms", "simplify", "def simplify(graph): return graph", ""),
    "a command of ours": ("commands", "train", "def command(group): pass", ""),
    "cases that cannot be imported": ("conformance", "odd", "import no_such_module", ""),
}


STAYS = "was changed after the import of tenonnx_standard"

#: Changes of our ops that a third-party package attempts, and the reasons for which it is left out.
CHANGES = {
    "a rule": ("ops.softmax.rule('simplify', lambda *a, **k: a[0])", STAYS),
    "a rule in a hook": (hook("ops.relu.rule('rewrite', lambda X: X)"), STAYS),
    "a rule by hand": ("ops.relu.rules['numpy'] = abs", "does not support item assignment"),
    "a rule from outside": (
        "add_rule(ops.softmax, 'pattern', iter)",
        "registers a pattern rule for it",
    ),
    "a requirement": ("ops.softmax.requires(extend.integers('input'))", STAYS),
    "an older spelling": ("ops.softmax.until(14, ignored=['axis'])", STAYS),
    "an older meaning": ("@ops.gelu.until(21)\ndef a(X, *, approximate='none'): return X", STAYS),
    "a lowering": ("@ops.softmax.lower()\ndef a(input, *, axis): return input", STAYS),
    "another body": ("ops.softmax.function = lambda input, *, axis=-1: input", STAYS),
    "another kind": ("ops.relu.pure = False", STAYS),
}


@pytest.fixture(scope="module")
def before(python):
    """Results of the unrelated program without any of these packages."""
    done = python("", INNOCENT)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result.pop("warned") == []
    return result


@pytest.mark.parametrize(("group", "entry", "text", "message"), HURTFUL.values(), ids=HURTFUL)
def test_an_unrelated_program_has_the_same_results(installed, python, before, group, entry, text, message):
    installed("aaa-stranger", f"tenonnx.{group}", entry, text)
    done = python(installed.path, INNOCENT)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    warned = "\n".join(result.pop("warned"))
    assert result == before
    assert (message or "") in warned
    assert not message or "aaa-stranger" in warned
    checked = python(installed.path, "tenonnx", "plugins", "--check")
    late = "def compile" in text and entry == "fast" and "api" not in text
    shown = message is not None and not late  # the check passes for harmless packages, and for failures at call time
    assert checked.returncode == int(shown), checked.stdout
    assert ("aaa-stranger" in checked.stderr) is shown
    again = python(installed.path, "tenonnx", "plugins", "--check", TENONNX_PLUGINS="-AAA_Stranger")
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(("text", "why"), CHANGES.values(), ids=CHANGES)
def test_our_ops_stay_unchanged(installed, python, before, text, why):
    installed("aaa-stranger", "tenonnx.ops", "ai.onnx", f"{HEAD}from tenonnx import extend\n{text}")
    done = python(installed.path, INNOCENT)
    result = json.loads(done.stdout)
    assert all("aaa-stranger" in warned for warned in result.pop("warned"))
    assert result == before, done.stderr
    checked = python(installed.path, "tenonnx", "plugins", "--check")
    assert checked.returncode == 1
    assert why in checked.stderr
    assert Path(installed.path, "aaa_stranger.py").name in checked.stderr


def test_a_format_that_is_built_in_is_not_taken_over(installed, python):
    installed("aaa-stranger", "tenonnx.frontends", "onnx", "def read(*a): raise OSError('taken over')")
    program = """
        import onnx, tenonnx as tx
        onnx.save(onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'), "m.onnx")
        print(tx.load("m.onnx").nodes[0].op_type)
    """
    done = python(installed.path, textwrap.dedent(program))
    assert done.stdout == "Relu\n", done.stderr
    listed = python(installed.path, "tenonnx", "plugins")
    assert 'name "onnx" in tenonnx.frontends is already registered by' in listed.stderr


def test_all_threads_that_load_first_get_the_ops(python):
    program = """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        import onnx
        import tenonnx as tx
        model = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
        start = threading.Barrier(8)
        def load(_):
            start.wait()
            return type(tx.load(model).nodes[0].op).__name__
        with ThreadPoolExecutor(8) as pool:
            print(set(pool.map(load, range(8))))
    """
    for _ in range(3):
        done = python("", textwrap.dedent(program))
        assert done.stdout.strip() == "{'Op'}", done.stderr


def test_a_message_about_a_missing_op_names_the_excluded_package(python):
    program = """
        import numpy as np, onnx, tenonnx as tx
        model = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[2] x) => (float[2] y)'
            '{ y = com.microsoft.Gelu(x) }')
        tx.load(model).run({"x": np.ones(2, np.float32)}, backend="numpy")
    """
    done = python("", textwrap.dedent(program), TENONNX_PLUGINS="-tenonnx-contrib-ms")
    assert "allow tenonnx-contrib-ms in TENONNX_PLUGINS" in done.stderr
    assert "pip install" not in done.stderr


def test_the_reason_names_the_line_of_the_package(installed, python):
    installed(
        "acme", "tenonnx.ops", "acme", "from tenonnx.extend import op\n\n@op('A')\ndef a(x, y=3):\n    return x\n"
    )
    done = python(installed.path, "tenonnx", "plugins")
    assert f"correct {Path(installed.path, 'acme.py')}:3," in done.stderr


def test_a_file_that_carries_what_it_needs_outlives_its_package(installed, python, tmp_path):
    installed(
        "stranger-vendor",
        "tenonnx.ops",
        "com.acme",
        """
        from tenonnx.extend import hookimpl, op

        @op("Scaled", domain="com.acme")
        def scaled(X, *, by=2.0, mode="product"):
            return X * by if mode == "product" else X + by

        @hookimpl
        def register_ops(registry):
            registry.add(scaled)
        """,
    )
    header = '<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> g (float[2] x) => (float[2] y)'
    calls = '{ a = com.acme.Scaled<by = 3.0>(x)  y = com.acme.Scaled<mode = "sum">(a) }'
    onnx.save(onnx.parser.parse_model(f"{header} {calls}"), tmp_path / "m.onnx")
    made = tmp_path / "made.onnx"
    convert = ["tenonnx", "convert", str(tmp_path / "m.onnx"), "-o", str(made), "--functions", "vendor", "-v"]
    done = python(installed.path, *convert)
    assert "carried" in done.stdout, done.stderr
    x = np.float32([1, 4])
    session = onnxruntime.InferenceSession(str(made), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": x})[0].tolist() == [5, 14]
    program = (
        f"import tenonnx as tx; g = tx.load({str(made)!r}); print(g.run({{'x': [1.0, 4.0]}}, 'numpy')['y'], g.metadata)"
    )
    done = python(installed.path, program, TENONNX_PLUGINS="-stranger-vendor")
    assert done.stdout.startswith("[ 5. 14.]"), done.stderr
    assert "stranger-vendor 1.0" in done.stdout


RELU = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }'


@pytest.fixture
def model(tmp_path):
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_output_of_packages_is_not_part_of_results(installed, python, model):
    prints = "print('said'); import os; os.system('echo echoed'); os.write(1, b'written\\n')\n"
    installed("aaa-printer", "tenonnx.ops", "ai.onnx", prints + HEAD + hook("print('hooked')"))
    installed("aaa-fast", "tenonnx.backends", "fast", prints + program("print('ran'); return {'y': feeds['x'] * 0}"))
    installed(
        "aaa-change", "tenonnx.transforms", "odd", prints + "def odd(graph): print('applied'); return graph", "aaa_t"
    )
    (Path(installed.path) / "aaa_change-1.0.dist-info/entry_points.txt").write_text(
        "[tenonnx.transforms]\nodd = aaa_t:odd\n"
    )
    made = str(Path(installed.path, "made.onnx"))
    for command in (
        ["inspect", model],
        ["run", model, "--backend", "fast"],
        ["convert", model, "-o", made, "--odd"],
        ["bench", model, "--seconds", "0.01"],
        ["plugins"],
    ):
        done = python(installed.path, "tenonnx", *command, "--json")
        assert json.loads(done.stdout), done.stderr
        assert {"said", "echoed", "written", "hooked"} <= set(done.stderr.split()), command


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("raise SystemExit(0)", "could not transform the model"),
        ("return None", 'the transform "odd" of aaa-stranger 1.0 returned no graph'),
        ("return graph, 1", "returned no graph"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_transform_that_gives_no_graph_is_named_and_nothing_is_written(installed, python, model, does, message):
    installed("aaa-stranger", "tenonnx.transforms", "odd", f"def odd(graph): {does}")
    entry = Path(installed.path, "aaa_stranger-1.0.dist-info/entry_points.txt")
    entry.write_text("[tenonnx.transforms]\nodd = aaa_stranger:odd\n")
    done = python(installed.path, "tenonnx", "convert", model, "-o", "made.onnx", "--odd")
    assert done.returncode == 2
    assert message in done.stderr
    assert "aaa-stranger 1.0" in done.stderr
    assert not Path(installed.path, "made.onnx").exists()


@pytest.mark.parametrize(
    ("does", "expected_text"),
    [
        ("raise SystemExit(0)", "SystemExit"),
    ],
)
def test_a_hook_that_ends_the_program_is_named_and_nothing_is_written(installed, python, model, does, expected_text):
    installed("aaa-stranger", "tenonnx.hooks", "odd", f"def hook(message): {does}")
    entry = Path(installed.path, "aaa_stranger-1.0.dist-info/entry_points.txt")
    entry.write_text("[tenonnx.hooks]\nodd = aaa_stranger:hook\n")
    done = python(installed.path, "tenonnx", "convert", model, "-o", "made.onnx", "--hook", "odd")
    assert done.returncode == 2
    assert expected_text in done.stderr
    assert "the hook odd of aaa-stranger 1.0" in done.stderr
    assert not Path(installed.path, "made.onnx").exists()


@pytest.mark.parametrize("distribution", ["aaa-stranger", "Tenonnx_Optimize", "tenonnx-optimize", "tenonnx"])
def test_a_transform_of_ours_is_not_taken_over(installed, python, model, distribution):
    text = "def change(graph): graph.nodes[0].op_type = 'Neg'; return graph"
    installed("aaa-stranger", "tenonnx.transforms", "simplify", text)
    entry = Path(installed.path, "aaa_stranger-1.0.dist-info/entry_points.txt")
    entry.with_name("METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    entry.write_text("[tenonnx.transforms]\nsimplify = aaa_stranger:change\n")
    done = python(installed.path, "tenonnx", "convert", model, "-o", "made.onnx", "--simplify")
    assert done.returncode == 0, done.stderr
    assert 'name "simplify" in tenonnx.transforms is already registered by' in done.stderr
    assert [node.op_type for node in onnx.load(Path(installed.path, "made.onnx")).graph.node] == ["Relu"]


@pytest.mark.parametrize("gives", ["((1, 2, 3), 'f4')}", "((2, 3), 'f4') + 7}"])
def test_bench_names_a_wrong_backend_and_does_not_choose_it(installed, python, model, gives):
    installed("aaa-stranger", "tenonnx.backends", "fast", program(GIVES + gives))
    choice = Path(installed.path, "choice.json")
    done = python(installed.path, "tenonnx", "bench", model, "--seconds", "0.01", "--choose", str(choice))
    assert "\nfast: " in done.stderr
    assert 'output "y" differs from that of numpy' in done.stderr
    assert "fast" not in done.stdout
    assert "onnxruntime" in json.loads(choice.read_text())["backends"]
    assert "fast" not in json.loads(choice.read_text())["backends"]
