"""What a comparison is made of: of contents by the one table of tolerances, and of the structure of a model."""

from tenonnx.checks.allowed import BY_TABLE, Allowed, coarse_inside, element_types_inside
from tenonnx.checks.compare import Difference, compare
from tenonnx.checks.correspondence import corresponding
from tenonnx.checks.divergence import as_taken_by, with_outputs
from tenonnx.checks.generate import InputShapes
from tenonnx.checks.grades import accumulation
from tenonnx.checks.sizes import feasible_feeds
from tenonnx.checks.structure import structure_problems
from tenonnx.checks.tolerance import Tolerance, tolerance_for
from tenonnx.checks.verification import OutputDifference, Verification
from tenonnx.checks.verify import DRAWN, default_backends, drawn_outputs, left_out_backends

__all__ = [
    "BY_TABLE",
    "DRAWN",
    "Allowed",
    "Difference",
    "InputShapes",
    "OutputDifference",
    "Tolerance",
    "Verification",
    "accumulation",
    "as_taken_by",
    "coarse_inside",
    "compare",
    "corresponding",
    "default_backends",
    "drawn_outputs",
    "element_types_inside",
    "feasible_feeds",
    "left_out_backends",
    "structure_problems",
    "tolerance_for",
    "with_outputs",
]
