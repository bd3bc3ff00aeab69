"""``tenonnx ops``: list the installed ops, or show one."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import json_option
from tenonnx_cli.output import complain, plural, say, say_json, say_lines, say_table

if TYPE_CHECKING:
    from tenonnx import Registry
    from tenonnx.tools import Op


@click.command(
    "ops",
    cls=Command,
    examples=[
        "tenonnx ops Softmax",
        "tenonnx ops --domain com.microsoft",
    ],
)
@click.argument("name", required=False)
@click.option("--domain", metavar="DOMAIN", help="Only ops of this domain, such as com.microsoft.")
@click.option("--package", metavar="PACKAGE", help="Only ops of this installed package, such as tenonnx-acme.")
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@json_option
def command(name: str | None, domain: str | None, package: str | None, markdown: bool, as_json: bool) -> None:
    """List the installed ops, or show one.

    NAME is an op such as Softmax or com.microsoft::Gelu. For each range of opset versions it shows whether the op is
    defined by simpler ops or is a primitive, and whether it has a numpy kernel and a gradient rule.
    """
    from tenonnx import default_registry
    from tenonnx.tools import INTERNAL_DOMAIN

    registry = default_registry()
    own_domain, _, wanted = (name or "").rpartition("::")
    ops = [op for op in registry.ops(own_domain or domain) if op.domain != INTERNAL_DOMAIN]
    found = [op_row(op, registry) for op in ops if not wanted or op.name == wanted]
    if package is not None:
        found = _of_package(found, package)
    for failure in registry.failures.values():
        complain(f"left out: {failure}")
    if not found and (name or domain):
        _refuse(registry, wanted, own_domain or domain, {op.name for op in ops})
    if as_json:
        say_json(found)
    elif markdown:
        say_lines(_markdown(found))
    elif wanted:
        for row in found:
            _say_meaning(row)
    else:
        columns = ("op", "versions", "numpy", "body", "gradient", "package")
        say_table([[_text(row[column]) for column in columns] for row in found], columns)
        say(f"{plural(len({row['op'] for row in found}), 'op')}, {plural(len(found), 'meaning')}")


def _of_package(rows: list[dict[str, Any]], package: str) -> list[dict[str, Any]]:
    """The ops of one package. Raises ``InvalidCall`` listing the packages with ops."""
    from tenonnx import InvalidCall
    from tenonnx.tools import normalized

    chosen = [row for row in rows if normalized(row["package"].split(" ")[0]) == normalized(package)]
    if not chosen:
        names = sorted({row["package"].split(" ")[0] for row in rows})
        raise InvalidCall(f'no installed package "{package}" has ops', available=", ".join(names))
    return chosen


def _markdown(rows: list[dict[str, Any]]) -> str:
    columns = ("op", "versions", "inputs", "attributes", "outputs", "numpy", "body", "gradient")
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    for row in rows:
        facts = {**row, "inputs": ", ".join(row["inputs"]), "attributes": _attributes(row)}
        facts["outputs"] = ", ".join(row["outputs"])
        cells = [_text(facts[column]).replace("|", "\\|") or "-" for column in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _attributes(row: dict[str, Any]) -> str:
    return ", ".join(name if d == "required" else f"{name}={d}" for name, d in row["attributes"].items())


def _outputs(op: Op) -> list[str]:
    """Outputs of an op by its schema, else by its function; empty if only rules know them."""
    import ast
    import textwrap

    import onnx

    domain = "" if op.domain == "ai.onnx" else op.domain
    try:
        schema = onnx.defs.get_schema(op.name, op.version, domain)
    except onnx.defs.SchemaError:
        pass
    else:
        marks = {onnx.defs.OpSchema.FormalParameterOption.Optional: ("", "?")}
        marks[onnx.defs.OpSchema.FormalParameterOption.Variadic] = ("*", "")
        return [formal.name.join(marks.get(formal.option, ("", ""))) for formal in schema.outputs]
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(op.function)))
    except (OSError, SyntaxError):
        return []
    inner = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function is not tree.body[0]
        for node in ast.walk(function)
    }
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Return) and n not in inner)
    returned = [n.value for n in found if n.value is not None]
    if not returned:
        return []
    value = returned[-1]
    items = value.elts if isinstance(value, ast.Tuple) else [value]
    names = [item.id if isinstance(item, ast.Name) else "" for item in items]
    return [name if name and name not in names[:k] else f"output{k or ''}" for k, name in enumerate(names)]


def _refuse(registry: Registry, name: str, domain: str | None, known: set[str]) -> None:
    """Raise ``InvalidCall`` with the available alternatives."""
    from tenonnx import InvalidCall
    from tenonnx.tools import INTERNAL_DOMAIN, cure, did_you_mean

    domains = [d for d in registry.domains() if d != INTERNAL_DOMAIN]
    package = registry.provider(domain or "ai.onnx", name)
    what = " ".join(filter(None, (f'the op "{name}"' if name else "any op", f"of domain {domain}" if domain else "")))
    raise InvalidCall(
        f"no installed package provides {what}",
        available=", ".join(domains) or "no package that defines ops is installed",
        do=cure([package]) if package and not known else did_you_mean(name, known),
    )


def op_row(op: Op, registry: Registry) -> dict[str, Any]:
    """Facts about an op."""
    from tenonnx.tools import find_rule
    from tenonnx_cli.describe import full_name

    return {
        "op": full_name(op.domain, op.name),
        "versions": _versions(op.since, op.before),
        "numpy": find_rule(op, "numpy") is not None,
        "body": not op.primitive,
        "gradient": True if find_rule(op, "vjp") else False if op.primitive else "of its body",
        "package": registry.source(op),
        "domain": op.domain,
        "name": op.name,
        "since": op.since,
        "before": op.before,
        "adapted_at": sorted({step.before for step in op.signature_changes}),
        "function": op.__name__,
        "module": op.__module__,
        "doc": inspect.cleandoc(op.__doc__ or ""),
        "inputs": [("*" if p.variadic else "") + p.name + ("?" if p.optional else "") for p in op.signature.inputs],
        "outputs": _outputs(op),
        "attributes": {name: _default(default) for name, default in op.signature.attributes.items()},
    }


def _versions(since: int, before: int | None) -> str:
    if before is None:
        return f"{since} and newer"
    return str(since) if before == since + 1 else f"{since} to {before - 1}"


def _default(value: Any) -> Any:
    """The default of an attribute: a finite number unchanged, anything else as text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return "required" if value is inspect.Parameter.empty else repr(value)


def _text(fact: Any) -> str:
    return str({True: "yes", False: "no"}.get(fact, fact))


def _say_meaning(row: dict[str, Any]) -> None:
    say(f"{row['op']}, versions {row['versions']}, from {row['package']}")
    say_lines("\n".join(f"  {line}" for line in row["doc"].splitlines()))
    facts = [
        ("python", f"{row['module']}.{row['function']}"),
        ("inputs", ", ".join(row["inputs"]) or "none"),
        ("attributes", _attributes(row) or "none"),
        ("outputs", ", ".join(row["outputs"]) or "as its rules say"),
    ]
    facts += [(fact, _text(row[fact])) for fact in ("numpy", "body", "gradient")]
    if row["adapted_at"]:
        facts.append(("adapted", f"at version {', '.join(map(str, row['adapted_at']))}"))
    say_table(facts)
