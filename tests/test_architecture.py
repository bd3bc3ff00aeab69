"""Architecture rules: imports go down only, core names no op, and files stay short."""

import ast
import importlib
import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest

from tenonnx import Registry
from tenonnx.op.rule_kinds import OURS, TRAITS
from tenonnx.registry.discovery import GROUPS
from tenonnx.registry.hints import provider

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core" / "src" / "tenonnx"

#: The layers of core from the lowest to the highest, see docs/why/architecture.md: folders and files of each.
FLOORS = [
    {"errors", "limits", "graph"},
    {"op"},
    {"registry"},
    {"transforms"},
    {"formats"},
    {"loading"},
    {"extend", "tools", "__main__", "backend"},
]

#: The package's ``__init__``, which is above all layers and reads its names from a file.
ROOF = {"__init__"}

#: The table of lazy imports, which names functions of higher layers.
LATE = "graph/lazy_methods.py"
LATE_MODULE = "tenonnx.graph.lazy_methods"

#: Op names that core may contain, with the reasons.
NAMED = {
    ("op/signature.py", "Constant"): "a kind of attribute, after our class of contents",
    ("extend/__init__.py", "Constant"): "that class",
    ("extend/__init__.py", "Shape"): "an alias of a type",
}


def floor_of(part):
    return next(k for k, names in enumerate(FLOORS) if part in names)


