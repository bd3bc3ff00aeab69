"""Methods by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenonnx_quantized.tuning.config import QuantizeConfig
from tenonnx_quantized.tuning.methods.ada_round import ada_round
from tenonnx_quantized.tuning.methods.auto_round import auto_round
from tenonnx_quantized.tuning.methods.awq import awq
from tenonnx_quantized.tuning.methods.equalization import equalize
from tenonnx_quantized.tuning.methods.gptq import gptq
from tenonnx_quantized.tuning.methods.layer import Layer, Rounding
from tenonnx_quantized.tuning.methods.quantease import quantease
from tenonnx_quantized.tuning.methods.rescale import Rescaling
from tenonnx_quantized.tuning.methods.smooth_quant import smooth_quant

ROUNDING: Mapping[str, Rounding] = {
    "rtn": Layer.nearest,
    "hqq": Layer.nearest,
    "gptq": gptq,
    "quantease": quantease,
    "ada-round": ada_round,
    "auto-round": auto_round,
}

RESCALING: Mapping[str, Callable[[Rescaling, QuantizeConfig], None]] = {
    "equalize": equalize,
    "smooth-quant": smooth_quant,
    "awq": awq,
}
