"""Checks that stop a release; ``.ci/wheels`` tests a complete release."""

import importlib.util
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))  # for imports of the tool
SPEC = importlib.util.spec_from_file_location("release", ROOT / "tools/release.py")
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)

GOOD = ["tenonnx_a/__init__.py", "tenonnx_a-1.dist-info/METADATA", "tenonnx_a-1.dist-info/licenses/LICENSE"]


def wheel(folder, names, name="tenonnx_a-1-py3-none-any.whl"):
    with zipfile.ZipFile(folder / name, "w") as file:
        for each in names:
            file.writestr(each, "")
    return folder / name


def test_a_wheel_holds_its_package_and_license(tmp_path):
    release.check_contents(wheel(tmp_path, GOOD))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (GOOD[:2], "has no LICENSE"),
        ([*GOOD, "tenonnx_a/__pycache__/a.pyc"], "files that no source is"),
        ([*GOOD, "tenonnx_a/.cache"], "files that no source is"),
        ([*GOOD, "tests/test_a.py"], "has tests beside its package"),
    ],
)
def test_a_wheel_with_other_files_is_refused(tmp_path, names, said):
    with pytest.raises(release.Refused, match=said):
        release.check_contents(wheel(tmp_path, names))


def test_a_source_distribution_has_a_license(tmp_path):
    path = tmp_path / "tenonnx_a-1.tar.gz"
    (tmp_path / "pyproject.toml").write_text("")
    with tarfile.open(path, "w:gz") as file:
        file.add(tmp_path / "pyproject.toml", "tenonnx_a-1/pyproject.toml")
    with pytest.raises(release.Refused, match="has no LICENSE"):
        release.check_contents(path)


@pytest.mark.parametrize("version", ["1", "1.2", "v1.2.3", "1.2.3-rc1", "1.2.3rc", "1.2.3\n4"])
def test_an_invalid_version_is_refused(version):
    with pytest.raises(release.Refused, match="a version is like"):
        release.prepare(version)


def test_a_version_occurs_once_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    file = tmp_path / "pyproject.toml"
    pattern = r'(?m)^version = "[^"]+"'
    file.write_text('name = "a"\nversion = "1"\n')
    release._replace(file, pattern, 'version = "2"')
    assert file.read_text() == 'name = "a"\nversion = "2"\n'
    for text in ("", 'version = "1"\nversion = "1"\n'):
        file.write_text(text)
        with pytest.raises(release.Refused, match="does not say its version once"):
            release._replace(file, pattern, 'version = "2"')
        assert file.read_text() == text


def test_two_builds_that_differ_are_refused(tmp_path, monkeypatch):
    built = []

    def build(folder, **_):
        built.append(folder)
        return [wheel(folder, GOOD[: 2 + (len(built) == 1)])]

    monkeypatch.setattr(release, "build", build)
    with pytest.raises(release.Refused, match="two builds differ: tenonnx_a-1-py3"):
        release.build_twice(tmp_path / "dist")


@pytest.mark.parametrize("given", [[], ["1.2.3", "--check"]])
def test_a_version_and_a_check_exclude_each_other(given, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["release.py", *given])
    with pytest.raises(SystemExit):
        release.main()
    assert "give a VERSION or --check" in capsys.readouterr().err


def test_every_package_is_released():
    folders = {file.parent for pattern in ("*", "plugins/**") for file in ROOT.glob(f"{pattern}/pyproject.toml")}
    assert {folder for name, folder in release.packages().items() if name != release.EXAMPLE} == folders


def test_every_package_has_the_license_of_the_repository():
    text = (ROOT / "LICENSE").read_text("utf-8")
    for name, folder in release.packages().items():
        assert (folder / "LICENSE").read_text("utf-8") == text, name
