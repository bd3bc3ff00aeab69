"""The interface of ``onnxruntime.quantization``."""

from typing import Any

from tenonnx_compat.quantization.calibrate import (
    CalibraterBase,
    CalibrationDataReader,
    CalibrationMethod,
    MinMaxCalibrater,
    TensorData,
    TensorsData,
    create_calibrator,
    load_tensors_data,
    save_tensors_data,
)
from tenonnx_compat.quantization.quant_utils import QuantFormat, QuantizationMode, QuantType
from tenonnx_compat.quantization.quantize import (
    DynamicQuantConfig,
    QuantConfig,
    StaticQuantConfig,
    get_qdq_config,
    quantize,
    quantize_dynamic,
    quantize_static,
)
from tenonnx_compat.quantization.shape_inference import quant_pre_process
from tenonnx_compat.refusal import refused

__all__ = [
    "CalibraterBase",
    "CalibrationDataReader",
    "CalibrationMethod",
    "DynamicQuantConfig",
    "MinMaxCalibrater",
    "QuantConfig",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "StaticQuantConfig",
    "TensorData",
    "TensorsData",
    "create_calibrator",
    "get_qdq_config",
    "load_tensors_data",
    "quant_pre_process",
    "quantize",
    "quantize_dynamic",
    "quantize_static",
    "save_tensors_data",
]

#: Internal classes of onnxruntime's quantizers.
_INTERNAL = (
    "CudaQuantizer",
    "QDQQuantizer",
    "write_calibration_table",
)


def __getattr__(name: str) -> Any:
    if name in _INTERNAL:
        return refused(
            f"onnxruntime.quantization.{name}",
            "the classes of quantizers are not translated",
            "quantize_static(...), or tx.quantize(graph, batches, mode='static')",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
