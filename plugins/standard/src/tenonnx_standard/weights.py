"""Inputs of ops that are trainable weights; constants at other inputs are not trained."""

import tenonnx_standard as ops
from tenonnx.extend import Op
from tenonnx_standard.normalization import simplified_layer_normalization

#: Names of weight inputs by the newest version of each op; older versions have the same.
WEIGHTS: dict[Op, str] = {
    ops.conv: "W B",
    ops.conv_transpose: "W B",
    ops.deform_conv: "W B",
    ops.gemm: "B C",
    ops.matmul: "A B",
    ops.einsum: "Inputs",
    ops.gather: "data",
    ops.batch_normalization: "scale B",
    ops.layer_normalization: "Scale B",
    ops.group_normalization: "scale bias",
    ops.instance_normalization: "scale B",
    ops.rms_normalization: "scale",
    ops.lstm: "W R B P",
    ops.gru: "W R B",
    ops.rnn: "W R B",
    ops.prelu: "slope",
    simplified_layer_normalization: "scale",
}

#: Constants added or multiplied after a weighted layer are biases or scales; before it they normalize data.
ADJUSTS: dict[Op, str] = {ops.add: "A B", ops.mul: "A B"}

for _op, _names in WEIGHTS.items():
    for _meaning in _op.meanings:
        _meaning.traits(weights=_names)
for _op, _names in ADJUSTS.items():
    for _meaning in _op.meanings:
        _meaning.traits(adjusts=_names)
