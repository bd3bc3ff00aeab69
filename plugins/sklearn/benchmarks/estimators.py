"""Print what becomes of every case: ``python estimators.py [NAME ...] [--opset 13] [--beside-skl2onnx]``."""

from __future__ import annotations

import argparse
import collections
import tempfile
from pathlib import Path

from tenonnx_sklearn.cases import cases
from tenonnx_sklearn.judging import judge, judged_skl2onnx


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only estimators whose name contains one of these")
    parser.add_argument("--opset", type=int, help="version of ai.onnx to export to; without it, that of the graph")
    parser.add_argument("--beside-skl2onnx", action="store_true")
    options = parser.parse_args()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            if options.names and not any(name in case.name for name in options.names):
                continue
            try:
                model, rows = case.fitted()
            except Exception as error:
                print(f"{case.name:45} not fitted: {error}")
                continue
            verdict = judge(model, rows, Path(folder, "model.onnx"), options.opset)
            counts["tenonnx"][verdict.partition(":")[0]] += 1
            line = f"{case.name:45} {verdict[:110]}"
            if options.beside_skl2onnx:
                other = judged_skl2onnx(model, rows, options.opset)
                counts["skl2onnx"][other.partition(":")[0]] += 1
                line += f" | skl2onnx {other[:60]}"
            print(line, flush=True)
    for name, count in counts.items():
        print(name, dict(count))


if __name__ == "__main__":
    main()
