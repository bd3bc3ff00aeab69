"""Model summaries and utilities, under onnxslim's names."""

from __future__ import annotations

import csv
import importlib.util
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tenonnx as tx
from tenonnx_compat import models


class TensorInfo:
    """Name, numpy ``dtype`` and ``shape`` of a value; the shape is None if the rank is unknown."""

    def __init__(self, tensor: onnx.ValueInfoProto) -> None:
        kind = tensor.type.tensor_type
        self.name: str = tensor.name
        self.dtype: Any = onnx_dtype_to_numpy(kind.elem_type)
        self.shape: tuple[int | str, ...] | None = None
        if kind.HasField("shape"):
            self.shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in kind.shape.dim)


class OperatorInfo:
    """Name and op type of a node, with the declared types of its outputs."""

    def __init__(self, operator: onnx.NodeProto, outputs: Sequence[TensorInfo] | None = None) -> None:
        self.name: str = operator.name
        self.op: str = operator.op_type
        self.outputs = outputs


class ModelInfo:
    """Summary of a model: versions, inputs, outputs, op counts including subgraphs, and sizes in bytes."""

    def __init__(self, model: str | os.PathLike[str] | onnx.ModelProto, tag: str = "OnnxSlim") -> None:
        if isinstance(model, str | os.PathLike):
            tag, model = Path(model).name, onnx.load(model)
        self.tag = tag
        self.op_set = str(get_opset(model))
        self.ir_version = str(get_ir_version(model))
        self.model_size = get_initializer_size(model)
        self.input_info = [TensorInfo(value) for value in model.graph.input]
        self.output_info = [TensorInfo(value) for value in model.graph.output]
        declared = {value.name: value for value in model.graph.value_info}
        self.op_type_counts: Counter[str] = Counter()
        self.op_info: dict[str, OperatorInfo] = {}
        for node in _nodes(model.graph):
            self.op_type_counts[node.op_type] += 1
            known = [TensorInfo(declared[name]) for name in node.output if name in declared]
            self.op_info[node.name] = OperatorInfo(node, known)

    @property
    def input_maps(self) -> dict[str, TensorInfo]:
        return {each.name: each for each in self.input_info}

    @property
    def output_maps(self) -> dict[str, TensorInfo]:
        return {each.name: each for each in self.output_info}


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def summarize_model(model: str | os.PathLike[str] | onnx.ModelProto, tag: str = "OnnxModel") -> ModelInfo:
    """Summarize a model; the name of a file replaces ``tag``."""
    return ModelInfo(model, tag)


def format_model_info(
    model_info_list: ModelInfo | Sequence[ModelInfo], elapsed_time: float | None = None
) -> list[list[str]]:
    """Rows of a table with one column per model: versions, inputs and outputs, op counts, sizes."""
    infos = [model_info_list] if isinstance(model_info_list, ModelInfo) else list(model_info_list)
    rows = [["Model Name", *(info.tag for info in infos)]]
    rows.append(["Op Set / IR Version", *(f"{info.op_set} / {info.ir_version}" for info in infos)])
    for title, maps in (("IN", [info.input_maps for info in infos]), ("OUT", [info.output_maps for info in infos])):
        for name in dict.fromkeys(name for each in maps for name in each):
            values = [each.get(name) for each in maps]
            rows.append([f"{title}: {name}", *("" if one is None else f"{one.dtype}: {one.shape}" for one in values)])
    for op_type in sorted({op_type for info in infos for op_type in info.op_type_counts}):
        rows.append([op_type, *(str(info.op_type_counts[op_type]) for info in infos)])
    rows.append(["Model Size", *(format_bytes(info.model_size) for info in infos)])
    if elapsed_time is not None:
        rows.append(["Elapsed Time", f"{elapsed_time:.2f} s"])
    return rows


def print_model_info_as_table(
    model_info_list: ModelInfo | Sequence[ModelInfo], elapsed_time: float | None = None
) -> None:
    """Print summaries side by side."""
    models.print_rows(format_model_info(model_info_list, elapsed_time))


