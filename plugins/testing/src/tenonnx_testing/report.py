"""Certificate of a run: comparisons and gaps, as JSON and Markdown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tenonnx.extend.testing import default_registry
from tenonnx_testing import schemas
from tenonnx_testing.cases import CHECKS, Case, collected
from tenonnx_testing.kit import drawable, optional
from tenonnx_testing.suite import outcomes

#: Comparisons of one or more processes, as JSON values.
Seen = dict[str, Any]

#: Description of the random seed.
SEED = "the checksum of each case: every run draws the same calls"


def seen_here() -> Seen:
    """Comparisons of this process, to be merged with those of others."""
    result: Seen = {"cases": {}, "outcomes": outcomes()}
    for case in collected():
        if case.compared or case.drawn_names:
            result["cases"][f"{case.module}:{case.title}"] = _described(case)
    return result


def _described(case: Case) -> dict[str, Any]:
    undrawn = {name for other in collected(case.op) for name in other.undrawn}
    registry = default_registry()
    registry.load(case.op.domain)
    return {
        "op": f"{case.op.domain}::{case.op.name}",
        "meaning": [case.op.since, case.op.before],
        "package": registry.source(case.op),
        "versions": schemas.versions(case.op),
        "compared": dict(case.compared),
        "reached": sorted(case.reached),
        "drawn": sorted(case.drawn_names),
        "drawable": [name for name in drawable(case.op) if name not in undrawn],
        "left_out": sorted(case.left_out),
        "optional": [name for name in optional(case.op) if name not in undrawn],
        "gaps": {gap.check: sorted(each.reason for each in case.gaps_of(gap.check)) for gap in case.gaps}
        | {f"drawing {name}": [reason] for name, reason in case.undrawn.items()},
    }


#: Entries of a case that are merged as sets.
_SETS = ("reached", "drawn", "left_out")


def merged(parts: Iterable[Seen]) -> Seen:
    """Merge the comparisons of several processes."""
    whole: Seen = {"cases": {}, "outcomes": {}}
    for part in parts:
        whole["outcomes"].update(part["outcomes"])
        for key, case in part["cases"].items():
            entry = whole["cases"].setdefault(key, {**case, "compared": {}, **{name: [] for name in _SETS}})
            for check, count in case["compared"].items():
                entry["compared"][check] = entry["compared"].get(check, 0) + count
            for name in _SETS:
                entry[name] = sorted({*entry[name], *case[name]})
    return whole


def comparisons(seen: Seen) -> dict[str, int]:
    """Number of comparisons of each check."""
    counts = dict.fromkeys(CHECKS, 0)
    for case in seen["cases"].values():
        for check, count in case["compared"].items():
            counts[check] += count
    return {check: count for check, count in counts.items() if count}


def never_drawn(seen: Seen) -> dict[str, list[str]]:
    """Inputs and attributes that no compared call had, by meaning."""
    return _missing(seen, "drawable", "drawn")


def never_left_out(seen: Seen) -> dict[str, list[str]]:
    """Optional inputs that every compared call had, by meaning."""
    return _missing(seen, "optional", "left_out")


def without_reference(seen: Seen) -> list[str]:
    """Ops that were compared with their own bodies only."""
    return without_references(_ops(case for case in seen["cases"].values() if any(case["compared"].values())))


def table(seen: Seen) -> list[str]:
    """One line per op: number of passed checks, and names of failed, xfailed and skipped ones."""
    rows: dict[str, dict[str, list[str]]] = {}
    for label, outcome in seen["outcomes"].items():
        title, _, check = label.partition("-")
        kind = outcome.partition(":")[0]
        rows.setdefault(title, {}).setdefault(kind, []).append(check)
    width = max(map(len, rows), default=0)
    lines = []
    for title, kinds in rows.items():
        sections = [f"{len(kinds.get('passed', []))} passed"]
        sections += [f"{kind}: {', '.join(kinds[kind])}" for kind in ("failed", "xfailed", "skipped") if kind in kinds]
        lines.append(f"{title:{width}}  {'; '.join(sections)}")
    return lines


def _missing(seen: Seen, wanted: str, found: str) -> dict[str, list[str]]:
    """Names of ``wanted`` that are missing in ``found``, by meaning, for meanings with a call."""
    names: dict[str, list[str]] = {}
    met: dict[str, set[str]] = {}
    for case in seen["cases"].values():
        if case["drawn"] or case["left_out"]:
            title = f"{case['op']}@{case['versions'][-1]}"
            names[title] = case[wanted]
            met.setdefault(title, set()).update(case[found])
    missing = {title: [name for name in names[title] if name not in met[title]] for title in names}
    return {title: left for title, left in missing.items() if left}


# ----- the certificate ------------------------------------------------------------------------------------------------


def certificate(seen: Seen) -> dict[str, Any]:
    """Return the certificate; ``hash`` is the SHA-256 of the rest as compact JSON with sorted keys."""
    failed = {label: outcome for label, outcome in sorted(seen["outcomes"].items()) if outcome.startswith("failed")}
    body: dict[str, Any] = {
        "kit": f"tenonnx-testing {metadata.version('tenonnx-testing')}",
        "core": f"tenonnx {metadata.version('tenonnx-core')}",
        "oracles": _versions("onnxruntime", "onnx", "numpy"),
        "packages": sorted({case["package"] for case in seen["cases"].values()}),
        "seed": SEED,
        "tests": len(seen["outcomes"]),
        "failed": failed,
        "comparisons": comparisons(seen),
        "ops": (rows := _ops(seen["cases"].values())),
        "without_reference": without_references(rows),
        "never_drawn": never_drawn(seen),
        "never_left_out": never_left_out(seen),
    }
    return {**body, "hash": _hash(body)}


def _hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _versions(*distributions: str) -> dict[str, str]:
    result = {}
    for name in distributions:
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return result


def _ops(cases: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per meaning: versions, versions that were compared, comparisons by check, and gaps."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for case in sorted(cases, key=lambda case: (case["op"], case["meaning"][0])):
        row = rows.setdefault(
            (case["op"], case["meaning"][0]),
            {
                "op": case["op"],
                "since": case["meaning"][0],
                "before": case["meaning"][1],
                "package": case["package"],
                "versions": case["versions"],
                "reached": [],
                "compared": {},
                "gaps": {},
            },
        )
        row["reached"] = sorted({*row["reached"], *case["reached"]})
        for check, reasons in case["gaps"].items():
            row["gaps"][check] = sorted({*row["gaps"].get(check, ()), *reasons})
        for check, count in case["compared"].items():
            row["compared"][check] = row["compared"].get(check, 0) + count
    return list(rows.values())


#: Checks that compare an op with something other than its own body, and the name of that reference.
_REFERENCES = {
    "onnxruntime": "onnxruntime",
    "reference": "onnx.reference",
    "expected": "the reference of its case",
    "law": "the law of its case",
}


def references(row: Mapping[str, Any]) -> list[str]:
    """References that a row of a certificate was compared with, besides the op's own body."""
    return [reference for check, reference in _REFERENCES.items() if row["compared"].get(check)]


