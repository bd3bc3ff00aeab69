"""Attributions by perturbed inputs: occlusion and KernelSHAP."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import InvalidCall, Value
from tenonnx_explain.gradients import baseline
from tenonnx_explain.parts import Explained, fixed_dims, free_name, per_row, repeated

Array = np.ndarray[Any, Any]


def occlusion(explained: Explained, window: Sequence[int] | None, strides: Sequence[int] | None) -> dict[str, Value]:
    """The drop of the output when a window of the input is replaced by the baseline (Zeiler and Fergus, 2014).

    A window covers ``window`` elements along each axis after the first and moves by ``strides``; drops of overlapping
    windows are averaged. Raises ``InvalidCall`` for windows or strides that do not fit the input.
    """
    attributions = {}
    selected = explained.selection()
    for x in explained.wrt:
        dims = fixed_dims(x, "occlusion")
        sizes, steps = _window(dims, window, strides)
        counts = [
            max(0, math.ceil((dim - size) / step)) + 1 for dim, size, step in zip(dims, sizes, steps, strict=True)
        ]
        starts = np.array(list(itertools.product(*map(range, counts))), np.int64) * np.array(steps, np.int64)
        covered = np.zeros(dims, x.dtype.numpy)
        for start in starts:
            covered[tuple(slice(s, s + size) for s, size in zip(start, sizes, strict=True))] += 1
        base = baseline(explained, x)
        function = explained.function([x])
        original = per_row(explained.output * selected)
        table = explained.graph.variable(free_name(explained.graph, f"{x.name}/windows"), starts)

        def step(number: Value, total: Value) -> list[Value]:
            start = ops.gather(table, number)  # noqa: B023  called within the iteration
            inside = None
            for axis, (dim, size) in enumerate(zip(dims, sizes, strict=True)):  # noqa: B023
                places = np.arange(dim).reshape(-1, *[1] * (len(dims) - axis - 1))  # noqa: B023
                first = ops.gather(start, np.int64(axis))
                each = ops.and_(ops.greater_or_equal(places, first), ops.less(places, first + size))
                inside = each if inside is None else ops.and_(inside, each)
            changed = function(ops.where(inside, base, x))[0]  # noqa: B023
            drop = original - per_row(changed * selected)  # noqa: B023
            spread = ops.reshape(drop, np.array([-1, *[1] * len(dims)], np.int64))  # noqa: B023
            return [total + spread * ops.cast(inside, to=x.dtype)]  # noqa: B023

        (total,) = repeated(step, [ops.zeros_like(x)], len(starts))
        attributions[f"{x.name}/attribution"] = total / np.maximum(covered, 1)
    return attributions


def _window(
    dims: tuple[int, ...], window: Sequence[int] | None, strides: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Window sizes and strides per axis. Default window: a feature, a token, or 1/8 of an image in all channels."""
    if window is None:
        if len(dims) == 3:
            channels = 0 if dims[0] <= dims[2] else 2
            sizes = [dim if axis == channels else max(1, dim // 8) for axis, dim in enumerate(dims)]
        else:
            sizes = [1, *dims[1:]]
    else:
        sizes = list(window)
    steps = [max(1, size // 2) if dim > size else size for dim, size in zip(dims, sizes, strict=False)]
    steps = steps if strides is None else list(strides)
    for what, numbers in (("window", sizes), ("strides", steps)):
        if len(numbers) != len(dims) or any(each < 1 for each in numbers):
            raise InvalidCall(
                f"{what} does not hold one positive size for each of {len(dims)} axes after the first",
                given=", ".join(map(str, numbers)),
            )
    return [min(size, dim) for size, dim in zip(sizes, dims, strict=True)], steps


# ----- KernelSHAP -----------------------------------------------------------------------------------------------------


def kernel_shap(explained: Explained, background: Value, samples: int, seed: int) -> dict[str, Value]:
    """Shapley values by weighted regression over coalitions of features (Lundberg and Lee, 2017).

    If there are at most ``samples`` coalitions, all of them are used and the values are exact. Otherwise ``samples``
    coalitions are drawn, in pairs of complements. A feature outside of a coalition takes the values of the background
    rows. Returns ``float[rows, features]``, or ``float[rows, features, outputs]`` for several outputs.
    """
    (x,) = explained.wrt
    (features,) = fixed_dims(x, "KernelSHAP")
    masks, weights = coalitions(features, samples, seed)
    by_coalition, by_total = _solution(masks, weights)
    function = explained.function([x])
    flat = np.array([-1, features], np.int64)
    rows, background_rows = ops.shape(x, end=1), ops.shape(background, end=1)
    of = explained.output
    tail = ops.shape(of, start=1)

    def mean_of(mixed: Value) -> Value:
        """Outputs of ``[rows, background, features]``, averaged over the background rows."""
        outputs = function(ops.reshape(mixed, flat))[0]
        return ops.reduce_mean(ops.reshape(outputs, ops.concat(rows, background_rows, tail, axis=0)), [1], keepdims=0)

    here = ops.unsqueeze(x, [1])
    zeros = ops.zeros_like(here)
    base = ops.reduce_mean(function(background)[0], [0], keepdims=1)
    graph = explained.graph
    dtype = x.dtype.numpy
    mask_table = graph.variable(free_name(graph, f"{x.name}/coalitions"), masks)
    solution = graph.variable(free_name(graph, f"{x.name}/solution"), by_coalition.T.astype(dtype))
    scores = of.ndim - 1

    def spread(column: Value | Array) -> Any:
        """Reshape weights ``[features]`` to broadcast to ``[rows, features, ...]``."""
        return ops.reshape(column, np.array([features, *[1] * scores], np.int64))

    def step(number: Value, total: Value) -> list[Value]:
        mixed = ops.where(ops.gather(mask_table, number), here, background + zeros)
        change = mean_of(mixed) - base
        return [total + ops.unsqueeze(change, [1]) * spread(ops.gather(solution, number))]

    start = ops.unsqueeze(of - base, [1]) * spread(by_total.astype(dtype))
    attribution = repeated(step, [start], len(masks))[0] if len(masks) else start
    total = ops.reduce_sum(attribution, [1], keepdims=0)
    return {
        f"{x.name}/attribution": attribution,
        f"{of.name}/expected": ops.squeeze(base, [0]),
        f"{of.name}/delta": total - (of - base),
    }


def coalitions(features: int, samples: int, seed: int) -> tuple[Array, Array]:
    """Coalitions ``bool[coalitions, features]``, except the empty and the full one, and their Shapley kernel weights.

    These are all coalitions if there are at most ``samples``, else random pairs of a coalition and its complement,
    whose sizes are drawn in proportion to their kernel weight.
    """
    sizes = np.arange(1, features)
    if features < 60 and 2**features - 2 <= samples:
        numbers = np.arange(1, 2**features - 1)
        masks = (numbers[:, None] >> np.arange(features) & 1).astype(bool)
        count = masks.sum(axis=1)
        choices = np.array([0, *(math.comb(features, int(size)) for size in sizes)], float)
        return masks, (features - 1) / (choices[count] * count * (features - count))
    rng = np.random.default_rng(seed)
    likely = 1 / (sizes * (features - sizes))
    drawn = rng.choice(sizes, size=max(1, samples // 2), p=likely / likely.sum())
    order = rng.random((len(drawn), features)).argsort(axis=1).argsort(axis=1)
    masks = order < drawn[:, None]
    masks, counts = np.unique(np.concatenate([masks, ~masks]), axis=0, return_counts=True)
    return masks, counts.astype(float)


def _solution(masks: Array, weights: Array) -> tuple[Array, Array]:
    """The solution of the weighted regression: matrices that map the coalitions' changes, and the total, to values.

    The last feature is eliminated by the constraint that the values sum to the total.
    """
    features = masks.shape[1]
    if features == 1:
        return np.zeros((1, len(masks))), np.ones(1)
    z = masks[:, :-1].astype(float) - masks[:, -1:]
    scaled = z * weights[:, None]
    others = np.linalg.pinv(scaled.T @ z) @ scaled.T
    of_total = -others @ masks[:, -1].astype(float)
    return np.vstack([others, -others.sum(axis=0)]), np.append(of_total, 1 - of_total.sum())
