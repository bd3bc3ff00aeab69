"""``quantize_dynamic`` and ``quantize_static`` with onnxruntime's arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tenonnx as tx
from tenonnx_compat.models import graph_of, message_of, save
from tenonnx_compat.quantization.calibrate import (
    METHODS,
    CalibrationDataReader,
    CalibrationMethod,
    load_tensors_data,
    ranges_data,
    save_tensors_data,
)
from tenonnx_compat.quantization.extra_options import settings_of
from tenonnx_compat.quantization.qdq_forms import store_floats, use_contrib_ops
from tenonnx_compat.quantization.quant_utils import QuantFormat, QuantType
from tenonnx_compat.refusal import announce, refuse_options
from tenonnx_quantized.tuning.config import NothingToQuantize

if TYPE_CHECKING:
    import onnx

    Source = str | os.PathLike[str] | onnx.ModelProto

TYPES = {
    QuantType.QInt8: "int8",
    QuantType.QUInt8: "uint8",
    QuantType.QInt16: "int16",
    QuantType.QUInt16: "uint16",
    QuantType.QInt4: "int4",
    QuantType.QUInt4: "uint4",
    QuantType.QFLOAT8E4M3FN: "float8e4m3fn",
}

#: 8-bit weight types, for which dynamic quantization uses integer matrix products.
_BYTES = (QuantType.QInt8, QuantType.QUInt8)


@dataclass
class QuantConfig:
    """Settings of ``quantize`` that both modes share."""

    activation_type: QuantType = QuantType.QUInt8
    weight_type: QuantType = QuantType.QInt8
    op_types_to_quantize: Sequence[str] | None = None
    nodes_to_quantize: Sequence[str] | None = None
    nodes_to_exclude: Sequence[str] | None = None
    per_channel: bool = False
    reduce_range: bool = False
    use_external_data_format: bool = False


@dataclass
class StaticQuantConfig:
    """Settings of ``quantize_static``."""

    calibration_data_reader: CalibrationDataReader
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax
    quant_format: QuantFormat = QuantFormat.QDQ
    activation_type: QuantType = QuantType.QInt8
    weight_type: QuantType = QuantType.QInt8
    op_types_to_quantize: Sequence[str] | None = None
    nodes_to_quantize: Sequence[str] | None = None
    nodes_to_exclude: Sequence[str] | None = None
    per_channel: bool = False
    reduce_range: bool = False
    use_external_data_format: bool = False
    calibration_providers: Sequence[Any] | None = None
    extra_options: Mapping[str, Any] | None = field(default=None)


@dataclass
class DynamicQuantConfig:
    """Settings of ``quantize_dynamic``."""

    weight_type: QuantType = QuantType.QInt8
    op_types_to_quantize: Sequence[str] | None = None
    nodes_to_quantize: Sequence[str] | None = None
    nodes_to_exclude: Sequence[str] | None = None
    per_channel: bool = False
    reduce_range: bool = False
    use_external_data_format: bool = False
    extra_options: Mapping[str, Any] | None = field(default=None)


def quantize(
    model_input: Source, model_output: str | os.PathLike[str], quant_config: StaticQuantConfig | DynamicQuantConfig
) -> None:
    """Quantize a model by a static or dynamic configuration, and write it."""
    function = quantize_static if isinstance(quant_config, StaticQuantConfig) else quantize_dynamic
    if not isinstance(quant_config, StaticQuantConfig | DynamicQuantConfig):
        raise TypeError("invalid type of quant_config: neither StaticQuantConfig nor DynamicQuantConfig")
    function(
        model_input, model_output, **{each.name: getattr(quant_config, each.name) for each in fields(quant_config)}
    )


def quantize_dynamic(
    model_input: Source,
    model_output: str | os.PathLike[str],
    op_types_to_quantize: Sequence[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    use_external_data_format: bool = False,
    extra_options: Mapping[str, Any] | None = None,
) -> None:
    """Quantize weights, and activations at run time, and write the model; it is unchanged if no op can be quantized.

    Raises ``NotSupported`` for unsupported options.
    """
    call = "onnxruntime.quantization.quantize_dynamic"
    announce(call, "tx.quantize(graph, mode='dynamic')")
    graph = graph_of(model_input)
    settings = settings_of(call, graph, extra_options, "uint8", qdq=True)
    settings.pop("ranges", None)  # activations have no static ranges
    settings |= {
        "mode": "dynamic",
        "form": "qoperator" if weight_type in _BYTES else "qdq",
        "weight_type": TYPES[weight_type],
        "per_channel": per_channel,
        "reduce_range": reduce_range,
    }
    quantized = _quantized(graph, None, settings, op_types_to_quantize, nodes_to_quantize, nodes_to_exclude)[0]
    _write(message_of(quantized), model_output, use_external_data_format)


def quantize_static(
    model_input: Source,
    model_output: str | os.PathLike[str],
    calibration_data_reader: CalibrationDataReader | None = None,
    quant_format: QuantFormat = QuantFormat.QDQ,
    op_types_to_quantize: Sequence[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    activation_type: QuantType = QuantType.QInt8,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    use_external_data_format: bool = False,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibration_providers: Sequence[Any] | None = None,
    extra_options: Mapping[str, Any] | None = None,
    calibration_cache_path: str | os.PathLike[str] | None = None,
) -> None:
    """Quantize weights and activations, with ranges calibrated on the data of a reader, and write the model.

    Raises ``NotSupported`` for unsupported options, ``ValueError`` without a reader and a calibration cache.
    """
    call = "onnxruntime.quantization.quantize_static"
    announce(call, "tx.quantize(graph, batches, mode='static')")
    cache = Path(calibration_cache_path) if calibration_cache_path is not None else None
    known = load_tensors_data(cache) if cache is not None and cache.exists() else None
    if calibration_data_reader is None and known is None:
        raise ValueError("calibration_data_reader is None, and there is no calibration cache")
    _check_types(quant_format, activation_type, weight_type)
    providers = [each for each in calibration_providers or () if each != "CPUExecutionProvider"]
    method = None if calibrate_method in METHODS else calibrate_method.name
    refuse_options(call, {"calibrate_method": method, "calibration_providers": providers})
    graph = graph_of(model_input)
    qdq = quant_format is QuantFormat.QDQ
    dtype = TYPES[activation_type]
    settings: dict[str, Any] = {"calibration": METHODS[calibrate_method], "percentile": 99.999}
    settings |= settings_of(call, graph, extra_options, dtype, qdq=qdq)
    settings |= {
        "mode": "static",
        "activation_type": dtype,
        "weight_type": TYPES[weight_type],
        "form": "qdq" if qdq else "qoperator",
        "per_channel": per_channel,
        "reduce_range": reduce_range,
    }
    batches = None
    if known is not None:
        ranges = {name: tuple(float(end) for end in each.range_value) for name, each in known.items()}
        settings["ranges"] = settings.get("ranges", dict)(ranges)
    elif calibration_data_reader is not None:
        batches = list(iter(calibration_data_reader.get_next, None))
    quantized, report = _quantized(graph, batches, settings, op_types_to_quantize, nodes_to_quantize, nodes_to_exclude)
    if cache is not None and known is None and report is not None:
        save_tensors_data(ranges_data(calibrate_method, report.ranges), cache)
    message, options = message_of(quantized), extra_options or {}
    if options.get("AddQDQPairToWeight"):
        store_floats(message, graph)
    if options.get("UseQDQContribOps"):
        use_contrib_ops(message)
    _write(message, model_output, use_external_data_format)


def get_qdq_config(
    model_input: Source,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibrate_args: Mapping[str, Any] | None = None,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QInt8,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    keep_removable_activations: bool = False,
    min_real_range: float | None = None,
    tensor_quant_overrides: Mapping[str, Any] | None = None,
    calibration_providers: Sequence[Any] | None = None,
    op_types_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | Callable[[onnx.ModelProto, onnx.NodeProto], bool] | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> StaticQuantConfig:
    """A configuration of static quantization in QDQ format, for ``quantize``."""
    keys = {
        "symmetric": "CalibTensorRangeSymmetric",
        "moving_average": "CalibMovingAverage",
        "averaging_constant": "CalibMovingAverageConstant",
        "max_intermediate_outputs": "CalibMaxIntermediateOutputs",
        "percentile": "CalibPercentile",
    }
    call = "onnxruntime.quantization.get_qdq_config"
    refuse_options(call, {name: value for name, value in (calibrate_args or {}).items() if name not in keys})
    options = {
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": weight_symmetric,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "MinimumRealRange": min_real_range,
        "TensorQuantOverrides": tensor_quant_overrides,
        **{keys[name]: value for name, value in (calibrate_args or {}).items()},
        **(extra_options or {}),
    }
    if callable(nodes_to_exclude):
        message = message_of(graph_of(model_input))
        chosen = nodes_to_exclude
        nodes_to_exclude = [node.name for node in message.graph.node if chosen(message, node)]
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=op_types_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
        per_channel=per_channel,
        reduce_range=reduce_range,
        calibration_providers=calibration_providers,
        extra_options={name: value for name, value in options.items() if value is not None},
    )


def _check_types(quant_format: QuantFormat, activations: QuantType, weights: QuantType) -> None:
    """Raise ``ValueError`` for combinations of types that onnxruntime does not support."""
    if (activations, weights) == (QuantType.QInt8, QuantType.QUInt8):
        raise ValueError(f"types that do not go together: activations {activations}, weights {weights}")
    if quant_format is QuantFormat.QOperator and {activations, weights} - set(_BYTES):
        raise ValueError(f"types that only QuantFormat.QDQ has: activations {activations}, weights {weights}")


def _quantized(
    graph: tx.Graph,
    batches: list[dict[str, Any]] | None,
    settings: dict[str, Any],
    ops: Sequence[str] | None,
    wanted: Sequence[str] | None,
    excluded: Sequence[str] | None,
) -> tuple[tx.Graph, Any]:
    """Quantize a graph; returns it with the report, or the same graph and None if nothing can be quantized."""
    present = _ops(graph, ops)
    if ops and not present:
        return graph, None
    try:
        left = left_out(graph, wanted, excluded)
        return tx.quantize(graph, batches, ops=present, leave_out=left, measure=False, **settings)
    except NothingToQuantize:
        return graph, None


def _ops(graph: tx.Graph, wanted: Sequence[str] | None) -> list[str] | None:
    """The op types to quantize that occur in the graph; None for all."""
    present = {node.op_type for node in graph.walk()}
    return [name for name in wanted if name in present] if wanted else None


def left_out(graph: tx.Graph, wanted: Sequence[str] | None, excluded: Sequence[str] | None) -> list[str]:
    """Patterns for the names of the nodes to exclude from quantization."""
    names = [node.name or "" for node in graph.nodes]
    left = set(excluded or ()) | {name for name in names if wanted and name not in wanted}
    return [re.sub(r"([\[*?])", r"[\1]", name) for name in sorted(left)]


def _write(message: onnx.ModelProto, path: str | os.PathLike[str], external: bool) -> None:
    save(message, path, **({"threshold": 0} if external else {}))
