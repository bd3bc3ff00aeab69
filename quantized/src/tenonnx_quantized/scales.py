"""Names of the scale inputs of quantized ops."""

import re

from tenonnx.extend import Op
from tenonnx_quantized import (
    attention,
    blocks,
    contrib_quantize,
    convolution,
    elementwise,
    embedding,
    experts,
    float_products,
    matrix,
    pooling,
    products,
    qlinear,
    recurrent,
)

_SCALE = re.compile(r"(?!norm_)(.*_)?scales?", re.IGNORECASE)

_MODULES = (
    attention,
    blocks,
    contrib_quantize,
    convolution,
    elementwise,
    embedding,
    experts,
    float_products,
    matrix,
    pooling,
    products,
    qlinear,
    recurrent,
)

for _op in {each: None for module in _MODULES for each in vars(module).values() if isinstance(each, Op)}:
    _names = [each.name for each in _op.signature.inputs if _SCALE.fullmatch(each.name)]
    if _op.domain == "com.microsoft" and _names:
        _op.traits(scales=" ".join(_names))
