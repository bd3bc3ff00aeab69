"""``MatMulNBitsQuantizer``: blockwise low-bit quantization of MatMul weights, and its command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tenonnx as tx
from tenonnx_compat.models import graph_of, message_of
from tenonnx_compat.quantization.calibrate import CalibrationDataReader
from tenonnx_compat.quantization.onnx_model import ONNXModel
from tenonnx_compat.quantization.quant_utils import QuantFormat
from tenonnx_compat.quantization.quantize import left_out
from tenonnx_compat.refusal import announce, announce_command, refuse_options, refused
from tenonnx_quantized.tuning.config import NothingToQuantize

if TYPE_CHECKING:
    import onnx

_CALL = "onnxruntime.quantization.MatMulNBitsQuantizer"


class WeightOnlyQuantConfig:
    """Base of the settings. Raises ``NotSupported`` for other op types than MatMul, and other axes than 0."""

    def __init__(
        self,
        algorithm: str,
        quant_format: QuantFormat,
        op_types_to_quantize: Iterable[str] | None = None,
        quant_axes: Iterable[tuple[str, int]] | None = None,
        customized_weight_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.quant_format = quant_format
        self.op_types_to_quantize = set(op_types_to_quantize or {"MatMul"})
        self.quant_axes = dict(quant_axes or (("MatMul", 0), ("Gather", 1)))
        self.customized_weight_config = customized_weight_config
        others = {
            "op_types_to_quantize": sorted(self.op_types_to_quantize - {"MatMul"}),
            "quant_axes": self.quant_axes.get("MatMul", 0),
        }
        refuse_options(_CALL, {name: value or None for name, value in others.items()})


class DefaultWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Settings of rounding to nearest."""

    def __init__(
        self,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: tuple[tuple[str, int], ...] | None = None,
        bits: int = 4,
        channel_wised_quantize: bool = False,
    ) -> None:
        super().__init__("DEFAULT", quant_format, op_types_to_quantize, quant_axes)
        refuse_options(_CALL, {"channel_wised_quantize": channel_wised_quantize})
        self.block_size, self.is_symmetric, self.bits = block_size, is_symmetric, bits
        self.accuracy_level = accuracy_level


class RTNWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Settings of rounding to nearest, with the block size of the quantizer."""

    def __init__(
        self,
        ratios: Mapping[str, Any] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        customized_weight_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__("RTN", quant_format, op_types_to_quantize, None, customized_weight_config)
        refuse_options(_CALL, {"ratios": ratios})


class HQQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Settings of half-quadratic quantization (HQQ)."""

    def __init__(
        self,
        block_size: int = 128,
        bits: int = 4,
        axis: int = 1,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: tuple[tuple[str, int], ...] | None = None,
    ) -> None:
        super().__init__("HQQ", quant_format, op_types_to_quantize, quant_axes)
        refuse_options(_CALL, {"axis": None if axis == 1 else str(axis)})
        self.block_size, self.bits, self.axis = block_size, bits, axis


class GPTQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Settings of GPTQ, calibrated on the data of a reader; the damping is always tenonnx's default."""

    def __init__(
        self,
        calibration_data_reader: CalibrationDataReader | None = None,
        percdamp: float = 0.01,
        block_size: int = 128,
        actorder: bool = False,
        mse: bool = False,
        perchannel: bool = True,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__("GPTQ", quant_format, op_types_to_quantize)
        damping = None if percdamp == 0.01 else percdamp
        refuse_options(
            _CALL, {"percdamp": damping, "actorder": actorder, "perchannel": None if perchannel else "False"}
        )
        self.calibration_data_reader, self.block_size, self.mse = calibration_data_reader, block_size, mse


KQuantWeightOnlyQuantConfig = refused(f"{_CALL} by k_quant", "its scales are found by another search", "use HQQ")
NVAWQWeightOnlyQuantConfig = refused(
    f"{_CALL} by nvidia_awq", "it downloads its data", "tx.quantize(graph, batches, mode='weights', method='awq')"
)

_METHODS = {"DEFAULT": "rtn", "RTN": "rtn", "HQQ": "hqq", "GPTQ": "gptq"}


class MatMulNBitsQuantizer:
    """Quantizes constant MatMul weights to 2, 4 or 8 bits: ``process`` runs, ``model.model`` is the result.

    Raises ``NotSupported`` for unsupported settings, ``InvalidCall`` for other numbers of bits.
    """

    def __init__(
        self,
        model: onnx.ModelProto | str,
        bits: int = 4,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        nodes_to_exclude: Sequence[str] | None = None,
        nodes_to_include: Sequence[str] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: tuple[tuple[str, int], ...] | None = None,
        channel_wised_quantize: bool = False,
        algo_config: WeightOnlyQuantConfig | None = None,
    ) -> None:
        announce(_CALL, "tx.quantize(graph, mode='weights', bits=4)")
        self._graph = graph_of(model)
        self.model = ONNXModel(message_of(self._graph) if isinstance(model, str | os.PathLike) else model)
        self.bits, self.block_size, self.is_symmetric = bits, block_size, is_symmetric
        self.accuracy_level = accuracy_level
        self.nodes_to_exclude, self.nodes_to_include = set(nodes_to_exclude or ()), nodes_to_include
        self.algo_config = algo_config or DefaultWeightOnlyQuantConfig(
            block_size,
            is_symmetric,
            accuracy_level,
            quant_format,
            op_types_to_quantize,
            quant_axes,
            bits,
            channel_wised_quantize,
        )

    def process(self) -> None:
        """Quantize, and replace ``model`` by the result."""
        config = self.algo_config
        reader = getattr(config, "calibration_data_reader", None)
        batches = None if reader is None else list(iter(reader.get_next, None))
        layers = [{"pattern": name, **each} for name, each in (config.customized_weight_config or {}).items()]
        try:
            quantized, _ = tx.quantize(
                self._graph,
                batches,
                mode="weights",
                form="qdq" if config.quant_format is QuantFormat.QDQ else "qoperator",
                bits=getattr(config, "bits", self.bits),
                block_size=getattr(config, "block_size", self.block_size),
                symmetric=getattr(config, "is_symmetric", self.is_symmetric),
                method=_METHODS[config.algorithm],
                search="mse" if getattr(config, "mse", False) else None,
                ops=["MatMul"],
                leave_out=left_out(self._graph, self.nodes_to_include, list(self.nodes_to_exclude)),
                layers=layers,
                measure=False,
            )
        except NothingToQuantize:
            return
        message = message_of(quantized)
        level = getattr(config, "accuracy_level", self.accuracy_level)
        for node in message.graph.node:
            if node.op_type == "MatMulNBits" and level:
                node.attribute.add(name="accuracy_level", type=2, i=level)
        self.model = ONNXModel(message)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Quantize the weights of MatMul in blocks.")
    parser.add_argument("--input_model", required=True, help="model to read")
    parser.add_argument("--output_model", required=True, help="file to write")
    parser.add_argument("--block_size", default=32, type=int, help="rows that share a scale")
    parser.add_argument(
        "--quant_method", default="default", choices=["default", "hqq", "rtn", "k_quant", "gptq", "nvidia_awq"]
    )
    parser.add_argument("--bits", default=4, type=int, help="bits of a weight")
    parser.add_argument("--symmetric", default=True, const=True, nargs="?", type=lambda t: t.lower() in ("true", "1"))
    parser.add_argument("--accuracy_level", type=int, help="attribute of MatMulNBits")
    parser.add_argument("-v", "--verbose", action="store_true", help="without effect")
    parser.add_argument("--nodes_to_exclude", nargs="+", default=[], help="names of nodes that stay floats")
    parser.add_argument("--nodes_to_include", nargs="+", help="names of the only nodes to quantize")
    parser.add_argument("--quant_format", default="QOperator", choices=["QOperator", "QDQ"])
    parser.add_argument("--op_types_to_quantize", nargs="+", choices=["MatMul", "Gather"])
    parser.add_argument("--quant_axes", nargs="+", type=lambda text: text.split(":"), help="op type and axis")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exits with 1 if the output exists, or the model cannot be read, quantized or written."""
    options = _parser().parse_args(arguments)
    announce_command("matmul_nbits_quantizer", _CALL, "tenonnx quantize IN -o OUT --mode weights")
    try:
        if Path(options.output_model).exists():
            raise OSError(f"file {options.output_model} already exists")
        ops, form = options.op_types_to_quantize, QuantFormat[options.quant_format]
        axes = tuple((name, int(axis)) for name, axis in options.quant_axes or ())
        config: WeightOnlyQuantConfig
        if options.quant_method == "hqq":
            config = HQQWeightOnlyQuantConfig(options.block_size, options.bits, 1, QuantFormat.QOperator, ops, axes)
        elif options.quant_method == "default":
            config = DefaultWeightOnlyQuantConfig(
                options.block_size, options.symmetric, options.accuracy_level, form, ops, axes, options.bits
            )
        elif options.quant_method == "rtn":
            config = RTNWeightOnlyQuantConfig(op_types_to_quantize=ops)
        else:
            refuse_options(_CALL, {"quant_method": options.quant_method}, "its data or its search are missing")
        quantizer = MatMulNBitsQuantizer(
            options.input_model,
            options.bits,
            accuracy_level=options.accuracy_level,
            nodes_to_exclude=options.nodes_to_exclude,
            nodes_to_include=options.nodes_to_include,
            algo_config=config,
        )
        quantizer.process()
        quantizer.model.save_model_to_file(options.output_model, True)
    except (tx.TenonnxError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
