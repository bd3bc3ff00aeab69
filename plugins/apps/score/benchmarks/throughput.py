"""Rows per second and memory of local processes, Ray and Spark, compared with plain onnxruntime and pyarrow.

``python throughput.py --scale 0.05`` creates its data in ``--folder``, runs each configuration once per round, and
prints a table for each case. Its last column tells whether outputs are bit-identical to the first configuration's. Ray
and Spark are skipped if they are not installed.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from data import CASES, made
from pyarrow import dataset
from watched import Watched, watched

#: Configurations; ``plain`` with one thread, and with onnxruntime's default.
WAYS = ("plain", "plain, all threads", "local", "local:1", "local:2", "ray", "spark:local[2]")

#: Output files of each case.
PARTS = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="by default all")
    parser.add_argument("--way", action="append", choices=WAYS, help="by default all that are installed")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows of the full sizes")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batch", default="10000", help="rows of a batch of plain")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/tenonnx-score"))
    arguments = parser.parse_args()
    ways = arguments.way or [way for way in WAYS if way[:3] not in ("ray", "spa") or find_spec(_package(way))]
    for case in arguments.case or CASES:
        _compare(case, ways, arguments)


def _package(way: str) -> str:
    return {"ray": "ray", "spa": "pyspark"}[way[:3]]


def _compare(case: str, ways: list[str], arguments: Any) -> None:
    rows = max(int(CASES[case].rows * arguments.scale), 100)
    model, input = made(case, arguments.folder, rows)
    found: dict[str, list[Watched]] = {way: [] for way in ways}
    outputs = {way: arguments.folder / f"out-{case}-{k}" for k, way in enumerate(ways)}
    for _ in range(arguments.rounds):
        for way, output in outputs.items():
            shutil.rmtree(output, ignore_errors=True)
            found[way].append(watched(_command(way, case, model, input, output, rows, arguments.batch)))
    first = ways[0]
    digests = {way: bits(output) for way, output in outputs.items()}
    print(f"\n{case}, {rows:,} rows\n")
    print("| way | rows/s | times plain | seconds of the processor | of plain | peak, MiB | bits |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for way, runs in found.items():
        each = statistics.median(run.seconds for run in runs)
        ratio = statistics.median(a.seconds / b.seconds for a, b in zip(found[first], runs, strict=True))
        processor = statistics.median(run.processor for run in runs)
        share = statistics.median(b.processor / a.processor for a, b in zip(found[first], runs, strict=True))
        peak = max(run.peak for run in runs)
        equal = "equal" if digests[way] == digests[first] else "**differ**"
        print(
            f"| {way} | {rows / each:,.0f} | {ratio:.2f} | {processor:.1f} | {share:.2f} | {peak:,.0f} | {equal} |",
            flush=True,
        )
    for output in outputs.values():
        shutil.rmtree(output)


def _command(way: str, case: str, model: Path, input: Path, output: Path, rows: int, batch: str) -> list[str]:
    if way.startswith("plain"):
        threads = "1" if way == "plain" else "0"
        batch = str(min(int(batch), 256)) if case == "images" else batch
        program = str(Path(__file__).with_name("plain.py"))
        return [sys.executable, program, case, str(model), str(input), str(output), threads, batch]
    return [
        str(Path(sys.executable).with_name("tenonnx")),
        "score",
        str(model),
        "--input",
        str(input),
        "-o",
        str(output),
        "--on",
        way,
        *([] if way.startswith("local") else ["--part-rows", str(max(rows // PARTS, 1))]),
        "--json",
        *CASES[case].options,
    ]


def bits(folder: Path) -> dict[str, str]:
    """A digest of the bits of each column, in the order of rows; columns p0, p1 ... are elements of a list."""
    files = sorted((path for path in folder.glob("*.parquet")), key=lambda path: int(path.stem.split("-")[-1]))
    found: dict[str, Any] = {}
    for batch in dataset.dataset([str(path) for path in files]).to_batches():
        columns = {name: _array(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        wide = [name for name in columns if name[0] == "p" and name[1:].isdigit()]
        if wide:
            columns["probabilities"] = np.stack([columns.pop(name) for name in wide], axis=1)
        for name, array in columns.items():
            data = "\n".join([*array, ""]).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
            found.setdefault(name, hashlib.sha256()).update(data)
    return {name: digest.hexdigest() for name, digest in found.items()}


def _array(column: Any) -> Any:
    values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    return values.to_numpy(zero_copy_only=False)


if __name__ == "__main__":
    main()
