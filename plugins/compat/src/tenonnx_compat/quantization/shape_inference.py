"""``quant_pre_process``: simplification and shape inference before quantization."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tenonnx as tx
from tenonnx_compat.models import graph_of, message_of
from tenonnx_compat.refusal import announce, ignore_options, refuse_options

if TYPE_CHECKING:
    import onnx


def quant_pre_process(
    input_model: str | os.PathLike[str] | onnx.ModelProto | None = None,
    output_model_path: str | os.PathLike[str] | None = None,
    skip_optimization: bool = False,
    skip_onnx_shape: bool = False,
    skip_symbolic_shape: bool = False,
    auto_merge: bool = False,
    int_max: int = 2**31 - 1,
    guess_output_rank: bool = False,
    verbose: int = 0,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    input_model_path: str | os.PathLike[str] | None = None,
) -> None:
    """Simplify a model, infer the types of all values, and write it.

    External data goes to one file in the model's folder. Raises ``NotSupported`` for another location, and
    ``TypeError`` without an input or an output.
    """
    announce("onnxruntime.quantization.quant_pre_process", "tenonnx convert MODEL -o OUT --simplify --shapes all")
    source = input_model if input_model is not None else input_model_path
    if source is None or output_model_path is None:
        raise TypeError("quant_pre_process() missing an argument: input_model or output_model_path")
    refuse_options(
        "onnxruntime.quantization.quant_pre_process",
        {"external_data_location": external_data_location, "guess_output_rank": guess_output_rank},
    )
    many = save_as_external_data and not all_tensors_to_one_file
    ignore_options(
        "onnxruntime.quantization.quant_pre_process",
        {"all_tensors_to_one_file": "False" if many else None},
        "external data are one file",
    )
    graph = graph_of(source)
    if not skip_optimization:
        graph.all_inputs = graph.inputs
        graph = tx.simplify(graph)
    shapes = "interface" if skip_onnx_shape and skip_symbolic_shape else "all"
    threshold = external_data_size_threshold if save_as_external_data else None
    tx.export(tx.load(message_of(graph, shapes)), output_model_path, external_data_threshold=threshold, overwrite=True)
