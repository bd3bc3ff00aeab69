"""Benchmark of ``tenonnx reduce`` on models of about 500 nodes with planted faults: remaining nodes, and time.

    python plugins/debug/benchmarks/planted_faults.py --count 60

A fault is a wrong kernel of a runtime, a crash of the process, a NaN on a backend, or an output of a wrong shape. With
--anonymize, the models are anonymized instead; the benchmark then checks that the copy still fails, and that it has no
text of at least four characters and no weight of the original.
"""

import argparse
import contextlib
import re
import tempfile
import time
from pathlib import Path

import numpy as np
from faulty_models import FAULTS, check_of, planted
from onnx import numpy_helper

from tenonnx import InvalidCall
from tenonnx_debug.anonymize import anonymize
from tenonnx_debug.reduce import Reducer, sizes


def reduced(options):
    left, seconds = [], []
    for seed, fault in chosen(options):
        model = planted(fault, seed)
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(check_of(fault, Path(folder))) as check:
            start = time.perf_counter()
            reducer = Reducer(model, check)
            try:
                small = reducer.run()
            except InvalidCall:  # for example, the wrong kernel has equal inputs only
                print(f"{seed:3} {fault[0]}: {fault[1]}: the model does not fail", flush=True)
                continue
            seconds.append(time.perf_counter() - start)
        left.append(sizes(small)[0])
        what = f"{fault[0]}: {fault[1]}"
        ops = " ".join(node.op_type for node in small.graph.node)
        print(
            f"{seed:3} {what:42} {sizes(model)[0]} -> {left[-1]} nodes ({ops}), {reducer.tried} checks, "
            f"{seconds[-1]:.1f} s",
            flush=True,
        )
    if not left:
        print("no fault shows")
        return
    print(f"{len(left)} faults: at most {max(left)} nodes, {max(seconds):.1f} s; median {np.median(seconds):.1f} s")


def anonymized(options):
    same = clean = failing = 0
    for seed, fault in chosen(options):
        model = planted(fault, seed)
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(check_of(fault, Path(folder))) as check:
            copy = anonymize(model)
            fails = check(model)
            failing += fails
            if fails and check(copy):
                same += 1
            else:
                said = "the copy does not fail" if fails else "the model does not fail"
                print(f"{seed:3} {fault[0]}: {fault[1]}: {said}", flush=True)
        remaining = left_over(model, copy)
        clean += not remaining
        if remaining:
            print(f"{seed:3} {fault[0]}: {fault[1]}: {remaining}", flush=True)
    print(f"{same} of {failing} copies fail as before, and nothing of the original is in {clean} of {options.count}")


def left_over(model, copy):
    """Texts of at least four characters and weights of the original that the copy contains."""
    data = copy.SerializeToString()
    words = "\n".join({node.op_type for node in nodes_of(model.graph)} | attribute_names(model) | {"model", "body"})
    texts = set()
    for text in texts_of(model):
        for part in (text[start : start + 4] for start in range(len(text) - 3)):
            if part.encode() in data and part not in words and not re.fullmatch(r"[vnd]?\d+", part):
                texts.add(part)
    before, after = ({*floats(each)} for each in (model, copy))
    return sorted(texts) + sorted(before & after)


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g)


def attribute_names(model):
    return {attribute.name for node in nodes_of(model.graph) for attribute in node.attribute}


def texts_of(model):
    graph = model.graph
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        yield value.name
    for node in nodes_of(graph):
        yield from (node.name, *node.input, *node.output)
        yield from (attribute.g.name for attribute in node.attribute)


def floats(model):
    for tensor in model.graph.initializer:
        contents = numpy_helper.to_array(tensor)
        if contents.dtype.kind == "f":
            yield from (each for each in contents.reshape(-1).tolist() if np.isfinite(each) and each not in (0, 1, -1))


def chosen(options):
    for seed in range(options.first, options.first + options.count):
        yield seed, FAULTS[seed % len(FAULTS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--anonymize", action="store_true", help="only anonymize, and look for the failure")
    options = parser.parse_args()
    (anonymized if options.anonymize else reduced)(options)


if __name__ == "__main__":
    main()
