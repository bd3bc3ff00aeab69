"""Inputs of ops that hold trainable weights; constants at other inputs are not trained."""

import tenonnx_standard as ops
from tenonnx.extend import Op
from tenonnx_standard.normalization import simplified_layer_normalization

#: By the newest meaning of each op, the names of inputs; all of its older ones are like it.
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

#: What is added or multiplied behind weights is a bias or a scale; ahead of them it is how data are normalized.
ADJUSTS: dict[Op, str] = {ops.add: "A B", ops.mul: "A B"}

for _op, _names in WEIGHTS.items():
    for _meaning in _op.meanings:
        _meaning.traits(weights=_names)
for _op, _names in ADJUSTS.items():
    for _meaning in _op.meanings:
        _meaning.traits(adjusts=_names)
