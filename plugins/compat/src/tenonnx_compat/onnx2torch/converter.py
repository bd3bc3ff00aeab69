"""``convert``: conversion of an ONNX model to a PyTorch module."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tenonnx_compat.models import graph_of
from tenonnx_compat.refusal import announce, refuse_options

if TYPE_CHECKING:
    import onnx
    import torch


def convert(
    onnx_model_or_path: str | os.PathLike[str] | onnx.ModelProto,
    save_input_names: bool = False,
    attach_onnx_mapping: bool = False,
) -> torch.nn.Module:
    """Convert a model to a PyTorch module, which takes one tensor per input, in order or by name.

    Parameters have the names of the initializers. The module returns a tensor, or a tuple for several outputs. Raises
    ``NotSupported`` for ``attach_onnx_mapping``, ``UnsupportedOp`` for ops that no installed package provides.
    """
    import tenonnx_torch

    announce("onnx2torch.convert", "tenonnx_torch.module(tx.load(model))")
    refuse_options(
        "onnx2torch.convert",
        {"attach_onnx_mapping": attach_onnx_mapping},
        "names of initializers are those of parameters",
    )
    graph = graph_of(onnx_model_or_path).copy()
    graph.all_inputs = graph.inputs
    return tenonnx_torch.module(graph)
