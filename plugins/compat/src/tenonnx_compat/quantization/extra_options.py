"""Translation of onnxruntime's ``extra_options`` to arguments of ``tx.quantize``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tenonnx as tx
from tenonnx.extend import DType
from tenonnx_compat.refusal import NotSupported, ignore_options

Ranges = Mapping[str, tuple[float, float]]

#: Options that ``tx.quantize`` has under another name.
RENAMED = {
    "ActivationSymmetric": "symmetric",
    "WeightSymmetric": "symmetric_weights",
    "CalibPercentile": "percentile",
    "SmoothQuantAlpha": "smoothing",
    "DedicatedQDQPair": "dedicated_pairs",
    "OpTypesToExcludeOutputQuantization": "float_outputs",
}

#: Options that change ranges, in the order in which they apply.
OF_RANGES = ("TensorQuantOverrides", "MinimumRealRange", "CalibTensorRangeSymmetric", "ActivationRestrictedAsymmetric")

#: Options that the functions of this package implement themselves.
ELSEWHERE = ("AddQDQPairToWeight", "BlockSize", "CalibMovingAverage", "SmoothQuant", "UseQDQContribOps")

#: Options without effect, since all data is collected at once.
OF_COLLECTING = ("CalibMaxIntermediateOutputs", "CalibMovingAverageConstant", "CalibStridedMinMax")

#: Options without effect: types are inferred, and activations after an op are always kept.
WITHOUT_EFFECT = (*OF_COLLECTING, "DefaultTensorType", "QDQKeepRemovableActivations", "MatMulConstBOnly")

#: Options of which only one value is supported.
FIXED = {
    "QuantizeBias": True,
    "EnableSubgraph": False,
    "ForceQuantizeNoInputCheck": False,
    "SmoothQuantFolding": True,
    "QDQDisableWeightAdjustForInt32Bias": False,
}

#: Supported channel axes of weights, by op type.
CHANNELS = {"Conv": (0,), "MatMul": (1, -1), "Gemm": (0, 1, -1)}


def settings_of(call: str, graph: tx.Graph, options: Mapping[str, Any] | None, dtype: str, *, qdq: bool) -> Any:
    """Arguments of ``tx.quantize`` for ``extra_options``. Raises ``NotSupported`` for unsupported options.

    ``dtype`` is the type of quantized activations.
    """
    options = dict(options or {})
    ignored = {name: options.get(name) for name in OF_COLLECTING}
    ignore_options(call, ignored, "extremes of all batches are merged at once")
    _refuse_others(call, graph, options, qdq=qdq)
    settings = {ours: options[name] for name, ours in RENAMED.items() if options.get(name) is not None}
    if options.get("CalibMovingAverage"):
        settings["calibration"] = "average"
    if options.get("BlockSize"):
        settings |= {"granularity": "block", "block_size": options["BlockSize"]}
    if options.get("SmoothQuant"):
        settings["method"] = "smooth-quant"
    if any(options.get(name) for name in OF_RANGES):
        settings["ranges"] = _change_of_ranges(call, graph, options, DType.of(dtype))
    return settings


def _refuse_others(call: str, graph: tx.Graph, options: Mapping[str, Any], *, qdq: bool) -> None:
    fixed = dict(FIXED)
    if not any(node.subgraphs for node in graph.nodes):
        fixed.pop("EnableSubgraph")
    if qdq:
        fixed.pop("QuantizeBias")  # a bias stays a float either way
    known = {*RENAMED, *OF_RANGES, *ELSEWHERE, *WITHOUT_EFFECT, *FIXED, "QDQOpTypePerChannelSupportToAxis"}
    for name, value in options.items():
        axes = value if name == "QDQOpTypePerChannelSupportToAxis" else {}
        unusual = any(axis not in CHANNELS.get(op, ()) for op, axis in axes.items())
        if name not in known or (name in fixed and value != fixed[name]) or unusual:
            raise NotSupported(
                f"{call} of tenonnx-compat does not support the option {name}",
                given=f"{name}={value!r}"[:100],
                available=", ".join(sorted({*known} - FIXED.keys())),
            )


def _change_of_ranges(
    call: str, graph: tx.Graph, options: Mapping[str, Any], dtype: DType
) -> Callable[[Ranges], Ranges]:
    overrides = {}
    weights = {value.name for node in graph.walk() for value in node.inputs if value is not None and value.is_constant}
    for name, entries in (options.get("TensorQuantOverrides") or {}).items():
        if name in weights or len(entries) != 1:
            raise NotSupported(
                f"{call} of tenonnx-compat does not support overrides of weights: TensorQuantOverrides",
                given=name,
                do="leave it out; with tx.quantize, layers=... sets the bits of weights by name",
            )
        overrides[name] = _override(call, name, entries[0], dtype)
    least = options.get("MinimumRealRange") or 0.0

    def change(ranges: Ranges) -> Ranges:
        changed = {}
        for name, (low, high) in ranges.items():
            if name in overrides:
                low, high = overrides[name](low, high)
            high = max(high, low + least)
            if options.get("CalibTensorRangeSymmetric"):
                low, high = _symmetric(low, high)
            if options.get("ActivationRestrictedAsymmetric") and low < 0:
                step = max(-low / 128, high / 127)
                low, high = -128 * step, 127 * step
            changed[name] = low, high
        return changed

    return change


def _override(
    call: str, name: str, entry: Mapping[str, Any], dtype: DType
) -> Callable[[float, float], tuple[float, float]]:
    """A function that changes the range of one activation."""
    others: Iterable[str] = entry.keys() - {"quant_type", "rmin", "rmax", "scale", "zero_point", "symmetric"}
    kind = entry.get("quant_type")
    if kind is not None and DType(kind.tensor_type) is not dtype:
        others = ["quant_type"]
    if others:
        raise NotSupported(
            f"{call} of tenonnx-compat does not support this in TensorQuantOverrides: {sorted(others)[0]}",
            given=f"{name}: {dict(entry)!r}"[:100],
            available="rmin, rmax, scale and zero_point, symmetric, and the quant_type of all activations",
        )
    if "scale" in entry:
        scale, zero = float(entry["scale"]), float(entry["zero_point"])
        ends = tuple((bound - zero) * scale for bound in dtype.bounds)
        return lambda low, high: (ends[0], ends[1])

    def change(low: float, high: float) -> tuple[float, float]:
        low, high = float(entry.get("rmin", low)), float(entry.get("rmax", high))
        return _symmetric(low, high) if entry.get("symmetric") else (low, high)

    return change


def _symmetric(low: float, high: float) -> tuple[float, float]:
    """The smallest symmetric range that contains both ends."""
    return -max(-low, high), max(-low, high)
