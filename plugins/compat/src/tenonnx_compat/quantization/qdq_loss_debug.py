"""Comparison of the activations and weights of a float model and its quantized version."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import TensorType
from tenonnx.extend.transforms import infer
from tenonnx_compat.models import graph_of, message_of, save
from tenonnx_compat.quantization.calibrate import CalibrationDataReader

Array = np.ndarray[Any, Any]
Activations = Mapping[str, Sequence[Array]]

#: End of the name of a saved activation.
_SAVED = "_ReshapedSavedOutput"

#: Ends of the names of dequantized activations, of tenonnx and of onnxruntime, and of quantized weights.
_DEQUANTIZED = ("/DequantizeLinear", "_DequantizeLinear_Output", "_DequantizeLinear_Output_1")
_QUANTIZED = ("/quantized", "_quantized")

#: End of the name of an activation before it is quantized, where onnxruntime renames it.
_BEFORE = "_QuantizeLinear_Input"


def modify_model_output_intermediate_tensors(
    input_model_path: str | os.PathLike[str],
    output_model_path: str | os.PathLike[str],
    op_types_for_saving: Sequence[str] | None = None,
    save_as_external_data: bool = False,
) -> None:
    """Write a model whose additional outputs are the float inputs and outputs of these ops, by default of all."""
    graph = graph_of(input_model_path).copy()
    infer(graph, strict=False)
    nodes = [node for node in graph.nodes if not op_types_for_saving or node.op_type in op_types_for_saving]
    values = {value: None for node in nodes for value in (*node.inputs, *node.outputs) if value is not None}
    with graph.building():
        for value in values:
            if not value.is_constant and isinstance(value.type, TensorType) and value.type.dtype.is_float:
                graph.output(f"{value.name}{_SAVED}", ops.reshape(value, np.array([-1], np.int64)))
    if save_as_external_data:
        tx.export(graph, output_model_path, external_data_threshold=1024, overwrite=True)
    else:
        save(message_of(graph), output_model_path)


def collect_activations(
    augmented_model: str | os.PathLike[str],
    input_reader: CalibrationDataReader,
    session_options: Any = None,
    execution_providers: Sequence[str] | None = None,
) -> dict[str, list[Array]]:
    """The activations of each batch by name, for a model of ``modify_model_output_intermediate_tensors``.

    It runs in onnxruntime, by default without optimization. Raises ``RuntimeError`` without batches.
    """
    options = {"optimization": "none"} if session_options is None else {"session_options": session_options}
    program = graph_of(augmented_model).compile("onnxruntime", providers=execution_providers, strict=True, **options)
    batches = [program(feeds) for feeds in iter(input_reader.get_next, None)]
    if not batches:
        raise RuntimeError("No data is collected while running augmented model!")
    names = [name for name in batches[0] if name.endswith(_SAVED)]
    return {name.removesuffix(_SAVED): [batch[name] for batch in batches] for name in names}


def create_activation_matching(
    qdq_activations: Activations, float_activations: Activations | None = None
) -> dict[str, dict[str, Sequence[Array]]]:
    """For each quantized activation, its values before (``pre_qdq``) and after (``post_qdq``) it is quantized.

    ``float`` has the values in the float model, if they are given.
    """
    matching: dict[str, dict[str, Sequence[Array]]] = {}
    for name, values in qdq_activations.items():
        end = next((end for end in (*_DEQUANTIZED, _BEFORE) if name.endswith(end)), None)
        other = qdq_activations.get(name.removesuffix(end)) if end else None
        if end and other is not None:
            before, after = (values, other) if end == _BEFORE else (other, values)
            matching[name.removesuffix(end)] = {"pre_qdq": before, "post_qdq": after}
    for name, pair in matching.items():
        if float_activations and name in float_activations:
            pair["float"] = float_activations[name]
    return matching


def create_weight_matching(
    float_model_path: str | os.PathLike[str], qdq_model_path: str | os.PathLike[str]
) -> dict[str, dict[str, Array]]:
    """For each quantized weight, its values in the float model (``float``) and those it dequantizes to."""
    weights = {value.name: value for value in graph_of(float_model_path).variables}
    matching: dict[str, dict[str, Array]] = {}
    graph = graph_of(qdq_model_path)
    for node in graph.nodes:
        quantized = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if quantized is None or not quantized.is_constant:
            continue
        end = next((end for end in _QUANTIZED if quantized.name.endswith(end)), "")
        original = weights.get(quantized.name.removesuffix(end)) if end else None
        if original is not None and original.data is not None:
            name = node.outputs[0].name  # type: ignore[union-attr]
            dequantized = graph.extract([], [name]).run({}, backend="numpy")[name]
            matching[original.name] = {"float": original.data.array(), "dequantized": dequantized}
    return matching


def compute_signal_to_quantization_noice_ratio(x: Sequence[Array] | Array, y: Sequence[Array] | Array) -> float:
    """The ratio of the norm of ``x`` to that of ``x - y``, in decibels. Raises ``RuntimeError`` for other numbers."""
    left, right = ([each] if isinstance(each, np.ndarray) else each for each in (x, y))
    if len(left) != len(right):
        raise RuntimeError("Unequal number of tensors to compare!")
    signal, other = (np.concatenate(each).flatten() for each in (left, right))
    smallest = float(np.finfo("float").eps)
    noise = max(float(np.linalg.norm(signal - other)), smallest)
    return 20 * math.log10(max(float(np.linalg.norm(signal)), smallest) / noise)


def compute_weight_error(
    weights_match: Mapping[str, Mapping[str, Array]],
    err_func: Callable[[Any, Any], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, float]:
    """The error of each weight."""
    return {name: err_func(pair["float"], pair["dequantized"]) for name, pair in weights_match.items()}


def compute_activation_error(
    activations_match: Mapping[str, Mapping[str, Sequence[Array]]],
    err_func: Callable[[Any, Any], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, dict[str, float]]:
    """For each activation the error of quantizing it, ``qdq_err``, and that from the float model, ``xmodel_err``."""
    errors: dict[str, dict[str, float]] = {}
    for name, pair in activations_match.items():
        errors[name] = {"qdq_err": err_func(pair["pre_qdq"], pair["post_qdq"])}
        if pair.get("float"):
            errors[name]["xmodel_err"] = err_func(pair["float"], pair["post_qdq"])
    return errors
