"""Write ``docs/ops/coverage.md``: every op of the packages here, from the registry. ``--check`` only compares."""

from __future__ import annotations

import functools
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from tenonnx.op.op import Op
from tenonnx.registry.discovery import GROUPS, plugins
from tenonnx.registry.registry import Registry, default_registry
from tenonnx_cli import convert, plan
from tenonnx_convert.plugin_steps import step_options
from tenonnx_testing.cases import collected, load
from tenonnx_testing.coverage import gap_at
from tenonnx_testing.differentiability import differentiability
from tenonnx_testing.kit import known_gaps
from tenonnx_testing.schemas import history, names, schema_at

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "ops" / "coverage.md"
HINTS = ROOT / "core" / "src" / "tenonnx" / "registry" / "hints.json"

INTRODUCTION = """# Operators

Generated from the registry by `tools/generate_op_table.py`. *Meanings* are the ranges of versions with one meaning.
*Body* says whether the op is composed of simpler ones, *numpy* whether it has a rule of its own; without one it is
computed by its body. *Gradient* is what calls of the conformance cases show: by a rule of the op (yes), by its body, or
none with the reason. *Cases* counts the conformance cases, and *versions* those of the schemas at which calls of them
are compared with another implementation, the body or the law of what is drawn at random. Of ops of vendors, those that
onnxruntime has no kernel for on CPUs are judged *by formula*: a second one in the tests of their package.
"""


def rows(domain: str) -> Iterator[str]:
    registry = default_registry()
    by_name: dict[str, list[Op]] = {}
    for op in registry.ops(domain):
        by_name.setdefault(op.name, []).append(op)
    for name, meanings in sorted(by_name.items()):
        ranges = ", ".join(_range(m) for m in meanings[::-1])
        newest = meanings[0]
        cells = [
            name,
            ranges,
            "-" if newest.primitive else "yes",
            "rule" if "numpy" in newest.rules else "body",
            differentiability(newest).verdict,
            str(sum(len(list(collected(m))) for m in meanings)),
            "/".join(map(str, reached(registry, domain, name))) + judged(domain, name)
            if history(domain, name)
            else "-",
            registry.source(newest).split()[0],
        ]
        yield "| " + " | ".join(cells) + " |"


def reached(registry: Registry, domain: str, name: str) -> tuple[int, int]:
    """Number of versions of an op at which its cases are compared with a reference, and number of its versions."""
    versions = [version for version, schema in history(domain, name).items() if not schema.ends]
    return sum(why_not(registry, domain, name, version) is None for version in versions), len(versions)


