"""Public names and the modules that define them."""

from tenonnx.graph.symbolic import Dim as Dim
from tenonnx.graph.symbolic import Expr as Expr
from tenonnx.graph.symbolic import add as add
from tenonnx.graph.symbolic import broadcast as broadcast
from tenonnx.graph.symbolic import broadcast_shapes as broadcast_shapes
from tenonnx.graph.symbolic import ceil_div as ceil_div
from tenonnx.graph.symbolic import differ as differ
from tenonnx.graph.symbolic import evaluate as evaluate
from tenonnx.graph.symbolic import floor_div as floor_div
from tenonnx.graph.symbolic import is_known_positive as is_known_positive
from tenonnx.graph.symbolic import join as join
from tenonnx.graph.symbolic import known_lower_bound as known_lower_bound
from tenonnx.graph.symbolic import maximum as maximum
from tenonnx.graph.symbolic import minimum as minimum
from tenonnx.graph.symbolic import modulo as modulo
from tenonnx.graph.symbolic import multiply as multiply
from tenonnx.graph.symbolic import parse as parse
from tenonnx.graph.symbolic import product as product
from tenonnx.graph.symbolic import substitute as substitute
from tenonnx.graph.symbolic import subtract as subtract
from tenonnx.graph.symbolic import symbol as symbol
from tenonnx.graph.symbolic import symbols_of as symbols_of
from tenonnx.graph.symbolic import truncate_div as truncate_div
from tenonnx.graph.symbolic import unify as unify
