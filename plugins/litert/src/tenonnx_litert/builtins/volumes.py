"""Convolutions of volumes, with channels last."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import static
from tenonnx_litert.builtins.builtin import activated, builtin
from tenonnx_litert.builtins.neural import AUTO_PAD

_FIRST, _LAST = [0, 4, 1, 2, 3], [0, 2, 3, 4, 1]


@builtin("CONV_3D", "Conv3DOptions")
def conv_3d(
    input,
    filter,
    bias=None,
    *,
    padding="SAME",
    stride_d=1,
    stride_w=1,
    stride_h=1,
    dilation_d_factor=1,
    dilation_w_factor=1,
    dilation_h_factor=1,
    fused_activation_function="NONE",
):
    """3-D convolution of volumes (batch, depth, height, width, channels).

    ``filter`` has the shape (depth, height, width, channels, output channels).
    """
    y = ops.conv(
        ops.transpose(input, perm=_FIRST),
        ops.transpose(filter, perm=[4, 3, 0, 1, 2]),
        bias,
        auto_pad=AUTO_PAD[padding],
        strides=[stride_d, stride_h, stride_w],
        dilations=[dilation_d_factor, dilation_h_factor, dilation_w_factor],
    )
    return activated(ops.transpose(y, perm=_LAST), fused_activation_function)


@builtin("CONV_3D_TRANSPOSE", "Conv3DOptions")
def conv_3d_transpose(
    output_shape,
    filter,
    input,
    bias=None,
    *,
    padding="SAME",
    stride_d=1,
    stride_w=1,
    stride_h=1,
    fused_activation_function="NONE",
):
    """Transposed 3-D convolution; ``filter`` has the shape (depth, height, width, output channels, channels)."""
    sizes = static(output_shape)
    shape = {} if sizes is None else {"output_shape": [int(n) for n in sizes[1:4]]}
    y = ops.conv_transpose(
        ops.transpose(input, perm=_FIRST),
        ops.transpose(filter, perm=[4, 3, 0, 1, 2]),
        bias,
        auto_pad=AUTO_PAD[padding] if padding == "SAME" or not shape else "SAME_UPPER",
        strides=[stride_d, stride_h, stride_w],
        **shape,
    )
    return activated(ops.transpose(y, perm=_LAST), fused_activation_function)
