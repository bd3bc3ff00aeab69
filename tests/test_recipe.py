"""The conda recipe: its format, and its agreement with the packages' metadata."""

import importlib.util
import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
RECIPE = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text("utf-8"))
SPEC = importlib.util.spec_from_file_location("wheels", ROOT / "tools/wheels.py")
WHEELS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(WHEELS)

FOLDERS = WHEELS.packages()


def project(name):
    return tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text("utf-8"))["project"]


def installed(name):
    """Our packages that a package requires, and all third-party requirements by name."""
    ours, others, left = {}, {}, [name]
    while left:
        name = left.pop()
        if name in ours:
            continue
        ours[name] = project(name)
        for requirement in map(Requirement, ours[name]["dependencies"]):
            if requirement.name in FOLDERS:
                left.append(requirement.name)
            else:
                others.setdefault(requirement.name, set()).add(str(requirement.specifier))
    return ours, others


OURS, OTHERS = installed("tenonnx")


def test_the_keys_of_the_format():
    assert RECIPE["schema_version"] == 1
    assert set(RECIPE) == {
        "schema_version",
        "context",
        "package",
        "source",
        "build",
        "requirements",
        "tests",
        "about",
    }
    assert set(RECIPE["package"]) == {"name", "version"}
    assert RECIPE["build"]["noarch"] == "python"
    assert isinstance(RECIPE["context"]["version"], str)


def test_version_license_and_urls_match_the_package():
    own, about = project("tenonnx"), RECIPE["about"]
    assert RECIPE["package"]["name"] == own["name"]
    assert RECIPE["context"]["version"] == own["version"]
    assert about["summary"] == own["description"]
    assert about["license"] == own["license"]
    assert about["homepage"] == own["urls"]["Homepage"]
    assert about["documentation"] == own["urls"]["Documentation"]


def test_it_installs_the_same_packages_as_pip():
    (command,) = RECIPE["build"]["script"]
    assert {word for word in command.split() if re.match(r"tenonnx\b", word)} == set(OURS)
    assert "--no-deps --no-index --find-links wheels" in command


def test_requirements_match_the_packages():
    run = dict(line.split(" ") for line in RECIPE["requirements"]["run"])
    pythons = {each["requires-python"] for each in OURS.values()}
    assert {run.pop("python")} == pythons
    assert {name: {bound} for name, bound in run.items()} == OTHERS
    assert f"python {pythons.pop()}" in RECIPE["requirements"]["host"]


def test_the_command_matches_the_package():
    (entry,) = RECIPE["build"]["python"]["entry_points"]
    name, target = entry.split(" = ")
    assert project("tenonnx")["scripts"] == {name: target}
    assert project("tenonnx-cli")["scripts"] == {name: target}
