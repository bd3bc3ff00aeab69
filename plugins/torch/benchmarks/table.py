"""The table of components in docs/pytorch.md, from the cases of the tests and what ``exports.py`` measured of them.

``python table.py`` writes it, ``--check`` stops where it is not up to date.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "pytorch.md"
RESULTS = Path(__file__).with_name("exports.json")
OPSETS = (13, 17, 21)


def table(cases) -> str:
    """A line for each component: which modules there are, and how many were right at each opset."""
    results = json.loads(RESULTS.read_text("utf-8"))
    components = sorted({case.component for case in cases.values()})
    rows = ["| component | modules | right at 13, 17, 21 | the exporter itself |", "| --- | --- | --- | --- |"]
    for component in components:
        names = [name for name, case in cases.items() if case.component == component]
        counts = {
            who: [
                sum(results[n][f"{who} {opset}"].startswith("right") for n in names if n in results) for opset in OPSETS
            ]
            for who in ("ours", "theirs")
        }
        measured = sum(name in results for name in names)
        shown = {who: ", ".join(map(str, each)) + f" of {measured}" for who, each in counts.items()}
        rows.append(f"| {component} | {'; '.join(names)} | {shown['ours']} | {shown['theirs']} |")
    return "\n".join(rows)


def page(cases) -> str:
    text = PAGE.read_text("utf-8")
    return re.sub(
        r"(<!-- components -->\n).*(<!-- end -->)", lambda m: m[1] + table(cases) + "\n" + m[2], text, flags=re.DOTALL
    )


def main() -> None:
    sys.path.insert(0, str(ROOT / "plugins" / "torch" / "tests"))
    import modules

    for name in ("layers", "functions", "sequences", "programs", "architectures"):
        __import__(f"modules.{name}")
    written = page(modules.CASES)
    if "--check" in sys.argv and written != PAGE.read_text("utf-8"):
        raise SystemExit("docs/pytorch.md is stale: run python plugins/torch/benchmarks/table.py")
    PAGE.write_text(written, "utf-8")


if __name__ == "__main__":
    main()
