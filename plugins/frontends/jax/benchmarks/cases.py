"""All cases at all opsets, compared with jax2onnx: shares of right results, and times.

``python plugins/frontends/jax/benchmarks/cases.py [--only TEXT] [--peer]`` writes ``cases.json`` unless ``--only`` is
given.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from cases import load_all
from judging import OPSETS, Judged

import tenonnx as tx


def ours(case: Any) -> dict[str, Any]:
    """Failures by opset, or the error, and the time to read and export in seconds."""
    try:
        judged = Judged(case)
        wrong = {opset: said for opset in OPSETS if (said := judged.at(opset))}
    except Exception as error:
        return {"right": False, "said": f"{type(error).__name__}: {error}"[:300]}
    start = time.perf_counter()
    graph = tx.load(case.make(), *case.examples, dims=case.dims, verify=False) if not case.x64 else judged.graph
    tx.export(graph, io.BytesIO(), opset_version=OPSETS[-1])
    seconds = time.perf_counter() - start
    return {
        "right": not wrong,
        "said": str(wrong)[:300] if wrong else "",
        "seconds": round(seconds, 3),
        "nodes": len(graph.nodes),
    }


def peer(case: Any) -> dict[str, Any]:
    """The same for jax2onnx, at its default opset."""
    from jax2onnx import to_onnx

    try:
        judged = Judged(case)
        dims = judged.examples.dims
        shapes = [
            tuple(dims.get(name, {}).get(axis, int(size)) for axis, size in enumerate(array.shape))
            for name, array in judged.examples.arrays.items()
        ]
        start = time.perf_counter()
        model = to_onnx(case.make(), shapes, enable_double_precision=case.x64)
        seconds = time.perf_counter() - start
        said = judged.in_file(model.SerializeToString())
    except Exception as error:
        return {"right": False, "said": f"{type(error).__name__}: {error}"[:300]}
    return {"right": not said, "said": said[:300], "seconds": round(seconds, 3), "nodes": len(model.graph.node)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--peer", action="store_true")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for name, case in load_all().items():
        if given.only not in name:
            continue
        found[name] = {"tenonnx": ours(case)} | ({"jax2onnx": peer(case)} if given.peer else {})
        for who, result in found[name].items():
            verdict = "right" if result["right"] else "WRONG"
            print(f"{verdict}  {who:8}  {name}  {result['said']}", flush=True)
    for who in ("tenonnx", "jax2onnx"):
        results = [each[who] for each in found.values() if who in each]
        if results:
            median = statistics.median([r["seconds"] for r in results if "seconds" in r] or [0])
            print(f"{who}: {sum(r['right'] for r in results)} of {len(results)}, median {median:.2f} s")
    if not given.only:
        (HERE / "cases.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
