"""Single ops at realistic sizes: the numpy backend compared with onnxruntime on one thread and with onnx.reference."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from measure import geometric, rounds, table
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tenonnx as tx

#: numpy's BLAS reads its number of threads when it is loaded.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
#: Time limit in seconds of a call of onnx.reference, and total seconds of its calls that are enough.
PATIENCE, ENOUGH = 10, 0.2

random = np.random.default_rng(0)


@dataclass
class Case:
    """A node with its inputs, None for absent ones. Inputs whose index is in ``weights`` are initializers."""

    op: str
    inputs: list[Any]
    outputs: int = 1
    weights: tuple[int, ...] = ()
    opset: int = 23
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def feeds(self) -> dict[str, Any]:
        return {f"x{k}": x for k, x in enumerate(self.inputs) if x is not None and k not in self.weights}

    @property
    def model(self) -> onnx.ModelProto:
        names = ["" if x is None else f"x{k}" for k, x in enumerate(self.inputs)]
        results = [f"y{k}" for k in range(self.outputs)]
        graph = helper.make_graph(
            [helper.make_node(self.op, names, results, **self.attributes)],
            self.op,
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                for name, x in self.feeds.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in results],
            [numpy_helper.from_array(self.inputs[k], f"x{k}") for k in self.weights],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(proto)


def normal(*shape: int) -> Any:
    return random.standard_normal(shape, dtype=np.float32)


def integers(high: int, *shape: int) -> Any:
    return random.integers(0, high, shape)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def case(op: str, *inputs: Any, outputs: int = 1, weights: tuple[int, ...] = (), opset: int = 23, **given: Any) -> Case:
    return Case(op, list(inputs), outputs, weights, opset, given)


def recurrent(op: str, gates: int) -> Case:
    w, r = normal(1, gates * 128, 128) / 11, normal(1, gates * 128, 128) / 11
    x, b = normal(32, 16, 128), normal(1, 2 * gates * 128)
    return case(op, x, w, r, b, outputs=2, weights=(1, 2, 3), hidden_size=128)


def image() -> Any:
    return normal(1, 64, 56, 56)


def main_cases() -> dict[str, Case]:
    """Ops with a performance goal."""
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    halved = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    doubled = np.array([1, 1, 2, 2], np.float32)
    return {
        "MatMul 512": case("MatMul", normal(512, 512), normal(512, 512)),
        "Conv 3x3": case("Conv", image(), normal(64, 64, 3, 3), weights=(1,), **same),
        "Conv depthwise": case("Conv", image(), normal(64, 1, 3, 3), weights=(1,), group=64, **same),
        "ConvTranspose": case("ConvTranspose", image(), normal(64, 64, 3, 3), weights=(1,), **halved),
        "MaxPool": case("MaxPool", image(), **halved),
        "AveragePool": case("AveragePool", image(), **halved),
        "LSTM": recurrent("LSTM", 4),
        "GRU": recurrent("GRU", 3),
        "Resize linear": case("Resize", image(), None, doubled, weights=(2,), mode="linear"),
        "Resize cubic": case("Resize", image(), None, doubled, weights=(2,), mode="cubic"),
        "GridSample": case("GridSample", normal(1, 16, 64, 64), random.uniform(-1, 1, (1, 64, 64, 2)).astype("f4")),
        "LayerNormalization": case("LayerNormalization", normal(128, 768), normal(768), normal(768), weights=(1, 2)),
        "Softmax": case("Softmax", normal(12, 128, 128)),
        "Gather": case("Gather", normal(10000, 256), integers(10000, 512)),
        "TopK": case("TopK", normal(64, 1000), ints(10), outputs=2, weights=(1,)),
        "Einsum": case("Einsum", normal(8, 12, 64, 64), normal(8, 12, 64, 64), equation="bhid,bhjd->bhij"),
        "ReduceMean": case("ReduceMean", image(), ints(2, 3), weights=(1,)),
    }


def more_cases() -> dict[str, Case]:
    """Further ops of present-day models."""
    corners = random.uniform(0, 0.8, (1, 500, 2)).astype("f4")
    boxes = np.concatenate([corners, corners + random.uniform(0.05, 0.2, (1, 500, 2)).astype("f4")], 2)
    scores = random.uniform(0, 1, (1, 8, 500)).astype("f4")
    suppression = (ints(50), np.array([0.5], np.float32), np.array([0.1], np.float32))
    regions = np.concatenate([corners[0, :64] * 50, corners[0, :64] * 50 + 12], 1)
    channels = [normal(64), normal(64), normal(64), np.abs(normal(64)) + 1]
    rows = np.stack([random.permutation(512) for _ in range(128)], 1)
    heads = [normal(2, 8, 128, 64) for _ in range(3)]
    return {
        "NonMaxSuppression": case("NonMaxSuppression", boxes, scores, *suppression, weights=(2, 3, 4)),
        "Attention": case("Attention", *heads),
        "RoiAlign": case(
            "RoiAlign", image(), regions, ints(*[0] * 64), output_height=7, output_width=7, sampling_ratio=2, opset=16
        ),
        "BatchNormalization": case("BatchNormalization", image(), *channels, weights=(1, 2, 3, 4)),
        "InstanceNormalization": case("InstanceNormalization", image(), *channels[:2], weights=(1, 2)),
        "Pad reflect": case("Pad", image(), ints(0, 0, 3, 3, 0, 0, 3, 3), weights=(1,), mode="reflect"),
        "CumSum": case("CumSum", normal(64, 64, 64), np.array(1), weights=(1,)),
        "ScatterElements": case("ScatterElements", normal(512, 128), rows, normal(512, 128), axis=0),
        "GatherElements": case("GatherElements", normal(512, 128), rows, axis=0),
        "Transpose": case("Transpose", image(), perm=[0, 2, 3, 1]),
        "Where": case("Where", image() > 0, image(), image()),
        "Erf": case("Erf", image()),
        "Gelu": case("Gelu", image()),
        "Sigmoid": case("Sigmoid", image()),
        "Concat": case("Concat", image(), image(), axis=1),
        "Split": case("Split", image(), outputs=4, axis=1, num_outputs=4),
        "RNN": recurrent("RNN", 1),
        "LRN": case("LRN", image(), size=5),
        "Clip": case("Clip", image(), np.array(0, "f4"), np.array(6, "f4"), weights=(1, 2)),
        "Sum of three": case("Sum", image(), image(), image()),
        "Gemm": case("Gemm", normal(64, 512), normal(256, 512), normal(256), weights=(1, 2), transB=1),
        "ArgMax": case("ArgMax", image(), axis=1),
        "Unique": case("Unique", integers(100, 10000), outputs=4),
        "OneHot": case("OneHot", integers(100, 512), np.array(100), np.array([0, 1], np.float32), weights=(1, 2)),
    }


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise ``TimeoutError`` in a block that takes more processor time."""

    def give_up(*_: Any) -> None:
        raise TimeoutError(f"took over {seconds} s")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def of_reference(call: Callable[[], object]) -> float:
    """Minimum seconds of one or more calls of onnx.reference; NaN if it fails or takes too long."""
    times: list[float] = []
    try:
        with patience(PATIENCE):
            while sum(times) < ENOUGH:
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
    except Exception as error:
        print(f"onnx.reference: {type(error).__name__}: {str(error).splitlines()[0]}")
        return math.nan
    return min(times)


