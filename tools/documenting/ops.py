"""A page for each op: meaning, versions, cases, gradient, backends and targets."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

import onnx

import tenonnx as tx
from tenonnx.extend import Op, TenonnxError, find_rule
from tenonnx.tools import runtimes
from tenonnx_cli.drawing import to_svg
from tenonnx_cli.ops import op_row
from tenonnx_testing.cases import collected, load
from tenonnx_testing.kit import calls
from tenonnx_testing.run import trace

ROOT = Path(__file__).parents[2]
COVERAGE = ROOT / "docs" / "ops" / "coverage.md"
HIDDEN = ("com.acme", "tenonnx")


def write(folder: Path) -> None:
    """Write a page per op, a page per domain, and the list of domains."""
    registry = tx.default_registry()
    registry.load_all()
    load()
    table, targets = _table(), runtimes()[0]
    domains = []
    for domain in registry.domains():
        by_name: dict[str, list[Op]] = {}
        for op in registry.ops(domain):
            by_name.setdefault(op.name, []).append(op)
        if domain in HIDDEN or not by_name:
            continue
        place = folder / domain
        place.mkdir(parents=True)
        for name, meanings in by_name.items():
            page = _page(meanings, table.get((domain, name), {}), targets, place)
            (place / f"{name}.md").write_text(page, "utf-8")
        (place / "index.md").write_text(_domain(domain, by_name), "utf-8")
        domains.append((domain, len(by_name)))
    (folder / "index.md").write_text(_index(domains), "utf-8")


def _index(domains: list[tuple[str, int]]) -> str:
    rows = [f"| [`{domain}`]({domain}/index.md) | {count} |" for domain, count in domains]
    tree = ["```{toctree}", ":hidden:", "", "coverage", *(f"{domain}/index" for domain, _ in domains), "```", ""]
    head = (
        "# Ops\n\nA page for each op: its meaning as a Python function, its versions, its gradient, and where it runs. "
        "[Coverage](coverage.md) has the figures of all in one table.\n\n| domain | ops |\n| --- | --- |"
    )
    return "\n".join([head, *rows, "", *tree])


def _domain(domain: str, by_name: dict[str, list[Op]]) -> str:
    rows = [f"| [{name}]({name}.md) | {_summary(meanings[0])} |" for name, meanings in sorted(by_name.items())]
    tree = ["```{toctree}", ":hidden:", "", *sorted(by_name), "```", ""]
    return "\n".join([f"# {domain}\n", "| op | what it computes |", "| --- | --- |", *rows, "", *tree])


def _summary(op: Op) -> str:
    first = inspect.cleandoc(op.__doc__ or "").split("\n\n")[0]
    return " ".join(first.split()).replace("``", "`").replace("|", "\\|")


def _page(meanings: list[Op], figures: dict[str, str], targets: dict, folder: Path) -> str:
    newest = meanings[0]
    row = op_row(newest, tx.default_registry())
    parts = [f"# {newest.name}\n", f"`{newest.domain}`, from the package {row['package']}.\n", _doc(newest)]
    parts += _interface(row)
    parts += ["## Meaning\n", _meaning(newest)]
    drawing = _drawing(newest)
    if drawing:
        (folder / f"{newest.name}.svg").write_text(drawing, "utf-8")
        parts += [
            "Written out once, for the simplest call of its tests:\n",
            f"![{newest.name} as simpler ops]({newest.name}.svg)\n",
        ]
    parts += ["## Versions\n", *_versions(meanings), ""]
    parts += ["## Gradient\n", _gradient(newest, figures), "## Where it runs\n", *_runs(newest, figures, targets)]
    return "\n".join(parts)


def _doc(op: Op) -> str:
    return inspect.cleandoc(op.__doc__ or "").replace("``", "`") + "\n"


def _interface(row: dict) -> Iterator[str]:
    yield "| | names |\n| --- | --- |"
    yield f"| inputs | {_names(row['inputs'])} |"
    attributes = (name if d == "required" else f"{name}={d}" for name, d in row["attributes"].items())
    yield f"| attributes | {_names(attributes)} |"
    yield f"| outputs | {_names(row['outputs'])} |\n"
    yield "A `?` marks an optional input, a `*` any number of them.\n"


def _names(items) -> str:
    return ", ".join(f"`{item}`".replace("|", "\\|") for item in items) or "none"


def _meaning(op: Op) -> str:
    if op.primitive:
        return f"A primitive: its kernel is the definition.\n\n{_code(find_rule(op, 'numpy') or op.function)}"
    return _code(op.function)


def _code(function) -> str:
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return "The function is built when its module is imported, and has no source of its own.\n"
    return f"```python\n{source}```\n"


def _versions(meanings: list[Op]) -> Iterator[str]:
    for op in meanings:
        until = "" if op.before is None else f" until {op.before - 1}"
        changes = [f"before {step.before}, {_change(step)}" for step in op.signature_changes]
        yield f"- **from {op.since}{until}**" + (f": {'; '.join(changes)}" if changes else "")
    for op in meanings[1:]:
        yield f"\n### The meaning from {op.since} to {op.before - 1}\n\n{_doc(op)}\n{_meaning(op)}"


def _change(step) -> str:
    """Change of a signature, in the words of ``until``."""
    kept = {name: getattr(step, name, None) for name in ("attributes", "lacks", "renamed", "defaults", "vectors")}
    words = {
        "attributes": "attributes then, inputs now:",
        "lacks": "not there yet:",
        "renamed": "named otherwise:",
        "defaults": "other defaults:",
        "vectors": "one number instead of a vector:",
    }
    said = [f"{words[name]} {_names(value)}" for name, value in kept.items() if value]
    return ", ".join(said) or "spelled otherwise"


def _gradient(op: Op, figures: dict[str, str]) -> str:
    rule = find_rule(op, "vjp")
    verdict = figures.get("gradient", "")
    if rule is not None:
        return f"By a rule of the op:\n\n{_code(rule)}"
    if verdict.startswith("no"):
        return f"None ({verdict.removeprefix('no: ')}).\n"
    return "That of its body.\n" if not op.primitive else f"{verdict or 'None'}.\n"


def _runs(op: Op, figures: dict[str, str], targets: dict) -> Iterator[str]:
    numpy = "by a rule of its own" if find_rule(op, "numpy") else "by its body"
    yield "| where | how |\n| --- | --- |"
    yield f"| numpy | {numpy} |"
    yield f"| onnxruntime | {'by a kernel for CPUs' if _has_kernel(op) else 'by its body, in ops that have kernels'} |"
    if figures:
        yield f"| conformance cases | {figures['cases']} |"
        yield f"| versions that are compared | {figures['versions']} |"
    listed = [runtime for runtime in targets.values() if runtime.ops is not None and op.domain in runtime.opsets]
    takes = [runtime.name for runtime in listed if (op.domain, op.name) in runtime.ops]
    if listed:
        yield f"| targets that list it | {_names(takes)} |"
        yield f"| targets where it is expanded or refused | {_names(r.name for r in listed if r.name not in takes)} |"
    yield ""


def _has_kernel(op: Op) -> bool:
    return (op.domain, op.name) in _kernels()


@functools.cache
def _kernels() -> set[tuple[str, str]]:
    """Ops with a CPU kernel in the installed onnxruntime."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

    return {(k.domain or "ai.onnx", k.op_name) for k in get_all_opkernel_def() if k.provider == "CPUExecutionProvider"}


def _drawing(op: Op) -> str | None:
    """A drawing of the op's body, for the simplest call of its cases; None without a body or a case."""
    case = next(collected(op), None)
    if case is None or op.primitive:
        return None
    drawn = calls(case, 1)[0]
    try:
        graph, _ = trace(
            op, drawn, lambda b, values: b.call(op, values, drawn.attributes, drawn.outputs), symbolic=False
        )
        return to_svg(tx.decompose(graph, keep=lambda call: call.op is not op))
    except (TenonnxError, onnx.checker.ValidationError):
        return None


def _table() -> dict[tuple[str, str], dict[str, str]]:
    """The rows of ``docs/ops/coverage.md``, since computing them takes long."""
    result: dict[tuple[str, str], dict[str, str]] = {}
    domain, columns = "", []
    for line in COVERAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            domain, columns = line[3:], []
        elif line.startswith("| op | meanings"):
            columns = [cell.strip() for cell in line.strip("|").split("|")]
        elif line.startswith("| ") and columns:
            cells = dict(zip(columns, (cell.strip() for cell in line.strip("|").split("|")), strict=False))
            result[domain, cells["op"]] = cells
    return result
