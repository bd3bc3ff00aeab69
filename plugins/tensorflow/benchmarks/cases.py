"""How many of our own cases are right, here and by tf2onnx where it is installed, and how long a conversion takes.

``python plugins/tensorflow/benchmarks/cases.py [--peer] [--only PREFIX] [--opset 13]``

A case is right where onnxruntime gives what TensorFlow, or for files of TFLite its interpreter, gives
for the file at that opset; cases whose examples are not all arrays are run with random ones.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
warnings.simplefilter("ignore")

import keras
import numpy as np
import onnxruntime
import tensorflow as tf

import tenonnx as tx
from tenonnx_tensorflow.frontend import model_of
from tenonnx_tensorflow.lite.verification import outputs_of
from tenonnx_tensorflow.verification import array_of, drawn


def _expected(source: Any, case: Any, graph: tx.Graph) -> tuple[dict[str, Any], list[Any]]:
    if isinstance(source, Path):
        feeds = drawn(graph, dict.fromkeys(("batch",), 1))
        return feeds, outputs_of(source, [feeds[v.name] for v in graph.inputs])
    model = model_of(source, case.examples)
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


def _peer(source: Any, case: Any, opset: int) -> bytes:
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


def _ours(source: Any, case: Any, opset: int) -> tuple[bytes, tx.Graph]:
    stream = io.BytesIO()
    graph = tx.load(source, *case.examples, **case.options)
    tx.export(graph, stream, opset_version=opset)
    return stream.getvalue(), graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--opset", type=int, default=17)
    options = parser.parse_args()
    modules = sorted(path.stem for path in (TESTS / "cases").glob("[a-z]*.py"))
    found = [(f"{m}.{n}", case) for m in modules for n, case in import_module(f"cases.{m}").CASES.items()]
    counts = {"ours": 0, "peer": 0, "peer wrong": 0}
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    chosen = [(name, case) for name, case in found if name.startswith(options.only)][:: options.every]
    for name, case in chosen:
        source = case.make()
        try:
            start = time.perf_counter()
            model, graph = _ours(source, case, options.opset)
            seconds["ours"].append(time.perf_counter() - start)
            feeds, expected = _expected(source, case, graph)
            right = _right(model, list(feeds.values()), expected)
        except Exception as error:
            print(f"{name}: ours {type(error).__name__}: {str(error)[:150]!r}")
            continue
        counts["ours"] += right
        print(f"{name}: ours {'right' if right else 'WRONG'}", end="")
        if options.peer:
            try:
                start = time.perf_counter()
                model = _peer(source, case, options.opset)
                seconds["peer"].append(time.perf_counter() - start)
                right = _right(model, list(feeds.values()), expected)
                counts["peer"] += right
                counts["peer wrong"] += not right
                print(f", tf2onnx {'right' if right else 'WRONG'}", end="")
            except Exception as error:
                print(f", tf2onnx {type(error).__name__}", end="")
        print()
    medians = {k: round(statistics.median(v), 3) for k, v in seconds.items() if v}
    print(f"{len(chosen)} cases at opset {options.opset}: {counts}; median seconds {medians}")


if __name__ == "__main__":
    main()
