"""Write the table of measured targets in ``docs/reference/target-files.md`` from the installed target files.

Run ``python tools/generate_target_table.py`` after a new measurement; ``--check`` only says whether the table is true.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from tenonnx.tools import runtimes
from tenonnx_targets.target import Target

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "target-files.md"

HEAD = """\
| target | consumer | date | opset | ops | calls | right | wrong | refused | crashed or hung |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def row(target: Target) -> str:
    """The line of a measured target: shares of its calls by outcome, the last two as numbers."""
    (date,) = re.findall(r"measured on (\S+) by", target.source)
    calls = int(target.note.partition(" ")[0])
    counts: Counter[str] = Counter()
    for failure in target.failures:
        counts[failure["outcome"]] += failure["calls"]
    shares = [f"{count / calls:.0%}" for count in (calls - counts.total(), counts["wrong"], counts["refused"])]
    cells = [f"`{target.name}`", target.title, date, str(target.opsets["ai.onnx"]), str(len(target.ops or {}))]
    return " | ".join(["", *cells, f"{calls:,}", *shares, str(counts["crashed"] + counts["hung"]), ""]).strip() + "\n"


def table() -> str:
    """The table, by names of targets."""
    measured = [target for target in runtimes()[0].values() if "tenonnx targets probe" in target.source]
    return HEAD + "".join(row(target) for target in sorted(measured, key=lambda target: target.name))


def main() -> None:
    text = PAGE.read_text("utf-8")
    updated = re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table(), text)
    if updated != text and "--check" in sys.argv:
        raise SystemExit(f"stale: {PAGE.name}; run python tools/generate_target_table.py")
    PAGE.write_text(updated, "utf-8")


if __name__ == "__main__":
    main()
