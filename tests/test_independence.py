"""Wheels in fresh environments: each package works without the others, and finds installed ones."""

import ensurepip
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from models import ROOT, example

FOLDERS = {
    "tenonnx": "bundle",
    "tenonnx-core": "core",
    "tenonnx-run": "plugins/run",
    "tenonnx-convert": "plugins/convert",
    "tenonnx-targets": "plugins/targets",
    "tenonnx-data": "plugins/data",
    "tenonnx-cli": "plugins/apps/cli",
    "tenonnx-optimize": "plugins/optimize",
    "tenonnx-standard": "plugins/standard",
    "tenonnx-onnxruntime": "plugins/backends/onnxruntime",
    "tenonnx-testing": "plugins/testing",
    "tenonnx-training": "plugins/training",
    "tenonnx-debug": "plugins/debug",
    "tenonnx-explain": "plugins/explain",
    "tenonnx-compat": "plugins/compat",
    "tenonnx-contrib-ms": "contrib_ms",
    "tenonnx-onnx-ml": "onnx_ml",
    "tenonnx-quantized": "quantized",
    "tenonnx-acme": "examples/third_party_plugin",
}

#: The command line and its requirements among our packages.
COMMAND_LINE = ("tenonnx-core", "tenonnx-run", "tenonnx-convert", "tenonnx-targets", "tenonnx-data", "tenonnx-cli")

VENDORS = {"tenonnx-contrib-ms", "tenonnx-onnx-ml", "tenonnx-quantized"}

#: Packages that require a family of ops: explanations of trees read the ensembles of ai.onnx.ml.
READERS = {"tenonnx-explain": {"tenonnx-onnx-ml"}}

VENDOR_OPS = ("FusedMatMul", "Gelu", "GroupQueryAttention", "RotaryEmbedding", "SkipSimplifiedLayerNormalization")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels of every package by name."""
    folder = tmp_path_factory.mktemp("wheels")
    for source in FOLDERS.values():
        list(WheelBuilder(str(ROOT / source)).build(directory=str(folder), versions=["standard"]))
    return {path.name.split("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}


class Environment:
    """A virtual environment with this one's third-party packages and without ours."""

    def __init__(self, folder, wheels):
        venv.create(folder, with_pip=False, symlinks=True)
        self.folder, self.wheels = folder, wheels
        self.python = folder / "bin" / "python"
        self.site = next((folder / "lib").iterdir()) / "site-packages"
        self._share_third_party()

    def _share_third_party(self):
        for path in sys.path:
            source = Path(path)
            if source.name != "site-packages":
                continue
            for entry in source.iterdir():
                ours = entry.name.startswith(("tenonnx", "_tenonnx", "__editable__", "_virtualenv"))
                if not ours and not entry.name.endswith(".pth") and not (self.site / entry.name).exists():
                    (self.site / entry.name).symlink_to(entry)

    def install(self, *names):
        """Link to wheels that are unpacked once, so that environments share bytecode."""
        for name in names:
            unpacked = self.wheels[name].with_suffix("")
            if not unpacked.exists():
                with zipfile.ZipFile(self.wheels[name]) as wheel:
                    wheel.extractall(unpacked)
            for entry in unpacked.iterdir():
                (self.site / entry.name).symlink_to(entry)

    def run(self, code, *, code_expected=0):
        environment = {key: v for key, v in os.environ.items() if key not in ("PYTHONPATH", "TENONNX_PLUGINS")}
        done = subprocess.run(
            [self.python, "-c", code], capture_output=True, text=True, cwd=self.folder, env=environment, check=False
        )
        assert done.returncode == code_expected, done.stdout + done.stderr
        return done.stdout

    def tenonnx(self, *arguments, code_expected=0):
        argv = ["tenonnx", *map(str, arguments)]
        code = f"import sys; sys.argv = {argv!r}; from tenonnx_cli import main; sys.exit(main())"
        return self.run(code, code_expected=code_expected)


@pytest.fixture
def environment(tmp_path, wheels):
    return Environment(tmp_path / "env", wheels)


