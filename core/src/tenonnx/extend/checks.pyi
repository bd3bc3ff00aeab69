"""Where each name is defined; read by type checkers, and when one is first used."""

from tenonnx.checks.compare import Difference as Difference
from tenonnx.checks.compare import compare as compare
from tenonnx.checks.correspondence import corresponding as corresponding
from tenonnx.checks.divergence import as_taken_by as as_taken_by
from tenonnx.checks.divergence import with_outputs as with_outputs
from tenonnx.checks.generate import InputShapes as InputShapes
from tenonnx.checks.grades import accumulation as accumulation
from tenonnx.checks.sizes import feasible_feeds as feasible_feeds
from tenonnx.checks.structure import structure_problems as structure_problems
from tenonnx.checks.tolerance import Tolerance as Tolerance
from tenonnx.checks.tolerance import tolerance_for as tolerance_for
from tenonnx.checks.verification import OutputDifference as OutputDifference
from tenonnx.checks.verification import Verification as Verification
from tenonnx.checks.verify import DRAWN as DRAWN
from tenonnx.checks.verify import default_backends as default_backends
from tenonnx.checks.verify import drawn_outputs as drawn_outputs
from tenonnx.checks.verify import left_out_backends as left_out_backends
from tenonnx_frontends.allowed import BY_TABLE as BY_TABLE
from tenonnx_frontends.allowed import Allowed as Allowed
from tenonnx_frontends.allowed import coarse_inside as coarse_inside
from tenonnx_frontends.allowed import element_types_inside as element_types_inside
