"""Our cases, converted by tenonnx, by tf2onnx and by Keras's own export: shares of right results, seconds, nodes.

``python plugins/frontends/tensorflow/benchmarks/cases.py [--peer tf2onnx] [--peer keras] [--only PREFIX] [--opset 13]``

A case is right where onnxruntime reproduces the outputs of TensorFlow, or of the TFLite interpreter, at that opset.
Cases whose examples are not all arrays run on random ones. Seconds are those of reading and writing; ours also
verifies, which is listed separately.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
warnings.simplefilter("ignore")

import keras
import numpy as np
import onnx
import onnxruntime
import tensorflow as tf

import tenonnx as tx
from tenonnx_litert.reading.verification import Interpreter
from tenonnx_tensorflow.frontend import model_of
from tenonnx_tensorflow.options import Options
from tenonnx_tensorflow.verification import array_of, drawn


def _expected(source: Any, case: Any, graph: tx.Graph) -> tuple[dict[str, Any], list[Any]]:
    if isinstance(source, Path):
        feeds = drawn(graph, dict.fromkeys(("batch",), 1))
        return feeds, Interpreter(source)([feeds[v.name] for v in graph.inputs])
    model = model_of(source, case.examples, Options(training=case.options.get("training", False)))
    arrays = [e for e in case.examples if isinstance(e, np.ndarray)]
    names = [i.name for i in model.inputs]
    feeds = dict(zip(names, arrays, strict=True)) if len(arrays) == len(names) else drawn(graph, {})
    return feeds, list(model.run(feeds))


def _right(model: bytes, feeds: list[Any], expected: list[Any]) -> bool:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    given = {i.name: array_of(f) for i, f in zip(session.get_inputs(), feeds, strict=True)}
    for found, wanted in zip(session.run(None, given), expected, strict=False):
        wanted = array_of(wanted)
        if found.shape != wanted.shape or (wanted.dtype.kind in "biu" and found.dtype != wanted.dtype):
            return False
        if wanted.dtype.kind == "f":
            if not np.allclose(found, wanted, rtol=1e-3, atol=1e-4, equal_nan=True):
                return False
        elif wanted.dtype.kind in "iu" and wanted.dtype.itemsize < 4:
            if np.abs(found.astype(int) - wanted.astype(int)).max(initial=0) > 1:
                return False
        elif not (found == wanted).all():
            return False
    return True


def _by_tf2onnx(source: Any, case: Any, opset: int) -> bytes:
    import tf2onnx

    if isinstance(source, Path):
        model, _ = tf2onnx.convert.from_tflite(str(source), opset=opset)
    elif isinstance(source, keras.Layer):
        shapes = [tf.TensorSpec(i.shape, i.dtype, name=i.name) for i in source.inputs]
        function = tf.function(lambda *x: source(list(x) if len(x) > 1 else x[0], training=False))
        model, _ = tf2onnx.convert.from_function(function, input_signature=shapes, opset=opset)
    else:
        specs = [
            e if isinstance(e, tf.TensorSpec) else tf.TensorSpec(e.shape, tf.as_dtype(e.dtype)) for e in case.examples
        ]
        model, _ = tf2onnx.convert.from_function(source, input_signature=specs, opset=opset)
    return bytes(model.SerializeToString())


def _by_keras(source: Any, case: Any, opset: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "model.onnx"
        source.export(path, format="onnx", opset_version=opset, verbose=False)
        return path.read_bytes()


PEERS = {"tf2onnx": _by_tf2onnx, "keras": _by_keras}


def _ours(source: Any, case: Any, opset: int) -> tuple[bytes, tx.Graph]:
    stream = io.BytesIO()
    graph = tx.load(source, *case.examples, verify=False, **case.options)
    tx.export(graph, stream, opset_version=opset)
    return stream.getvalue(), graph


@dataclass
class Tally:
    """Results of one exporter."""

    right: int = 0
    wrong: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, make: Callable[[], bytes], feeds: list[Any], expected: list[Any]) -> str:
        start = time.perf_counter()
        try:
            model = make()
            self.seconds.append(time.perf_counter() - start)
            right = _right(model, feeds, expected)
        except Exception as error:
            self.failed += 1
            return type(error).__name__
        self.nodes[name] = len(onnx.load_from_string(model).graph.node)
        self.right, self.wrong = self.right + right, self.wrong + (not right)
        return "right" if right else "WRONG"

    def __str__(self) -> str:
        median = f"{statistics.median(self.seconds):.3f} s" if self.seconds else "-"
        return f"{self.right} right, {self.wrong} wrong, {self.failed} failed; median {median}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", choices=PEERS, default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--opset", type=int, default=17)
    options = parser.parse_args()
    modules = sorted(path.stem for path in (TESTS / "cases").glob("[a-z]*.py"))
    found = [(f"{m}.{n}", case) for m in modules for n, case in import_module(f"cases.{m}").CASES.items()]
    chosen = [(n, c) for n, c in found if n.startswith(options.only) and not c.refused][:: options.every]
    tallies = {name: Tally() for name in ("ours", *options.peer)}
    comparing: list[float] = []
    for name, case in chosen:
        source = case.make()
        try:
            start = time.perf_counter()
            model, graph = _ours(source, case, options.opset)
            seconds = time.perf_counter() - start
            feeds, expected = _expected(source, case, graph)
            start = time.perf_counter()
            tx.load(source, *case.examples, **case.options)
            comparing.append(max(0.0, time.perf_counter() - start - seconds))
        except Exception as error:
            tallies["ours"].failed += 1
            print(f"{name}: ours {type(error).__name__}: {str(error)[:150]!r}")
            continue
        given = list(feeds.values())
        said = [f"ours {tallies['ours'].count(name, lambda m=model: m, given, expected)}"]
        tallies["ours"].seconds[-1:] = [seconds]
        for peer in () if case.options.get("training") else options.peer:  # the peers export models in inference mode
            if peer != "keras" or isinstance(source, keras.Layer):
                make = functools.partial(PEERS[peer], source, case, options.opset)
                result = tallies[peer].count(name, make, given, expected)
                said.append(f"{peer} {result}")
        print(f"{name}: {', '.join(said)}", flush=True)
    print(f"{len(chosen)} cases at opset {options.opset}")
    for name, tally in tallies.items():
        print(f"  {name}: {tally}")
        ratios = [n / tally.nodes[k] for k, n in tallies["ours"].nodes.items() if tally.nodes.get(k)]
        if name != "ours" and ratios:
            totals = [
                sum(t.nodes[k] for k in tally.nodes if k in tallies["ours"].nodes) for t in (tallies["ours"], tally)
            ]
            print(
                f"    our nodes beside these: median {statistics.median(ratios):.2f}, in all {totals[0]} to {totals[1]}"
            )
    print(f"  comparing: median {statistics.median(comparing):.3f} s" if comparing else "")


if __name__ == "__main__":
    main()
