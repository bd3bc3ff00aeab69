"""CPU time of exports by phase, over modules of the tests.

``python plugins/frontends/torch/benchmarks/phases.py [--every 6] [--opset 17]``. Verification runs the module and the
file at each size; ``PyTorch`` is its tracer, its decomposition (with our table) and its translation to ONNX.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import modules
import torch
from modules import architectures, functions, layers, programs, sequences  # noqa: F401  (they register cases)

import tenonnx as tx
import tenonnx_torch
from tenonnx_torch import exporting, frontend, tracing

#: Functions of the phases, by name; the time of nested phases is subtracted.
PHASES = {
    "PyTorch: tracing": (tracing, "_exported"),
    "PyTorch: decomposing": (tracing, "decomposed"),
    "PyTorch: translating": (tracing, "_converted"),
    "running the module": (frontend, "check_call"),
    "reading": (frontend.formats, "read"),
    "tidying": (frontend, "tidied"),
    "simplifying": (exporting, "simplified"),
    "verifying": (exporting, "verified"),
    "retargeting and writing": (exporting.tx, "export"),
}


@contextlib.contextmanager
def watched(seconds: dict[str, float]) -> Iterator[None]:
    """Add up the time of each phase, without nested phases."""
    inside: list[float] = [0.0]

    def timed(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            start = time.process_time()
            inside.append(0.0)
            try:
                return function(*arguments, **keywords)
            finally:
                took = time.process_time() - start
                seconds[phase] += took - inside.pop()
                inside[-1] += took

        return call

    before = {phase: getattr(module, name) for phase, (module, name) in PHASES.items()}
    for phase, (module, name) in PHASES.items():
        setattr(module, name, timed(phase, before[phase]))
    try:
        yield
    finally:
        for phase, (module, name) in PHASES.items():
            setattr(module, name, before[phase])


def main(every: int, opset: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tables: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        cases = list(modules.CASES.values())[::every]
        for number, case in enumerate([cases[0], *cases]):
            seconds: dict[str, float] = defaultdict(float)
            module, examples = case.make()
            start = time.process_time()
            with watched(seconds), contextlib.suppress(tx.TenonnxError):  # one case is rejected
                tenonnx_torch.export(module, examples, f"{folder}/m.onnx", opset_version=opset, dims=case.dims)
            seconds["all"] = time.process_time() - start
            if number:  # the first case includes imports
                tables.append(seconds)
    whole = [table["all"] for table in tables]
    print(f"{len(tables)} modules: median {statistics.median(whole):.2f} s, largest {max(whole):.2f} s")
    for phase in [*PHASES, "all"]:
        share = sum(table[phase] for table in tables) / sum(whole)
        print(f"{phase}: {100 * share:.0f} %, median {statistics.median(table[phase] for table in tables):.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=6)
    parser.add_argument("--opset", type=int, default=17)
    main(**vars(parser.parse_args()))
