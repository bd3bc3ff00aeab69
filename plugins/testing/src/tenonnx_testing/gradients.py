"""Comparison of gradients with finite differences, along a random direction for a random cotangent, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tenonnx.extend import DType, Value, find_rule
from tenonnx.extend.transforms import Builder, grad
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.causes import rests_on_right_rules
from tenonnx_testing.run import (
    Failure,
    Outputs,
    blaming,
    evaluate,
    expect,
    is_index,
    is_random,
    present,
    run_graph,
    trace,
)

#: Steps of the differences: large ones for ops that round to float32 inside, small ones near the noise of float64.
STEPS = (1e-2, 2e-3, 4e-4, 8e-5, 1.6e-5)

#: Accepted error of the product relative to the size of its terms, in addition to the uncertainty of the differences.
RELATIVE = 1e-5

#: Relative uncertainty of the differences above which the op counts as not smooth at the point.
SMOOTH = 1e-2


def applies(case: Case) -> bool:
    return case.gradient is not False


def equals_differences(case: Case, drawn: Call, expected: tuple[Any, ...]) -> bool:
    """Check that the vector-Jacobian product agrees with central differences, for float inputs and outputs.

    Calls alternate between graphs with known and with symbolic dims.
    """
    wide = Call(tuple(widened(v) for v in drawn.inputs), drawn.attributes, drawn.outputs, drawn.version)
    wrt = differentiable(case, wide)
    if not wrt or is_random(case.op, wide):
        return False
    with blaming(f"{case.op.title} in float64"):
        outputs = evaluate(case.op, wide)
    random = np.random.default_rng(0)
    cotangents = [
        random.uniform(0.5, 1.5, o.shape) * random.choice([-1, 1], o.shape) if is_wide(o) else None for o in outputs
    ]
    if all(c is None for c in cotangents):
        return False
    floats = [position for position, c in enumerate(cotangents) if c is not None]
    if len(floats) > 1 and (turn := drawn.turn % (len(floats) + 1)):  # alternate between all outputs and single ones
        cotangents = [c if position == floats[turn - 1] else None for position, c in enumerate(cotangents)]
    given = [c for c, o in zip(cotangents, outputs, strict=True) if o is not None]
    directions = {p: random.uniform(-1, 1, wide.inputs[p].shape) for p in wrt}

    def along(step: float, chosen: Sequence[int] = wrt) -> float:
        moved = tuple(v + step * directions[p] if p in chosen else v for p, v in enumerate(wide.inputs))
        with blaming(f"{case.op.title} near the drawn inputs"):
            found = evaluate(case.op, Call(moved, wide.attributes, wide.outputs))
        return float(sum(np.sum(o * c) for o, c in zip(found, cotangents, strict=False) if c is not None))

    slope, uncertainty = differences(along)
    symbolic = drawn.turn % 2 == 1
    what = f"the gradient of {case.op.title}" + (" with symbolic dims" if symbolic else "")
    said = None if find_rule(case.op, "residuals") is None else outputs
    with blaming(what):
        products = vector_jacobian(case, wide, given, wrt, symbolic=symbolic, expected=said)
    for position, product in zip(wrt, products, strict=True):
        if product.shape != wide.inputs[position].shape or product.dtype != np.float64:
            name = case.op.signature.input_at(position).name
            found_type, given_as = (f"{v.dtype}{list(v.shape)}" for v in (product, wide.inputs[position]))
            raise Failure(f'{what} with respect to "{name}" is {found_type}, and the input {given_as}')
    terms = {p: product * directions[p] for p, product in zip(wrt, products, strict=True)}
    try:
        _agree(what, list(terms.values()), slope, uncertainty)
    except Failure:
        _rests_on_right_rules(case, wide, directions)
        if is_between(float(sum(np.sum(term) for term in terms.values())), along):
            return True
        for position, term in terms.items():  # find the input whose gradient is wrong
            name = case.op.signature.input_at(position).name
            alone = differences(partial(along, chosen=[position]))
            _agree(f'{what} with respect to input "{name}"', [term], *alone)
        raise
    return True


def _rests_on_right_rules(case: Case, wide: Call, directions: Mapping[int, Any]) -> None:
    """Raise ``Failure`` if the op's own outputs are wrong, since the differences depend on them."""
    moved = tuple(v + STEPS[0] * directions[p] if p in directions else v for p, v in enumerate(wide.inputs))
    with blaming(f"{case.op.title} in float64"):
        rests_on_right_rules(case, [wide, replace(wide, inputs=moved)])


def _agree(what: str, terms: Sequence[Any], slope: float, uncertainty: float) -> None:
    product = float(sum(np.sum(term) for term in terms))
    size = float(sum(np.sum(np.abs(term)) for term in terms))
    scale = max(size, abs(slope), 1e-3)
    if uncertainty > SMOOTH * scale:
        raise Failure(
            f"{what}: finite differences do not converge ({slope:.6g} +- {uncertainty:.2g}): the case draws kinks"
        )
    if not abs(product - slope) <= RELATIVE * scale + 4 * uncertainty:
        raise Failure(
            f"{what} along a random direction is {product:.9g}, "
            f"and finite differences give {slope:.9g} +- {uncertainty:.2g}"
        )


