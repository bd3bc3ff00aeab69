"""Packages of strangers, really installed beside ours: what they give, and that no bystander is hurt by them."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

#: A bystander's program: it reads a model of Softmax and Relu, runs it on any backend, and prints what it got.
BYSTANDER = """
import io, json, sys, warnings
import numpy as np
import onnx
import tenonnx as tx

told = []
with warnings.catch_warnings():
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, category, *_: told.append(f"{category.__name__}: {message}")
    graph = tx.load(onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { s = Softmax(x)  y = Relu(s) }'
    ))
    y = graph.run({"x": np.arange(6, dtype=np.float32).reshape(2, 3)})["y"]
    again = io.BytesIO()
    tx.export(graph, again, opset_version=12)
print(json.dumps({"y": y.round(4).tolist(), "told": told, "bytes": len(again.getvalue())}))
"""

OPS = """
from tenonnx.extend import hookimpl, op

@op("Softmax", domain="ai.onnx")
def softmax(input, *, axis=-1):
    return input

@hookimpl
def register_ops(registry):
    registry.add(softmax)
"""

BACKEND = "speed = 1000\ndef compile(graph, **options):\n    "


@pytest.fixture
def installed(tmp_path):
    """Installs distributions into a folder of their own: their entry points and modules, as an installer lays them."""

    def install(name, group, entry, text, module=None):
        module = module or name.replace("-", "_").lower()
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(text))
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry} = {module}\n")
        (info / "RECORD").write_text("")

    install.path = str(tmp_path)
    return install


def python(path, *arguments, **environment):
    found = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, *arguments], env=found, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """What a bystander gets with none of these packages."""
    done = python(str(tmp_path_factory.mktemp("empty")), "-c", BYSTANDER)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("told") == []
    return found


@pytest.mark.parametrize(
    ("group", "entry", "text", "told"),
    [
        ("tenonnx.ops", "ai.onnx", OPS, "ai.onnx::Softmax of aaa-stranger 1.0 left out, as tenonnx-standard"),
        ("tenonnx.ops", "ai.onnx", "raise SystemExit(7)", ""),
        ("tenonnx.ops", "ai.onnx", OPS + "    raise RuntimeError('half-way')", ""),
        ("tenonnx.ops", "ai.onnx", "def broken(:", ""),
        ("tenonnx.backends", "fast", BACKEND + "raise ZeroDivisionError('oh')", "ZeroDivisionError: oh"),
        ("tenonnx.backends", "fast", BACKEND + "raise SystemError", "SystemError"),
        ("tenonnx.backends", "fast", BACKEND + "return None", "compile returned NoneType"),
        ("tenonnx.backends", "fast", "speed = 'very'", "must be an object with a number speed"),
        ("tenonnx.backends", "fast", "import no_such_module", "No module named 'no_such_module'"),
        ("tenonnx.backends", "numpy", BACKEND + "raise OSError", '"numpy" in tenonnx.backends must be new'),
        ("tenonnx.backends", "onnxruntime", BACKEND + "raise OSError", "the name is that of tenonnx-onnxruntime"),
        ("tenonnx.frontends", "onnx", "def read(*a): raise OSError", ""),
    ],
)
def test_a_bystander_gets_what_it_got_before(installed, before, group, entry, text, told):
    installed("aaa-stranger", group, entry, text)
    done = python(installed.path, "-c", BYSTANDER)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    warned = "\n".join(found.pop("told"))
    assert found == before
    assert told in warned
    assert not told or "aaa-stranger" in warned
    checked = python(installed.path, "-m", "tenonnx", "plugins", "--check")
    shown = "def compile" not in text or entry != "fast"  # a backend that fails later is as it must be
    assert checked.returncode == int(shown), checked.stdout
    assert ("aaa-stranger" in checked.stderr) is shown
    again = python(installed.path, "-m", "tenonnx", "plugins", "--check", TENONNX_PLUGINS="-AAA_Stranger")
    assert again.returncode == 0, again.stderr


def test_a_format_that_is_built_in_is_not_taken_over(installed, tmp_path):
    installed("aaa-stranger", "tenonnx.frontends", "onnx", "def read(*a): raise OSError('taken over')")
    program = """
        import onnx, tenonnx as tx
        onnx.save(onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'), "m.onnx")
        print(tx.load("m.onnx").nodes[0].op_type)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": installed.path},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "Relu\n", done.stderr
    listed = python(installed.path, "-m", "tenonnx", "plugins")
    assert 'the name "onnx" in tenonnx.frontends must be new' in listed.stderr


def test_threads_that_load_first_all_get_the_ops():
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
        done = python("", "-c", textwrap.dedent(program))
        assert done.stdout.strip() == "{'Op'}", done.stderr


def test_what_is_missing_says_that_it_was_left_out():
    program = """
        import numpy as np, onnx, tenonnx as tx
        model = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[2] x) => (float[2] y)'
            '{ y = com.microsoft.Gelu(x) }')
        tx.load(model).run({"x": np.ones(2, np.float32)}, backend="numpy")
    """
    done = python("", "-c", textwrap.dedent(program), TENONNX_PLUGINS="-tenonnx-contrib-ms")
    assert "let TENONNX_PLUGINS no longer leave out tenonnx-contrib-ms" in done.stderr
    assert "pip install" not in done.stderr


def test_the_reason_leads_to_the_author_s_line(installed):
    installed(
        "acme", "tenonnx.ops", "acme", "from tenonnx.extend import op\n\n@op('A')\ndef a(x, y=3):\n    return x\n"
    )
    done = python(installed.path, "-m", "tenonnx", "plugins")
    assert f"correct {Path(installed.path, 'acme.py')}:3," in done.stderr


def test_a_file_that_carries_what_it_needs_outlives_its_package(installed, tmp_path):
    installed(
        "tenonnx-acme", "tenonnx.ops", "com.acme",
        """
        from tenonnx.extend import hookimpl, op

        @op("Scaled", domain="com.acme")
        def scaled(X, *, by=2.0, mode="product"):
            return X * by if mode == "product" else X + by

        @hookimpl
        def register_ops(registry):
            registry.add(scaled)
        """,
    )  # fmt: skip
    header = '<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> g (float[2] x) => (float[2] y)'
    calls = '{ a = com.acme.Scaled<by = 3.0>(x)  y = com.acme.Scaled<mode = "sum">(a) }'
    onnx.save(onnx.parser.parse_model(f"{header} {calls}"), tmp_path / "m.onnx")
    made = tmp_path / "made.onnx"
    convert = ["-m", "tenonnx", "convert", str(tmp_path / "m.onnx"), "-o", str(made), "--functions", "vendor"]
    done = python(installed.path, *convert)
    assert "carried" in done.stdout, done.stderr
    x = np.float32([1, 4])
    session = onnxruntime.InferenceSession(str(made), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": x})[0].tolist() == [5, 14]
    program = (
        f"import tenonnx as tx; g = tx.load({str(made)!r}); print(g.run({{'x': [1.0, 4.0]}}, 'numpy')['y'], g.metadata)"
    )
    done = python(installed.path, "-c", program, TENONNX_PLUGINS="-tenonnx-acme")
    assert done.stdout.startswith("[ 5. 14.]"), done.stderr
    assert "tenonnx-acme 1.0" in done.stdout