def imports(path, *, running=False):
    """Modules that a file imports at any place. With ``running``, without imports for type checkers only."""
    tree = ast.parse(path.read_text("utf-8"))
    hidden = set()
    for test in ast.walk(tree) if running else ():
        if isinstance(test, ast.If) and ast.unparse(test.test) == "TYPE_CHECKING":
            hidden |= {id(n) for n in ast.walk(test)}
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def named_modules(path):
    """Our modules that a file names in strings, as arguments of ``import_module``."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and re.fullmatch(r"tenonnx(_\w+)?(\.\w+)+", str(node.value)):
            yield node.value


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_imports_go_down(path):
    part = path.relative_to(CORE).parts[0].removesuffix(".py")
    if part in ROOF:
        return
    named = [] if str(path.relative_to(CORE)) == LATE else named_modules(path)
    for module in (*imports(path), *named):
        parts = module.split(".")
        if parts[0] == "tenonnx" and len(parts) > 1 and is_module(module):
            other, own = floor_of(parts[1]), floor_of(part)
            assert other <= own, f"{path.relative_to(CORE)} imports {module}, which is above it"


def is_module(name):
    """Whether core has a module of that name; entry-point groups and metadata keys look alike."""
    place = CORE.parent.joinpath(*name.split("."))
    return name not in GROUPS and (place.is_dir() or place.with_suffix(".py").exists())


def modules():
    """Paths of all modules of all packages, by module name."""
    return {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
        for source in ROOT.glob("**/src")
        if ".venv" not in str(source.relative_to(ROOT))
        for path in source.rglob("*.py")
    }


def circles(edges):
    """Sets of modules that import each other in a cycle."""
    reached = {module: set() for module in edges}
    for module in edges:
        waiting = [module]
        while waiting:
            new = edges[waiting.pop()] - reached[module]
            reached[module] |= new
            waiting += new
    return {frozenset(other for other in reached[m] if m in reached[other]) for m in edges if m in reached[m]}


def module_edges(known):
    """Modules that each module imports at any place or names in strings, except for the table of lazy imports."""
    edges = {}
    for module, path in known.items():
        named = set() if module == LATE_MODULE else set(named_modules(path))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{name.name}" for name in node.names]
                named |= {name if name in known else node.module for name in names}
            elif isinstance(node, ast.Import):
                named |= {name.name for name in node.names}
        edges[module] = named & known.keys() - {module}
    return edges


def test_no_module_imports_itself_indirectly():
    assert circles(module_edges(modules())) == set()


def test_cycles_through_type_checking_functions_and_strings_are_found(tmp_path):
    texts = {
        "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tenonnx_x.b import B",
        "b": "def f():\n    from tenonnx_x import c",
        "c": "from importlib import import_module\nLATER = {'f': 'tenonnx_x.a'}\n",
        "d": "import tenonnx_x.a",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    edges = module_edges({f"tenonnx_x.{name}": tmp_path / f"{name}.py" for name in texts})
    assert circles(edges) == {frozenset({"tenonnx_x.a", "tenonnx_x.b", "tenonnx_x.c"})}


def test_cycles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == {frozenset({"b", "c"})}
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == set()


#: Our classes and types with the name of an op: contents of a constant, the dims of a tensor, and one dim.
OUR_CLASSES = {"Constant", "Shape", "Size"}


def ops_named(source, names):
    """Ops that a source names in a string or as a Python name, with their lines.

    Strings count if they have nothing but op names (``"Conv Gemm"``), a name with domain or version
    (``"ai.onnx::Conv"``, ``"Conv@11"``), or a prefix or suffix (``startswith("QLinear")``). Docstrings and sentences do
    not count.
    """
    tree = ast.parse(source)
    documents = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    for node in ast.walk(tree):
        result = set()
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in documents:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin1")
            words = set(re.split(r"\W+", text.strip()))
            whole = {word for pair in re.findall(r"::(\w+)|\b(\w+)@", text) for word in pair}
            result = ((whole if " " not in text else set()) | (words if words <= names else set())) & names
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "endswith"):
            parts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            given = [part for part in parts if re.fullmatch(r"[A-Z]\w{2,}", part)]
            result = {name for name in names for part in given if getattr(name, node.func.attr)(part)}
        elif isinstance(node, ast.Name | ast.Attribute | ast.keyword | ast.ClassDef | ast.FunctionDef):
            word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
            result = {word or getattr(node, "name", None)} & names - OUR_CLASSES
        yield from ((getattr(node, "lineno", 0), name) for name in sorted(result))


def names_of_ops():
    """Names of all operators of our families, except for those that are also words of Python or types."""
    registry = Registry.installed()
    names = {op.name for domain in registry.domains() for op in registry.ops(domain)}
    return names - {"Optional", "If", "Loop", "Scan"}


def test_core_knows_no_op_by_name():
    names = names_of_ops()
    assert {"Conv", "Gelu", "QLinearConv", "TreeEnsemble"} <= names
    for path in CORE.rglob("*.py"):
        for line, name in ops_named(path.read_text("utf-8"), names):
            result = str(path.relative_to(CORE)), name
            assert result in NAMED, f"{result[0]}:{line} names the op {name}"


@pytest.mark.parametrize(
    "source",
    [
        'op == "Conv"',
        'op in ("Conv", x)',
        'op in "Gemm Conv".split()',
        'f"ai.onnx::Conv"',
        'x = "Conv@11"',
        'name.startswith("QLinear")',
        "match op:\n    case 'Conv':\n        pass",
        '{"Conv": 1}',
        "dict(Conv=1)",
        "ops.Conv",
        "class Conv: pass",
        "name == b'Conv'",
    ],
)
def test_every_form_of_an_op_name_is_found(source):
    assert list(ops_named(source, {"Conv", "Gemm", "QLinearConv"}))


def test_sentences_and_docstrings_name_no_op():
    assert not list(ops_named('"""Conv"""\nraise E("as Conv does, and Gemm")', {"Conv", "Gemm"}))


#: Names of public classes in two packages, with the reasons.
ALIKE = {
    "Backend": "the kit has the class that onnx.backend.base calls so",
    "Call": "of an op in a graph, and of one in a case of the kit, which every family writes",
}


def test_names_of_public_classes_are_unique():
    """Checks core and its companion packages; families and front ends have their own terms."""
    held = {}
    for package in (
        "core",
        *(
            f"plugins/{name}"
            for name in (
                "apps/cli",
                "convert",
                "optimize",
                "run",
                "backends/onnxruntime",
                "backends/openvino",
                "testing",
            )
        ),
    ):
        for path in sorted((ROOT / package / "src").rglob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    held.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in held.items() if len(places) > 1}.keys() == ALIKE.keys()


#: Former names of modules, and of kinds of rules and traits, with their present names.
OLD_MODULES = {
    "respelling": "versioned_signature",
    "above": "lazy_methods",
    "growth": "size_guard",
    "forms": "legalize",
    "preparation": "specialization",
    "tree_tops": "quickscorer",
    "weaving": "interleaving",
    "factors": "algebra",
    "carried": "as_functions",
    "judge": "onnx_checker",
    "made": "python_model",
    "made_up": "random_inputs",
}
OLD_KINDS = {
    "spot": "pattern",
    "filled": "pattern",
    "rare": "on_request",
    "selects": "data_movement",
    "pack": "rewrite",
    "join": "rewrite",
    "simplify": "rewrite",
    "smooth": "vjp",
    "version": "since",
    "prepare": "specialize",
}


def test_former_names_are_not_used():
    packages = (
        "core",
        "plugins/apps/cli",
        "plugins/optimize",
        "plugins/standard",
        "quantized",
        "contrib_ms",
        "onnx_ml",
    )
    modules = {path.stem for package in packages for path in (ROOT / package / "src").rglob("*.py")}
    assert not modules & OLD_MODULES.keys()
    assert not {*TRAITS, *(key for kind in OURS for key in kind.keys)} & OLD_KINDS.keys()


#: Tokens that do not count as code.
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(source):
    """Number of lines of code, without blank lines, comments and docstrings."""
    documents = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documents |= set(range(node.lineno, node.end_lineno + 1))
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - documents)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ("# a comment\n\nx = 1  # another\n", 1),
        ('"""Docs."""\ndef f():\n    """More\n    docs."""\n    return """a\n\nb"""\n', 4),
        ("x = (\n    1,\n\n    # why\n    2,\n)\n", 4),
    ],
)
def test_lines_of_code_exclude_docstrings_comments_and_blanks(source, count):
    assert lines_of_code(source) == count


def test_core_stays_small():
    assert sum(lines_of_code(path.read_text("utf-8")) for path in CORE.rglob("*.py")) < 10_000


def test_kinds_of_rules_stay_few():
    assert len(OURS) == 10
    assert sum(len(kind.keys) for kind in OURS) == 15


def sources():
    def is_ours(path):
        return not any(part == "build" or part.startswith(".venv") for part in path.relative_to(ROOT).parts)

    return sorted(path for path in ROOT.rglob("*.py") if is_ours(path))


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_is_longer_than_two_pages(path):
    assert len(path.read_text("utf-8").splitlines()) <= 510


def bound_twice(source):
    """Constants that a module assigns more than once, where the second value would replace the first."""
    seen = set()
    for statement in ast.parse(source).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        names = {n.id for target in targets if target for n in ast.walk(target) if isinstance(n, ast.Name)}
        yield from sorted(name for name in names & seen if name.isupper())
        if not isinstance(statement, ast.AugAssign):
            seen |= names


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_assigns_a_constant_twice(path):
    assert not list(bound_twice(path.read_text("utf-8")))


def test_constants_assigned_twice_are_found():
    assert list(bound_twice("FEW = 16\nMANY: int = 2\nFEW = 128\n(A, MANY) = (1, 2)\nx = 1\nx = 2")) == ["FEW", "MANY"]


def test_families_import_no_other_vendor_family():
    families = {"tenonnx_contrib_ms": "contrib_ms", "tenonnx_onnx_ml": "onnx_ml", "tenonnx_quantized": "quantized"}
    for package, folder in families.items():
        for path in (ROOT / folder / "src").rglob("*.py"):
            for module in imports(path):
                assert module.split(".")[0] not in set(families) - {package}, f"{path} imports {module}"


#: Our packages; like third-party ones, they only import public namespaces of core.
PACKAGES = (
    "plugins/standard",
    "plugins/targets",
    "plugins/frontends/jax",
    "plugins/backends/onnxruntime",
    "plugins/apps/cli",
    "plugins/frontends/common",
    "plugins/backends/openvino",
    "plugins/optimize",
    "plugins/litert",
    "plugins/apps/score",
    "plugins/apps/serve",
    "plugins/frontends/sklearn",
    "plugins/frontends/torch",
    "plugins/frontends/transformers",
    "plugins/training",
    "plugins/data",
    "plugins/debug",
    "plugins/explain",
    "plugins/compat",
    "plugins/testing",
    "contrib_ms",
    "onnx_ml",
    "quantized",
    "examples",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_only_import_public_namespaces_of_core(package):
    for path in sorted((ROOT / package).rglob("*.py")):
        for module in set() if {"tests", ".venv"} & set(path.parts) else imports(path):
            parts = module.split(".")
            assert parts[0] != "tenonnx" or parts[1:2] in ([], ["extend"], ["tools"]), (
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
                held[rule.__module__].add(consumer.partition(".")[0])
    assert {module: result - set(declared[module]) for module, result in held.items()} == {
        module: set() for module in held
    }


def test_core_knows_the_owner_of_every_entry_point_of_our_packages():
    for path in [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/**/pyproject.toml")]:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        for group, entries in project.get("entry-points", {}).items():
            for name in entries if group in GROUPS and GROUPS[group].unique else ():
                assert provider(group, name) == project["name"], f"{group}: {name}; run tools/generate_op_table.py"
