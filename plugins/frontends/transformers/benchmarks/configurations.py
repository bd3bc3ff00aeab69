"""Export all configurations of the tests, or those that are named, and print a table of how near they are to the model.

    python plugins/frontends/transformers/benchmarks/configurations.py [--layout genai] [NAME ...]

Each is exported in this process, compared on logits and on 64 greedy tokens of each of three prompts, and a row is
printed as soon as it is known.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from configurations import CONFIGURATIONS, make

import tenonnx as tx
import tenonnx_transformers

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("names", nargs="*", default=list(CONFIGURATIONS))
parser.add_argument("--layout", default="onnxruntime")
given = parser.parse_args()

print("| configuration | task | largest difference | greedy tokens | seconds |\n| --- | --- | --- | --- | --- |")
right = 0
for name in given.names:
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = tenonnx_transformers.export(make(name), Path(folder) / "out", layout=given.layout)
        except Exception as error:  # a row of the table, too
            said = " ".join(str(error).split())[:400] if isinstance(error, tx.TenonnxError) else repr(error)[:400]
            print(f"| {name} | {type(error).__name__}: {said} | | | |", flush=True)
            continue
    tokens = ", ".join(f"{each.equal} of {each.tokens} ({each.runtime})" for each in report.generated)
    seconds = time.perf_counter() - begin
    print(f"| {name} | {report.task} | {report.max_difference:.2g} | {tokens} | {seconds:.0f} |", flush=True)
    right += 1
print(f"\n{right} of {len(given.names)} were exported and equal")