@functools.cache
def kernels() -> set[tuple[str, str]]:
    """Ops with a CPU kernel in onnxruntime."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

    return {(k.domain, k.op_name) for k in get_all_opkernel_def() if k.provider == "CPUExecutionProvider"}


def judged(domain: str, name: str) -> str:
    """References for an op other than onnxruntime."""
    return "" if domain.startswith("ai.onnx") or (domain, name) in kernels() else ", by formula"


def why_not(registry: Registry, domain: str, name: str, version: int) -> str | None:
    """Reason why no case is compared at a version of an op; None if a case is."""
    op = registry.lookup(domain, name, version)
    if op is None:
        return "not provided"
    if not any(collected(op)):
        return "without a case"
    gap = gap_at(op, version)
    return None if gap is None else gap.reason


def coverage(domain: str) -> str:
    """Number of compared versions in a domain, and reasons for the others."""
    registry = default_registry()
    counts = [reached(registry, domain, name) for name in names(domain)]
    lines = [f"Calls are compared at {sum(n for n, _ in counts)} of {sum(n for _, n in counts)} versions of ops.\n"]
    missing: dict[str, list[str]] = {}
    for name in names(domain):
        for version, schema in history(domain, name).items():
            reason = None if schema.ends else why_not(registry, domain, name, version)
            if reason:
                missing.setdefault(reason, []).append(f"{name}@{version}")
    lines += [f"- {reason}: {', '.join(found)}" for reason, found in sorted(missing.items())]
    return "\n".join(lines) + ("\n" if missing else "")


def gradient_gaps(domain: str) -> Iterator[str]:
    """Inputs that ONNX declares differentiable but that have no gradient in any case."""
    registry = default_registry()
    for name in names(domain):
        op = next((m for m in registry.meanings(domain, name) if m.before is None), None)
        if op is None:
            continue
        schema = schema_at(op, op.version)
        found = differentiability(op)
        for formal in schema.inputs if schema is not None else ():
            if formal.differentiable and formal.name in found.tried - found.inputs:
                yield f"| {domain}::{name} | {formal.name} | {found.verdict} |"


def _range(op: Op) -> str:
    """The versions of one meaning: ``7-12``, ``6``, or ``13-`` for all from 13 on."""
    if op.before is None:
        return f"{op.since}-"
    return str(op.since) if op.before == op.since + 1 else f"{op.since}-{op.before - 1}"


def gaps() -> str:
    """Known gaps of the conformance cases, each a strict expected failure with its reason."""
    lines = sorted({f"| {case.op.domain}::{case.op.name} | {gap.check} | {gap.reason} |" for case, gap in known_gaps()})
    return "## Known gaps\n\n| op | check | reason |\n| --- | --- | --- |\n" + "\n".join(lines) + "\n"


def table() -> str:
    registry = default_registry()
    registry.load_all()
    if registry.failures:
        raise SystemExit("\n".join(map(str, registry.failures.values())))
    broken = [f"{name}: {error}" for name, error in load(plugins("tenonnx.conformance")).items() if error is not None]
    if broken:
        raise SystemExit("\n".join(broken))
    parts = [INTRODUCTION]
    for domain in registry.domains():
        if domain in ("com.acme", "tenonnx") or not list(registry.ops(domain)):
            continue
        parts.append(f"## {domain}\n")
        if names(domain):
            parts.append(coverage(domain))
        parts.append("| op | meanings | body | numpy | gradient | cases | versions | package |")
        parts.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
        parts.append("\n".join(rows(domain)) + "\n")
    parts.append("## Inputs without a gradient that ONNX calls differentiable\n")
    parts.append("| op | input | gradient |\n| --- | --- | --- |")
    parts.append("\n".join(line for domain in registry.domains() for line in gradient_gaps(domain)) + "\n")
    parts.append(gaps())
    return "\n".join(parts)


def option_names() -> list[str]:
    """Options of the commands that apply transforms; a transform cannot have these flags."""
    found = set()
    for command in (convert.command, plan.command):
        for parameter in click.Command.get_params(command, click.Context(command)):
            found |= {o[2:] for o in (*parameter.opts, *parameter.secondary_opts) if o.startswith("--")}
    return sorted(found)


def hints() -> str:
    """The distribution of each op: a default per domain, and the exceptions in ``owners.json``.

    Exits with an error if the registry disagrees.
    """
    registry = default_registry()
    found: dict[str, dict[str, str]] = {
        "ai.onnx": {"*": "tenonnx-standard"},
        "ai.onnx.preview": {"*": "tenonnx-standard"},
        "ai.onnx.ml": {"*": "tenonnx-onnx-ml"},
        "ai.onnx.contrib": {"*": "tenonnx-extensions"},
        "com.microsoft.extensions": {"*": "tenonnx-extensions"},
        "com.microsoft": {"*": "tenonnx-contrib-ms"},
    }
    for package, domains in json.loads((ROOT / "tools" / "owners.json").read_text("utf-8")).items():
        for domain, owned in domains.items():
            found[domain].update(dict.fromkeys(owned, package))
    for domain, owners in found.items():
        for op in registry.ops(domain):
            source, owner = registry.source(op).split()[0], owners.get(op.name, owners["*"])
            if source != owner:
                raise SystemExit(f"{op!r} comes from {source}, and owners.json gives it to {owner}")
    for group, domains in declared().items():
        if group in GROUPS and group != "tenonnx.ops":
            found[group] = domains
    options = dict.fromkeys(option_names(), "tenonnx-cli")
    for each in step_options().values():
        options |= {flag[2:]: each.plugin.distribution for flag in each.option.flag.split("/")}
    found["tenonnx.options"] = dict(sorted(options.items()))
    return json.dumps(found, indent=1) + "\n"


def declared() -> dict[str, dict[str, str]]:
    """The distribution of each entry point of this workspace, including packages that are not installed here."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted([*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/**/pyproject.toml")]):
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        for group, entries in project.get("entry-points", {}).items():
            found.setdefault(group, {}).update(dict.fromkeys(entries, project["name"]))
    return {group: dict(sorted(entries.items())) for group, entries in sorted(found.items())}


def main() -> None:
    stale = []
    for path, text in ((TABLE, table()), (HINTS, hints())):
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(text, "utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"stale: {', '.join(stale)}; run python tools/generate_op_table.py")


if __name__ == "__main__":
    main()
