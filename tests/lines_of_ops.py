"""Total lines of code of an operator: ``python tests/lines_of_ops.py``.

They include its definition, its rules, entries of tables, and helpers for it only, but not its conformance cases.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

#: For each operator its module, its functions, and its maximum number of lines. The formatter may break a signature
#: into a line per parameter.
LIMITS = {
    "ai.onnx::LayerNormalization": (
        "tenonnx_standard.normalization",
        ("layer_normalization", "layer_normalization_before_onnx"),
        46,
    ),
    "ai.onnx::RotaryEmbedding": ("tenonnx_standard.rotary", ("rotary_embedding",), 60),
    "ai.onnx::Gelu": ("tenonnx_standard.activation", ("gelu",), 25),
    "com.microsoft::GroupQueryAttention": ("tenonnx_contrib_ms.grouped_query", ("group_query_attention",), 210),
    "ai.onnx::QLinearConv": ("tenonnx_quantized.convolution", ("qlinear_conv",), 85),
}


FOLDERS = (
    "plugins/standard",
    "contrib_ms",
    "quantized",
    "onnx_ml",
    "plugins/optimize",
    "plugins/backends/onnxruntime",
    "plugins/backends/openvino",
    "plugins/training",
)


class Module(NamedTuple):
    """A module and its statements."""

    name: str
    path: Path
    statements: list[ast.stmt]


def modules() -> Iterator[Module]:
    """All modules of op families and backends except cases. Front ends are excluded: their names are a framework's."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder / "src").rglob("*.py")):
            if "cases" not in path.parts:
                name = ".".join(path.relative_to(ROOT / folder / "src").with_suffix("").parts)
                yield Module(name, path, ast.parse(path.read_text("utf-8")).body)


def lines_of(module: str, functions: tuple[str, ...]) -> dict[str, int]:
    """Number of lines by file of the operator that ``functions`` of a module define."""
    result = {}
    for each in modules():
        names = _names_in(each, module, functions)
        own: set[int] = set()
        for statement in each.statements if names else ():
            own |= _lines(statement, names, home=each.name == module)
        if each.name == module:
            own |= _helpers(each, own)
        text = each.path.read_text("utf-8").splitlines()
        if count := sum(bool(text[line - 1].strip()) for line in own):
            result[str(each.path.relative_to(ROOT))] = count
    return result


def _names_in(module: Module, home: str, functions: tuple[str, ...]) -> set[str]:
    """Names by which a module refers to the functions: their own, ``ops.name`` and ``module.name``."""
    if module.name == home:
        return {*functions}
    names = set()
    for statement in module.statements:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if statement.module == home and alias.name in functions:
                    names.add(alias.asname or alias.name)
                elif f"{statement.module}.{alias.name}" == home:
                    names |= {f"{alias.asname or alias.name}.{name}" for name in functions}
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name == home.partition(".")[0]:
                    names |= {f"{alias.asname or alias.name}.{name}" for name in functions}
    return names


def _lines(statement: ast.stmt, names: set[str], *, home: bool) -> set[int]:
    """Lines of a statement that belong to an operator: its definition and rules entirely, and its entries of tables."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return set()
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        first = min([statement.lineno, *(each.lineno for each in statement.decorator_list)])
        is_named = any(_mentions(each, names) for each in statement.decorator_list)
        return set(range(first, statement.end_lineno + 1)) if is_named or (home and statement.name in names) else set()
    if (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and _mentions(statement.value.func, names)
    ):
        return set(range(statement.lineno, statement.end_lineno + 1))
    tables = [n for n in ast.walk(statement) if isinstance(n, ast.Dict)]
    values = {id(each) for n in tables for value in n.values for each in ast.walk(value)}  # shared by several entries
    entries = (n for n in ast.walk(statement) if isinstance(n, ast.Name | ast.Attribute) and id(n) not in values)
    return {n.lineno for n in entries if ast.unparse(n) in names}


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(ast.unparse(each) in names for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))


def _helpers(module: Module, own: set[int]) -> set[int]:
    """Lines of private helpers that only the lines ``own`` use, and of the helpers of these helpers."""
    private = {name: s for s in module.statements for name in _defined(s) if name.startswith("_") and name != "_"}
    result: set[int] = set()
    while True:
        more = set()
        for name, statement in private.items():
            used = {
                n.lineno
                for s in module.statements
                if s is not statement
                for n in ast.walk(s)
                if isinstance(n, ast.Name) and n.id == name
            }
            if used and used <= own | result:
                more |= set(range(statement.lineno, statement.end_lineno + 1))
        if more <= result:
            return result
        result |= more


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [each.id for each in targets if isinstance(each, ast.Name)]


if __name__ == "__main__":
    for name, (module, functions, most) in LIMITS.items():
        found = lines_of(module, functions)
        places = ", ".join(f"{path} {count}" for path, count in found.items())
        print(f"{name}: {sum(found.values())} of {most} lines ({places})")  # noqa: T201 - a command
