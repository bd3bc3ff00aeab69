"""Builtin operators: their bodies compute LiteRT's results, with default and with reference kernels."""

import numpy as np
import pytest
from litert_graphs import assert_close, graph_of, ran

from tenonnx.extend import constant
from tenonnx_litert.builtins import elementwise as e
from tenonnx_litert.builtins import movement as m
from tenonnx_litert.builtins import neural as n
from tenonnx_litert.builtins import reductions as r

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((2, 3, 4)).astype(np.float32) for _ in range(2))
IMAGE = RNG.standard_normal((2, 7, 8, 6)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.5)
BITS = X > 0
WHOLE = RNG.integers(1, 9, (2, 3, 4)).astype(np.int32)
PADDINGS = np.asarray([[0, 1], [2, 0], [1, 1]], np.int32)


def weights(*shape):
    return constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def i(*values):
    return constant(np.asarray(values, np.int32))


BINARY = [e.add, e.sub, e.mul, e.div, e.floor_div, e.floor_mod, e.maximum, e.minimum, e.squared_difference]
COMPARED = [e.equal, e.not_equal, e.less, e.less_equal, e.greater, e.greater_equal]
UNARY = [
    *(e.absolute, e.neg, e.sign, e.exp, e.square, e.sin, e.cos, e.floor, e.ceil, e.round_, e.relu, e.relu6),
    *(e.relu_n1_to_1, e.relu_0_to_1, e.tanh, e.logistic, e.elu, e.hard_swish, e.gelu, e.softmax, e.log_softmax),
]
OF_POSITIVE = [e.log, e.sqrt, e.rsqrt]
REDUCTIONS = [r.mean, r.sum_, r.reduce_prod, r.reduce_max, r.reduce_min]

#: Operators without a reference kernel.
NO_REFERENCE = frozenset({"ATAN2", "CEIL", "ELU", "ROUND"})

