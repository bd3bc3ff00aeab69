"""Lowerings to other ops, for targets with a list of supported ops.

Each says an op by others. Its class says how near the results are: ``exact`` for equal numbers, ``rounding`` for
differences of four ulps of the largest number that is added up, or as many as its docstring states, ``finite`` where
NaN, infinities or huge values give others, and ``approximate`` with an error that its docstring states. NaN equals NaN,
and zeros of either sign are equal. A function returns None where it does not serve.
"""

from tenonnx_standard.lowerings import (  # noqa: F401
    activations,
    arithmetic,
    bounds,
    control_flow,
    convolutions,
    functions,
    logic,
    matrices,
    movement,
    reductions,
    scattering,
    selections,
    shapes,
)
from tenonnx_standard.lowerings.registry import LOWERINGS

__all__ = ["LOWERINGS"]
