"""Layout rules of quantized tensors."""

from __future__ import annotations

from typing import Any

from tenonnx.extend import NotRepresentable, Value
from tenonnx_quantized.quantize import dequantize_linear, quantize_linear

for _op in (*quantize_linear.meanings, *dequantize_linear.meanings):

    @_op.rule("laid_out")
    def op_laid_out(
        layout: Any, x: Value, scale: Value, zero_point: Value | None, *, _op: Any = _op, **attributes: Any
    ) -> Any:
        """Handle a single scale, or one per position of an axis that was moved."""
        if attributes.get("block_size"):
            raise NotRepresentable("cannot move the axes of a tensor with scales of blocks", given=str(x.type))
        if scale.rank != 0:
            attributes["axis"] = layout.axis(attributes["axis"] % x.ndim)
        return _op(layout.of(x), scale, zero_point, **attributes)
