"""Install commands in the documentation."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import tenonnx as tx
from tenonnx.tools import import_optional, installing

ROOT = Path(__file__).parents[1]
FOLDERS = [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/**/pyproject.toml")]
PROJECTS = {
    (made := tomllib.loads(path.read_text("utf-8"))["project"])["name"]: (path.parent, made) for path in FOLDERS
}


def needed(name: str) -> set[Path]:
    """Folders of a package and of our packages that it requires."""
    folder, project = PROJECTS[name]
    names = {re.split(r"[\s\[<>=!~;]", each)[0] for each in project["dependencies"]}
    return {folder}.union(*(needed(each) for each in names & PROJECTS.keys()))


def test_a_package_is_installed_with_our_packages_that_it_requires():
    """Otherwise pip would search for them on an index, which does not have them."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
    lines = [
        line for page in pages for line in re.findall(r"^\$ pip install (\./[^\n]*)", page.read_text("utf-8"), re.M)
    ]
    assert lines
    for line in lines:
        *others, last = ((ROOT / folder).resolve() for folder in line.split())
        name = tomllib.loads((last / "pyproject.toml").read_text("utf-8"))["project"]["name"]
        assert {*others, last} == needed(name), line


BUNDLE = tomllib.loads((ROOT / "bundle/pyproject.toml").read_text("utf-8"))["project"]

#: Packages that require a framework or a runtime of hundreds of megabytes.
HEAVY = {f"tenonnx-{name}" for name in ("torch", "transformers", "jax", "tensorflow", "sklearn", "openvino", "litert")}


def distribution(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;]", requirement)[0]


def test_the_readme_lists_the_extras_of_the_bundle():
    text = (ROOT / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `\[([a-z]+)\]` \| ([^|]*) \|", text, re.M))
    extras = {name: {distribution(each) for each in lines} for name, lines in BUNDLE["optional-dependencies"].items()}
    assert rows.keys() == extras.keys()
    for name in extras.keys() - {"all", "full"}:
        assert rows[name] == f"`{next(iter(extras[name]))}`"
        assert len(extras[name]) == 1


def test_all_is_every_light_package_and_full_every_one():
    extras = {name: {distribution(each) for each in lines} for name, lines in BUNDLE["optional-dependencies"].items()}
    single = set().union(*(lines for name, lines in extras.items() if name not in ("all", "full")))
    assert extras["full"] == single
    assert extras["all"] == single - HEAVY
    ours = {name for name in PROJECTS if name.startswith("tenonnx-")}
    brought = {name for path in needed("tenonnx") for name, (folder, _) in PROJECTS.items() if folder == path}
    for name in extras["full"] & PROJECTS.keys():
        brought |= {other for path in needed(name) for other, (folder, _) in PROJECTS.items() if folder == path}
    assert ours - brought == set()


def test_no_command_of_the_documentation_removes_packages():
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*/README.md"),
        *ROOT.glob("plugins/**/*.md"),
    ]
    lines = [line for page in pages for line in re.findall(r"^\$? *(.*\b(?:pip|uv) .*)", page.read_text("utf-8"), re.M)]
    assert any("uv sync" in line for line in lines)
    for line in lines:
        assert "uv sync" not in line or "--inexact" in line, line
        assert not re.search(r"\buninstall\b|--exact\b|--force-reinstall|pip sync", line), line


def test_one_function_makes_the_install_commands():
    """``installing`` checks whether the interpreter has pip."""
    sources = [path for path in ROOT.rglob("src/**/*.py") if not any(part.startswith(".") for part in path.parts)]
    literal = {path.name for path in sources if "pip install" in path.read_text("utf-8")}
    assert len(sources) > 500
    assert literal == {"errors.py"}


def test_a_missing_or_broken_module_is_named_with_the_package_to_install(tmp_path, monkeypatch):
    assert import_optional("json", "read").loads("[1]") == [1]
    with pytest.raises(tx.InvalidCall, match="cannot draw: the package no-such is not installed") as caught:
        import_optional("no_such.deep", "draw", install="tenonnx-run[plot]", otherwise="write numbers")
    assert caught.value.given == ""
    assert caught.value.do == f"{installing('tenonnx-run[plot]')}, or write numbers"
    (tmp_path / "half_broken.py").write_text("import absent_below\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(tx.InvalidCall, match="cannot draw: the package half-broken cannot be imported") as caught:
        import_optional("half_broken", "draw")
    assert caught.value.given == "No module named 'absent_below'"
    assert caught.value.do == installing("half-broken")


def test_one_function_reports_missing_packages():
    """Exceptions: backends that name their runtime, packages that name an entry point, and a worker."""
    sources = [path for path in ROOT.rglob("src/**/*.py") if not any(part.startswith(".") for part in path.parts)]
    advice = re.compile(r"""is not installed["'],\s+do=(installing|cure)""")
    literal = {f"{path.parent.name}/{path.name}" for path in sources if advice.search(path.read_text("utf-8"))}
    beside = {"tenonnx_run/installed.py", "tenonnx_sklearn/booster_files.py"}
    assert literal == {"tenonnx_cli/__init__.py", "tenonnx_cli/program.py", *beside}


def test_the_command_is_for_the_interpreter_in_use(monkeypatch):
    def without_pip(name):
        return None if name == "pip" else object()

    monkeypatch.setattr("importlib.util.find_spec", without_pip)
    monkeypatch.setattr("sys.executable", "/opt/venv/bin/python3")
    monkeypatch.setattr("sys.prefix", "/opt/venv")
    monkeypatch.setenv("VIRTUAL_ENV", "/opt/venv")
    assert installing("tenonnx[all]").startswith('uv pip install --find-links WHEELS "tenonnx[all]" (WHEELS is')
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/python")
    assert installing("keras>=3.9", "numpy") == 'uv pip install -p /opt/venv/bin/python3 "keras>=3.9" numpy'
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert installing("xgboost") == "/opt/venv/bin/python3 -m pip install xgboost"
    monkeypatch.setattr("sys.executable", "/my files/bin/python3")
    assert installing("xgboost") == '"/my files/bin/python3" -m pip install xgboost'
    monkeypatch.setattr("shutil.which", lambda name: "/my files/bin/python")
    assert installing("./acme[test]").startswith('python -m pip install --find-links WHEELS "./acme[test]" (')
