"""Rerolling loops over a dim in a module's Python code: traced at two lengths, and written as Scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch

from tenonnx_torch.examples import Examples
from tenonnx_torch.rerolling import NotRerolled
from tenonnx_torch.unrolled_traces import Unrolled, lengths_for, unrolled
from tenonnx_torch.verification import leaves
from tenonnx_torch.written_loops import module_of

#: Maximum number of lengths at which loops are compared with the module.
_COMPARED = 16


def with_loops(module: torch.nn.Module, examples: Examples, dim: str, export: Callable[[Any, Examples], Any]) -> Any:
    """The module with its loops over ``dim`` replaced by scans.

    ``export`` traces a module. The result is compared with the module at length 1, at three untraced lengths, and
    around every length in a comparison of the module. Raises ``NotRerolled`` naming the line of an unsupported loop, or
    without a line where there is no loop.
    """
    place = next(((n, a) for n, axes in examples.dims.items() for a, d in axes.items() if d == dim), None)
    if place is None:
        raise NotRerolled("the dim is none of an input")

    def at(length: int) -> Unrolled:
        given = examples.resized({**{d: max(s, 2) for d, s in examples.sizes.items()}, dim: length})
        result = unrolled(lambda: export(module, given), *place, length)
        if result is None:
            raise NotRerolled("the trace has the dim as a number")
        return result

    first = at(max(examples.sizes[dim], 5))
    if not any(first.symbol in each.free_symbols for each in (*first.decisions.numbers, *first.decisions.comparisons)):
        raise NotRerolled("nothing depends on the dim")
    lengths = lengths_for(first)
    traces = [first if length == first.length else at(length) for length in lengths]
    result, loops = module_of(module, traces[0], traces[1])
    seen = {first.length, *lengths}
    for length in _others(first, seen):
        _compare(module, result, examples.resized({dim: length}), length, loops)
    return result


def _others(first: Unrolled, traced: set[int]) -> list[int]:
    """Lengths for the comparison: 1, untraced ones, and those around numbers with which the module compares lengths."""
    around: dict[int, None] = {}
    for comparison in first.decisions.comparisons:
        if comparison.free_symbols == {first.symbol}:
            numbers = [int(each) for each in comparison.atoms(sympy.Integer) if 1 < each <= 4096]
            around |= dict.fromkeys(n + step for n in numbers for step in (-1, 0, 1))
    longest = max(traced)
    wanted = [1, 2, longest + 2, 2 * longest + 1, 3, *around]
    return [length for length in dict.fromkeys(wanted) if length not in traced and length > 0][:_COMPARED]


def _compare(module: Any, found: Any, examples: Examples, length: int, loops: Any) -> None:
    with torch.no_grad():
        try:
            wanted = [leaf for _, leaf in leaves(module, examples)]
        except Exception:  # the module rejects this length
            return
        actual = [leaf for _, leaf in leaves(found, examples)]
    ones = {dim: 1 for dim, size in examples.sizes.items() if size not in (1, length)}
    if ones and [each.shape for each in actual] != [each.shape for each in wanted]:
        # some modules broadcast rows of a batch against each other at length 1
        _compare(module, found, examples.resized(ones), length, loops)
        return
    for one, other in zip(actual, wanted, strict=True):
        same = one.shape == other.shape
        if not same or not torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-4, equal_nan=True):
            raise NotRerolled(f"at length {length} the loop computes something else", line=loops[0].line)