def dump_model_info_to_disk(model_info: ModelInfo) -> None:
    """Write all nodes with the types of their outputs to ``TAG_model_info.csv`` in the current folder."""
    with Path(f"{Path(model_info.tag).stem}_model_info.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["NodeName", "OpType", "OutputDtype", "OutputShape"])
        for name, info in model_info.op_info.items():
            outputs = info.outputs or ()
            kinds, shapes = " ".join(str(one.dtype) for one in outputs), " ".join(str(one.shape) for one in outputs)
            table.writerow([name, info.op, kinds, shapes])


def format_bytes(size: int | Sequence[int]) -> str:
    """Format a size in binary units; a second size stands in parentheses."""
    if isinstance(size, Sequence):
        first, *others = (format_bytes(each) for each in size)
        return " ".join([first, *(f"({other})" for other in others)])
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} TB"


def onnx_dtype_to_numpy(onnx_dtype: int) -> Any:
    """The numpy dtype of an ONNX element type; "UNDEFINED" if there is none."""
    known = onnx_dtype and onnx_dtype in helper.get_all_tensor_dtypes()
    return np.dtype(helper.tensor_dtype_to_np_dtype(onnx_dtype)) if known else "UNDEFINED"


def get_opset(model: onnx.ModelProto) -> int | None:
    """The model's version of ``ai.onnx``; None if it does not import it."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)


def get_ir_version(model: onnx.ModelProto) -> int:
    return int(model.ir_version)


def calculate_tensor_size(tensor: onnx.TensorProto) -> int:
    """Size of a tensor in bytes."""
    return int(math.prod(tensor.dims) * onnx_dtype_to_numpy(tensor.data_type).itemsize)


def get_initializer_size(model: onnx.ModelProto) -> int:
    """Size of a model's initializers in bytes, except those of subgraphs."""
    return sum(calculate_tensor_size(tensor) for tensor in model.graph.initializer)


def is_onnxruntime_available() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def gen_onnxruntime_input_data(
    model: onnx.ModelProto, model_check_inputs: Sequence[str] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Generate random inputs of a model, by name; dynamic dims are 1.

    ``model_check_inputs`` has shapes (``x:1,3,224,224``) or files with arrays (``x:data.npy``).
    """
    shapes, arrays = models.check_inputs(model_check_inputs)
    generator = np.random.default_rng(0)
    feeds = dict(arrays or {})
    for value in tx.load(model).inputs:
        if value.name not in feeds:
            dims = shapes.get(value.name, list(value.shape))
            size = [dim if isinstance(dim, int) and dim > 0 else 1 for dim in dims]
            feeds[value.name] = generator.random(size).astype(value.dtype.numpy)
    return feeds


def onnxruntime_inference(
    model: onnx.ModelProto, input_data: Mapping[str, Any]
) -> tuple[dict[str, Any], onnx.ModelProto]:
    """Outputs of a model by name, from the best installed backend, and the model."""
    return dict(tx.load(model).run(dict(input_data))), model


def check_onnx(
    model: onnx.ModelProto, model_check_inputs: Sequence[str] | None = None
) -> tuple[dict[str, Any], dict[str, Any], onnx.ModelProto]:
    """Run a model on random inputs; returns the inputs, the outputs and the model."""
    feeds = gen_onnxruntime_input_data(model, model_check_inputs)
    return feeds, onnxruntime_inference(model, feeds)[0], model


def check_result(raw_onnx_output: Mapping[str, Any], slimmed_onnx_output: Mapping[str, Any]) -> bool:
    """Whether two sets of outputs have the same names, and values within tolerances."""
    return raw_onnx_output.keys() == slimmed_onnx_output.keys() and all(
        np.allclose(array, slimmed_onnx_output[name], rtol=1e-3, atol=1e-4, equal_nan=True)
        for name, array in raw_onnx_output.items()
    )


def save(
    model: onnx.ModelProto,
    model_path: str | os.PathLike[str],
    model_check: bool = False,
    save_as_external_data: bool = False,
    model_info: ModelInfo | None = None,
) -> None:
    """Write a model, optionally with its weights as external data; ``model_check`` runs ``onnx.checker`` first."""
    if model_check:
        onnx.checker.check_model(model)
    models.save(model, model_path, **({"threshold": 0} if save_as_external_data else {}))
