"""Functions of single elements."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from judging import Case, array

UNIT = array(3, 5, low=-0.95, high=0.95)
POSITIVE = array(3, 5, low=0.1, high=4)
X, Y = array(3, 5), array(3, 5, seed=1)
EDGES = np.float32([[-np.inf, -1.5, -0.0, 0.0, 1.5, np.inf, np.nan, 2.5, -2.5, 3.5]])
N, J = array(3, 5, dtype="int32", low=-9, high=9), array(3, 5, dtype="int32", low=1, high=4)

_UNARY = {
    "abs": (tf.abs, X), "acos": (tf.acos, UNIT), "acosh": (tf.acosh, POSITIVE + 1), "asin": (tf.asin, UNIT),
    "asinh": (tf.asinh, X), "atan": (tf.atan, X), "atanh": (tf.atanh, UNIT), "ceil": (tf.math.ceil, X),
    "cos": (tf.cos, X), "cosh": (tf.cosh, X), "erf": (tf.math.erf, X), "erfc": (tf.math.erfc, X * 3),
    "erfinv": (tf.math.erfinv, UNIT), "exp": (tf.exp, X), "expm1": (tf.math.expm1, X * 0.01), "floor": (tf.floor, X),
    "is_finite": (tf.math.is_finite, EDGES), "is_inf": (tf.math.is_inf, EDGES), "is_nan": (tf.math.is_nan, EDGES),
    "lgamma": (tf.math.lgamma, POSITIVE), "lgamma_below": (tf.math.lgamma, X * 3), "digamma": (tf.math.digamma, POSITIVE),
    "log": (tf.math.log, POSITIVE), "log1p": (tf.math.log1p, UNIT * 0.01), "log1p_edges": (tf.math.log1p, EDGES),
    "log_sigmoid": (tf.math.log_sigmoid, X * 10), "neg": (tf.negative, X), "reciprocal": (tf.math.reciprocal, POSITIVE),
    "rint": (tf.math.rint, EDGES), "round": (tf.round, EDGES), "rsqrt": (tf.math.rsqrt, POSITIVE),
    "sigmoid": (tf.sigmoid, X), "sign": (tf.sign, EDGES[:, :6]), "sin": (tf.sin, X), "sinh": (tf.sinh, X),
    "softplus": (tf.math.softplus, X * 10), "softsign": (tf.math.softsign, X), "sqrt": (tf.sqrt, POSITIVE),
    "square": (tf.square, X), "tan": (tf.tan, UNIT), "tanh": (tf.tanh, X), "ndtri": (tf.math.ndtri, (UNIT + 1) / 2),
    "i0e": (tf.math.bessel_i0e, X * 4), "i1e": (tf.math.bessel_i1e, X * 4), "relu": (tf.nn.relu, X),
    "relu6": (tf.nn.relu6, X * 5), "leaky_relu": (tf.nn.leaky_relu, X), "elu": (tf.nn.elu, X), "selu": (tf.nn.selu, X),
    "crelu": (tf.nn.crelu, X), "swish": (tf.nn.silu, X), "gelu": (tf.nn.gelu, X),
    "gelu_tanh": (lambda x: tf.nn.gelu(x, approximate=True), X), "softmax": (tf.nn.softmax, X),
    "softmax_axis": (lambda x: tf.nn.softmax(x, axis=0), X), "log_softmax": (tf.nn.log_softmax, X),
    "cast_truncates": (lambda x: tf.cast(x * 2, tf.int32), X), "cast_bool": (lambda x: tf.cast(x, tf.bool), N),
    "cast_float16": (lambda x: tf.cast(x, tf.float16), X), "cast_bfloat16": (lambda x: tf.cast(tf.cast(x, tf.bfloat16), tf.float32), X),
    "clip": (lambda x: tf.clip_by_value(x, -1.0, 1.0), X), "clip_norm": (lambda x: tf.clip_by_norm(x, 1.0), X),
    "invert": (tf.bitwise.invert, N), "logical_not": (tf.logical_not, array(3, dtype="bool")),
    "l2_normalize": (lambda x: tf.math.l2_normalize(x, axis=-1), X), "int_abs": (tf.abs, N), "int_sign": (tf.sign, N),
    "sinc": (lambda x: tf.experimental.numpy.sinc(x), X),
}  # fmt: skip

_BINARY = {
    "add": (tf.add, X, Y), "add_rows": (tf.add, X, Y[0]), "sub": (tf.subtract, X, Y), "mul": (tf.multiply, X, Y),
    "div": (tf.divide, X, Y), "div_no_nan": (tf.math.divide_no_nan, X, np.where(Y > 0, Y, 0).astype("f")),
    "mul_no_nan": (tf.math.multiply_no_nan, X, np.where(Y > 0, Y, 0).astype("f")),
    "floordiv": (tf.math.floordiv, X, Y), "floordiv_int": (tf.math.floordiv, N, J), "floordiv_negative": (tf.math.floordiv, N, -J),
    "floormod": (tf.math.floormod, X, Y), "floormod_int": (tf.math.floormod, N, J), "floormod_negative": (tf.math.floormod, N, -J),
    "truncatediv": (tf.truncatediv, N, J), "truncatemod": (tf.truncatemod, N, J), "truncatemod_float": (tf.truncatemod, X, Y),
    "pow": (tf.pow, POSITIVE, Y), "pow_int": (tf.pow, J, J), "maximum": (tf.maximum, X, Y), "minimum": (tf.minimum, X, Y),
    "maximum_int": (tf.maximum, N, J), "squared_difference": (tf.math.squared_difference, X, Y), "atan2": (tf.atan2, X, Y),
    "atan2_zeros": (tf.atan2, np.float32([0, -0.0, 0, -0.0, 1, -1]), np.float32([1, 1, -1, -1, 0, 0])),
    "xlogy": (tf.math.xlogy, np.where(X > 0, X, 0).astype("f"), POSITIVE), "xdivy": (tf.math.xdivy, np.where(X > 0, X, 0).astype("f"), Y),
    "xlog1py": (tf.math.xlog1py, X, POSITIVE), "equal": (tf.equal, N, N.T[:3, :1] if False else N), "not_equal": (tf.not_equal, N, J),
    "greater": (tf.greater, X, Y), "greater_equal": (tf.greater_equal, N, J), "less": (tf.less, X, Y),
    "less_equal": (tf.less_equal, N, J), "logical_and": (tf.logical_and, array(4, dtype="bool"), array(4, dtype="bool", seed=3)),
    "logical_or": (tf.logical_or, array(4, dtype="bool"), array(4, dtype="bool", seed=3)),
    "logical_xor": (tf.math.logical_xor, array(4, dtype="bool"), array(4, dtype="bool", seed=3)),
    "bitwise_and": (tf.bitwise.bitwise_and, N, J), "bitwise_or": (tf.bitwise.bitwise_or, N, J),
    "bitwise_xor": (tf.bitwise.bitwise_xor, N, J), "left_shift": (tf.bitwise.left_shift, N, J),
    **{f"{way}_shift_{kind}": (getattr(tf.bitwise, f"{way}_shift"), array(9, dtype=kind, low=0 if kind[0] == "u" else -120, high=120), np.arange(9).astype(kind) * 8)
       for way in ("left", "right") for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")},

    "right_shift": (tf.bitwise.right_shift, N, J), "where": (lambda x, y: tf.where(x > y, x, y), X, Y),
    "where_rows": (lambda x, y: tf.where(x[:, :1] > 0, x, y), X, Y), "add_n": (lambda x, y: tf.add_n([x, y, x]), X, Y),
    "approximate_equal": (lambda x, y: tf.raw_ops.ApproximateEqual(x=x, y=y, tolerance=0.5), X, Y),
    "select_v1": (lambda x, y: tf.compat.v1.where(x[:, 0] > 0, x, y), X, Y), "nextafter_free": (lambda x, y: tf.math.cumulative_logsumexp(x, axis=1) + y, X, Y),
    "zeta_free": (lambda x, y: tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=y), X, Y),
    "softmax_loss": (lambda x, y: tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(x), logits=y), X, Y),
    "sparse_loss": (lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x), X, array(3, dtype="int32", low=0, high=4)),
}  # fmt: skip

_FIRST = {name: Case(lambda f=f: tf.function(f), [x]) for name, (f, x) in _UNARY.items()}
_SECOND = {name: Case(lambda f=f: tf.function(f), [x, y]) for name, (f, x, y) in _BINARY.items()}

CASES = _FIRST | _SECOND