def without_references(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Ops with a meaning that was compared with its own body only, so that an error in the body goes unnoticed."""
    return sorted({row["op"] for row in rows if not references(row)})


def badge(contents: Mapping[str, Any]) -> str:
    """Badge in Markdown for a README: amber if an op was compared with its own body only."""
    ops, count = len({row["op"] for row in contents["ops"]}), sum(contents["comparisons"].values())
    alone = len(contents["without_reference"])
    verdict = f"{ops}%20ops%2C%20{count}%20calls" + (
        f"%2C%20{alone}%20without%20reference-orange" if alone else "-green"
    )
    if contents["failed"]:
        verdict = f"{len(contents['failed'])}%20failed-red"
    return f"![tenonnx conformance](https://img.shields.io/badge/tenonnx-{verdict})"


def markdown(contents: Mapping[str, Any]) -> str:
    """Return the certificate as a Markdown page."""
    oracles = ", ".join(f"{name} {version}" for name, version in sorted(contents["oracles"].items()))
    names = " and ".join(package.partition(" ")[0] for package in contents["packages"])
    lines = [
        f"# Conformance of {names or 'no package'}",
        "",
        badge(contents),
        "",
        f"{', '.join(contents['packages']) or 'no package'}, checked by {contents['kit']} on {contents['core']} "
        f"with {oracles}: {contents['tests']} tests, {len(contents['failed'])} failed.",
        "",
        f"Calls are drawn by {contents['seed']}. SHA-256 of the JSON beside this page without its hash:",
        f"`{contents['hash']}`.",
        "",
        "| op | from | versions compared | compared with | calls compared | gaps |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in contents["ops"]:
        counts = ", ".join(f"{check} {count}" for check, count in sorted(row["compared"].items()) if count)
        gaps = "; ".join(f"{check}: {reason}" for check, found in sorted(row["gaps"].items()) for reason in found)
        reached = f"{len(set(row['reached']) & set(row['versions']))} of {len(row['versions'])}"
        compared_with = ", ".join(references(row)) or "its own body only"
        lines.append(f"| {row['op']} | {row['since']} | {reached} | {compared_with} | {counts} | {gaps} |")
    if alone := contents["without_reference"]:
        lines += ["", "## Without a reference", "", f"Compared with their own bodies only: {', '.join(alone)}"]
    sections = {
        "Failed": contents["failed"],
        "Never drawn": contents["never_drawn"],
        "Never left out": contents["never_left_out"],
    }
    for heading, entries in sections.items():
        if entries:
            shown = (f"- {name}: {', '.join(e) if isinstance(e, list) else e}" for name, e in sorted(entries.items()))
            lines += ["", f"## {heading}", "", *shown]
    return "\n".join(lines) + "\n"


def write(contents: Mapping[str, Any], path: Path) -> None:
    """Write the certificate to ``path`` as JSON with one line per op, and to ``*.md`` next to it."""
    entries = ((key, f"[\n{_lines(value)}\n]" if key == "ops" else _compact(value)) for key, value in contents.items())
    text = ",\n".join(f"{_compact(key)}: {value}" for key, value in sorted(entries))
    path.write_text(f"{{\n{text}\n}}\n", "utf-8")
    path.with_suffix(".md").write_text(markdown(contents), "utf-8")


def _lines(rows: Iterable[Any]) -> str:
    return ",\n".join(map(_compact, rows))


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
