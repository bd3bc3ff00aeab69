"""Reproducible random ops: functions of a seed and a step.

Every element hashes its position with a key of the seed, the step and the number of the random op. A hash is two rounds
of the permutation x (2x + 1) of 32-bit integers (Rivest et al. 1998, RC6), whose high bits depend on all lower ones,
each followed by a shift that moves them down. It needs only products, sums and shifts, which ONNX has from opset 11 on.
It takes 4 to 9 ns an element on numpy and onnxruntime, whose own generators take 4 to 5. Tests of single numbers,
pairs, triples, bits, and neighbors by position, step, stream and seed show no bias. All backends draw the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count as counting
from typing import Any

import numpy as np

from tenonnx.extend import DType, Graph, Op, UnsupportedOp, Value, constant, find_rule
from tenonnx.extend.transforms import Call, Rewriter
from tenonnx_standard.casting import cast
from tenonnx_standard.constants import range_
from tenonnx_standard.control_flow import if_, loop
from tenonnx_standard.cumulative import cumsum
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import bitshift, greater_or_equal
from tenonnx_standard.math import exp, log, minimum, sqrt
from tenonnx_standard.random import (
    multinomial,
    random_normal,
    random_normal_like,
    random_uniform,
    random_uniform_like,
)
from tenonnx_standard.reduction import reduce_max, reduce_prod, reduce_sum
from tenonnx_standard.shapes import reshape, shape, unsqueeze
from tenonnx_standard.trigonometry import cos

#: A function from a shape to float32 numbers, uniform in the open interval (0, 1).
Draw = Callable[[Value], Value]

_RULE = "seeded"

#: 2**32 divided by the golden ratio, so that multiples of it are far apart.
_GOLDEN = 0x9E3779B9


@dataclass
class Seeded:
    """A graph without random ops, and whether it had some; then it has the inputs for seed and count."""

    graph: Graph
    is_random: bool = False


def seeded(graph: Graph, seed: str, count: str) -> Seeded:
    """``graph`` with every random op replaced by a function of two new int64 inputs, called ``seed`` and ``count``.

    Each iteration of a Loop draws new numbers. Raises ``UnsupportedOp`` for a random op without a rule or a body of
    known ops, and for one in a subgraph whose iteration number is unknown.
    """
    if all(getattr(node.op, "pure", True) for node in graph.walk()):
        return Seeded(graph)
    source = _Source(seed, count)

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.op.pure:
            return None
        rule = find_rule(call.op, _RULE) or _KNOWN.get(call.op)
        if rule is not None:
            return (rule(lambda sizes: source.draw(rewriter, sizes), *call.inputs, **call.attributes),)
        if call.op.primitive:
            raise UnsupportedOp(
                f"cannot train through {call.op.title}: it has no seeded implementation",
                available="ops with a body, or with a rule for them",
                do=f"add one: tenonnx.extend.add_rule(op, {_RULE!r}, function of (draw, *inputs, **attributes))",
            )
        return rewriter.expand(call)

    return Seeded(Rewriter(graph, decide).run(), source.key is not None)


@dataclass
class _Source:
    """Source of the random numbers of a graph; ``key`` is shared by all draws of one step."""

    seed: str
    count: str
    key: Value | None = None
    streams: Any = field(default_factory=lambda: counting(1))

    def draw(self, rewriter: Rewriter, sizes: Value) -> Value:
        iterations = list(_iterations(rewriter))
        if self.key is None:
            outermost: Any = rewriter
            while outermost.outer is not None:
                outermost = outermost.outer
            seed, count = (outermost.graph.input(name, "int64", ()) for name in (self.seed, self.count))
            self.key = outermost.inside(lambda: _hash(_hash(_unsigned(seed)) + _unsigned(count)))
        key = _hash(self.key + next(self.streams) * _GOLDEN % 2**32)
        for iteration in iterations:
            key = _hash(key + _unsigned(iteration))
        positions = _unsigned(range_(0, reduce_prod(sizes, keepdims=0), 1))
        drawn = _hash(positions * _GOLDEN + key, key * _GOLDEN)
        exact = cast(_shifted(drawn, 9), to=DType.float32) * 2.0**-23 + 2.0**-24  # the 24 bits of a float32
        return reshape(exact, sizes)  # type: ignore[no-any-return]


def _iterations(rewriter: Rewriter) -> Sequence[Value]:
    """The iteration numbers of all enclosing loops."""
    result = []
    while isinstance(rewriter.outer, Rewriter):
        node = rewriter.outer.node
        op = None if node is None else node.op
        if op in tuple(loop.meanings):
            result.append(rewriter.graph.all_inputs[0])
        elif op not in tuple(if_.meanings):
            raise UnsupportedOp(
                f"{'a subgraph' if node is None else node.title} draws the same random numbers in every iteration",
                do="draw them outside and pass them in, or write it as a Loop",
            )
        rewriter = rewriter.outer
    return result


def _unsigned(x: Value) -> Value:
    """Cast to uint32, modulo 2**32."""
    return cast(x, to=DType.uint32)  # type: ignore[no-any-return]


def _hash(x: Value, key: Value | None = None) -> Value:
    """Hash of ``x``, depending on ``key`` if given."""
    x = _mixed(x, 16)
    return _mixed(x if key is None else x + key, 15)


def _mixed(x: Value, bits: int) -> Value:
    x = x * (x * 2 + 1)
    return x + _shifted(x, bits)


def _shifted(x: Value, bits: int) -> Value:
    return bitshift(x, constant(bits, DType.uint32), direction="RIGHT")  # type: ignore[no-any-return]


# ----- rules ----------------------------------------------------------------------------------------------------------


def _uniform(draw: Draw, sizes: Value, dtype: int, high: float, low: float) -> Value:
    return cast(draw(sizes) * (high - low) + low, to=dtype)  # type: ignore[no-any-return]


def _normal(draw: Draw, sizes: Value, dtype: int, mean: float, scale: float) -> Value:
    """Normal numbers by the method of Box and Muller (1958)."""
    radius = sqrt(log(draw(sizes)) * -2.0)
    return cast(radius * cos(draw(sizes) * (2 * math.pi)) * scale + mean, to=dtype)  # type: ignore[no-any-return]


def _as_constant(sizes: Sequence[int]) -> Value:
    return constant(np.asarray(sizes, np.int64))


def _dtype_of(input: Value, dtype: int | None) -> int:
    return int(input.dtype) if dtype is None else dtype


def _rules() -> dict[Op, Callable[..., Value]]:
    def uniform(draw: Draw, *, shape: Any, dtype: int, high: float, low: float, seed: Any) -> Value:
        return _uniform(draw, _as_constant(shape), dtype, high, low)

    def uniform_like(draw: Draw, input: Value, *, dtype: Any, high: float, low: float, seed: Any) -> Value:
        return _uniform(draw, shape(input), _dtype_of(input, dtype), high, low)

    def normal(draw: Draw, *, shape: Any, dtype: int, mean: float, scale: float, seed: Any) -> Value:
        return _normal(draw, _as_constant(shape), dtype, mean, scale)

    def normal_like(draw: Draw, input: Value, *, dtype: Any, mean: float, scale: float, seed: Any) -> Value:
        return _normal(draw, shape(input), _dtype_of(input, dtype), mean, scale)

    def classes(draw: Draw, input: Value, *, dtype: int, sample_size: int, seed: Any) -> Value:
        """Sample classes by inverting the cumulative distribution of the softmax."""
        logits = cast(input, to=DType.float32)
        bounds = cumsum(exp(logits - reduce_max(logits, [1])), 1)
        total = bounds[:, -1:]
        drawn = draw(concat(shape(input, end=1), _as_constant([sample_size]), axis=0)) * total
        passed = greater_or_equal(unsqueeze(drawn, [2]), unsqueeze(bounds, [1]))
        found = reduce_sum(cast(passed, to=DType.int64), [2], keepdims=0)
        return cast(minimum(found, shape(input, start=1) - 1), to=dtype)  # type: ignore[no-any-return]

    return {
        random_uniform: uniform,
        random_uniform_like: uniform_like,
        random_normal: normal,
        random_normal_like: normal_like,
        multinomial: classes,
    }


#: Rules of the random ops of ai.onnx; packages may register rules of others.
_KNOWN = _rules()
