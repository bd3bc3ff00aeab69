"""``print_simplifying_info``: a table of op counts before and after the simplification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx_compat.models import graph_of, print_table

if TYPE_CHECKING:
    import onnx


def print_simplifying_info(model_ori: onnx.ModelProto, model_opt: onnx.ModelProto) -> None:
    """Print the op counts of a model and its simplified form side by side, with the size of their weights in bytes."""
    print_table({"Original Model": graph_of(model_ori), "Simplified Model": graph_of(model_opt)})
