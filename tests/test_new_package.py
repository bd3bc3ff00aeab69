"""``tenonnx plugins new``: generated packages install, and pass their own tests."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tenonnx_cli import main

EXAMPLE = Path(__file__).parent.parent / "examples" / "third_party_plugin"


def files(folder):
    result = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in result}


def installed(folder, site):
    """Install a generated package: its entry points, and its modules on the path."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(site)])}


def test_the_example_is_what_the_command_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "tenonnx-acme", "--domain", "com.acme"]) == 0
    assert files(tmp_path / "tenonnx-acme") == {
        name: text for name, text in files(EXAMPLE).items() if name != "LICENSE"
    }


def test_a_package_with_every_feature_passes_its_own_tests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = ["--backend", "--format", "--frontend", "--target", "--command", "--rules", "--transform"]
    assert main(["plugins", "new", "tenonnx-toy", "--domain", "com.toy", *parts]) == 0
    folder = tmp_path / "tenonnx-toy"
    environment = installed(folder, tmp_path / "site")

    def python(*arguments):
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)

    listed = python("tenonnx", "plugins", "--check", "--json")
    assert listed.returncode == 0, listed.stderr
    mine = [row for row in json.loads(listed.stdout) if row["package"] == "tenonnx-toy"]
    assert {row["group"].removeprefix("tenonnx.") for row in mine} == {
        "ops",
        "conformance",
        "backends",
        "formats",
        "frontends",
        "targets",
        "commands",
        "rules",
        "transforms",
    }
    # Without the 1,884 models of onnx, most of which this backend of two ops refuses.
    table = python("tenonnx", "ops", "--markdown", "--package", "Tenonnx_Toy")
    assert table.stdout.splitlines()[2] == (
        "| com.toy::Squareplus | 1 and newer | X | b=4.0 | output | no | yes | of its body |"
    ), table.stderr
    options = ["--tenonnx-examples=1", "--tenonnx-report=conformance.json"]
    kinds = ("conformance", "format", "frontend", "target", "command", "rules", "transform")
    names = [f"test_{kind}.py" for kind in kinds]
    held = ("Add@7", "Mul@7", "feeds", "defaults", "arrays of its own", "state")  # a selection from a few hundred
    names += [f"test_backend.py::test_cases[{name}]" for name in held]
    options += [f"tests/{name}" for name in names]
    tested = python("pytest", "-q", "-p", "no:cacheprovider", *options)
    assert tested.returncode == 0, tested.stdout[-2000:]
    certificate = json.loads((folder / "conformance.json").read_text())
    assert certificate["packages"] == ["tenonnx-toy 0.1.0"]
    assert certificate["failed"] == {}
    assert certificate["comparisons"]["export"] > 0


def test_a_backend_package_declares_its_api_version(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "tenonnx-two-words", "--backend", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert "tenonnx-two-words/src/tenonnx_two_words/backend.py" in written["files"]
    assert "api = 1" in (tmp_path / "tenonnx-two-words/src/tenonnx_two_words/__init__.py").read_text()
    assert "com." not in (tmp_path / "tenonnx-two-words/pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Acme", "--backend"], "not made of lower-case words"),
        (["../acme", "--backend"], "not made of lower-case words"),
        (["acme", "--domain", 'a"b'], "a domain is not made of words separated by dots"),
        (["acme"], "nothing was chosen for the package to contain"),
        (["there", "--backend"], "the folder exists already"),
        (["numpy", "--domain", "com.acme"], "the module numpy is installed"),
        (["json", "--domain", "com.acme"], "json is a word or a module of Python"),
        (["class", "--domain", "com.acme"], "class is a word or a module of Python"),
        (["tenonnx", "--domain", "com.acme"], "tenonnx is a package of tenonnx"),
        (["tenonnx-jax", "--domain", "com.acme"], "tenonnx-jax is a package of tenonnx"),
        (["tenonnx-verify", "--transform"], "--verify is an option of tenonnx convert"),
        (["tenonnx-timeout", "--transform"], "--timeout is an option of tenonnx convert"),
        (["tenonnx-inspect", "--command"], '"inspect" in tenonnx.commands is that of tenonnx'),
        (["tenonnx-train", "--command"], '"train" in tenonnx.commands is that of tenonnx-training'),
        (["tenonnx-auto", "--backend"], '"auto" in tenonnx.backends is that of tenonnx itself'),
        (["tenonnx-own", "--domain", "ai.onnx"], '"ai.onnx" in tenonnx.ops is that of tenonnx-standard'),
    ],
)
def test_invalid_arguments_are_refused_and_write_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert main(["plugins", "new", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
