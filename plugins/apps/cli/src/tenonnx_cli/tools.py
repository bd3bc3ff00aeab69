"""Functions of the command line for other programs."""

from tenonnx_cli.arrays import read_feeds, write_arrays
from tenonnx_cli.changes import summarize
from tenonnx_cli.compare_models import structural_differences
from tenonnx_cli.convert import command as convert
from tenonnx_cli.describe import describe, op_name
from tenonnx_cli.memory import watched
from tenonnx_cli.node_times import measuring_nodes, node_times
from tenonnx_cli.ops import op_row
from tenonnx_cli.options import common_sizes, load_model, transforms_given
from tenonnx_cli.program import program
from tenonnx_cli.python_model import Made, is_made, load_made
from tenonnx_cli.random_inputs import complete
from tenonnx_cli.verifications import has_passed, said_of_inputs, said_verdict

__all__ = [
    "Made",
    "common_sizes",
    "complete",
    "convert",
    "describe",
    "has_passed",
    "is_made",
    "load_made",
    "load_model",
    "measuring_nodes",
    "node_times",
    "op_name",
    "op_row",
    "program",
    "read_feeds",
    "said_of_inputs",
    "said_verdict",
    "structural_differences",
    "summarize",
    "transforms_given",
    "watched",
    "write_arrays",
]
