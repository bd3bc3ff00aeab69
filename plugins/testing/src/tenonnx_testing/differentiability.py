"""Differentiable inputs of an op, found by trying the calls of its cases."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tenonnx.extend import (
    DType,
    InvalidModel,
    NotDifferentiable,
    Op,
    TenonnxError,
    Value,
    find_rule,
    find_trait,
    op,
    operators,
)
from tenonnx.extend.transforms import Builder
from tenonnx_testing.cases import Call, Case, collected
from tenonnx_testing.gradients import vector_jacobian
from tenonnx_testing.kit import calls
from tenonnx_testing.run import evaluate, is_index

#: Number of calls of each case in the first and the second attempt, since a gradient may be zero for some calls.
CALLS = (12, 48)


@dataclass(slots=True)
class Differentiability:
    """The ``inputs`` that have a gradient among those ``tried``, and the reasons ``met`` why others have none.

    With ``through``, a straight-through gradient passes quantized values.
    """

    op: Op
    inputs: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    met: set[str] = field(default_factory=set)
    through: bool = False

    @property
    def open(self) -> bool:
        """Whether further calls could find more differentiable inputs."""
        return self.inputs < self.tried

    @property
    def verdict(self) -> str:
        """One of ``yes`` (by a rule), ``by body``, ``straight through`` (quantized values), or ``no: REASON``."""
        if self.inputs:
            return "yes" if find_rule(self.op, "vjp") else "by body"
        if self.through:
            return "straight through"
        if not self.met:
            return "no case tells"
        if not self.op.pure and "zero" in self.met:
            return "no: drawn at random"
        named = (
            ("broken", "no: a part has none"),
            ("zero", "no: constant almost everywhere"),
            ("floats", "no: takes no floats"),
        )
        given = next((reason for kind, reason in named if kind in self.met), "")
        return given or f"no: gives {' or '.join(sorted(self.met))}"


@functools.cache
def differentiability(op: Op) -> Differentiability:
    """Try the gradient of every float input of an op."""
    result = Differentiability(op)
    for count in CALLS:
        for case in collected(op):
            for drawn in calls(case, count) if result.open or not result.met | result.tried else ():
                _try(result, case, drawn)
    return result


def _try(found: Differentiability, case: Case, drawn: Call) -> None:
    op = case.op
    outputs = [output for output in evaluate(op, drawn) if output is not None]
    kinds = {_kind(output) for output in outputs}
    if "floats" not in kinds:
        found.met |= kinds
        found.through = found.through or _goes_through(case, drawn, outputs)
        return
    positions = [p for p, v in enumerate(drawn.inputs) if _kind(v) == "floats" and not is_index(op, p)]
    if not positions:
        found.met.add("floats")
    random = np.random.default_rng(0)
    cotangents = [random.uniform(0.5, 1.5, o.shape).astype(o.dtype) if _kind(o) == "floats" else None for o in outputs]
    for position in positions:
        name = op.signature.input_at(position).name
        found.tried.add(name)
        if name in found.inputs:
            continue
        try:
            (product,) = vector_jacobian(case, drawn, cotangents, [position], symbolic=False)
        except (InvalidModel, NotDifferentiable):  # the backward pass lacks captured values of this body
            found.met.add("broken")
            continue
        if np.any(product):
            found.inputs.add(name)
        else:
            found.met.add("zero")


# ----- quantized values -----------------------------------------------------------------------------------------------


@op("Quantized", domain="tenonnx.testing")
def as_quantized(x: Value, *, to: int) -> Any:
    """Cast floats to a quantized dtype; the gradient passes unchanged (straight-through)."""
    return operators().cast(x, DType(to))


@op("Numbers", domain="tenonnx.testing")
def as_numbers(quantized: Value) -> Any:
    """Cast quantized values to float32; the gradient passes unchanged (straight-through)."""
    return operators().cast(quantized, DType.float32)


as_quantized.vjp(lambda g, y, x, *, to: g)
as_numbers.vjp(lambda g, y, quantized: g)


def _goes_through(case: Case, drawn: Call, outputs: Sequence[Any]) -> bool:
    """Whether a straight-through gradient of quantized outputs reaches float or quantized inputs."""
    coded = {p: DType.of(v.dtype) for p, v in enumerate(drawn.inputs) if _is_quantized(v) and not is_index(case.op, p)}
    wide = tuple(v.astype(np.float32) if p in coded else v for p, v in enumerate(drawn.inputs))
    positions = [p for p, v in enumerate(wide) if _kind(v) == "floats"]
    sums = find_trait(case.op, "integer_sums") is not None
    if not sums and not any(_kind(v) == "floats" for v in drawn.inputs):
        return False  # plain integers: the call has no scale
    given = [place for place, output in enumerate(outputs) if sums or _is_quantized(output)]
    if not given or not positions:
        return False

    def between(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        inputs = [v if v is None or p not in coded else as_quantized(v, to=int(coded[p])) for p, v in enumerate(values)]
        found = builder.call(case.op, inputs, drawn.attributes, drawn.outputs)
        return [None if (v := found[place]) is None else as_numbers(v) for place in given]

    cotangents = [np.ones(outputs[place].shape, np.float32) for place in given]
    try:
        products = vector_jacobian(case, replace(drawn, inputs=wide), cotangents, positions, symbolic=False, by=between)
    except TenonnxError:  # the rule accepts floats only
        return False
    return any(np.any(product) for product in products)


def _is_quantized(contents: Any) -> bool:
    if not isinstance(contents, np.ndarray):
        return False
    dtype = DType.of(contents.dtype)
    return (dtype.is_integer and dtype.bits <= 16) or (dtype.is_float and dtype.bits <= 8)


def _kind(contents: Any) -> str:
    if not isinstance(contents, np.ndarray):
        return "maps" if isinstance(contents, dict) else "sequences"
    dtype = DType.of(contents.dtype)
    if dtype.is_float:
        return "floats" if dtype.bits >= 16 else "quantized numbers"
    return "bools" if dtype is DType.bool else "strings" if dtype is DType.string else "integers"
