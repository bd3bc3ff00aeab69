"""Further lowerings, for targets that have a list of ops.

Each says an op by others. Its class says how near the results are: ``exact`` for equal numbers, ``rounding`` for
differences of a few ulps of the largest number that is added up, ``finite`` where NaN, infinities or huge values give
others, and ``approximate`` with an error that its docstring states. A function returns None where it does not serve.
"""

from tenonnx_standard.lowerings import (  # noqa: F401
    activations,
    arithmetic,
    convolutions,
    functions,
    logic,
    matrices,
    movement,
    reductions,
    selections,
)
from tenonnx_standard.lowerings.registry import LOWERINGS

__all__ = ["LOWERINGS"]
