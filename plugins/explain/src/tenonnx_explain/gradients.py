"""Attributions from gradients: gradient times input, integrated gradients, SmoothGrad and Grad-CAM."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import InvalidCall, Value
from tenonnx_explain.parts import Explained, fixed_dims, free_name, per_row, repeated, with_default


def gradient_times_input(explained: Explained) -> dict[str, Value]:
    """Values times the gradients with respect to them (Shrikumar et al., 2016)."""
    slopes = explained.gradients(explained.wrt)(*explained.wrt, explained.selection())
    return {_name(x): x * slope for x, slope in zip(explained.wrt, slopes, strict=True)}


def integrated_gradients(explained: Explained, steps: int) -> dict[str, Value]:
    """Integrated gradients (Sundararajan, Taly and Yan, 2017) by the midpoint rule, and the error of their sum.

    Adds an input ``NAME/baseline`` for each value, by default zeros, and an input ``steps``.
    """
    graph, wrt = explained.graph, explained.wrt
    baselines = [baseline(explained, x) for x in wrt]
    count = with_default(graph, "steps", np.array(steps, np.int64))
    selected, slopes = explained.selection(), explained.gradients(wrt)

    def step(number: Value, *sums: Value) -> list[Value]:
        points = []
        for x, base in zip(wrt, baselines, strict=True):
            share = (ops.cast(number, to=x.dtype) + 0.5) / ops.cast(count, to=x.dtype)
            points.append(base + share * (x - base))
        return [total + slope for total, slope in zip(sums, slopes(*points, selected), strict=True)]

    sums = repeated(step, [ops.zeros_like(x) for x in wrt], count)
    attributions = {}
    for x, base, total in zip(wrt, baselines, sums, strict=True):
        attributions[_name(x)] = (x - base) * (total / ops.cast(count, to=x.dtype))
    at_baseline = explained.function(wrt)(*[base + ops.zeros_like(x) for x, base in zip(wrt, baselines, strict=True)])
    difference = per_row(explained.output * selected) - per_row(at_baseline[0] * selected)
    return attributions | {f"{explained.output.name}/delta": _sum_error(list(attributions.values()), difference)}


def _sum_error(attributions: list[Value], difference: Value) -> Value:
    """The sum of the attributions of each row, minus the difference that they explain."""
    total = per_row(attributions[0])
    for each in attributions[1:]:
        total = total + per_row(each)
    return total - difference


def smooth_grad(explained: Explained, samples: int, seed: int) -> dict[str, Value]:
    """The mean gradient under Gaussian noise (Smilkov et al., 2017), whose standard deviation is the input ``stdev``.

    The graph stores the noise, so that all runtimes compute the same attributions.
    """
    graph, wrt = explained.graph, explained.wrt
    rng = np.random.default_rng(seed)
    stdev = with_default(graph, "stdev", np.array(0.1, wrt[0].dtype.numpy))
    noise = []
    for x in wrt:
        drawn = rng.standard_normal((samples, 1, *fixed_dims(x, "SmoothGrad"))).astype(x.dtype.numpy)
        noise.append(graph.variable(free_name(graph, f"{x.name}/noise"), drawn))
    selected, slopes = explained.selection(), explained.gradients(wrt)

    def step(number: Value, *sums: Value) -> list[Value]:
        points = [
            x + ops.cast(stdev, to=x.dtype) * ops.gather(drawn, number) for x, drawn in zip(wrt, noise, strict=True)
        ]
        return [total + slope for total, slope in zip(sums, slopes(*points, selected), strict=True)]

    sums = repeated(step, [ops.zeros_like(x) for x in wrt], samples)
    return {_name(x): total / float(samples) for x, total in zip(wrt, sums, strict=True)}


def grad_cam(explained: Explained, at: Value) -> dict[str, Value]:
    """Grad-CAM (Selvaraju et al., 2017) of a feature map ``at`` ``float[batch, channels, ...]``: ``float[batch, ...]``.

    Raises ``InvalidCall`` if ``at`` has fewer than three axes.
    """
    if at.rank is None or at.ndim < 3:
        raise InvalidCall(
            f'"{at.name}" has no axes for batch, channels and positions', given=str(at.type), do="name a feature map"
        )
    slope = explained.gradients([at])(at, explained.selection())[0]
    weights = ops.reduce_mean(slope, list(range(2, at.ndim)), keepdims=1)
    return {_name(at): ops.relu(ops.reduce_sum(at * weights, [1], keepdims=0))}


def baseline(explained: Explained, x: Value) -> Value:
    """Add an input for the baseline, by default zeros, with 1 for the batch and for dynamic dims."""
    name, shape = f"{x.name}/baseline", x.tensor.shape
    if shape:
        dims = [dim if isinstance(dim, int) else 1 for dim in shape[1:]]
        return with_default(explained.graph, name, np.zeros((1, *dims), x.dtype.numpy))
    return explained.graph.input(free_name(explained.graph, name), x.tensor)


def _name(x: Value) -> str:
    return f"{x.name}/attribution"
