"""Print the result of every case: ``python estimators.py [NAME ...] [--settings]``.

``--beside-skl2onnx`` and ``--beside-hummingbird`` compare with these; the latter needs PyTorch. ``--table FILE`` writes
the page docs/reference/estimators.md: the number of right cases for each estimator.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
import time
import warnings
from pathlib import Path

from beside import judged_hummingbird, judged_skl2onnx

from tenonnx_sklearn.cases import cases, configurations
from tenonnx_sklearn.judging import WAYS, judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--settings", action="store_true", help="leave out the estimators by their defaults")
    parser.add_argument("--beside-skl2onnx", action="store_true")
    parser.add_argument("--beside-hummingbird", action="store_true")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a table in Markdown, too")
    options = parser.parse_args()
    rows_of: dict[str, list[dict[str, str]]] = collections.defaultdict(list)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    began = time.perf_counter()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for case in configurations() if options.settings else cases():
            if options.names and not any(name in case.name for name in options.names):
                continue
            try:
                model, rows = case.fitted()
            except Exception as error:
                print(f"{case.name}\n    not fitted: {' '.join(str(error).split())[:150]}")
                continue
            found = judged(model, rows, Path(folder, "model.onnx"), WAYS, **case.options)
            if options.beside_skl2onnx:
                found["skl2onnx"] = judged_skl2onnx(model, rows)
            if options.beside_hummingbird:
                found["hummingbird"] = judged_hummingbird(model, rows)
            rows_of[type(model).__name__].append(found)
            print(case.name, flush=True)
            for way, verdict in found.items():
                counts[way][verdict.partition(":")[0]] += 1
                if verdict != "right":
                    print(f"    {way}: {verdict[:180]}", flush=True)
    for name, count in counts.items():
        print(name, sum(count.values()), dict(count))
    print(f"{time.perf_counter() - began:.0f} s")
    if options.table:
        options.table.write_text(page(rows_of), "utf-8")


TITLES = {
    "newest": "newest opset",
    "13": "opset 13",
    "plain": "plain `ai.onnx`",
    "skl2onnx": "skl2onnx",
    "hummingbird": "hummingbird",
}


HEAD = """# Estimators and their cases

Written by
`python plugins/frontends/sklearn/benchmarks/estimators.py --beside-skl2onnx --beside-hummingbird --table FILE`.
A case is an estimator with one choice of settings, fitted on small data: the defaults, and those listed in
`plugins/frontends/sklearn/src/tenonnx_sklearn/cases`. It is right if the ONNX file, run on onnxruntime, returns the
labels of the estimator, its numbers within 1e-4, and no rows for an empty batch. Cases that are not right are refused
by name.
"""


def page(rows_of: dict[str, list[dict[str, str]]]) -> str:
    """The table: numbers of right cases, and the results of the others."""
    ways = list(next(iter(rows_of.values()))[0])
    lines = [
        HEAD,
        f"| estimator | cases | {' | '.join(TITLES[way] for way in ways)} | refused |",
        f"| --- | --- | {' | '.join('---' for _ in ways)} | --- |",
    ]
    everything = [found for each in rows_of.values() for found in each]
    for name, found in [("**all**", everything), *sorted(rows_of.items())]:
        counts = " | ".join(str(sum(each[way] == "right" for each in found)) for way in ways)
        reasons = "" if found is everything else _reasons(found)
        lines.append(f"| {name} | {len(found)} | {counts} | {reasons} |")
    return "\n".join([*lines, ""])


def _reasons(found: list[dict[str, str]]) -> str:
    refused = [each["newest"] for each in found if each["newest"] != "right"]
    reasons = {each.partition(" given ")[2].partition(" do ")[0].partition(", which")[0] for each in refused}
    return "; ".join(sorted(reasons))


if __name__ == "__main__":
    main()
