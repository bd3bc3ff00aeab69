"""Write ``docs/ops.md``: every op of the packages in this workspace, from the registry. ``--check`` only compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tenonnx.op.op import Op
from tenonnx.registry.discovery import plugins
from tenonnx.registry.registry import default_registry
from tenonnx.testing.cases import collected, load
from tenonnx.testing.kit import known_gaps

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "ops.md"
HINTS = ROOT / "core" / "src" / "tenonnx" / "registry" / "hints.json"

INTRODUCTION = """# Operators

Generated from the registry by `tools/generate_op_table.py`. *Meanings* are the ranges of versions with one meaning.
*Body* says whether the op is composed of simpler ones, *numpy* and *gradient* whether it has a rule of its own; a
composed op without one has it through its body. *Cases* counts the conformance cases.
"""


def rows(domain: str) -> Iterator[str]:
    registry = default_registry()
    by_name: dict[str, list[Op]] = {}
    for op in registry.ops(domain):
        by_name.setdefault(op.name, []).append(op)
    for name, meanings in sorted(by_name.items()):
        ranges = ", ".join(_range(m) for m in meanings[::-1])
        newest = meanings[0]
        gradient = "rule" if "vjp" in newest.rules else "-" if newest.primitive else "body"
        cells = [
            name,
            ranges,
            "-" if newest.primitive else "yes",
            "rule" if "numpy" in newest.rules else "body",
            gradient,
            str(sum(len(list(collected(m))) for m in meanings)),
            registry.source(newest).split()[0],
        ]
        yield "| " + " | ".join(cells) + " |"


def _range(op: Op) -> str:
    """The versions of one meaning: ``7-12``, ``6``, or ``13-`` for all from 13 on."""
    if op.before is None:
        return f"{op.since}-"
    return str(op.since) if op.before == op.since + 1 else f"{op.since}-{op.before - 1}"


def gaps() -> str:
    """The known gaps of the conformance cases: each is a strict expected failure with its reason."""
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
        parts.append("| op | meanings | body | numpy | gradient | cases | package |")
        parts.append("| --- | --- | --- | --- | --- | --- | --- |")
        parts.append("\n".join(rows(domain)) + "\n")
    parts.append(gaps())
    return "\n".join(parts)


def hints() -> str:
    """Which distribution provides which op: a default for each domain, and the exceptions of ``owners.json``.

    Stops where the registry says otherwise.
    """
    registry = default_registry()
    found: dict[str, dict[str, str]] = {
        "ai.onnx": {"*": "tenonnx-standard"},
        "ai.onnx.preview": {"*": "tenonnx-standard"},
        "ai.onnx.ml": {"*": "tenonnx-onnx-ml"},
        "com.microsoft": {"*": "tenonnx-contrib-ms"},
    }
    for package, domains in json.loads((ROOT / "tools" / "owners.json").read_text("utf-8")).items():
        for domain, names in domains.items():
            found[domain].update(dict.fromkeys(names, package))
    for domain, owners in found.items():
        for op in registry.ops(domain):
            source, owner = registry.source(op).split()[0], owners.get(op.name, owners["*"])
            if source != owner:
                raise SystemExit(f"{op!r} comes from {source}, and owners.json gives it to {owner}")
    return json.dumps(found, indent=1) + "\n"


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
