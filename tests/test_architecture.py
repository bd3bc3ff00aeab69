"""The floors of the house: imports go down only, core names no op, and no file grows too long."""

import ast
import importlib
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tenonnx import Registry

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core" / "src" / "tenonnx"

#: From the ground up, as docs/architecture.md tells it; the values are the folders of one floor.
FLOORS = [
    {"errors", "limits", "graph"},
    {"op"},
    {"registry"},
    {"transforms"},
    {"formats"},
    {"backend", "checks"},
    {"cli"},
]


def floor_of(part):
    return next((k for k, names in enumerate(FLOORS) if part in names), None)


def imports(path):
    """Modules that a file imports, wherever it does, but for type checkers alone."""
    tree = ast.parse(path.read_text("utf-8"))
    hidden = set()
    for test in ast.walk(tree):
        if isinstance(test, ast.If) and ast.unparse(test.test) == "TYPE_CHECKING":
            hidden |= {id(n) for n in ast.walk(test)}
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_imports_go_down(path):
    own = floor_of(path.relative_to(CORE).parts[0].removesuffix(".py"))
    if own is None:
        return
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "tenonnx" and len(parts) > 1 and (other := floor_of(parts[1])) is not None:
            assert other <= own, f"{path.relative_to(CORE)} imports {module}, which is above it"


def test_core_knows_no_op_by_name():
    names = set(json.loads((ROOT / "plugins/standard/src/tenonnx_standard/dtypes.json").read_text("utf-8"))["ops"])
    names -= {
        "Optional",
        "Identity",
        "Shape",
        "Size",
        "If",
        "Not",
        "And",
        "Or",
        "Sum",
        "Mean",
        "Max",
        "Min",
        "Range",
        "Where",
    }
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare):
                for side in (node.left, *node.comparators):
                    if isinstance(side, ast.Constant) and side.value in names:
                        raise AssertionError(f"{path.relative_to(CORE)} compares with the op name {side.value!r}")


def sources():
    return sorted(p for p in ROOT.rglob("*.py") if not {".venv", "build"} & set(p.relative_to(ROOT).parts))


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_is_longer_than_two_pages(path):
    assert len(path.read_text("utf-8").splitlines()) <= 520


def test_families_import_no_other_vendor_family():
    families = {"tenonnx_contrib_ms": "contrib_ms", "tenonnx_onnx_ml": "onnx_ml", "tenonnx_quantized": "quantized"}
    for package, folder in families.items():
        for path in (ROOT / folder / "src").rglob("*.py"):
            for module in imports(path):
                assert module.split(".")[0] not in set(families) - {package}, f"{path} imports {module}"


#: Packages of the workspace, which import of core what a third party may.
PACKAGES = (
    "plugins/standard",
    "plugins/onnxruntime",
    "plugins/openvino",
    "plugins/torch",
    "plugins/training",
    "plugins/testing",
    "contrib_ms",
    "onnx_ml",
    "quantized",
    "examples",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_come_through_the_door(package):
    for path in sorted((ROOT / package).rglob("*.py")):
        for module in set() if {"tests", ".venv"} & set(path.parts) else imports(path):
            parts = module.split(".")
            assert parts[0] != "tenonnx" or parts[1:2] in ([], ["extend"]), (
                f"{path} imports {module}: take tenonnx.extend"
            )


@pytest.mark.parametrize("domain", ["ai.onnx", "ai.onnx.ml", "com.microsoft"])
def test_installed_packages_declare_the_consumers_of_all_their_rules(domain, monkeypatch):
    declared = {}
    monkeypatch.setattr("tenonnx.registry.registry.await_rules", lambda *entry: declared.update([entry]))
    registry = Registry.installed()
    ops = list(registry.ops(domain))
    for module in declared:
        importlib.import_module(module)
    held = {module: set() for module in declared}
    for op in ops:
        for consumer, rule in op.rules.items():
            if getattr(rule, "__module__", None) in held:
                held[rule.__module__].add(consumer)
    assert {module: found - set(declared[module]) for module, found in held.items()} == {
        module: set() for module in held
    }


#: Distributions that are imported under another name.
DISTRIBUTIONS = {"PIL": "pillow", "google": "protobuf", "re2": "google-re2"}

#: What modules that pytest alone imports take, beside what their package requires.
OF_CASES = {"hypothesis", "tenonnx-testing"}


def _distribution(requirement):
    return re.split(r"[<>=\[]", requirement)[0].replace("_", "-")


@pytest.mark.parametrize("package", ["core", *(p for p in PACKAGES if p != "examples"), "examples/third_party_plugin"])
def test_a_package_requires_what_it_imports(package):
    project = tomllib.loads((ROOT / package / "pyproject.toml").read_text("utf-8"))["project"]
    required = set(map(_distribution, project["dependencies"]))
    extras = project.get("optional-dependencies", {}).values()
    optional = {_distribution(line) for lines in extras for line in lines}
    imported = set()
    for path in (ROOT / package / "src").rglob("*.py"):
        tops = {module.split(".")[0] for module in imports(path)} - sys.stdlib_module_names
        found = {DISTRIBUTIONS.get(top, top.replace("_", "-")) for top in tops} - {project["name"]}
        imported |= found - OF_CASES if "cases" in path.relative_to(ROOT / package).as_posix() else found
    assert imported <= required | optional, "undeclared"
    assert required <= imported, "not imported"
