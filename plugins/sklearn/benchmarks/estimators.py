"""Print what becomes of every case: ``python estimators.py [NAME ...] [--settings] [--beside-skl2onnx]``."""

from __future__ import annotations

import argparse
import collections
import tempfile
import time
import warnings
from pathlib import Path

from tenonnx_sklearn.cases import cases, configurations
from tenonnx_sklearn.judging import WAYS, judged, judged_skl2onnx


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--settings", action="store_true", help="leave out the estimators by their defaults")
    parser.add_argument("--beside-skl2onnx", action="store_true")
    options = parser.parse_args()
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
            print(case.name, flush=True)
            for way, verdict in found.items():
                counts[way][verdict.partition(":")[0]] += 1
                if verdict != "right":
                    print(f"    {way}: {verdict[:180]}", flush=True)
    for name, count in counts.items():
        print(name, sum(count.values()), dict(count))
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
