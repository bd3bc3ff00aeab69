"""Quantized models: integer products on numpy, blockwise weights in onnxruntime, and ``tenonnx quantize``.

``python benchmarks/quantized_models.py`` compares them with onnxruntime's integer kernels on one thread, with float
products, and with onnxruntime's quantizer.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from measure import table
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from operators import ONE_THREAD, normal, random

import tenonnx as tx
from tenonnx_quantized.blocks import matmul_nbits
from tenonnx_quantized.convolution import qlinear_conv
from tenonnx_quantized.matrix import matmul_integer
from tenonnx_quantized.tuning.quantize import quantize

EXAMPLES = Path(__file__).parents[1] / "examples"
SIDE, BLOCK = 4096, 32


def quantized(dtype: type, *shape: int) -> Any:
    kind = np.iinfo(dtype)
    return random.integers(kind.min, kind.max + 1, shape).astype(dtype)


def products() -> Iterator[tuple[str, tx.Graph, Any]]:
    """Graphs of one op with their input; weights, scales and zero points are initializers."""

    def graph_of(x: Any, build: Callable[..., Any], **variables: Any) -> tuple[tx.Graph, Any]:
        graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
        fed = graph.input("x", x.dtype.name, x.shape)
        graph.output("y", build(fed, *(graph.variable(name, np.asarray(v)) for name, v in variables.items())))
        return graph, x

    a = quantized(np.uint8, 512, 512)
    weights = {"b": quantized(np.int8, 512, 512), "az": np.uint8(128), "bz": np.int8(0)}
    yield "MatMulInteger 512", *graph_of(a, matmul_integer, **weights)
    image = quantized(np.uint8, 1, 64, 56, 56)
    for name, shape, group in (
        ("3x3", (64, 64, 3, 3), 1),
        ("1x1", (64, 64, 1, 1), 1),
        ("depthwise", (64, 1, 3, 3), 64),
    ):

        def convolved(x: Any, *given: Any, pads: int = shape[-1] // 2, group: int = group) -> Any:
            return qlinear_conv(x, *given, pads=[pads] * 4, group=group)

        parameters = {
            "xs": np.float32(0.02),
            "xz": np.uint8(128),
            "w": quantized(np.int8, *shape),
            "ws": random.uniform(0.001, 0.01, 64).astype(np.float32),
            "wz": np.zeros(64, np.int8),
            "ys": np.float32(0.5),
            "yz": np.uint8(128),
            "bias": random.integers(-1000, 1000, 64).astype(np.int32),
        }
        yield f"QLinearConv {name}", *graph_of(image, convolved, **parameters)
    yield "MatMulNBits 4096, one row", *graph_of(normal(1, SIDE), in_blocks, **blocks())


def blocks() -> dict[str, Any]:
    scales = random.uniform(0.001, 0.01, (SIDE, SIDE // BLOCK)).astype(np.float32)
    return {"B": quantized(np.uint8, SIDE, SIDE // BLOCK, BLOCK // 2), "scales": scales}


def in_blocks(x: Any, packed: Any, scales: Any) -> Any:
    return matmul_nbits(x, packed, scales, K=SIDE, N=SIDE, block_size=BLOCK)


def session(path: Path, float8: bool = False) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if float8:  # onnxruntime would apply rewrites that are only correct for integers
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def on_numpy(folder: Path) -> None:
    rows = []
    for name, graph, x in products():
        tx.export(graph, folder / "op.onnx", overwrite=True)
        runtime, program = session(folder / "op.onnx"), tx.load(folder / "op.onnx").compile("numpy")
        np.testing.assert_allclose(program({"x": x})["y"], runtime.run(None, {"x": x})[0], rtol=1e-3, atol=1e-3)
        found = timed(
            {"numpy": lambda p=program, x=x: p({"x": x}), "its": lambda r=runtime, x=x: r.run(None, {"x": x})}
        )
        rows.append([name, found["numpy"] * 1e3, found["its"] * 1e3, found["numpy"] / found["its"]])
    table("Products of quantized values, one thread", ["op", "numpy ms", "onnxruntime ms", "numpy / onnxruntime"], rows)


def timed(implementations: Mapping[str, Callable[[], object]], count: int = 15) -> dict[str, float]:
    """Minimum processor seconds of each contestant, which other processes disturb less than wall-clock time."""
    result = dict.fromkeys(implementations, math.inf)
    for _ in range(count):
        for name, call in implementations.items():
            start = time.process_time()
            call()
            result[name] = min(result[name], time.process_time() - start)
    return result


def in_onnxruntime(folder: Path) -> None:
    """Print times of MatMulNBits, of its lowering to ai.onnx 21, and of a float product."""
    rows = []
    for count in (1, 64):
        graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
        x, given = normal(count, SIDE), {name: graph.variable(name, v) for name, v in blocks().items()}
        graph.output("y", in_blocks(graph.input("x", "float32", x.shape), *given.values()))
        tx.export(graph, folder / "packed.onnx", overwrite=True)
        tx.export(graph, folder / "lowered.onnx", opset_version=21, domains=["ai.onnx"], overwrite=True)
        floats = tx.Graph(opsets={"ai.onnx": 21})
        floats.output("y", floats.input("x", "float32", x.shape) @ floats.variable("w", normal(SIDE, SIDE)))
        tx.export(floats, folder / "floats.onnx", overwrite=True)
        sessions = {name: session(folder / f"{name}.onnx") for name in ("floats", "packed", "lowered")}
        found = timed({name: lambda s=s, x=x: s.run(None, {"x": x}) for name, s in sessions.items()})
        sizes = [(folder / f"{name}.onnx").stat().st_size / 1e6 for name in ("floats", "lowered")]
        rows.append(
            [count, *(found[n] * 1e3 for n in sessions), found["lowered"] / found["floats"], sizes[1] / sizes[0]]
        )
    columns = ["rows", "MatMul ms", "MatMulNBits ms", "lowered ms", "lowered / MatMul", "size, lowered / MatMul"]
    table(f"Weights of four bits in onnxruntime, {SIDE} x {SIDE}", columns, rows)


# ----- tenonnx quantize and onnxruntime's quantizer -------------------------------------------------------------------

MODES = {
    "static, by channel": {"mode": "static", "form": "qdq"},
    "static, by tensor": {"mode": "static", "per_channel": False},
    "static, QOperator": {"mode": "static", "form": "qoperator"},
    "static, 16 bits": {"mode": "static", "activation_type": "uint16", "weight_type": "int16"},
    "static, float8": {"mode": "static", "activation_type": "float8e4m3fn", "weight_type": "float8e4m3fn"},
    "static, weights of int4": {"mode": "static", "activation_type": "uint8", "weight_type": "int4"},
    "dynamic": {"mode": "dynamic", "form": "qoperator"},
    "weights of 4 bits": {"mode": "weights", "bits": 4, "form": "qoperator"},
    "weights of 8 bits": {"mode": "weights", "bits": 8, "form": "qoperator"},
}


TYPES = {
    "uint8": quantization.QuantType.QUInt8,
    "int8": quantization.QuantType.QInt8,
    "uint16": quantization.QuantType.QUInt16,
    "int16": quantization.QuantType.QInt16,
    "int4": quantization.QuantType.QInt4,
    "float8e4m3fn": quantization.QuantType.QFLOAT8E4M3FN,
}


class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, batches: list[dict[str, Any]]) -> None:
        self.batches = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        return next(self.batches, None)


def theirs(source: Path, target: Path, settings: Mapping[str, Any], batches: list[dict[str, Any]]) -> None:
    """Quantize with onnxruntime's quantizer and the equivalent settings."""
    weights = settings.get("weight_type", "int8")
    kinds: dict[str, Any] = {"weight_type": TYPES[weights], "per_channel": settings.get("per_channel", True)}
    if settings["mode"] == "static":
        kinds["activation_type"] = TYPES[settings.get("activation_type", "uint8")]
    if weights == "float8e4m3fn":
        kinds |= {"per_channel": False, "calibrate_method": quantization.CalibrationMethod.Distribution}
    if settings["mode"] == "dynamic":
        quantization.quantize_dynamic(source, target, **kinds)
    elif settings["mode"] == "static":
        form = (
            quantization.QuantFormat.QOperator if settings.get("form") == "qoperator" else quantization.QuantFormat.QDQ
        )
        quantization.quantize_static(source, target, Feeds(batches), quant_format=form, **kinds)
    else:
        quantizer = MatMulNBitsQuantizer(str(source), bits=settings["bits"], block_size=BLOCK, is_symmetric=False)
        quantizer.process()
        quantizer.model.save_model_to_file(str(target))


