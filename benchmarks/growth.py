"""Processor time of simplification and fusion by the number of nodes of a decoder.

``growth.py [LAYERS ...]``: a layer has 52 nodes, so 1,100 layers have 57,000.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path

from large_decoder import Sizes, write_model
from measure import table

import tenonnx as tx

SMALL = Sizes(hidden=8, heads=2, feed_forward=8, words=8)


def decoder(layers: int) -> tx.Graph:
    """A decoder with small matrices."""
    with tempfile.TemporaryDirectory() as folder:
        graph = tx.load(write_model(Path(folder), layers, SMALL))
        graph.opsets = {**graph.opsets, "com.microsoft": 1}
        return graph.copy()


def main() -> None:
    transforms = {"simplify": tx.simplify, "fuse": tx.fuse}
    rows, taken = [], {name: [] for name in transforms}
    for layers in [int(each) for each in sys.argv[1:]] or [22, 220, 1100]:
        graph = decoder(layers)
        row: list[object] = [f"{len(graph.nodes):,}"]
        for name, transform in transforms.items():
            start = time.process_time()
            after = transform(graph)
            seconds = time.process_time() - start
            taken[name].append((len(graph.nodes), seconds))
            row += [f"{len(after.nodes):,}", seconds, seconds / len(graph.nodes) * 1e6]
        print(*row, file=sys.stderr, flush=True)
        rows.append(row)
    columns = [f"{name}: {what}" for name in transforms for what in ("nodes", "seconds", "microseconds a node")]
    table("Growth of simplifying and fusing", ["nodes", *columns], rows)
    for name, ((fewest, least), *_, (most, longest)) in taken.items():
        print(f"\n{name}: growth exponent {math.log(longest / least) / math.log(most / fewest):.2f}")


if __name__ == "__main__":
    main()