def is_between(product: float, function: Callable[[float], float]) -> bool:
    """Whether a function has a kink at 0 and the product lies between its one-sided slopes.

    The difference of the slopes stays the same for smaller steps at a kink, and shrinks for a smooth function.
    """
    middle = function(0.0)
    sides = [sorted([(function(h) - middle) / h, (middle - function(-h)) / h]) for h in STEPS[-2:]]
    (low, high), jumps = sides[-1], [above - below for below, above in sides]
    return jumps[1] > jumps[0] / 2 and low - jumps[1] * SMOOTH <= product <= high + jumps[1] * SMOOTH


def differences(function: Callable[[float], float]) -> tuple[float, float]:
    """Return the derivative of a function at 0 and its uncertainty.

    Central differences with decreasing steps, of which each two are extrapolated to step 0 (Richardson). Two that agree
    are right up to rounding inside the function, which the smallest step shows best.
    """
    slopes = [(function(h) - function(-h)) / (2 * h) for h in STEPS]
    limits = [
        (narrow * (h / k) ** 2 - wide) / ((h / k) ** 2 - 1)
        for (wide, narrow), (h, k) in zip(itertools.pairwise(slopes), itertools.pairwise(STEPS), strict=True)
    ]
    noise = _distance(slopes[-1], slopes[-2]) * STEPS[-1]
    pairs = zip(itertools.pairwise(limits), STEPS[2:], strict=True)
    uncertainty, slope = min((max(_distance(a, b), noise / step), b) for (a, b), step in pairs)
    return slope, uncertainty


def _distance(a: float, b: float) -> float:
    return abs(a - b) if np.isfinite(a) and np.isfinite(b) else float("inf")


def vector_jacobian(
    case: Case,
    drawn: Call,
    cotangents: Sequence[Any],
    wrt: Sequence[int],
    *,
    symbolic: bool,
    by: Callable[[Builder, list[Value | None]], Sequence[Value | None]] | None = None,
    expected: Outputs | None = None,
    known: Container[int] = (),
) -> list[np.ndarray[Any, Any]]:
    """Vector-Jacobian product of a call: gradients of the inputs at ``wrt`` for cotangents of the outputs.

    ``by`` builds the outputs from the inputs, by default with the op; inputs at ``known`` are constants. Raises
    ``Failure`` if the graph with the gradients gives other outputs than ``expected``, since a ``residuals`` rule
    computes them in its own way.
    """
    found = jacobian_function(case, drawn, cotangents, wrt, symbolic=symbolic, by=by, known=known, expected=expected)
    return found(drawn.inputs)


def jacobian_function(
    case: Case,
    drawn: Call,
    cotangents: Sequence[Any],
    wrt: Sequence[int],
    *,
    symbolic: bool = False,
    by: Callable[[Builder, list[Value | None]], Sequence[Value | None]] | None = None,
    known: Container[int] = (),
    expected: Outputs | None = None,
) -> Callable[[Sequence[Any]], list[np.ndarray[Any, Any]]]:
    """Return ``vector_jacobian`` as a function of the inputs, for repeated evaluation."""

    def the_op(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return builder.call(case.op, values, drawn.attributes, drawn.outputs)

    graph, _ = trace(case.op, drawn, by or the_op, symbolic=symbolic, known=known)
    fed = [int(value.name.removeprefix("input")) for value in graph.inputs]
    weighted = [(v.name, c) for v, c in zip(graph.outputs, cotangents, strict=False) if c is not None]
    seeds = {name: f"cotangent{position}" for position, (name, _) in enumerate(weighted)}
    derived = grad(graph, of=list(seeds), wrt=[f"input{p}" for p in wrt], seeds=seeds, strict=False)

    def products(inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        outputs = run_graph(derived, [*(inputs[p] for p in fed), *(c for _, c in weighted)])
        if expected is not None:
            # a loop without iterations returns the inferred shape of its scan outputs, which may be less precise
            pairs = [(a, b) for a, b in zip(outputs, present(expected), strict=False) if getattr(b, "size", 1)]
            expect(case, drawn, "what its rule residuals gives", *zip(*pairs, strict=True))
        return [np.asarray(product) for product in outputs[len(graph.outputs) :]]

    return products


def differentiable(case: Case, drawn: Call) -> list[int]:
    named = None if isinstance(case.gradient, bool) else case.gradient
    return [
        position
        for position, contents in enumerate(drawn.inputs)
        if is_wide(contents)
        and not is_index(case.op, position)
        and (named is None or case.op.signature.input_at(position).name in named)
    ]


def is_wide(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and contents.dtype == np.float64


def widened(contents: Any) -> Any:
    """Convert floats to float64, except those of 8 bits or fewer, which an op may accept as quantized values only."""
    if isinstance(contents, list):
        return [widened(c) for c in contents]
    if not isinstance(contents, np.ndarray) or contents.dtype == object:
        return contents
    dtype = DType.of(contents.dtype)
    return contents.astype(np.float64) if dtype.is_float and dtype.bits > 8 else contents
