"""Data movement and selection of elements."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from judging import Case, array

X, V = array(3, 4, 5), array(6)
N = np.int32([[0, 2], [1, 1]])
R = array(2, 4, 6, 3)
BATCH = {"dims": {"x": {0: "batch"}}}

_FUNCTIONS = {
    "reshape": lambda x: tf.reshape(x, [-1, 5]),
    "reshape_computed": lambda x: tf.reshape(x, [tf.shape(x)[0], -1]),
    "squeeze": lambda x: tf.squeeze(x[:, :1], [1]),
    "squeeze_all": lambda x: tf.squeeze(x[:1, :1]),
    "expand_dims": lambda x: tf.expand_dims(x, -2),
    "transpose": lambda x: tf.transpose(x, [2, 0, 1]),
    "transpose_reverse": tf.transpose,
    "concat": lambda x: tf.concat([x, x * 2], 1),
    "stack": lambda x: tf.stack([x, x], -1),
    "unstack": lambda x: tf.unstack(x, axis=1),
    "split": lambda x: tf.split(x, 2, axis=1),
    "split_sizes": lambda x: tf.split(x, [1, -1], axis=2),
    "slice": lambda x: tf.slice(x, [1, 0, 2], [-1, 2, 3]),
    "slice_computed": lambda x: tf.slice(x, [tf.shape(x)[0] - 1, 0, 0], [1, -1, -1]),
    "strided": lambda x: x[::-1, 1:3, ::2],
    "ellipsis": lambda x: x[..., 1],
    "new_axis": lambda x: x[:, tf.newaxis, 0, ..., tf.newaxis],
    "shrink_negative": lambda x: x[-1, :, -2],
    "shrink_computed": lambda x: x[tf.shape(x)[0] - 2],
    "open_ends": lambda x: x[:-1, -3:, 1:],
    "backwards": lambda x: x[:, 3:0:-1],
    "backwards_open": lambda x: x[:, 2::-2],
    "mixed_masks": lambda x: x[1:, ..., tf.newaxis, -1],
    "fill": lambda x: tf.fill(tf.shape(x)[:2], 3.0) + x[..., 0],
    "zeros_like": lambda x: tf.zeros_like(x) + 1,
    "ones_like": tf.ones_like,
    "broadcast_to": lambda x: tf.broadcast_to(x[:1], [2, 4, 5]),
    "tile": lambda x: tf.tile(x, [1, 2, 1]),
    "range": lambda x: tf.range(tf.shape(x)[1]),
    "linspace": lambda x: tf.linspace(x[0, 0, 0], x[0, 0, 1], 7),
    "pad": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1]]),
    "pad_value": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1]], constant_values=7.0),
    "pad_reflect": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1]], mode="REFLECT"),
    "pad_symmetric": lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 1]], mode="SYMMETRIC"),
    "reverse": lambda x: tf.reverse(x, [0, -1]),
    "roll": lambda x: tf.roll(x, [1, -2], [0, 2]),
    "where_indices": lambda x: tf.where(x > 0),
    "boolean_mask": lambda x: tf.boolean_mask(x, x[..., 0] > 0),
    "diag": lambda x: tf.linalg.diag(x[0]),
    "diag_part": lambda x: tf.linalg.diag_part(x),
    "diag_part_offset": lambda x: tf.linalg.diag_part(x, k=1),
    "set_diag": lambda x: tf.linalg.set_diag(x, tf.zeros(tf.shape(x)[:2])),
    "band_part": lambda x: tf.linalg.band_part(x, 1, 0),
    "band_part_open": lambda x: tf.linalg.band_part(x, -1, 0),
    "eye": lambda x: tf.eye(4) + x[0, :, :4],
    "trace": lambda x: tf.linalg.trace(x),
    "rank": lambda x: tf.rank(x) + 1,
    "size": tf.size,
    "shape": tf.shape,
    "gather": lambda x: tf.gather(x, N, axis=1),
    "gather_batch": lambda x: tf.gather(x[:2], N, axis=1, batch_dims=1),
    "gather_batch_2": lambda x: tf.gather(x[:2], N, axis=2, batch_dims=1),
    "gather_nd": lambda x: tf.gather_nd(x, N),
    "gather_nd_batch": lambda x: tf.gather_nd(x[:2], N[..., None], batch_dims=1),
    "one_hot": lambda x: tf.one_hot(tf.cast(x[0] * 3, tf.int32), 4),
    "one_hot_values": lambda x: tf.one_hot([0, 2, 5], 4, on_value=5.0, off_value=-1.0, axis=0) + x[0, 0, 0],
    "scatter_nd": lambda x: tf.scatter_nd(N, x[:2, 0], [3, 4, 5]),
    "scatter_twice": lambda x: tf.scatter_nd([[1], [1], [0]], x[:3, 0], [4, 5]),
    "scatter_update": lambda x: tf.tensor_scatter_nd_update(x, [[0], [2]], x[1:]),
    "scatter_add": lambda x: tf.tensor_scatter_nd_add(x, [[0], [0]], x[1:]),
    "scatter_sub": lambda x: tf.tensor_scatter_nd_sub(x, [[0], [0]], x[1:]),
    "scatter_max": lambda x: tf.tensor_scatter_nd_max(x, [[0], [0]], x[1:]),
    "scatter_min": lambda x: tf.tensor_scatter_nd_min(x, [[0], [0]], x[1:]),
    "segment_sum": lambda x: tf.math.segment_sum(x, [0, 0, 2]),
    "segment_mean": lambda x: tf.math.segment_mean(x, [0, 2, 2]),
    "segment_max": lambda x: tf.math.segment_max(x, [0, 2, 2]),
    "segment_min": lambda x: tf.math.segment_min(x, [1, 1, 3]),
    "segment_prod": lambda x: tf.math.segment_prod(x, [0, 0, 2]),
    "unsorted_sum": lambda x: tf.math.unsorted_segment_sum(x, [2, 0, 2], 4),
    "unsorted_negative": lambda x: tf.math.unsorted_segment_sum(x, [2, -1, 2], 4),
    "unsorted_max": lambda x: tf.math.unsorted_segment_max(x, [2, 0, 2], 4),
    "unsorted_min": lambda x: tf.math.unsorted_segment_min(x, [2, 0, 2], 4),
    "unsorted_prod": lambda x: tf.math.unsorted_segment_prod(x, [2, 0, 2], 4),
    "unsorted_mean": lambda x: tf.math.unsorted_segment_mean(x, [2, 0, 2], 4),
    "unsorted_sqrt_n": lambda x: tf.math.unsorted_segment_sqrt_n(x, [2, 0, 2], 4),
    "sparse_segment": lambda x: tf.sparse.segment_sum(x, [0, 2, 2], [0, 0, 1]),
    "sparse_segment_mean": lambda x: tf.sparse.segment_mean(x, [0, 2, 2], [0, 0, 2]),
    "dynamic_stitch": lambda x: tf.dynamic_stitch([[0, 2], [1]], [x[:2], x[2:]]),
    "dynamic_partition": lambda x: tf.dynamic_partition(x, [0, 1, 0], 2),
    "top_k": lambda x: tf.math.top_k(x, 3),
    "sort": lambda x: tf.sort(x, direction="DESCENDING"),
    "argsort": lambda x: tf.argsort(x, direction="DESCENDING", stable=True),
    "argmax": lambda x: tf.argmax(x, 1),
    "argmin": lambda x: tf.argmin(x, -1, output_type=tf.int32),
    "in_top_k": lambda x: tf.math.in_top_k([1, 2, 0], x[:, 0], 2),
    "searchsorted": lambda x: tf.searchsorted(tf.sort(x[0]), x[0]),
    "searchsorted_right": lambda x: tf.searchsorted(tf.sort(x[0]), x[0], side="right"),
    "bincount": lambda x: tf.math.bincount([1, 1, 3, 0]) + tf.cast(x[0, 0, 0] * 0, tf.int32),
    "bucketize": lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 1.5]),
    "cumsum": lambda x: tf.cumsum(x, 1),
    "cumsum_exclusive": lambda x: tf.cumsum(x, 2, exclusive=True, reverse=True),
    "cumprod": lambda x: tf.math.cumprod(x, 1),
    "sum": lambda x: tf.reduce_sum(x, [0, -1]),
    "sum_all": tf.reduce_sum,
    "mean_keep": lambda x: tf.reduce_mean(x, 1, keepdims=True),
    "max": lambda x: tf.reduce_max(x, -1),
    "min": lambda x: tf.reduce_min(x, 0),
    "prod": lambda x: tf.reduce_prod(x, 1),
    "all": lambda x: tf.reduce_all(x > -1, 1),
    "any": lambda x: tf.reduce_any(x > 1, [0, 1]),
    "norm": lambda x: tf.norm(x, axis=-1),
    "euclidean": lambda x: tf.math.reduce_euclidean_norm(x, 1),
    "logsumexp": lambda x: tf.reduce_logsumexp(x, 1),
    "variance": lambda x: tf.math.reduce_variance(x, 1),
    "std": lambda x: tf.math.reduce_std(x, [0, 1]),
    "mean_int": lambda x: tf.reduce_mean(tf.cast(x * 10, tf.int32), 1),
    "l2_loss": tf.nn.l2_loss,
    "moments": lambda x: tf.nn.moments(x, [0, 1]),
    "count_nonzero": lambda x: tf.math.count_nonzero(x > 0, 1),
    "confusion": lambda x: tf.math.confusion_matrix([0, 1, 2, 1], [0, 2, 2, 1], 3) + tf.cast(x[0, 0, 0] * 0, tf.int32),
    "sequence_mask": lambda x: tf.sequence_mask(tf.cast(tf.abs(x[0, 0]) * 2, tf.int32), 4),
    "meshgrid": lambda x: tf.meshgrid(x[0, 0], x[0, :, 0]),
    "repeat": lambda x: tf.repeat(x, 2, axis=1),
    "invert_permutation": lambda x: tf.math.invert_permutation([2, 0, 1]) + tf.cast(x[0, 0, 0] * 0, tf.int32),
    "matmul": lambda x: tf.matmul(x, x, transpose_b=True),
    "matmul_adjoint": lambda x: tf.linalg.matmul(x, x, adjoint_a=True),
    "matvec": lambda x: tf.linalg.matvec(x, x[0, 0]),
    "tensordot": lambda x: tf.tensordot(x, x, [[1, 2], [1, 2]]),
    "einsum": lambda x: tf.einsum("bij,bkj->bik", x, x),
    "cross": lambda x: tf.linalg.cross(x[..., :3], x[..., 2:]),
    "batch_gather": lambda x: tf.compat.v1.batch_gather(x, tf.argsort(x[..., 0])),
    "unique": lambda x: tf.unique(tf.cast(x[0, 0] * 2, tf.int32)),
    "unique_counts": lambda x: tf.unique_with_counts(tf.cast(x[0, 0] * 2, tf.int32)),
    "setdiff": lambda x: (
        tf.sets.size(tf.sets.difference([[1, 2]], [[2, 3]]))
        if False
        else tf.compat.v1.setdiff1d(tf.range(6), [1, 3])[0] + tf.cast(x[0, 0, 0] * 0, tf.int32)
    ),
    "nth": lambda x: tf.raw_ops.NthElement(input=x, n=1),
    "stop_gradient": tf.stop_gradient,
    "reverse_sequence": lambda x: tf.reverse_sequence(x, [1, 3, 4], seq_axis=1),
    "ensure_shape": lambda x: tf.ensure_shape(x, [None, 4, 5]),
    "identity_n": lambda x: tf.identity_n([x, x + 1]),
}

_MATRICES = {
    "det": (tf.linalg.det, array(2, 3, 3)),
    "inverse": (tf.linalg.inv, array(2, 4, 4)),
    "solve": (lambda a: tf.linalg.solve(a, a[..., :2]), array(2, 4, 4)),
    "cholesky": (lambda a: tf.linalg.cholesky(tf.matmul(a, a, transpose_b=True) + tf.eye(4)), array(2, 4, 4)),
    "triangular": (
        lambda a: tf.linalg.triangular_solve(tf.linalg.band_part(a, -1, 0) + 3 * tf.eye(4), a[..., :2]),
        array(2, 4, 4),
    ),
    "triangular_adjoint": (
        lambda a: tf.linalg.triangular_solve(tf.linalg.band_part(a, -1, 0) + 3 * tf.eye(4), a[..., :2], adjoint=True),
        array(2, 4, 4),
    ),
    "space_to_depth": (lambda x: tf.nn.space_to_depth(x, 2), R),
    "depth_to_space": (lambda x: tf.nn.depth_to_space(x, 2), array(2, 3, 3, 8)),
    "space_to_batch": (lambda x: tf.space_to_batch(x, [2, 3], [[0, 0], [1, 2]]), R),
    "batch_to_space": (lambda x: tf.batch_to_space(x, [2, 2], [[0, 1], [1, 0]]), array(8, 2, 3, 3)),
    "mod_rows": (lambda x: tf.math.floormod(tf.range(10), 3) + tf.cast(tf.reduce_sum(x) * 0, tf.int32), V),
    "bool_pad": (lambda x: tf.pad(x, [[1, 1]], constant_values=True), array(4, dtype="bool")),
    "fake_quant": (lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1, 1.5), X),
    "fake_quant_vars": (lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -1.1, 1.5, narrow_range=True), X),
}

#: What has no elements, few bits, or places outside of what is chosen from.
_EDGES = {
    "any_of_none": (
        lambda x: (tf.reduce_any(x > 0, 0), tf.reduce_all(x > 0, 0), tf.reduce_max(x, 0), tf.reduce_sum(x, 0)),
        array(0, 4),
    ),
    **{
        f"mean_{kind}": (
            lambda x: (tf.reduce_mean(x, 1), tf.reduce_sum(x, 1)),
            array(2, 4, dtype=kind, low=0, high=120),
        )
        for kind in ("int8", "uint8", "int16", "uint16", "uint32", "uint64")
    },
    "in_top_k_outside": (
        lambda x: tf.math.in_top_k([2, 0, 9, -1], x, 2),
        np.float32([[1, 2, 2, 0], [np.inf, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]),
    ),
    "one_hot_of_bool": (
        lambda i: tf.one_hot(i, 3, on_value=True, off_value=False, dtype=tf.bool),
        np.int32([0, -1, 2, 5]),
    ),
    "select_of_bool": (lambda x: tf.where(x > 0, x > 1, x < -1), X),
    "extremes_of_int16": (lambda x: (tf.maximum(x, 3), tf.minimum(x, 3)), array(5, dtype="int16", low=-9, high=9)),
    "log_sums_before": (
        lambda x: (
            tf.math.cumulative_logsumexp(x, 1, exclusive=True),
            tf.math.cumulative_logsumexp(x, 1, exclusive=True, reverse=True),
        ),
        array(2, 5),
    ),
}

_FIRST = {name: Case(lambda f=f: tf.function(f), [X]) for name, f in _FUNCTIONS.items()}
_SECOND = {
    f"{name}_of_any_batch": Case(lambda f=f: tf.function(f), [tf.TensorSpec([None, 4, 5], name="x")])
    for name, f in _FUNCTIONS.items()
    if name
    in (
        "reshape_computed",
        "slice_computed",
        "shrink_computed",
        "strided",
        "fill",
        "tile",
        "matmul",
        "einsum",
        "tensordot",
        "where_indices",
        "boolean_mask",
        "cumsum",
        "sum",
        "mean_keep",
        "concat",
        "stack",
        "pad",
        "reverse",
        "top_k",
        "gather",
        "gather_nd",
        "moments",
        "variance",
        "diag_part",
        "set_diag",
        "band_part",
        "scatter_update",
        "open_ends",
        "backwards",
        "range",
        "roll",
        "repeat",
        "batch_gather",
        "meshgrid",
    )
}
_THIRD = {name: Case(lambda f=f: tf.function(f), [x]) for name, (f, x) in (_MATRICES | _EDGES).items()}

CASES = _FIRST | _SECOND | _THIRD
