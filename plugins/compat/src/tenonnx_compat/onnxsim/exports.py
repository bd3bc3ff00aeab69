"""Export to other formats: TFLite by tenonnx-litert, Core ML by coremltools, safetensors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tenonnx as tx
from tenonnx_compat.models import graph_of, message_of
from tenonnx_compat.refusal import announce, ignore_options, refuse_options

if TYPE_CHECKING:
    import onnx

Batches = Callable[[], Iterable[Sequence[Any]]]


def export_tflite(
    model: onnx.ModelProto,
    output_path: str | os.PathLike[str] | None = None,
    *,
    backend: str = "builtin",
    optimizations: Sequence[Any] | None = None,
    int8_quantize: bool = False,
    representative_dataset: Batches | None = None,
    num_calibration_samples: int = 100,
    inference_io_dtype: Any = None,
    flex_ops: bool = False,
    io_layout: str = "nchw",
) -> bytes:
    """Convert a model to TFLite, and compare it in LiteRT's interpreter; returns the bytes of the file.

    ``output_path`` also saves them. ``optimizations`` quantizes weights; ``int8_quantize`` also quantizes activations,
    calibrated on ``representative_dataset`` or random inputs. ``inference_io_dtype``, ``int8`` or ``uint8``, is the
    type of quantized inputs and outputs; they stay float without it. ``backend`` has no effect.

    Raises ``NotSupported`` for another layout, ``NotRepresentable`` for ops that TFLite cannot express, ``ValueError``
    for random inputs with dynamic dims.
    """
    announce("onnxsim.export_tflite", "tx.convert(model, 'model.tflite')")
    refuse_options("onnxsim.export_tflite", {"io_layout": None if io_layout == "nchw" else io_layout})
    other = None if backend == "builtin" else backend
    ignore_options("onnxsim.export_tflite", {"backend": other}, "tenonnx-litert writes the file")
    refuse_options("onnxsim.export_tflite", {"flex_ops": flex_ops}, "other builtin operators take their place")
    graph = graph_of(model)
    if int8_quantize:
        batches = _named_batches(graph, representative_dataset, num_calibration_samples)
        kind = getattr(inference_io_dtype, "name", inference_io_dtype)
        graph = tx.quantize(graph, batches, mode="static", **({"activation_type": kind} if kind else {}))[0]
        graph = _with_quantized_interface(graph) if kind else graph
    elif optimizations:
        graph = tx.quantize(graph, mode="weights")[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        tx.convert(graph, path)
        written = path.read_bytes()
    if output_path is not None:
        Path(output_path).write_bytes(written)
    return written


def _with_quantized_interface(graph: tx.Graph) -> tx.Graph:
    """``graph`` with quantized inputs and outputs, which keep their names."""
    uses = graph.uses()
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    starts = [next((n.outputs[0] for n in uses.get(v, ()) if n.op_type == "QuantizeLinear"), v) for v in inputs]
    makers = [value.producer for value in outputs]
    ends = [
        maker.inputs[0] if maker is not None and maker.op_type == "DequantizeLinear" else value
        for maker, value in zip(makers, outputs, strict=True)
    ]
    names = [value.name for value in (*inputs, *outputs)]
    inner = graph.extract(*([value.name for value in side if value is not None] for side in (starts, ends)))
    for value, name in zip((*inner.inputs, *inner.outputs), names, strict=True):
        inner.rename(value, name)
    return inner


def _named_batches(graph: tx.Graph, batches: Batches | None, samples: int) -> list[dict[str, Any]]:
    """Calibration inputs by name: those of a function, or uniform random ones, as in onnxsim."""
    if batches is not None:
        names = [value.name for value in graph.inputs]
        return [dict(zip(names, batch, strict=True)) for batch in batches()]
    generator = np.random.default_rng(0)
    return [{v.name: generator.random(_sizes(v)).astype(v.dtype.numpy) for v in graph.inputs} for _ in range(samples)]


def _sizes(value: Any) -> list[int]:
    sizes = [dim for dim in value.shape if isinstance(dim, int)]
    if len(sizes) < len(value.shape):
        raise ValueError(f'input "{value.name}" has dynamic dims: {value.type}; fix them with overwrite_input_shapes')
    return sizes


def export_coreml(
    model: onnx.ModelProto,
    output_path: str | os.PathLike[str] | None = None,
    *,
    convert_to: str = "mlprogram",
    compute_units: Any = "ALL",
    minimum_deployment_target: Any = None,
    io_dtype: str | None = None,
) -> Any:
    """Convert a model to Core ML: to a PyTorch module, which coremltools converts to an ``MLModel``.

    ``output_path`` also saves it. Raises ``NotSupported`` for a half-precision ``io_dtype``, ``ValueError`` for inputs
    with dynamic dims.
    """
    import coremltools
    import torch

    import tenonnx_torch

    announce("onnxsim.export_coreml", "coremltools.convert(torch.export.export(tenonnx_torch.module(graph), ...))")
    refuse_options("onnxsim.export_coreml", {"io_dtype": None if io_dtype in (None, "fp32") else io_dtype})
    graph = graph_of(model)
    graph.all_inputs = graph.inputs
    sizes = [_sizes(value) for value in graph.inputs]
    examples = tuple(
        torch.from_numpy(np.zeros(size, value.dtype.numpy)) for size, value in zip(sizes, graph.inputs, strict=True)
    )
    program = torch.export.export(tenonnx_torch.module(graph).eval(), examples).run_decompositions({})
    tensors = [
        coremltools.TensorType(name=value.name, shape=size) for value, size in zip(graph.inputs, sizes, strict=True)
    ]
    target = getattr(coremltools.target, minimum_deployment_target) if minimum_deployment_target else None
    units = getattr(coremltools.ComputeUnit, compute_units) if isinstance(compute_units, str) else compute_units
    converted = coremltools.convert(
        program,
        convert_to=convert_to,
        inputs=tensors,
        outputs=[coremltools.TensorType(name=value.name) for value in graph.outputs],
        compute_units=units,
        minimum_deployment_target=target,
    )
    if output_path is not None:
        converted.save(os.fspath(output_path))
    return converted


def export_safetensors(model: onnx.ModelProto, out_path: str | os.PathLike[str]) -> None:
    """Write a model, graph and weights, to one safetensors file."""
    announce("onnxsim.export_safetensors", "tx.export(graph, 'model.safetensors')")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"  # tx.export selects the format by the suffix
        tx.export(graph_of(model), path)
        Path(out_path).write_bytes(path.read_bytes())


def import_safetensors(in_path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Read a model that ``export_safetensors`` wrote."""
    announce("onnxsim.import_safetensors", "tx.load('model.safetensors')")
    return message_of(tx.load(in_path))