CASES = {
    **{op.name: (op, X, Y) for op in (*BINARY, *COMPARED)},
    **{f"{op.name}-int32": (op, WHOLE, WHOLE[::-1].copy()) for op in (e.add, e.mul, e.div, e.floor_mod, e.floor_div)},
    **{op.name: (op, X) for op in UNARY},
    **{op.name: (op, POSITIVE) for op in OF_POSITIVE},
    **{op.name: (op, BITS, BITS[::-1].copy()) for op in (e.logical_and, e.logical_or)},
    **{op.name: (lambda x, op=op: op(x, i(0, 2), keep_dims=1), X) for op in REDUCTIONS},
    **{f"{op.name}-drop": (lambda x, op=op: op(x, i(1)), X) for op in REDUCTIONS},
    "ADD-RELU": (lambda x, y: e.add(x, y, fused_activation_function="RELU"), X, Y),
    "MUL-RELU6": (lambda x, y: e.mul(x, y, fused_activation_function="RELU6"), X, Y),
    "ATAN2": (e.atan2, X, Y),
    "POW": (e.pow_, POSITIVE, Y),
    "PRELU": (lambda x: e.prelu(x, weights(1, 1, 4)), X),
    "SELECT_V2": (e.select_v2, BITS, X, Y),
    "LOGICAL_NOT": (e.logical_not, BITS),
    "BITWISE_XOR": (e.bitwise_xor, WHOLE, WHOLE[::-1].copy()),
    "CAST": (lambda x: e.cast(x, out_data_type="int32"), X),
    "LEAKY_RELU": (lambda x: e.leaky_relu(x, alpha=0.2), X),
    "GELU-tanh": (lambda x: e.gelu(x, approximate=1), X),
    "SOFTMAX-beta": (lambda x: e.softmax(x, beta=0.5), X),
    "REDUCE_ANY": (lambda x: r.reduce_any(x, i(1)), BITS),
    "REDUCE_ALL": (lambda x: r.reduce_all(x, i(1), keep_dims=1), BITS),
    "ARG_MAX": (lambda x: r.arg_max(x, i(1), output_type="int64"), X),
    "ARG_MIN": (lambda x: r.arg_min(x, i(2)), X),
    "CUMSUM": (lambda x: r.cumsum(x, constant(np.int32(1)), exclusive=1, reverse=1), X),
    "TOPK_V2": (lambda x: r.topk_v2(x, constant(np.int32(2))), X),
    "CONV_2D": (lambda x: n.conv_2d(x, weights(5, 3, 3, 6), weights(5), stride_h=2, padding="SAME"), IMAGE),
    "CONV_2D-dilated": (
        lambda x: n.conv_2d(
            x, weights(4, 3, 2, 6), weights(4), padding="VALID", dilation_h_factor=2, fused_activation_function="RELU"
        ),
        IMAGE,
    ),
    "CONV_2D-groups": (lambda x: n.conv_2d(x, weights(4, 3, 3, 3), weights(4)), IMAGE),
    "DEPTHWISE_CONV_2D": (
        lambda x: n.depthwise_conv_2d(x, weights(1, 3, 3, 12), weights(12), depth_multiplier=2, stride_w=2, stride_h=2),
        IMAGE,
    ),
    "TRANSPOSE_CONV": (
        lambda x: n.transpose_conv(
            i(2, 15, 17, 3), weights(3, 3, 3, 6), x, weights(3), padding="VALID", stride_h=2, stride_w=2
        ),
        IMAGE,
    ),
    "TRANSPOSE_CONV-same": (
        lambda x: n.transpose_conv(i(2, 14, 16, 3), weights(3, 4, 4, 6), x, weights(3), stride_h=2, stride_w=2),
        IMAGE,
    ),
    "MAX_POOL_2D": (lambda x: n.max_pool_2d(x, filter_height=3, filter_width=2, stride_h=2, padding="VALID"), IMAGE),
    "AVERAGE_POOL_2D": (lambda x: n.average_pool_2d(x, filter_height=3, filter_width=3, padding="SAME"), IMAGE),
    "RESIZE_BILINEAR": (lambda x: n.resize_bilinear(x, i(10, 5), half_pixel_centers=1), IMAGE),
    "RESIZE_BILINEAR-corners": (lambda x: n.resize_bilinear(x, i(10, 5), align_corners=1), IMAGE),
    "RESIZE_NEAREST_NEIGHBOR": (lambda x: n.resize_nearest_neighbor(x, i(14, 4)), IMAGE),
    "DEPTH_TO_SPACE": (lambda x: n.depth_to_space(m.concatenation(x, x, axis=3), block_size=2), IMAGE),
    "SPACE_TO_DEPTH": (lambda x: n.space_to_depth(m.reshape(x, i(2, 8, 7 * 6, 1)), block_size=2), IMAGE),
    "FULLY_CONNECTED": (lambda x: n.fully_connected(x, weights(5, 4), weights(5), keep_num_dims=1), X),
    "FULLY_CONNECTED-2D": (lambda x: n.fully_connected(x, weights(5, 4), fused_activation_function="RELU"), X),
    "BATCH_MATMUL": (lambda x, y: n.batch_matmul(x, y, adj_y=1), X, Y),
    "BATCH_MATMUL-adj_x": (lambda x, y: n.batch_matmul(x, y, adj_x=1), X, Y),
    "RESHAPE": (lambda x: m.reshape(x, i(4, -1)), X),
    "TRANSPOSE": (lambda x: m.transpose(x, i(2, 0, 1)), X),
    "SPLIT": (lambda x: m.split(i(2), x, num_splits=2), X),
    "SPLIT_V": (lambda x: m.split_v(x, i(1, 3), i(2), num_splits=2), X),
    "PACK": (lambda x, y: m.pack(x, y, axis=1, values_count=2), X, Y),
    "UNPACK": (lambda x: m.unpack(x, axis=1, num=3), X),
    "SLICE": (lambda x: m.slice_(x, i(0, 1, 2), i(2, -1, 1)), X),
    "STRIDED_SLICE": (
        lambda x: m.strided_slice(
            x, i(0, 2, 9), i(1, 0, -9), i(1, -1, -2), begin_mask=4, end_mask=4, shrink_axis_mask=1
        ),
        X,
    ),
    "GATHER": (lambda x: m.gather(x, i(2, 0), axis=1), X),
    "GATHER_ND": (lambda x: m.gather_nd(x, constant(np.asarray([[1, 2], [0, 1]], np.int32))), X),
    "SCATTER_ND": (lambda x: m.scatter_nd(constant(np.asarray([[1], [1]], np.int32)), x, i(3, 3, 4)), X),
    "DYNAMIC_UPDATE_SLICE": (lambda x: m.dynamic_update_slice(x, weights(1, 2, 2), i(1, 2, 1)), X),
    "TILE": (lambda x: m.tile(x, i(1, 2, 3)), X),
    "BROADCAST_TO": (lambda x: m.broadcast_to(x, i(5, 2, 3, 4)), X),
    "BROADCAST_ARGS": (m.broadcast_args, np.asarray([3, 1, 4], "i4"), np.asarray([2, 4], "i4")),
    "EXPAND_DIMS": (lambda x: m.expand_dims(x, i(1)), X),
    "SQUEEZE": (lambda x: m.squeeze(m.expand_dims(x, i(1)), squeeze_dims=[1]), X),
    "PAD": (lambda x: m.pad(x, constant(PADDINGS)), X),
    "PADV2": (lambda x: m.padv2(x, constant(PADDINGS), weights(1)), X),
    "MIRROR_PAD": (lambda x: m.mirror_pad(x, constant(PADDINGS)), X),
    "MIRROR_PAD-symmetric": (lambda x: m.mirror_pad(x, constant(PADDINGS), mode="SYMMETRIC"), X),
    "REVERSE_V2": (lambda x: m.reverse_v2(x, i(1)), X),
    "SHAPE": (lambda x: m.shape(x, out_type="int64"), X),
    "FILL": (lambda x: m.fill(m.shape(x), constant(np.float32(2))), X),
    "RANGE": (lambda x: m.range_(m.reshape(x, i()), constant(np.int32(7)), constant(np.int32(2))), np.ones(1, "i4")),
    "WHERE": (m.where, BITS),
    "ONE_HOT": (
        lambda x: m.one_hot(x, constant(np.int32(9)), constant(np.float32(2)), constant(np.float32(-1)), axis=1),
        WHOLE,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_body_computes_the_same_as_the_operator(name, tmp_path):
    function, *arrays = CASES[name]
    graph = graph_of(function, *arrays)
    expected = graph.run({f"x{place}": array for place, array in enumerate(arrays)}, backend="numpy")
    for reference in (False, True) if name not in NO_REFERENCE else (False,):
        assert_close(ran(graph, graph, tmp_path, arrays, reference=reference), expected)
