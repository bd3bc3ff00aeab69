"""The distributions of the project: requirements, names, imports, and their direction."""

import ast
import functools
import re
import sys
import tomllib

import pytest
from test_architecture import CORE, PACKAGES, ROOT, imports

from tenonnx.tools import EXTENSIONS, plugins


def projects():
    """The ``[project]`` tables of our distributions by name."""
    result = {}
    for path in [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/**/pyproject.toml")]:
        if not any(part.startswith(".venv") for part in path.parts):
            project = tomllib.loads(path.read_text("utf-8"))["project"]
            result[project["name"]] = project
    return result


def distributions_named(source, names):
    """Our distributions or packages that a source imports or names in strings other than docstrings."""
    tree = ast.parse(source)
    documents = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    for node in ast.walk(tree):
        texts = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            texts = [node.value]
        elif isinstance(node, ast.ImportFrom):
            texts = [node.module or ""]
        elif isinstance(node, ast.Import):
            texts = [name.name for name in node.names]
        for text in texts:
            yield from (name for name in names if re.search(rf"\b{re.sub('[-_]', '[-_]', name)}\b", text))


def test_core_names_no_other_distribution():
    others = projects().keys() - {"tenonnx-core", "tenonnx"}
    assert {"tenonnx-run", "tenonnx-convert", "tenonnx-standard", "tenonnx-cli"} <= others
    for path in CORE.rglob("*.py"):
        result = set(distributions_named(path.read_text("utf-8"), others))
        assert not result, f"{path.relative_to(CORE)} names {', '.join(sorted(result))}"


@pytest.mark.parametrize(
    "source",
    ["import tenonnx_run", "from tenonnx_run.base import x", 'x = "tenonnx_run.base"', 'f"pip install tenonnx-run"'],
)
def test_every_form_of_a_distribution_name_is_found(source):
    assert list(distributions_named(source, {"tenonnx-run", "tenonnx-cli"})) == ["tenonnx-run"]
    assert list(distributions_named('"""tenonnx-run"""\nx = "tenonnx-runs tenonnx_runtime"', {"tenonnx-run"})) == []


#: Distributions from the lowest to the highest: none requires a later one.
HOUSE = [
    ["tenonnx-core"],
    ["tenonnx-run", "tenonnx-standard", "tenonnx-targets", "tenonnx-data"],
    ["tenonnx-convert", "tenonnx-quantized", "tenonnx-onnx-ml", "tenonnx-contrib-ms", "tenonnx-extensions"],
    ["tenonnx-testing", "tenonnx-optimize", "tenonnx-frontends", "tenonnx-onnxruntime", "tenonnx-openvino"],
    ["tenonnx-torch", "tenonnx-jax", "tenonnx-tensorflow", "tenonnx-sklearn", "tenonnx-cli", "tenonnx-training"],
    ["tenonnx-serve", "tenonnx-score", "tenonnx-litert", "tenonnx-debug"],
    ["tenonnx-explain", "tenonnx-compat", "tenonnx-transformers"],
    ["tenonnx"],
]


def test_distributions_only_require_lower_ones():
    order = [name for floor in HOUSE for name in floor]
    result = projects()
    assert sorted(result) == sorted(order)
    for name, project in result.items():
        required = {_distribution(line) for line in project.get("dependencies", ())} & result.keys()
        above = [other for other in required if order.index(other) >= order.index(name)]
        assert not above, f"{name} requires {', '.join(above)}"


#: Distributions whose packages have another name.
DISTRIBUTIONS = {
    "tenonnx": "tenonnx-core",
    "PIL": "pillow",
    "google": "protobuf",
    "re2": "google-re2",
    "sklearn": "scikit-learn",
}


@functools.cache
def doors():
    """The defining module of each public name by namespace and name."""
    stubs = [CORE / "__init__.pyi", *(CORE / "extend").glob("*.pyi"), CORE / "tools" / "__init__.pyi"]
    return {
        (
            ".".join(stub.relative_to(CORE.parent).with_suffix("").parts).removesuffix(".__init__"),
            name.name,
        ): node.module
        for stub in stubs
        for node in ast.parse(stub.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


def imports_behind_doors(path):
    """Modules that a file imports at run time; public names of ``tenonnx`` are resolved to their modules."""
    yield from imports(path, running=True)
    origin = doors()
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (origin[node.module, name.name] for name in node.names if (node.module, name.name) in origin)
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("tx", "tenonnx")
        ):
            yield from (origin[key] for key in [("tenonnx", node.attr)] if key in origin)


#: Optional imports of front ends, which users install to read their files.
OF_USERS = {
    "plugins/frontends/sklearn": {"catboost", "lightgbm", "xgboost"},
    "plugins/compat": {"coremltools", "tensorflow"},
}


def _distribution(requirement):
    return re.split(r"[<>=~\[]", requirement)[0].replace("_", "-")


@pytest.mark.parametrize("package", ["core", *(p for p in PACKAGES if p != "examples"), "examples/third_party_plugin"])
def test_a_package_requires_what_it_imports(package):
    project = tomllib.loads((ROOT / package / "pyproject.toml").read_text("utf-8"))["project"]
    required = set(map(_distribution, project["dependencies"]))
    extras = project.get("optional-dependencies", {}).values()
    optional = {_distribution(line) for lines in extras for line in lines}
    imported = set()
    for path in (ROOT / package / "src").rglob("*.py"):
        if path.name == "__main__.py":
            continue  # it starts the command line if that is installed
        tops = {module.split(".")[0] for module in imports_behind_doors(path)} - sys.stdlib_module_names
        result = {DISTRIBUTIONS.get(top, top.replace("_", "-")) for top in tops} - {project["name"]}
        if "cases" in path.relative_to(ROOT / package).as_posix():
            for_tests = required.union(map(_distribution, project["optional-dependencies"].get("test", ())))
            assert result <= for_tests, f"{path}: the extra test must bring what cases import"
        imported |= result
    assert imported <= required | optional | OF_USERS.get(package, set()), "undeclared"
    assert required <= imported, "not imported"


def test_names_that_packages_add_to_our_namespaces_exist():
    result = plugins(EXTENSIONS)
    assert {"convert", "verify", "Graph.run", "Graph.to_svg", "__main__.main"} <= {plugin.name for plugin in result}
    assert all(callable(plugin.load()) for plugin in result if plugin.name not in CONSTANTS)


#: Public names of constants.
CONSTANTS = {plugin.name for plugin in plugins(EXTENSIONS) if plugin.name.rpartition(".")[2].isupper()}


#: Packages of a test environment that are not in its requirements file.
BESIDE = {
    "plugins/frontends/tensorflow/tests/backends/requirements.txt": "plugins/frontends/jax/tests/requirements.txt"
}


def editable(file):
    """Package folders that a requirements file names."""
    return {
        line[3:].partition("[")[0].strip() for line in file.read_text("utf-8").splitlines() if line.startswith("-e ")
    }


@pytest.mark.parametrize(
    "name", sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("plugins/**/tests/**/requirements.txt"))
)
def test_environments_of_tests_name_all_packages_that_their_packages_need(name):
    folders = editable(ROOT / name) | (editable(ROOT / BESIDE[name]) if name in BESIDE else set())
    projects = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"] for folder in folders]
    needed = {re.split(r"[^\w-]", each)[0] for project in projects for each in project["dependencies"]}
    house = {each for each in needed if each.startswith("tenonnx-")}
    assert house <= {project["name"] for project in projects}
