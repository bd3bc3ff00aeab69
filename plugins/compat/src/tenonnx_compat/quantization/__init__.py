"""The interface of ``onnxruntime.quantization``."""

from typing import Any

from tenonnx_compat.quantization.calibrate import CalibrationDataReader, CalibrationMethod
from tenonnx_compat.quantization.quant_utils import QuantFormat, QuantizationMode, QuantType
from tenonnx_compat.quantization.quantize import (
    DynamicQuantConfig,
    QuantConfig,
    StaticQuantConfig,
    quantize,
    quantize_dynamic,
    quantize_static,
)
from tenonnx_compat.quantization.shape_inference import quant_pre_process
from tenonnx_compat.refusal import refused

__all__ = [
    "CalibrationDataReader",
    "CalibrationMethod",
    "DynamicQuantConfig",
    "QuantConfig",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "StaticQuantConfig",
    "quant_pre_process",
    "quantize",
    "quantize_dynamic",
    "quantize_static",
]

#: Classes that quantizers of onnxruntime are made of.
_INTERNAL = (
    "CalibraterBase",
    "MinMaxCalibrater",
    "TensorData",
    "TensorsData",
    "CudaQuantizer",
    "QDQQuantizer",
    "create_calibrator",
    "get_qdq_config",
    "load_tensors_data",
    "save_tensors_data",
    "write_calibration_table",
)


def __getattr__(name: str) -> Any:
    if name in _INTERNAL:
        return refused(
            f"onnxruntime.quantization.{name}",
            "calibration and quantization are one step here",
            "quantize_static(...), or tx.quantize(graph, batches, mode='static')",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
