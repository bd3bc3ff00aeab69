"""Lowerings to other ops, for targets with a list of supported ops.

Each expresses an op by others. Its class states the accuracy: ``exact`` for equal results; ``rounding`` for differences
of four ulps of the largest term added, or as many as its docstring states; ``finite`` if NaN, infinities or huge values
change results; ``approximate`` with an error that its docstring states. NaN counts as equal to NaN, and 0 to -0. A
function returns None where it does not apply.
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
