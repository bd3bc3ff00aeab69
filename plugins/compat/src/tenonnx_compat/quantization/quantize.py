"""``quantize_dynamic`` and ``quantize_static`` with the arguments of onnxruntime."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import tenonnx as tx
from tenonnx_compat.models import graph_of, message_of, save
from tenonnx_compat.quantization.calibrate import CalibrationDataReader, CalibrationMethod
from tenonnx_compat.quantization.quant_utils import QuantFormat, QuantType
from tenonnx_compat.refusal import NotSupported, announce, refuse_options

if TYPE_CHECKING:
    import onnx

    Source = str | os.PathLike[str] | onnx.ModelProto

_TYPES = {
    QuantType.QInt8: "int8",
    QuantType.QUInt8: "uint8",
    QuantType.QInt16: "int16",
    QuantType.QUInt16: "uint16",
    QuantType.QInt4: "int4",
    QuantType.QUInt4: "uint4",
    QuantType.QFLOAT8E4M3FN: "float8e4m3fn",
}

_METHODS = {
    CalibrationMethod.MinMax: "minmax",
    CalibrationMethod.Entropy: "entropy",
    CalibrationMethod.Percentile: "percentile",
}

#: Types of 8 bits, which a dynamic quantization multiplies as integers.
_BYTES = (QuantType.QInt8, QuantType.QUInt8)

#: Options without an effect here: types are inferred, so that none is assumed.
_WITHOUT_EFFECT = ("DefaultTensorType",)

#: Options of which one value is what tenonnx does.
_HELD = {
    "QuantizeBias": True,
    "WeightSymmetric": True,
    "EnableSubgraph": False,
    "ForceQuantizeNoInputCheck": False,
    "MatMulConstBOnly": True,
    "AddQDQPairToWeight": False,
    "DedicatedQDQPair": False,
    "CalibMovingAverage": False,
    "CalibTensorRangeSymmetric": False,
    "SmoothQuant": False,
    "UseQDQContribOps": False,
    "QDQKeepRemovableActivations": False,
    "ActivationRestrictedAsymmetric": False,
}


@dataclass
class QuantConfig:
    """Settings of ``quantize`` that both modes have."""

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
    """Quantize a model by a configuration of one of the two modes."""
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
    """Quantize weights now and activations while the model runs, and write the model.

    Raises ``NotSupported`` for options without a translation, ``InvalidCall`` where nothing can be quantized.
    """
    call = "onnxruntime.quantization.quantize_dynamic"
    announce(call, "tx.quantize(graph, mode='dynamic')")
    refuse_options(call, {"reduce_range": reduce_range}, "quantized values always have all bits")
    graph = graph_of(model_input)
    symmetric = _symmetric(call, graph, extra_options)
    made, _ = tx.quantize(
        graph,
        mode="dynamic",
        form="qoperator" if weight_type in _BYTES else "qdq",
        weight_type=_TYPES[weight_type],
        per_channel=per_channel,
        symmetric=symmetric,
        ops=_ops(graph, op_types_to_quantize),
        leave_out=_left_out(graph, nodes_to_quantize, nodes_to_exclude),
    )
    _write(made, model_output, use_external_data_format)


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
    """Quantize weights and activations by ranges found on the data of a reader, and write the model.

    Raises ``NotSupported`` for options without a translation, ``ValueError`` without a reader.
    """
    call = "onnxruntime.quantization.quantize_static"
    announce(call, "tx.quantize(graph, batches, mode='static')")
    if calibration_data_reader is None:
        raise ValueError("calibration_data_reader is None, and there is no calibration cache")
    refuse_options(
        call,
        {
            "reduce_range": reduce_range,
            "calibration_cache_path": calibration_cache_path,
            "calibrate_method": None if calibrate_method in _METHODS else calibrate_method.name,
            "calibration_providers": None
            if calibration_providers in (None, [], ["CPUExecutionProvider"])
            else calibration_providers,
        },
    )
    graph = graph_of(model_input)
    symmetric = _symmetric(call, graph, extra_options)
    made, _ = tx.quantize(
        graph,
        list(iter(calibration_data_reader.get_next, None)),
        mode="static",
        activation_type=_TYPES[activation_type],
        weight_type=_TYPES[weight_type],
        form="qdq" if quant_format is QuantFormat.QDQ else "qoperator",
        per_channel=per_channel,
        symmetric=symmetric,
        calibration=_METHODS[calibrate_method],
        ops=_ops(graph, op_types_to_quantize),
        leave_out=_left_out(graph, nodes_to_quantize, nodes_to_exclude),
    )
    _write(made, model_output, use_external_data_format)


def _symmetric(call: str, graph: tx.Graph, options: Mapping[str, Any] | None) -> bool:
    """Whether activations are symmetric. Raises ``NotSupported`` for options that ask for anything but the default."""
    ignored = {"ActivationSymmetric", *_WITHOUT_EFFECT}
    if not any(node.subgraphs for node in graph.nodes):
        ignored.add("EnableSubgraph")
    others = {name: value for name, value in (options or {}).items() if name not in ignored}
    others = {name: value for name, value in others.items() if name not in _HELD or value != _HELD[name]}
    for name, value in others.items():
        raise NotSupported(
            f"{call} of tenonnx-compat does not support the option {name}",
            given=f"{name}={value!r}",
            available=", ".join(["ActivationSymmetric", *_HELD]),
        )
    return bool((options or {}).get("ActivationSymmetric"))


def _ops(graph: tx.Graph, wanted: Sequence[str] | None) -> list[str] | None:
    """The op types to quantize that the model has."""
    there = {node.op_type for node in graph.walk()}
    return [name for name in wanted if name in there] if wanted else None


def _left_out(graph: tx.Graph, wanted: Sequence[str] | None, excluded: Sequence[str] | None) -> list[str]:
    """Patterns for the names of the nodes that stay floats."""
    names = [node.name or "" for node in graph.nodes]
    left = set(excluded or ()) | {name for name in names if wanted and name not in wanted}
    return [re.sub(r"([\[*?])", r"[\1]", name) for name in sorted(left)]


def _write(graph: tx.Graph, path: str | os.PathLike[str], external: bool) -> None:
    save(message_of(graph), path, **({"threshold": 0} if external else {}))
