"""The table of a simplification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx_compat.models import graph_of, print_table

if TYPE_CHECKING:
    import onnx


def print_simplifying_info(model_ori: onnx.ModelProto, model_opt: onnx.ModelProto) -> None:
    """Print the op types of a model and of the simplified one side by side, with the bytes of their weights."""
    print_table({"Original Model": graph_of(model_ori), "Simplified Model": graph_of(model_opt)})
