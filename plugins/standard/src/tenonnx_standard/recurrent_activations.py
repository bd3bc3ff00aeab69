"""Activations and clipping of recurrent layers, for values and arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenonnx.extend import Value, dims
from tenonnx_standard.activation import (
    elu,
    hard_sigmoid,
    leaky_relu,
    relu,
    sigmoid,
    softplus,
    softsign,
    thresholded_relu,
)
from tenonnx_standard.joining import split
from tenonnx_standard.math import clip as clipped
from tenonnx_standard.trigonometry import tanh

Array = np.ndarray[Any, Any]


class Kit(NamedTuple):
    """Operations of a step, on values or on arrays: apply an op, split the last axis evenly, and clip.

    ``but_last`` splits off the last of equal parts.
    """

    apply: Callable[..., Any]
    split: Callable[[Any, int], Sequence[Any]]
    but_last: Callable[[Any, int], Sequence[Any]]
    clip: Callable[[Any, float], Any]


def _cut(x: Array, count: int) -> list[Array]:
    size = x.shape[-1] // count
    return [x[..., k * size : (k + 1) * size] for k in range(count)]


def _but_last(x: Value, count: int) -> Sequence[Value]:
    size = dims(x)[-1] // count
    return split(x, [size * (count - 1), size], axis=-1)  # type: ignore[no-any-return]


ON_VALUES = Kit(
    lambda op, x, **attributes: op(x, **attributes),
    lambda x, count: split(x, axis=-1, num_outputs=count),
    _but_last,
    lambda x, limit: clipped(x, -limit, limit),
)
ON_ARRAYS = Kit(
    lambda op, x, **attributes: op.rules["numpy"](x, **attributes),
    _cut,
    lambda x, count: (x[..., : -x.shape[-1] // count], x[..., -x.shape[-1] // count :]),
    lambda x, limit: np.clip(x, -limit, limit),
)

#: For each activation, the defaults of its parameters (none, alpha, or alpha and beta), and its function.
ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Any]]] = {
    "relu": ((), lambda kit, x: kit.apply(relu, x)),
    "tanh": ((), lambda kit, x: kit.apply(tanh, x)),
    "sigmoid": ((), lambda kit, x: kit.apply(sigmoid, x)),
    "softsign": ((), lambda kit, x: kit.apply(softsign, x)),
    "softplus": ((), lambda kit, x: kit.apply(softplus, x)),
    "elu": ((1.0,), lambda kit, x, alpha: kit.apply(elu, x, alpha=alpha)),
    "leakyrelu": ((0.01,), lambda kit, x, alpha: kit.apply(leaky_relu, x, alpha=alpha)),
    "thresholdedrelu": ((1.0,), lambda kit, x, alpha: kit.apply(thresholded_relu, x, alpha=alpha)),
    "hardsigmoid": ((0.2, 0.5), lambda kit, x, alpha, beta: kit.apply(hard_sigmoid, x, alpha=alpha, beta=beta)),
    "affine": ((1.0, 0.0), lambda kit, x, alpha, beta: x * alpha + beta),
    "scaledtanh": ((1.0, 1.0), lambda kit, x, alpha, beta: kit.apply(tanh, x * beta) * alpha),
}
