"""Small graphs, each with a list of ops sufficient to express it."""

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, constant

M = (3, 4)
IMAGE = (2, 3, 6, 6)
W = np.random.default_rng(0).standard_normal((3, 3, 3, 3)).astype(np.float32)
MATRIX = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
VECTOR = np.random.default_rng(2).standard_normal(5).astype(np.float32)


def c(value):
    return constant(np.asarray(value, np.float32))


def i(*values):
    return constant(np.asarray(values, np.int64))


def test(x):
    """A computed boolean."""
    return ops.greater(x, c(0.0))


def flag(value):
    return ops.cast(value, to=DType.float32)


def bounds(a, b):
    return ops.maximum(a, b)


#: By name: the function, the list of ops, and the shapes of the inputs.
LISTS = {
    # arithmetic
    "sub-neg": (lambda a, b: ops.sub(a, b), "Add,Neg", M, M),
    "sub-mul": (lambda a, b: ops.sub(a, b), "Add,Mul", M, M),
    "add-sub": (lambda a, b: ops.add(a, b), "Sub", M, M),
    "add-sum": (lambda a, b: ops.add(a, b), "Sum", M, (4,)),
    "sum-add": (lambda a, b: ops.sum_(a, b, a), "Add", M, M),
    "neg-mul": (lambda a: ops.neg(a), "Mul", M),
    "neg-sub": (lambda a: ops.neg(a), "Sub", M),
    "div-const": (lambda a: ops.div(a, c(3.0)), "Mul", M),
    "div-reciprocal": (lambda a, b: ops.div(a, b), "Mul,Reciprocal", M, M),
    "reciprocal-div": (lambda a: ops.reciprocal(a), "Div", M),
    "reciprocal-pow": (lambda a: ops.reciprocal(a), "Pow", M),
    "mul-div": (lambda a: ops.mul(a, c(0.25)), "Div", M),
    "mul-two": (lambda a: ops.mul(a, c(2.0)), "Add", M),
    "square-mul": (lambda a: ops.pow_(a, c(2.0)), "Mul", M),
    "cube-mul": (lambda a: ops.pow_(a, c(3.0)), "Mul", M),
    "square-pow": (lambda a: ops.mul(a, a), "Pow", M),
    "mean-list": (lambda a, b: ops.mean(a, b), "Add,Mul", M, M),
    "sqrt-pow": (lambda a: ops.sqrt(ops.mul(a, a)), "Pow,Mul", M),
    "pow-half": (lambda a: ops.pow_(ops.mul(a, a), c(0.5)), "Sqrt,Mul", M),
    "mul-channel-conv": (lambda a: ops.mul(a, c(np.ones((3, 1, 1)) * 2.5)), "Conv", IMAGE),
    "add-channel-conv": (lambda a: ops.add(a, c(np.arange(3).reshape(3, 1, 1))), "Conv", IMAGE),
    # bounds
    "max-relu": (bounds, "Relu,Add,Sub", M, M),
    "max-min": (bounds, "Min,Neg", M, M),
    "max-abs": (bounds, "Add,Sub,Abs,Mul", M, M),
    "max-where": (bounds, "Greater,Where", M, M),
    "max-reduce": (bounds, "Concat,ReduceMax,Reshape", M, M),
    "max-three": (lambda a, b: ops.maximum(a, b, c(0.5)), "Relu,Add,Sub", M, M),
    "min-relu": (lambda a, b: ops.minimum(a, b), "Relu,Add,Sub", M, M),
    "min-max": (lambda a, b: ops.minimum(a, b), "Max,Mul", M, M),
    "min-where": (lambda a, b: ops.minimum(a, b), "Less,Where", M, M),
    "max-clip": (lambda a: ops.maximum(a, c(0.5)), "Clip", M),
    "clip-relu": (lambda a: ops.clip(a, c(0.0), c(6.0)), "Relu,Sub", M),
    "clip-relu-add": (lambda a: ops.clip(a, c(-1.0), c(1.0)), "Mul,Add,Sub,Relu", M),
    "clip-minmax": (lambda a: ops.clip(a, c(-1.0), c(1.0)), "Min,Max", M),
    "relu-clip": (lambda a: ops.relu(a), "Clip", M),
    "relu-max": (lambda a: ops.relu(a), "Max", M),
    "relu-leaky": (lambda a: ops.relu(a), "LeakyRelu", M),
    "relu-prelu": (lambda a: ops.relu(a), "PRelu", M),
    "relu-abs": (lambda a: ops.relu(a), "Abs,Add,Mul", M),
    "relu-where": (lambda a: ops.relu(a), "Where,Less", M),
    "relu-mask": (lambda a: ops.relu(a), "Greater,Cast,Mul", M),
    "abs-relu": (lambda a: ops.absolute(a), "Relu,Add,Neg", M),
    "abs-max": (lambda a: ops.absolute(a), "Max,Neg", M),
    "abs-sqrt": (lambda a: ops.absolute(a), "Sqrt,Mul", M),
    "sign-where": (lambda a: ops.sign(a), "Greater,Less,Cast,Sub", M),
    # activations
    "leaky-relu": (lambda a: ops.leaky_relu(a, alpha=0.1), "Mul,Sub,Relu", M),
    "leaky-prelu": (lambda a: ops.leaky_relu(a, alpha=0.1), "PRelu", M),
    "prelu-relu": (lambda a: ops.prelu(a, c([0.1, 0.2, 0.3, 0.4])), "Mul,Add,Sub,Relu", M),
    "prelu-leaky": (lambda a: ops.prelu(a, c([0.25])), "LeakyRelu", M),
    "hard-swish": (lambda a: ops.hard_swish(a), "Mul,Add,Sub,Relu", M),
    "hard-sigmoid": (lambda a: ops.hard_sigmoid(a), "Mul,Add,Clip", M),
    "sigmoid-tanh": (lambda a: ops.sigmoid(a), "Tanh,Mul,Add", M),
    "sigmoid-exp": (lambda a: ops.sigmoid(a), "Exp,Neg,Add,Reciprocal", M),
    "tanh-sigmoid": (lambda a: ops.tanh(a), "Sigmoid,Mul,Sub", M),
    "tanh-exp": (lambda a: ops.tanh(a), "Exp,Mul,Add,Sub,Div", M),
    "softplus": (lambda a: ops.softplus(a), "Exp,Log,Add", M),
    "silu": (lambda a: ops.mul(a, ops.sigmoid(a)), "Mul,Exp,Neg,Add,Div", M),
    "gelu": (lambda a: ops.gelu(a), "Mul,Add,Erf", M),
    "elu": (lambda a: ops.elu(a, alpha=0.7), "Exp,Relu,Mul,Add,Sub", M),
    "selu": (lambda a: ops.selu(a), "Exp,Relu,Mul,Add,Sub", M),
    "softsign": (lambda a: ops.softsign(a), "Abs,Add,Div", M),
    "thresholded": (lambda a: ops.thresholded_relu(a, alpha=0.5), "Greater,Cast,Mul", M),
    "softmax": (lambda a: ops.softmax(a), "Exp,ReduceSum,Div", M),
    "softmax-matmul": (lambda a: ops.softmax(a), "Exp,MatMul,Mul,Reciprocal,Reshape", M),
    "softmax-exact": (lambda a: ops.softmax(a), "Exp,ReduceMax,ReduceSum,Sub,Div", M),
    "log-softmax": (lambda a: ops.log_softmax(a), "Softmax,Log", M),
    "softmax-log": (lambda a: ops.softmax(a), "LogSoftmax,Exp", M),
    "layer-norm": (
        lambda a: ops.layer_normalization(a, c(np.ones(4) * 2), c(np.ones(4)))[0],
        "ReduceMean,Sub,Mul,Add,Sqrt,Div",
        M,
    ),
    # logic
    "xor-and-or-not": (lambda a, b: flag(ops.xor(test(a), test(b))), "And,Or,Not,Greater,Cast", M, M),
    "xor-equal": (lambda a, b: flag(ops.xor(test(a), test(b))), "Equal,Not,Greater,Cast", M, M),
    "and-or": (lambda a, b: flag(ops.and_(test(a), test(b))), "Or,Not,Greater,Cast", M, M),
    "or-and": (lambda a, b: flag(ops.or_(test(a), test(b))), "And,Not,Greater,Cast", M, M),
    "and-mul": (lambda a, b: flag(ops.and_(test(a), test(b))), "Mul,Greater,Cast", M, M),
    "or-add": (lambda a, b: flag(ops.or_(test(a), test(b))), "Add,Greater,Cast", M, M),
    "not-sub": (lambda a: flag(ops.not_(test(a))), "Sub,Greater,Cast", M),
    "greater-less": (lambda a, b: flag(ops.greater(a, b)), "Less,Cast", M, M),
    "greater-equal": (lambda a, b: flag(ops.greater_or_equal(a, b)), "Greater,Equal,Or,Cast", M, M),
    "greater-equal-less": (lambda a, b: flag(ops.greater_or_equal(a, b)), "Less,Not,Cast", M, M),
    "equal-less": (lambda a, b: flag(ops.equal(a, b)), "Less,Or,Not,Cast", M, M),
    "less-relu": (lambda a, b: flag(ops.less(a, b)), "Relu,Sub,Cast", M, M),
    "where-mul": (lambda a, b: ops.where(test(a), a, b), "Greater,Cast,Mul,Add,Sub", M, M),
    "where-not": (lambda a, b: ops.where(test(a), a, b), "Greater,Cast,Mul,Add,Not", M, M),
    "isnan": (lambda a: flag(ops.isnan(a)), "Equal,Not,Cast", M),
    # matrices
    "matmul-gemm": (lambda a: ops.matmul(a, c(MATRIX)), "Gemm", M),
    "matmul-gemm-3d": (lambda a: ops.matmul(a, c(MATRIX)), "Gemm,Reshape", (2, 3, 4)),
    "matmul-conv": (lambda a: ops.matmul(a, c(MATRIX)), "Conv,Reshape", (2, 3, 4)),
    "matmul-batch-gemm": (lambda a, b: ops.matmul(a, b), "Gemm,Slice,Concat,Reshape", (2, 3, 4), (2, 4, 3)),
    "matmul-mul": (lambda a, b: ops.matmul(a, b), "Mul,ReduceSum,Unsqueeze", M, (4, 2)),
    "matmul-einsum": (lambda a, b: ops.matmul(a, b), "Einsum", M, (4, 2)),
    "gemm-matmul": (lambda a: ops.gemm(a, c(MATRIX), c(VECTOR)), "MatMul,Add", M),
    "gemm-trans": (lambda a: ops.gemm(a, c(MATRIX.T), c(VECTOR), transB=1, alpha=0.5), "MatMul,Add,Mul", M),
    "gemm-conv": (lambda a: ops.gemm(a, c(MATRIX), c(VECTOR)), "Conv,Reshape,Add", M),
    "einsum": (lambda a, b: ops.einsum(a, b, equation="ij,jk->ik"), "MatMul", M, (4, 2)),
    "einsum-batch": (
        lambda a, b: ops.einsum(a, b, equation="bij,bjk->bik"),
        "MatMul,Transpose,Reshape",
        (2, 3, 4),
        (2, 4, 5),
    ),
    # convolutions and pools
    "conv-matmul": (lambda a: ops.conv(a, c(W), pads=[1, 1, 1, 1]), "MatMul,Reshape,Concat,Slice", IMAGE),
    "conv-gemm": (lambda a: ops.conv(a, c(W[:, :, :1, :1])), "Gemm,Reshape,Slice,Concat,Transpose", IMAGE),
    "conv-strided": (
        lambda a: ops.conv(a, c(W), c([1, 2, 3]), strides=[2, 2]),
        "MatMul,Reshape,Concat,Slice,Add",
        IMAGE,
    ),
    "conv-group": (
        lambda a: ops.conv(a, c(W[:, :1]), group=3, pads=[1, 1, 1, 1]),
        "Mul,Add,Pad,Slice,Reshape",
        IMAGE,
    ),
    "conv-1d": (lambda a: ops.conv(a, c(W[:, :, 0]), pads=[1, 1]), "Conv,Reshape", (2, 3, 8)),
    "average-pool": (lambda a: ops.average_pool(a, kernel_shape=[2, 2], strides=[2, 2]), "Conv", IMAGE),
    "average-pool-slices": (lambda a: ops.average_pool(a, kernel_shape=[2, 2], strides=[2, 2]), "Slice,Add,Mul", IMAGE),
    "max-pool": (lambda a: ops.max_pool(a, kernel_shape=[2, 2], strides=[2, 2]), "Slice,Max", IMAGE),
    "global-average": (lambda a: ops.global_average_pool(a), "ReduceMean", IMAGE),
    "global-average-pool": (lambda a: ops.global_average_pool(a), "AveragePool", IMAGE),
    "global-max": (lambda a: ops.global_max_pool(a), "ReduceMax", IMAGE),
    "batch-norm": (
        lambda a: ops.batch_normalization(a, c([1, 2, 3]), c([0, 1, 2]), c([1, 1, 1]), c([1, 2, 3])),
        "Mul,Add",
        IMAGE,
    ),
    "conv-transpose": (
        lambda a: ops.conv_transpose(a, c(W), strides=[2, 2]),
        "MatMul,Reshape,Concat,Slice,Transpose",
        (1, 3, 3, 3),
    ),
    # reductions
    "mean-pool": (lambda a: ops.reduce_mean(a, i(2, 3)), "GlobalAveragePool", IMAGE),
    "mean-average-pool": (lambda a: ops.reduce_mean(a, i(2, 3)), "AveragePool", IMAGE),
    "mean-matmul": (lambda a: ops.reduce_mean(a, i(1)), "MatMul", M),
    "mean-sum": (lambda a: ops.reduce_mean(a, i(-1)), "ReduceSum,Mul", M),
    "sum-matmul": (lambda a: ops.reduce_sum(a, i(0), keepdims=0), "MatMul,Transpose,Reshape", M),
    "sum-slices": (lambda a: ops.reduce_sum(a, i(1)), "Slice,Add", M),
    "sum-mean": (lambda a: ops.reduce_sum(a, i(1)), "ReduceMean,Mul", M),
    "max-slices": (lambda a: ops.reduce_max(a, i(1)), "Slice,Max", M),
    "reduce-max-pool": (lambda a: ops.reduce_max(a, i(2, 3)), "MaxPool,Reshape", IMAGE),
    "reduce-min-max": (lambda a: ops.reduce_min(a, i(1)), "ReduceMax,Neg", M),
    "prod-slices": (lambda a: ops.reduce_prod(a, i(1)), "Slice,Mul", M),
    "l2": (lambda a: ops.reduce_l2(a, i(1)), "Mul,ReduceSum,Sqrt", M),
    "log-sum-exp": (lambda a: ops.reduce_log_sum_exp(a, i(1)), "Exp,ReduceSum,Log", M),
    "cumsum-matmul": (lambda a: ops.cumsum(a, constant(np.int64(1))), "MatMul", M),
    "argmax": (lambda a: flag(ops.argmax(a, axis=1)), "ReduceMax,Equal,Cast,Mul,Sub", M),
    # movement
    "gather-slice": (lambda a: ops.gather(a, i(2, 0, 1), axis=0), "Slice,Concat", M),
    "gather-scalar": (lambda a: ops.gather(a, constant(np.int64(1)), axis=1), "Slice,Squeeze", M),
    "gather-matmul": (
        lambda a, b: ops.gather(a, ops.cast(test(b), to=DType.int64), axis=0),
        "OneHot,MatMul,Cast,Greater",
        M,
        (2,),
    ),
    "gather-split": (lambda a: ops.gather(a, i(2, 0), axis=1), "Split,Concat", M),
    "slice-split": (lambda a: ops.slice_(a, i(1), i(3), i(1)), "Split", M),
    "slice-gather": (lambda a: ops.slice_(a, i(1), i(3), i(1)), "Gather", M),
    "slice-step": (lambda a: ops.slice_(a, i(0), i(4), i(1), i(2)), "Split,Concat", M),
    "split-slice": (lambda a: ops.add(*ops.split(a, i(2, 2), axis=1)), "Slice,Add", M),
    "squeeze-reshape": (lambda a: ops.squeeze(a, i(1)), "Reshape", (3, 1, 4)),
    "unsqueeze-reshape": (lambda a: ops.unsqueeze(a, i(0, 2)), "Reshape", M),
    "flatten-reshape": (lambda a: ops.flatten(a), "Reshape", IMAGE),
    "reshape-flatten": (lambda a: ops.reshape(a, i(2, -1)), "Flatten", IMAGE),
    "reshape-squeeze": (lambda a: ops.reshape(a, i(3, 1, 4)), "Unsqueeze", M),
    "expand-tile": (lambda a: ops.expand(a, i(3, 4)), "Tile", (1, 4)),
    "expand-mul": (lambda a: ops.expand(a, i(3, 4)), "Mul", (1, 4)),
    "expand-concat": (lambda a: ops.expand(a, i(3, 4)), "Concat", (1, 4)),
    "tile-concat": (lambda a: ops.tile(a, i(2, 1)), "Concat", M),
    "tile-expand": (lambda a: ops.tile(a, i(2, 3)), "Expand,Reshape", M),
    "pad-concat": (lambda a: ops.pad(a, i(0, 1, 2, 0)), "Concat", M),
    "pad-reflect": (lambda a: ops.pad(a, i(0, 1, 0, 1), mode="reflect"), "Slice,Concat", M),
    "pad-conv": (lambda a: ops.pad(a, i(0, 0, 1, 1, 0, 0, 1, 1)), "Conv", IMAGE),
    "concat-pad": (lambda a, b: ops.concat(a, b, axis=1), "Pad,Add", M, M),
    "transpose-gemm": (lambda a: ops.transpose(a, perm=[1, 0]), "Gemm", M),
    "transpose-slices": (lambda a: ops.transpose(a, perm=[1, 0]), "Slice,Concat,Reshape", M),
    "transpose-ones": (lambda a: ops.transpose(a, perm=[1, 0, 2]), "Reshape", (1, 3, 4)),
    "depth-to-space": (lambda a: ops.depth_to_space(a, blocksize=2), "Reshape,Transpose", (1, 4, 2, 2)),
    "space-to-depth": (lambda a: ops.space_to_depth(a, blocksize=2), "Reshape,Transpose", (1, 2, 4, 4)),
    "resize-expand": (
        lambda a: ops.resize(a, None, c([1, 1, 2, 2]), mode="nearest"),
        "Reshape,Expand",
        (1, 2, 3, 3),
    ),
    "resize-tile": (lambda a: ops.resize(a, None, c([1, 1, 2, 2]), mode="nearest"), "Reshape,Tile", (1, 2, 3, 3)),
    "resize-conv-transpose": (
        lambda a: ops.resize(a, None, c([1, 1, 2, 2]), mode="nearest"),
        "ConvTranspose",
        (1, 2, 3, 3),
    ),
    "resize-slices": (
        lambda a: ops.resize(a, None, c([1, 1, 1.5, 1]), mode="nearest"),
        "Slice,Concat",
        (1, 2, 4, 3),
    ),
    "resize-linear": (lambda a: ops.resize(a, None, c([1, 1, 2, 2]), mode="linear"), "MatMul", (1, 2, 3, 3)),
    "trilu": (lambda a: ops.trilu(a), "Mul", M),
    "identity-mul": (lambda a: ops.identity(a), "Mul", M),
    "dropout": (lambda a: ops.relu(ops.dropout(a)[0]), "Relu", M),
    # functions
    "floor-ceil": (lambda a: ops.floor(a), "Ceil,Neg", M),
    "floor-cast": (lambda a: ops.floor(a), "Cast,Greater,Sub", M),
    "round-sums": (lambda a: ops.round_(a), "Add,Sub", M),
    "cos-sin": (lambda a: ops.cos(a), "Sin,Add", M),
    "tan": (lambda a: ops.tan(a), "Sin,Cos,Div", M),
    "sinh": (lambda a: ops.sinh(a), "Exp,Sub,Mul", M),
    "exp-pow": (lambda a: ops.exp(a), "Pow", M),
    # lowered to constants, windows and other forms
    "mul-matmul": (lambda a: ops.mul(a, c([1.0, 2, 3, 4])), "MatMul", M),
    "add-gemm": (lambda a: ops.add(a, c([1.0, 2, 3, 4])), "Gemm", M),
    "mul-const-gemm": (lambda a: ops.mul(a, c(2.0)), "Gemm", M),
    "sign-div": (lambda a: ops.sign(a), "Where,Greater,Less", M),
    "clip-hs": (lambda a: ops.clip(a, c(0.0), c(1.0)), "HardSigmoid", M),
    "elu-where": (lambda a: ops.elu(a, alpha=1.0), "Where,Less,Exp,Sub", M),
    "elu-max": (lambda a: ops.elu(a, alpha=1.0), "Max,Min,Exp,Sub,Add", M),
    "celu-elu": (lambda a: ops.celu(a, alpha=2.0), "Elu,Mul,Div", M),
    "log-softmax-parts": (lambda a: ops.log_softmax(a), "Exp,ReduceSum,Log,Sub", M),
    "log-softmax-lse": (lambda a: ops.log_softmax(a), "ReduceLogSumExp,Sub", M),
    "softmax-lse": (lambda a: ops.softmax(a, axis=0), "ReduceLogSumExp,Sub,Exp", M),
    "hardmax": (lambda a: ops.hardmax(a), "ArgMax,OneHot", M),
    "and-min": (lambda a, b: flag(ops.and_(test(a), test(b))), "Min,Cast,Greater", M, M),
    "isinf": (lambda a: flag(ops.isinf(a)), "Abs,Equal,Cast", M),
    "max-maxpool": (lambda a, b: ops.maximum(a, b), "MaxPool,Concat,Unsqueeze,Reshape", M, M),
    "matmul-conv1x1": (lambda a: ops.matmul(a, c(MATRIX)), "Conv,Transpose,Unsqueeze,Squeeze", (2, 3, 4)),
    "einsum-dot": (lambda a, b: ops.einsum(a, b, equation="i,i->"), "Mul,ReduceSum", (3,), (3,)),
    "avgpool-pads-mul": (lambda a: ops.average_pool(a, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), "Conv,Mul", IMAGE),
    "avgpool-resh": (lambda a: ops.average_pool(a, kernel_shape=[2, 2], strides=[2, 2]), "Reshape,ReduceMean", IMAGE),
    "maxpool-resh": (lambda a: ops.max_pool(a, kernel_shape=[2, 2], strides=[2, 2]), "Reshape,ReduceMax", IMAGE),
    "gap-rs": (lambda a: ops.global_average_pool(a), "ReduceSum,Mul", IMAGE),
    "lrn": (lambda a: ops.lrn(a, size=3), "AveragePool,Pow,Mul,Add,Div,Reshape,Transpose", IMAGE),
    "lrn-conv": (lambda a: ops.lrn(a, size=3), "Conv,Pow,Mul,Add,Div", IMAGE),
    "rmean-all": (lambda a: ops.reduce_mean(a, keepdims=0), "ReduceSum,Mul", M),
    "rmean-conv": (lambda a: ops.reduce_mean(a, i(1)), "Conv", IMAGE),
    "rsum-einsum": (lambda a: ops.reduce_sum(a, i(1), keepdims=0), "Einsum", M),
    "rsum-gap": (lambda a: ops.reduce_sum(a, i(2, 3)), "GlobalAveragePool,Mul", IMAGE),
    "rmax-gmp": (lambda a: ops.reduce_max(a, i(2, 3)), "GlobalMaxPool", IMAGE),
    "rmin-neg": (lambda a: ops.reduce_min(a, i(2, 3)), "GlobalMaxPool,Neg", IMAGE),
    "l2b": (lambda a: ops.reduce_l2(a, i(1)), "ReduceSumSquare,Sqrt", M),
    "argmax-topk": (lambda a: flag(ops.argmax(a, axis=1)), "TopK,Cast", M),
    "argmin-argmax": (lambda a: flag(ops.argmin(a, axis=1)), "ArgMax,Neg,Cast", M),
    "scatter-el": (
        lambda a: ops.scatter_elements(a, constant(np.array([[0], [1], [2]], np.int64)), c([[5], [6], [7]]), axis=1),
        "Where",
        M,
    ),
    "scatter-nd": (
        lambda a: ops.scatter_nd(a, constant(np.array([[1]], np.int64)), c([[5, 6, 7, 8]])),
        "Slice,Concat",
        M,
    ),
    "scatter-add": (
        lambda a: ops.scatter_nd(a, constant(np.array([[1]], np.int64)), c([[5, 6, 7, 8]]), reduction="add"),
        "Add",
        M,
    ),
    "slice-conv": (lambda a: ops.slice_(a, i(0), i(6), i(2), i(2)), "Conv", IMAGE),
    "slice-maxpool": (lambda a: ops.slice_(a, i(0), i(6), i(2), i(2)), "MaxPool", IMAGE),
    "concat-mm": (lambda a, b: ops.concat(a, b, axis=1), "MatMul,Add", M, M),
    "squeeze-gather": (lambda a: ops.squeeze(a, i(1)), "Gather", (3, 1, 4)),
    "squeeze-rs": (lambda a: ops.squeeze(a, i(1)), "ReduceSum", (3, 1, 4)),
    "unsq-expand": (lambda a: ops.unsqueeze(a, i(0)), "Expand", M),
    "expand-where": (lambda a: ops.expand(a, i(3, 4)), "Where", (1, 4)),
    "expand-gather": (lambda a: ops.expand(a, i(3, 4)), "Gather", (1, 4)),
    "expand-mm": (lambda a: ops.expand(a, i(3, 4)), "MatMul", (1, 4)),
    "expand-max": (lambda a: ops.expand(a, i(3, 4)), "Max", (1, 4)),
    "tile-gather": (lambda a: ops.tile(a, i(2, 1)), "Gather", M),
    "pad-mm": (lambda a: ops.pad(a, i(0, 1, 0, 2)), "MatMul", M),
    "tr-gather": (lambda a: ops.transpose(a, perm=[1, 0]), "Gather,Reshape", M),
    "tr-3": (lambda a: ops.transpose(a, perm=[0, 2, 1]), "Gather,Reshape", (2, 3, 4)),
    "d2s-convT": (lambda a: ops.depth_to_space(a, blocksize=2), "ConvTranspose", (1, 4, 2, 2)),
    "s2d-conv": (lambda a: ops.space_to_depth(a, blocksize=2), "Conv", (1, 2, 4, 4)),
    "s2d-slices": (lambda a: ops.space_to_depth(a, blocksize=2), "Slice,Concat", (1, 2, 4, 4)),
    "resize-lin-gather": (
        lambda a: ops.resize(a, None, c([1, 1, 2, 2]), mode="linear"),
        "Gather,Mul,Add",
        (1, 2, 3, 3),
    ),
    "resize-down": (lambda a: ops.resize(a, None, c([1, 1, 0.5, 0.5]), mode="nearest"), "Slice", (1, 2, 4, 4)),
    "shrink-relu": (lambda a: ops.shrink(a, lambd=0.5, bias=0.5), "Relu,Sub,Neg", M),
    "rev-seq": (lambda a: ops.reverse_sequence(a, i(3, 2, 1, 3), time_axis=0, batch_axis=1), "Slice,Concat", M),
    "det": (lambda a: ops.det(a), "Slice,Mul,Sub,Squeeze", (2, 2)),
}

#: Graphs that need an approximation.
APPROXIMATE = {
    "erf-polynomial": (lambda a: ops.erf(a), "Mul,Add,Sub,Min,Max", M),
    "erf-exp": (lambda a: ops.erf(a), "Mul,Add,Sub,Div,Exp,Abs,Sign", M),
    "gelu-polynomial": (lambda a: ops.gelu(a), "Mul,Add,Sub,Relu", M),
}