def models() -> Iterator[tuple[str, Path, list[dict[str, Any]], dict[str, Any], Any]]:
    """Name, float model, calibration batches, test feeds, and labels; None stands for the float model's own labels."""
    digits = np.load(EXAMPLES / "digits_cnn" / "digits.npz")
    batches = [{"images": digits["images"][k : k + 20]} for k in range(0, 100, 20)]
    yield (
        "digits CNN",
        EXAMPLES / "digits_cnn" / "digits-cnn.onnx",
        batches,
        {"images": digits["images"]},
        digits["labels"],
    )
    folder = EXAMPLES / "quantized"
    words = [{"input_ids": random.integers(0, 50, (8, 12))} for _ in range(4)]
    yield "BERT", folder / "bert.onnx", words, {"input_ids": random.integers(0, 50, (2000, 12))}, None
    images = [{"image": normal(8, 3, 16, 16)} for _ in range(4)]
    yield "ResNet", folder / "resnet.onnx", images, {"image": normal(1000, 3, 16, 16)}, None


def quantizers(folder: Path) -> None:
    rows = []
    for name, path, batches, feeds, labels in models():
        (floats,) = session(path).run(None, feeds)
        labels = floats.argmax(-1) if labels is None else labels
        rows.append(
            [name, "floats", (floats.argmax(-1) == labels).mean() * 100, "", "", "", path.stat().st_size, "", "", ""]
        )
        graph = tx.load(path)
        for mode, settings in MODES.items():
            cells: list[list[object]] = []
            for who in ("ours", "theirs"):
                target = folder / f"{who}.onnx"
                start = time.process_time()
                if who == "ours":
                    tx.export(quantize(graph, batches, **settings)[0], target, overwrite=True)
                else:
                    try:
                        theirs(path, target, settings, batches)
                    except AttributeError:  # it lacks float8 ranges of some activations of BERT
                        cells.append(["fails"] * 4)
                        continue
                seconds = time.process_time() - start
                (found,) = session(target, "float8" in mode).run(None, feeds)
                right, lost = (found.argmax(-1) == labels).mean() * 100, np.std(found - floats) / np.std(floats)
                cells.append([float(right), float(lost), target.stat().st_size, seconds])
            rows.append([name, mode, *(cell for pair in zip(*cells, strict=True) for cell in pair)])
    columns = ["model", "mode"]
    for what in ("right %", "error", "bytes", "seconds"):
        columns += [f"{what}, ours", f"onnxruntime's {what}"]
    table("tenonnx quantize beside onnxruntime's quantizer", columns, rows)


