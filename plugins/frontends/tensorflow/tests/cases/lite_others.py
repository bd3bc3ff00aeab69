"""TFLite operators that no other case covers, on floats and integers."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from flatbuffers.flexbuffers import Dumps
from judging import Case, array
from lite_files import Op, T, built

from cases.lite import converted
from cases.lite_quantized import single

X = (2, 4, 6, 3)


def bits_there_and_back(floats: Any, integers: Any) -> Path:
    """Bit casts of floats to integers and back."""
    tensors = [T(shape=X, dtype=floats), T(shape=X, dtype=integers), T(shape=X, dtype=floats)]
    return built(tensors, [Op("BITCAST", [0], [1]), Op("BITCAST", [1], [2])], [0], [1, 2])


def _ints(*contents: Any) -> T:
    return T(np.asarray(contents[0] if len(contents) == 1 else contents, np.int32))


def _of(dtype: Any, *shape: int) -> T:
    return T(shape=shape or X, dtype=dtype)


def _case(name: str, inputs: Sequence[T], outputs: Sequence[T], options: Any = None, **given: Any) -> Case:
    held = None if options is None else (options, given)
    return Case(lambda: single(name, inputs, outputs, held))


def counter() -> Any:
    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = tf.Variable([1.0, 2.0, 3.0])

        @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, name="x")])
        def add(self, x: Any) -> Any:
            self.total.assign_add(x)
            return self.total * 2.0

    module = Counter()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.add.get_concrete_function()], module)
    converter.experimental_enable_resource_variables = True
    path = Path(tempfile.mkdtemp()) / "model.tflite"
    path.write_bytes(converter.convert())
    return path


def detection(background: int = 0, of_box: int = 1, dtype: Any = np.float32, **more: Any) -> Path:
    """Detector postprocessing: boxes around twelve anchors, and scores of three classes."""
    anchors = np.abs(array(12, 4)) / 4 + 0.1
    shapes, scales = [(1, 12, 4), (1, 12, 3 + background)], [(0.02, 128), (1 / 256, 0)]
    given = [
        T(shape=shape, dtype=dtype, scale=None if dtype is np.float32 else scale, zero=zero)
        for shape, (scale, zero) in zip(shapes, scales, strict=True)
    ]
    held = T(anchors) if dtype is np.float32 else T((anchors * 100).astype(np.uint8), scale=0.01, zero=0)
    rows = 5 * of_box
    results = [T(shape=(1, rows, 4)), T(shape=(1, rows)), T(shape=(1, rows)), T(shape=(1,))]
    options = {
        "max_detections": 5,
        "max_classes_per_detection": of_box,
        "nms_score_threshold": 0.3,
        "nms_iou_threshold": 0.5,
        "num_classes": 3,
        "y_scale": 10.0,
        "x_scale": 10.0,
        "h_scale": 5.0,
        "w_scale": 5.0,
        **more,
    }
    call = Op("CUSTOM", [0, 1, 2], [3, 4, 5, 6], custom=("TFLite_Detection_PostProcess", bytes(Dumps(options))))
    return built([*given, held, *results], [call], [0, 1], [3, 4, 5, 6])


F, N, B = np.float32, np.int32, np.bool_
_BOXES = np.asarray([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.2, 1, 3.2]], np.float32)
_SUPPRESSED = [
    T(_BOXES),
    _of(F, 4),
    T(np.asarray(3, np.int32)),
    T(np.asarray(0.5, np.float32)),
    T(np.asarray(-1.0, np.float32)),
]
_POOL = {"padding": 1, "strideH": 2, "strideW": 1, "filterHeight": 2, "filterWidth": 3, "fusedActivationFunction": 0}
_CONV3D = {
    "padding": 0,
    "strideD": 1,
    "strideH": 2,
    "strideW": 1,
    "dilationDFactor": 1,
    "dilationHFactor": 1,
    "dilationWFactor": 1,
    "fusedActivationFunction": 1,
}

CASES = {
    "add_n": _case("ADD_N", [_of(F), _of(F), _of(F)], [_of(F)], "AddNOptions"),
    "bitwise_xor": _case("BITWISE_XOR", [_of(N), _of(N)], [_of(N)], "BitwiseXorOptions"),
    "bitcast": Case(lambda: bits_there_and_back(np.float32, np.int32)),
    "bitcast_unsigned": Case(lambda: bits_there_and_back(np.float32, np.uint32)),
    "right_shift": _case("RIGHT_SHIFT", [_of(N), _of(N)], [_of(N)], "RightShiftOptions"),
    "broadcast_args": _case("BROADCAST_ARGS", [_ints(2, 1, 3), _ints(4, 1)], [_of(N, 3)]),
    "bucketize": _case("BUCKETIZE", [_of(F)], [_of(N)], "BucketizeOptions", boundaries=[-1.0, 0.0, 0.5]),
    "conv_3d": _case(
        "CONV_3D",
        [_of(F, 1, 4, 6, 5, 2), T(array(2, 3, 2, 2, 3)), T(array(3))],
        [_of(F, 1, 4, 3, 5, 3)],
        "Conv3DOptions",
        **_CONV3D,
    ),
    "conv_3d_transpose": _case(
        "CONV_3D_TRANSPOSE",
        [_ints(1, 4, 12, 5, 3), T(array(2, 3, 2, 3, 2)), _of(F, 1, 4, 6, 5, 2), T(array(3))],
        [_of(F, 1, 4, 12, 5, 3)],
        "Conv3DOptions",
        **_CONV3D,
    ),
    "update_slice": _case(
        "DYNAMIC_UPDATE_SLICE",
        [_of(F), T(array(1, 2, 6, 3)), _ints(1, 9, 0, -2)],
        [_of(F)],
        "DynamicUpdateSliceOptions",
    ),
    **{
        name: _case(name.upper(), [_of(N), _of(N)], [_of(B)], f"{''.join(p.title() for p in name.split('_'))}Options")
        for name in ("equal", "not_equal", "greater_equal")
    },
    "logical_or": _case("LOGICAL_OR", [_of(B), _of(B)], [_of(B)], "LogicalOrOptions"),
    "logical_not": _case("LOGICAL_NOT", [_of(B)], [_of(B)], "LogicalNotOptions"),
    "reduce_all": _case("REDUCE_ALL", [_of(B), _ints([1, 3])], [_of(B, 2, 6)], "ReducerOptions", keepDims=False),
    "fill": Case(lambda: converted(lambda x: tf.fill([2, 3], x[0, 0]) + 1.0, [(2, 3)])),
    "l2_pool": _case("L2_POOL_2D", [_of(F)], [_of(F, 2, 2, 4, 3)], "Pool2DOptions", **_POOL),
    "matrix_diag": _case("MATRIX_DIAG", [_of(F, 2, 4)], [_of(F, 2, 4, 4)], "MatrixDiagOptions"),
    "matrix_set_diag": _case(
        "MATRIX_SET_DIAG", [_of(F, 2, 4, 5), _of(F, 2, 4)], [_of(F, 2, 4, 5)], "MatrixSetDiagOptions"
    ),
    "suppression": _case("NON_MAX_SUPPRESSION_V4", _SUPPRESSED, [_of(N, 3), _of(N)], "NonMaxSuppressionV4Options"),
    "soft_suppression": _case(
        "NON_MAX_SUPPRESSION_V5",
        [*_SUPPRESSED, T(np.asarray(0.0, np.float32))],
        [_of(N, 3), _of(F, 3), _of(N)],
        "NonMaxSuppressionV5Options",
    ),
    "prelu": _case("PRELU", [_of(F), T(array(1, 1, 3))], [_of(F)]),
    "relu_0_to_1": _case("RELU_0_TO_1", [_of(F)], [_of(F)]),
    "round": _case("ROUND", [_of(F)], [_of(F)]),
    "range": Case(lambda: converted(lambda x: tf.range(0.0, tf.reduce_sum(tf.abs(x)), 0.5), [(2, 3)])),
    "rank": _case("RANK", [_of(F)], [T(shape=(), dtype=N)], "RankOptions"),
    "zeros_like": _case("ZEROS_LIKE", [_of(F)], [_of(F)], "ZerosLikeOptions"),
    "squeeze": _case("SQUEEZE", [_of(F, 2, 1, 3, 1)], [_of(F, 2, 3, 1)], "SqueezeOptions", squeezeDims=[1]),
    "squeeze_all": _case("SQUEEZE", [_of(F, 2, 1, 3, 1)], [_of(F, 2, 3)], "SqueezeOptions", squeezeDims=[]),
    "sparse_to_dense": _case(
        "SPARSE_TO_DENSE",
        [_ints([[0, 1], [2, 3]]), _ints(3, 4), _of(F, 2), T(np.asarray(7.0, np.float32))],
        [_of(F, 3, 4)],
        "SparseToDenseOptions",
    ),
    "unique": _case("UNIQUE", [_of(N, 6)], [_of(N, 6), _of(N, 6)], "UniqueOptions", idxOutType=2),
    **{
        f"unsorted_{k}": _case(
            f"UNSORTED_SEGMENT_{k.upper()}",
            [_of(F, 4, 3), _ints(2, 0, 2, -1), T(np.asarray(4, np.int32))],
            [_of(F, 4, 3)],
            f"UnsortedSegment{k.title()}Options",
        )
        for k in ("sum", "max", "min", "prod")
    },
    "fake_quant": _case(
        "FAKE_QUANT", [_of(F)], [_of(F)], "FakeQuantOptions", min=-1.0, max=2.0, numBits=8, narrowRange=False
    ),
    "real_and_imag": Case(
        lambda: converted(lambda x: tf.math.real(tf.signal.rfft2d(x)) + tf.math.imag(tf.signal.rfft2d(x)), [(2, 8, 16)])
    ),
    "random": Case(lambda: converted(lambda x: x + tf.random.uniform(tf.shape(x)) * 0.0, [(2, 3)])),
    "random_normal": Case(lambda: converted(lambda x: x + tf.random.normal(tf.shape(x)) * 0.0, [(2, 3)])),
    "variables": Case(counter),
    **{
        f"detection_{n}": Case(lambda given=given: detection(**given))
        for n, given in {
            "fast": {},
            "background": {"background": 1},
            "regular": {"use_regular_nms": True, "detections_per_class": 2},
            "regular_background": {"use_regular_nms": True, "background": 1},
            "classes": {"of_box": 2},
            "few": {"nms_score_threshold": 1.2},
            "codes": {"dtype": np.uint8},
            "codes_regular": {"dtype": np.uint8, "use_regular_nms": True},
        }.items()
    },
}
