"""Export all configurations of the tests, or the named ones, and print a table of differences from the model.

    python plugins/frontends/transformers/benchmarks/configurations.py [--layout genai] [--wide] [--json FILE] [NAME]

Each one is exported in a child process with a time limit, and compared on logits and on 64 greedy tokens for each of
three prompts. Rows are printed as they are measured. ``--wide`` doubles the head size to 16, so that fused attention of
onnxruntime includes the rotary embedding. ``--json`` appends each row to a file, and ``--resume`` skips
configurations with a row without an error there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from configurations import CONFIGURATIONS, make

import tenonnx as tx
import tenonnx_transformers

_WIDTHS = ("hidden_size", "head_dim", "query_pre_attn_scalar")


def widen(name: str) -> None:
    """Double the head size of a configuration."""
    found = CONFIGURATIONS[name]
    doubled = {key: 2 * found.fields[key] for key in _WIDTHS if key in found.fields}
    CONFIGURATIONS[name] = found._replace(fields={**found.fields, **doubled})


def measure(name: str, layout: str, sender: Any) -> None:
    """Export one configuration and send its row through ``sender``."""
    begin = time.perf_counter()
    row: dict[str, Any] = {"name": name, "layout": layout}
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = tenonnx_transformers.export(make(name), Path(folder) / "out", layout=layout)
        except Exception as error:  # errors become rows of the table, too
            said = " ".join(str(error).split()) if isinstance(error, tx.TenonnxError) else repr(error)
            row["error"] = f"{type(error).__name__}: {said}"[:900]
        else:
            row |= {
                "task": report.task,
                "graphs": list(report.graphs),
                "difference": report.max_difference,
                "tokens": [each.to_dict() for each in report.generated],
                "notes": list(report.notes),
            }
    sender.send({**row, "seconds": round(time.perf_counter() - begin, 1)})


def row_of(name: str, layout: str, limit: float) -> dict[str, Any]:
    """Measure a configuration in a child process of at most ``limit`` seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=measure, args=(name, layout, sender))
    child.start()
    sender.close()
    row: dict[str, Any] = {"name": name, "layout": layout, "seconds": limit}
    try:
        row = receiver.recv() if receiver.poll(limit) else {**row, "error": "over the time limit"}
    except EOFError:
        row["error"] = "the process ended"
    child.kill()
    child.join()
    return row


def line_of(row: dict[str, Any]) -> str:
    """Format a row as a line of the table."""
    if "error" in row:
        return f"| {row['name']} | {row['error'][:400]} | | | | {row['seconds']:.0f} |"
    tokens = ", ".join(f"{each['equal']} of {each['tokens']} ({each['runtime']})" for each in row["tokens"])
    notes = "; ".join(row["notes"])
    return f"| {row['name']} | {row['task']} | {row['difference']:.2g} | {tokens} | {notes} | {row['seconds']:.0f} |"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CONFIGURATIONS))
    parser.add_argument("--layout", default="onnxruntime")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each configuration")
    given = parser.parse_args()
    for name in given.names if given.wide else ():
        widen(name)
    known = given.json.read_text("utf-8").splitlines() if given.resume and given.json.is_file() else []
    done = {row["name"] for row in map(json.loads, known) if "error" not in row}
    print("| configuration | task | largest difference | greedy tokens | notes | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    right = len(done.intersection(given.names))
    for name in given.names:
        if name in done:
            continue
        row = row_of(name, given.layout, given.limit)
        print(line_of(row), flush=True)
        if given.json:
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        right += "error" not in row
    print(f"\n{right} of {len(given.names)} were exported and equal")


if __name__ == "__main__":
    main()
