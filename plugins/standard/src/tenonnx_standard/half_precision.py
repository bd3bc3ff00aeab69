"""Ops that need float32 in half-precision models, with reasons."""

import tenonnx_standard as ops
from tenonnx.extend import Op

_SUMS = "it adds up many numbers, or their squares, which lose digits or run out of range"
_ADDED = "what it adds up in one place loses digits, and onnxruntime takes no half floats there"
_SQUARES = "squares of numbers beyond 255 run out of range, as in root mean squares"
_POSITIONS = "its numbers are positions, which half floats cannot tell apart beyond 2048"

#: The newest version of each op; all older ones behave alike.
NEEDS_FLOAT32: dict[Op, str] = {
    ops.range_: _POSITIONS,
    ops.resize: _POSITIONS,
    ops.grid_sample: _POSITIONS,
    ops.affine_grid: _POSITIONS,
    ops.roi_align: _POSITIONS,
    ops.non_max_suppression: _POSITIONS,
    ops.cumsum: _SUMS,
    ops.pow_: _SQUARES,
    ops.reduce_sum: _SUMS,
    ops.reduce_mean: _SUMS,
    ops.reduce_sum_square: _SUMS,
    ops.reduce_l2: _SUMS,
    ops.reduce_log_sum: _SUMS,
    ops.reduce_log_sum_exp: _SUMS,
    ops.dft: _SUMS,
    ops.stft: _SUMS,
    ops.det: _SUMS,
    ops.mean_variance_normalization: _SUMS,
    ops.scatter_elements: _ADDED,
    ops.scatter_nd: _ADDED,
    ops.negative_log_likelihood_loss: _SUMS,
    ops.softmax_cross_entropy_loss: _SUMS,
}

for _op, _reason in NEEDS_FLOAT32.items():
    for _meaning in _op.meanings:
        _meaning.traits(needs_float32=_reason)
