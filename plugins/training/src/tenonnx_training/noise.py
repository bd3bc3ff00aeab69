"""Random ops as functions of a seed and a step, so that nothing is drawn that could not be drawn again.

Every element hashes its position, the step and the seed. The numbers of one backend are always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, Value, constant
from tenonnx.op.rules import add_rule, find_rule
from tenonnx.transforms.rewrite import Call, Rewriter
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.math import floor, log, sqrt
from tenonnx_standard.random import random_normal, random_normal_like, random_uniform, random_uniform_like
from tenonnx_standard.reduction import reduce_prod
from tenonnx_standard.shape import reshape, shape
from tenonnx_standard.trigonometry import cos

#: Gives numbers drawn evenly from [0, 1), in float32 and of a shape.
Draw = Callable[[Value], Value]

_RULE = "seeded"


@dataclass
class Seeded:
    """A graph that draws nothing, and whether it would have: then it has the inputs that the numbers come from."""

    graph: Graph
    used: bool = False


def seeded(graph: Graph, seed: str, count: str) -> Seeded:
    """``graph`` with every random op replaced by a function of two new int64 inputs, called ``seed`` and ``count``."""
    if all(getattr(node.op, "pure", True) for node in graph.walk()):
        return Seeded(graph)
    inputs: dict[str, Value] = {}
    streams = 0

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        nonlocal streams
        if call.op.pure:
            return None
        rule = find_rule(call.op, _RULE)
        if rule is None:
            return rewriter.expand(call)
        outermost = rewriter
        while outermost.outer is not None:
            outermost = outermost.outer
        for name in (seed, count):
            if name not in inputs:
                inputs[name] = outermost.graph.input(name, "int64", ())
        streams += 1
        draw = _Draw(inputs[seed], inputs[count], streams)
        return (rule(draw, *call.inputs, **call.attributes),)

    return Seeded(Rewriter(graph, decide).run(), bool(streams))


@dataclass
class _Draw:
    """Draws for one node: ``stream`` tells its numbers from those of other nodes."""

    seed: Value
    count: Value
    stream: int

    def __call__(self, sizes: Value) -> Value:
        self.stream += 1_000
        positions = cast(range_(0, reduce_prod(sizes, keepdims=0), 1), to=DType.float64)
        key = _hashed(
            _hashed(_hashed(cast(self.seed, to=DType.float64)) + cast(self.count, to=DType.float64)) + self.stream
        )
        drawn = _hashed(positions + key * 65536.0)
        return reshape(cast(drawn, to=DType.float32), sizes)  # type: ignore[no-any-return]


def _hashed(x: Value) -> Value:
    """A number from [0, 1) that looks unrelated to those of other ``x``."""
    x = _fraction(x * 0.1031)
    x = x * (x + 33.33)
    return _fraction(x * (x + x) * 21.17)


def _fraction(x: Value) -> Value:
    return x - floor(x)


def _uniform(draw: Draw, sizes: Value, dtype: int, high: float, low: float) -> Value:
    return cast(draw(sizes) * (high - low) + low, to=dtype)  # type: ignore[no-any-return]


def _normal(draw: Draw, sizes: Value, dtype: int, mean: float, scale: float) -> Value:
    """By the method of Box and Muller (1958)."""
    radius = sqrt(log(1.0 - draw(sizes)) * -2.0)
    return cast(radius * cos(draw(sizes) * (2 * math.pi)) * scale + mean, to=dtype)  # type: ignore[no-any-return]


def _given(sizes: Sequence[int]) -> Value:
    return constant(np.asarray(sizes, np.int64))


def _dtype_of(input: Value, dtype: int | None) -> int:
    return int(input.dtype) if dtype is None else dtype


def _rules() -> None:
    def uniform(draw: Draw, *, shape: Any, dtype: int, high: float, low: float, seed: Any) -> Value:
        return _uniform(draw, _given(shape), dtype, high, low)

    def uniform_like(draw: Draw, input: Value, *, dtype: Any, high: float, low: float, seed: Any) -> Value:
        return _uniform(draw, shape(input), _dtype_of(input, dtype), high, low)

    def normal(draw: Draw, *, shape: Any, dtype: int, mean: float, scale: float, seed: Any) -> Value:
        return _normal(draw, _given(shape), dtype, mean, scale)

    def normal_like(draw: Draw, input: Value, *, dtype: Any, mean: float, scale: float, seed: Any) -> Value:
        return _normal(draw, shape(input), _dtype_of(input, dtype), mean, scale)

    add_rule(random_uniform, _RULE, uniform)
    add_rule(random_uniform_like, _RULE, uniform_like)
    add_rule(random_normal, _RULE, normal)
    add_rule(random_normal_like, _RULE, normal_like)


_rules()
