"""The measurements in docs/how-to/pytorch.md, from the counts of ``exports.py`` and ``suite.py``.

``python table.py`` writes both; ``--check`` fails where they are outdated.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "how-to" / "pytorch.md"
RESULTS = Path(__file__).with_name("exports.json")
SUITE = Path(__file__).with_name("suite.json")
OPSETS = (13, 17, 21)
SIDES = ("ours", "theirs")


def measured(results, names, who) -> list[str]:
    """Modules among ``names`` with results of one exporter."""
    return [name for name in names if f"{who} {OPSETS[0]}" in results.get(name, {})]


def counts(results, names, who, wanted: Callable[[str], bool]) -> list[int]:
    """For each opset, number of modules whose results satisfy ``wanted``."""
    return [sum(wanted(results[name][f"{who} {opset}"]) for name in names) for opset in OPSETS]


def is_right(found: str) -> bool:
    return found.startswith("right")


def table(cases) -> str:
    """A row for each component: its modules, and the number of right ones at each opset."""
    results = json.loads(RESULTS.read_text("utf-8"))
    rows = ["| component | modules | right at 13, 17, 21 | the exporter |", "| --- | --- | --- | --- |"]
    for component in sorted({case.component for case in cases.values()}):
        names = [name for name, case in cases.items() if case.component == component]
        results_of = {who: measured(results, names, who) for who in SIDES}
        ours, theirs = (
            ", ".join(map(str, counts(results, results_of[who], who, is_right))) + f" of {len(results_of[who])}"
            for who in SIDES
        )
        rows.append(f"| {component} | {'; '.join(names)} | {ours} | {theirs} |")
    return "\n".join(rows)


def summary(cases) -> str:
    """Numbers of right modules at each opset, and the failures of PyTorch's exporter."""
    results = json.loads(RESULTS.read_text("utf-8"))
    results_of = {who: measured(results, cases, who) for who in SIDES}
    rows = [
        ("right by tenonnx", "ours", is_right),
        ("right by the exporter", "theirs", is_right),
        ("... with parameter names lost", "theirs", lambda found: "without" in found),
        ("left at opset 18, which is only logged", "theirs", lambda found: found.startswith("left at")),
        ("wrong or refused by the exporter", "theirs", lambda found: not found.startswith(("right", "left at"))),
    ]
    lines = [f"| | of | {' | '.join(f'opset {opset}' for opset in OPSETS)} |", "| --- |" + " --- |" * (len(OPSETS) + 1)]
    for title, who, wanted in rows:
        numbers = " | ".join(map(str, counts(results, results_of[who], who, wanted)))
        lines.append(f"| {title} | {len(results_of[who])} | {numbers} |")
    return "\n".join(lines)


def suite() -> str:
    """Results of the onnx package's node tests as modules."""
    entries = json.loads(SUITE.read_text("utf-8"))
    counts = [entries["torch"], entries["numpy"], len(entries["failed"])]
    titles = ("run by PyTorch alone", "numpy computes a part", "give other numbers")
    lines = [f"| of {sum(counts)} single-op models of onnx {entries['onnx']} | |", "| --- | --- |"]
    return "\n".join(lines + [f"| {title} | {count} |" for title, count in zip(titles, counts, strict=True)])


def page(cases) -> str:
    text = PAGE.read_text("utf-8")
    blocks = {"counts": summary(cases), "components": table(cases)}
    if SUITE.exists():
        blocks["suite"] = suite()
    for name, block in blocks.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda m, block=block: m[1] + block + "\n" + m[2], text, flags=re.DOTALL)
    return text


def main() -> None:
    sys.path.insert(0, str(ROOT / "plugins" / "frontends" / "torch" / "tests"))
    import modules

    for name in ("layers", "functions", "sequences", "programs", "architectures"):
        __import__(f"modules.{name}")
    written = page(modules.CASES)
    if "--check" in sys.argv and written != PAGE.read_text("utf-8"):
        raise SystemExit("docs/how-to/pytorch.md is stale: run python plugins/frontends/torch/benchmarks/table.py")
    PAGE.write_text(written, "utf-8")


if __name__ == "__main__":
    main()
