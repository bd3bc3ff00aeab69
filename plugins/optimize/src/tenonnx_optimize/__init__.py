"""Graphs that compute the same by less: fusion, simplification, half precision, and what a graph costs."""

from tenonnx_optimize.costs import costs
from tenonnx_optimize.fuse import fuse
from tenonnx_optimize.half_budget import lower_within
from tenonnx_optimize.layouts import channels_first
from tenonnx_optimize.precision import lower_precision
from tenonnx_optimize.simplify import simplify

__all__ = ["channels_first", "costs", "fuse", "lower_precision", "lower_within", "simplify"]
