"""What a comparison is made of: of contents by the one table of tolerances, and of the structure of a model."""

from tenonnx.checks.compare import Difference, compare
from tenonnx.checks.structure import structure_problems
from tenonnx.checks.tolerance import Tolerance, tolerance_for
from tenonnx.checks.verify import OutputDifference, Verification, accumulation

__all__ = [
    "Difference",
    "OutputDifference",
    "Tolerance",
    "Verification",
    "accumulation",
    "compare",
    "structure_problems",
    "tolerance_for",
]