def calibrations(folder: Path, count: int = 20) -> None:
    """Print correct digits, and digits equal to the float model's, by the number of calibration images."""
    path = EXAMPLES / "digits_cnn" / "digits-cnn.onnx"
    digits, graph = np.load(path.with_name("digits.npz")), tx.load(path)
    images, labels = digits["images"], digits["labels"]
    said = session(path).run(None, {"images": images})[0].argmax(1)
    rows = []
    for mode in ("static, by channel", "static, by tensor"):
        right: dict[str, list[int]] = {"ours": [], "theirs": []}
        alike: dict[str, list[int]] = {"ours": [], "theirs": []}
        for seed in range(count):
            chosen = np.random.default_rng(seed).choice(len(images), 100, replace=False)
            batches = [{"images": images[part]} for part in chosen.reshape(5, 20)]
            tx.export(quantize(graph, batches, **MODES[mode])[0], folder / "ours.onnx", overwrite=True)
            theirs(path, folder / "theirs.onnx", MODES[mode], batches)
            for who, found in right.items():
                read = session(folder / f"{who}.onnx").run(None, {"images": images})[0].argmax(1)
                found.append(int((read == labels).sum()))
                alike[who].append(int((read == said).sum()))
        better = sum(a > b for a, b in zip(right["ours"], right["theirs"], strict=True))
        worse = sum(a < b for a, b in zip(right["ours"], right["theirs"], strict=True))
        means = [float(np.mean(found[who])) for found in (right, alike) for who in ("ours", "theirs")]
        rows.append([mode, int((said == labels).sum()), *means, f"{better} / {count - better - worse} / {worse}"])
    columns = [
        "mode",
        "right, floats",
        "right, ours",
        "right, onnxruntime's",
        "as floats, ours",
        "as floats, onnxruntime's",
    ]
    table(f"Of {len(labels)} digits, the mean of {count} calibrations", [*columns, "better / alike / worse"], rows)


def decoder(folder: Path) -> None:
    """Compare a 4-bit decoder with its float original: logits, and perplexity on the sample tokens."""
    path, feeds = EXAMPLES / "quantized" / "llama.onnx", dict(np.load(EXAMPLES / "quantized" / "llama.npz"))
    logits: dict[str, Any] = {"floats": session(path).run(["logits"], feeds)[0]}
    graph = tx.load(path)
    for search in ("rtn", "hqq"):
        settings = {"mode": "weights", "bits": 4, "search": search, "form": "qoperator"}
        tx.export(quantize(graph, [feeds], **settings)[0], folder / "made.onnx", overwrite=True)
        logits[f"ours, {search}"] = session(folder / "made.onnx").run(["logits"], feeds)[0]
    theirs(path, folder / "its.onnx", {"mode": "weights", "bits": 4}, [])
    logits["onnxruntime's"] = session(folder / "its.onnx").run(["logits"], feeds)[0]
    rows = []
    for name, found in logits.items():
        chances = found[:, :-1] - np.log(np.exp(found[:, :-1]).sum(-1, keepdims=True))
        seen = np.take_along_axis(chances, feeds["input_ids"][:, 1:, None], -1)
        difference = float(np.abs(found - logits["floats"]).max() / np.ptp(logits["floats"]))
        rows.append([name, difference, float(np.exp(-seen.mean()))])
    table("A decoder of four bits", ["weights", "largest difference / range of the logits", "perplexity"], rows)


def main() -> None:
    if any(os.environ.get(name) != count for name, count in ONE_THREAD.items()):
        subprocess.run([sys.executable, __file__, *sys.argv[1:]], env={**os.environ, **ONE_THREAD}, check=True)
        return
    logging.disable(logging.WARNING)
    parts = {part.__name__: part for part in (on_numpy, in_onnxruntime, quantizers, calibrations, decoder)}
    with tempfile.TemporaryDirectory() as name:
        for part in sys.argv[1:] or parts:
            parts[part](Path(name))


if __name__ == "__main__":
    main()