def run_tests(environment, path, *selected):
    """Run a test suite in the environment with one call per check, since only independence is tested here."""
    few = ["--tenonnx-examples", "1", *selected]
    options = ["-q", "-x", "-p", "no:cacheprovider", "--import-mode=importlib", *few, str(path)]
    environment.run(f"import pytest, sys; sys.exit(pytest.main({options!r}))")


def test_core_without_packages_lists_no_ops(environment):
    environment.install(*COMMAND_LINE)
    assert json.loads(environment.tenonnx("ops", "--json")) == []


def test_core_and_standard_run_the_digits_model(environment):
    environment.install(*COMMAND_LINE, "tenonnx-standard")
    outputs = environment.run(
        "import numpy as np, tenonnx as tx\n"
        f"graph = tx.load({str(example('digits/digits'))!r})\n"
        f"pixels = np.load({str(example('digits/digits').parent / 'samples.npz')!r})['pixels']\n"
        "print(graph.run({'pixels': pixels})['label'].tolist())"
    )
    assert len(json.loads(outputs)) == 48
    output = environment.run(
        "import contextlib, io\nfrom tenonnx_cli import main\n"
        "with contextlib.redirect_stderr(io.StringIO()) as said:\n"
        f"    code = main(['compose', *[{str(example('digits/digits'))!r}] * 2, '-o', 'both.onnx'])\n"
        "print(code, said.getvalue())"
    )
    assert output.startswith("2 PluginError: tenonnx.compose is in tenonnx-optimize")


def test_an_op_without_its_package_is_named_until_the_package_is_installed(environment):
    environment.install(*COMMAND_LINE, "tenonnx-standard")
    decoder = str(example("decoder/decoder"))
    environment.tenonnx("inspect", decoder)
    for action in ("run({})", "compile()"):
        output = environment.run(
            f"import tenonnx as tx\ngraph = tx.load({decoder!r})\n"
            f"try: graph.{action}\nexcept tx.UnsupportedOp as error: print(error)"
        )
        for name in VENDOR_OPS:
            assert f"com.microsoft::{name}@1" in output
        assert "--find-links WHEELS tenonnx-contrib-ms" in output
    output = environment.run(
        f"import tenonnx as tx\ngraph = tx.load({decoder!r})\n"
        "try: tx.retarget(graph, domains=['ai.onnx'])\nexcept tx.NotRepresentable as error: print(error)"
    )
    assert "GroupQueryAttention" in output
    environment.install("tenonnx-contrib-ms")
    samples = str(example("decoder/decoder").parent / "samples.npz")
    shape = environment.run(
        f"import numpy as np, tenonnx as tx\ngraph = tx.load({decoder!r})\n"
        f"print(graph.run(dict(np.load({samples!r})))['logits'].shape)"
    )
    assert shape.strip() == "(2, 8, 64)"


def test_missing_features_name_the_package_to_install(environment):
    environment.install("tenonnx-core")
    output = environment.run(
        "import tenonnx as tx\n"
        "try:\n    tx.simplify\nexcept AttributeError as error:\n    print(error)\n"
        "import runpy\n"
        "try:\n    runpy.run_module('tenonnx', run_name='__main__')\nexcept SystemExit as end:\n    print(end)\n"
        "try:\n    tx.Graph().to_svg()\nexcept tx.PluginError as error:\n    print(error)\n"
        "print(tx.Graph()._repr_html_())\n"
        "import tenonnx.backend\n"
        "try:\n    tenonnx.backend.prepare\nexcept AttributeError as error:\n    print(error)\n"
        "graph = tx.Graph()\n"
        "try:\n    graph.input('x', 'float32', (2,)) + 1\nexcept tx.TenonnxError as error:\n    print(error)\n"
    )
    simplify, command_line, drawing, page, protocol, arithmetic = re.split(
        r"\n(?=\S)", output.strip().replace("\n  ", " ")
    )
    assert "--find-links WHEELS tenonnx-optimize" in simplify
    assert "--find-links WHEELS tenonnx-cli" in command_line
    assert "--find-links WHEELS tenonnx-cli" in drawing
    assert page == "None", "a notebook shows the graph as text"
    assert "--find-links WHEELS tenonnx-testing" in protocol
    assert "--find-links WHEELS tenonnx-standard" in arithmetic


