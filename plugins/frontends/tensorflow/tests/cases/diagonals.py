"""Diagonals by offset, band and alignment, with static and dynamic batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from judging import Case, array

X, B, Q = array(3, 4), array(2, 4, 5), array(2, 4, 4)
_SYMMETRIC = (Q @ Q.transpose(0, 2, 1) + 4 * np.eye(4)).astype(np.float32)
ALIGNMENTS = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")

_FUNCTIONS: dict[str, tuple[Any, Any]] = {
    **{f"diag_{k}": (lambda x, k=k: tf.linalg.diag(x, k=k), X) for k in (-2, -1, 1, 3)},
    "diag_band": (lambda x: tf.linalg.diag(x, k=(-1, 1)), array(2, 3, 4)),
    "diag_rows": (lambda x: tf.linalg.diag(x, k=-1, num_rows=5), X),
    "diag_padded": (
        lambda x: tf.linalg.diag(x, k=(0, 2), num_rows=4, padding_value=-1.0, align="LEFT_RIGHT"),
        array(2, 3, 4),
    ),
    **{
        f"diag_part_{a.lower()}": (lambda x, a=a: tf.linalg.diag_part(x, k=(-2, 2), padding_value=9.0, align=a), B)
        for a in ALIGNMENTS
    },
    **{
        f"set_diag_{a.lower()}": (lambda x, a=a: tf.linalg.set_diag(x, x[:, :, :4], k=(-2, 1), align=a), B)
        for a in ALIGNMENTS
    },
    "set_diag_below": (lambda x: tf.linalg.set_diag(x, x[:, 0, :3], k=-1), B),
    "set_diag_above": (lambda x: tf.linalg.set_diag(x, x[:, 0, :3], k=2), B),
    "slogdet": (tf.linalg.slogdet, Q),
    "logdet": (tf.linalg.logdet, _SYMMETRIC),
    "expm": (lambda x: tf.linalg.expm(x * 0.1), Q),
    "cholesky_solve": (
        lambda a: tf.linalg.cholesky_solve(tf.linalg.cholesky(tf.matmul(a, a, transpose_b=True) + 4 * tf.eye(4)), a),
        Q,
    ),
    "norms": (lambda x: tf.norm(x, ord=1, axis=1) + tf.norm(x, ord=np.inf, axis=1) + tf.norm(x, ord=3.5, axis=1), B),
    "histogram": (lambda x: tf.histogram_fixed_width(x, [-1.0, 1.5], nbins=7), B),
    "histogram_wide": (lambda x: tf.histogram_fixed_width(x, [-0.3, 0.1], nbins=3, dtype=tf.int64), B),
    "update_slice": (
        lambda x: tf.raw_ops.TensorStridedSliceUpdate(
            input=x,
            begin=[0, -1],
            end=[0, 0],
            strides=[1, 1],
            value=x[:, 0],
            begin_mask=1,
            end_mask=1,
            shrink_axis_mask=2,
        ),
        B,
    ),
    "fftshift": (tf.signal.fftshift, B),
    "slices_backwards": (lambda x: x[..., -1:0:-2, tf.newaxis, 0], B),
    "slices_beyond": (lambda x: x[-5:9, ::-1, ..., None], B),
    "slice_of_nothing": (lambda x: x[:, 3:1, ...], B),
}

CASES = {name: Case(lambda f=f: tf.function(f), [x]) for name, (f, x) in _FUNCTIONS.items()} | {
    f"{name}_of_any_batch": Case(lambda f=f: tf.function(f), [tf.TensorSpec([None, *x.shape[1:]], name="x")])
    for name, (f, x) in _FUNCTIONS.items()
    # random matrices have determinants near zero, and TensorFlow infers another rank for set_diag
    if name not in ("slogdet", "logdet", *(f"set_diag_{a.lower()}" for a in ALIGNMENTS))
}