def measured(case: Case) -> tuple[float, float, float]:
    """Minimum seconds of the numpy backend, onnxruntime and onnx.reference. Raises if the first two disagree."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model, feeds = case.model, case.feeds
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    program = tx.load(model).compile("numpy")
    for ours, theirs in zip(program(feeds).values(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    implementations = {"numpy": lambda: program(feeds), "onnxruntime": lambda: session.run(None, feeds)}
    once = sum(rounds(implementations, count=3).values())
    found = rounds(implementations, count=max(9, min(101, int(1 / once))), summary=min)
    evaluator = ReferenceEvaluator(model)
    return found["numpy"], found["onnxruntime"], of_reference(lambda: evaluator.run(None, feeds))


def main(*wanted: str) -> None:
    if any(os.environ.get(name) != count for name, count in ONE_THREAD.items()):
        subprocess.run([sys.executable, __file__, *wanted], env={**os.environ, **ONE_THREAD}, check=True)
        return
    for title, cases in (("the ops of the aims", main_cases()), ("more ops", more_cases())):
        rows, ratios, gains = [], [], []
        for name, each in cases.items():
            if wanted and not any(part in name for part in wanted):
                continue
            numpy, runtime, reference = measured(each)
            ratios.append(numpy / runtime)
            if not math.isnan(reference):
                gains.append(reference / numpy)
            rows.append([name, numpy * 1e3, runtime * 1e3, reference * 1e3, numpy / runtime, reference / numpy])
        columns = ["op", "numpy ms", "onnxruntime ms", "onnx.reference ms", "numpy / onnxruntime", "reference / numpy"]
        table(f"Operators: {title}", columns, rows)
        mean, worst = geometric(ratios), max(ratios, default=math.nan)
        print(f"\nnumpy against onnxruntime, geometric mean {mean:.2f}, worst {worst:.1f}")
        print(f"onnx.reference against numpy, geometric mean {geometric(gains):.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