def test_a_third_party_package_is_discovered(environment):
    environment.install(*COMMAND_LINE, "tenonnx-standard", "tenonnx-testing", "tenonnx-acme")
    listed = json.loads(environment.tenonnx("ops", "--domain", "com.acme", "--json"))
    assert [op["name"] for op in listed] == ["Squareplus"]
    run_tests(environment, ROOT / "examples/third_party_plugin/tests")


@pytest.mark.parametrize("name", ["tenonnx-onnx-ml", "tenonnx-quantized", "tenonnx-contrib-ms"])
def test_each_family_only_needs_core_and_standard(environment, name):
    environment.install(*COMMAND_LINE, "tenonnx-standard", "tenonnx-testing", name)
    in_short = ("-k", "types or body")  # types and bodies suffice; exports do not depend on the environment
    run_tests(environment, ROOT / FOLDERS[name] / "tests" / "test_conformance.py", *in_short)


def test_wheels_declare_no_other_vendor_family(wheels):
    for name, path in wheels.items():
        with zipfile.ZipFile(path) as wheel:
            metadata = next(n for n in wheel.namelist() if n.endswith("METADATA"))
            needs = [
                re.split("[~;]", line.split(":")[1])[0].strip()
                for line in wheel.read(metadata).decode().splitlines()
                if line.startswith("Requires-Dist: tenonnx") and "extra ==" not in line
            ]
            assert (
                any(each.startswith("tenonnx") and each.endswith(".py") for each in wheel.namelist())
                or name == "tenonnx"
            )
            assert not set(needs) & VENDORS - READERS.get(name, set()), name


@pytest.fixture(scope="module")
def shell(tmp_path_factory, wheels):
    """A shell in a fresh environment with pip and the command line from a folder of wheels, without network access."""
    pip = next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"), None)
    if pip is None:
        pytest.skip("this Python brings no pip")
    environment = Environment(tmp_path_factory.mktemp("fresh") / "env", wheels)
    environment.install(*COMMAND_LINE, "tenonnx-standard")
    (environment.site / "pip.pth").write_text(f"{pip}\n")
    links = environment.python.parent
    for name, module in {"pip": "pip._internal.cli.main", "tenonnx": "tenonnx_cli", "pytest": "pytest"}.items():
        lines = f"#!{environment.python}\nimport sys\nfrom {module} import main\n\nsys.exit(main())\n"
        (links / name).write_text(lines)
        (links / name).chmod(0o755)
    given = {key: v for key, v in os.environ.items() if key not in ("PYTHONPATH", "TENONNX_PLUGINS")}
    given |= {"PATH": f"{links}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(environment.folder)}
    given |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_COMPILE": "1", "UV_OFFLINE": "1"}
    given["PYTEST_ADDOPTS"] = "-q -p no:cacheprovider --tenonnx-examples 1 -k types"

    def run(command, place):
        if not (place / "WHEELS").exists():
            (place / "WHEELS").symlink_to(next(iter(wheels.values())).parent)
        done = subprocess.run(
            ["bash", "-ec", command], cwd=place, env=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    return run


def test_the_commands_of_the_guide_work_literally(shell, tmp_path):
    page = (ROOT / "docs/how-to/writing-a-plugin.md").read_text("utf-8")
    block = re.search(r"```console\n(.*?)```", page, re.DOTALL)[1]
    create, check = (line.removeprefix("$ ") for line in block.splitlines())
    _, install, test = shell(create, tmp_path).splitlines()
    assert " passed" in shell(check, tmp_path)
    assert "pip install --find-links WHEELS" in install
    shell(install.removeprefix("next: ").partition(" (")[0], tmp_path)
    assert test == f"then: python -m {check.partition(' && ')[2]}"


def test_the_workflow_and_the_readme_of_a_new_package_work(shell, tmp_path):
    shell("tenonnx plugins new tenonnx-flow --domain com.flow", tmp_path)
    package = tmp_path / "tenonnx-flow"
    steps = re.findall(r"^ *- run: (.*)$", (package / ".github/workflows/ci.yml").read_text(), re.M)
    assert len(steps) == 3
    for step in steps:
        shell(step, package)
    assert (package / "conformance.json").exists()
    (line,) = re.findall(r"^    (.*)$", (package / "README.md").read_text(), re.M)
    assert line == f"{steps[0]} && pytest"
