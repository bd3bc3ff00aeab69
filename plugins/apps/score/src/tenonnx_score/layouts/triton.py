"""The Triton layout: a model's folder in a repository of the Triton Inference Server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tenonnx import NotRepresentable
from tenonnx_score.layouts.interface import Interface, Tensor, interface_of

if TYPE_CHECKING:
    from tenonnx import Graph

#: Maximum batch size of the server for a model with a dynamic batch.
LARGEST_BATCH = 64

#: Triton's names of element types.
TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "string": "TYPE_STRING",
    "bfloat16": "TYPE_BF16",
}


def files(folder: Path, graph: Graph) -> tuple[Path, dict[Path, str]]:
    """Path of the model, and the text of the configuration by path."""
    return folder / "1" / "model.onnx", {folder / "config.pbtxt": config(folder.name, interface_of(graph))}


def config(name: str, interface: Interface) -> str:
    """A ``ModelConfig`` in protobuf text format. Raises ``NotRepresentable`` for unsupported element types."""
    lines = [f'name: "{_escaped(name)}"', 'backend: "onnxruntime"']
    lines.append(f"max_batch_size: {LARGEST_BATCH if interface.batched else 0}")
    for field, tensors in (("input", interface.inputs), ("output", interface.outputs)):
        for tensor in tensors:
            lines += [f"{field} {{", *_tensor(tensor, interface.batched), "}"]
    if interface.batched:
        lines.append("dynamic_batching { }")
    return "\n".join(lines) + "\n"


def _tensor(tensor: Tensor, batched: bool) -> Iterator[str]:
    if tensor.dtype not in TYPES:
        raise NotRepresentable(
            f'Triton has no element type for "{tensor.name}"',
            given=tensor.dtype,
            available=", ".join(TYPES),
        )
    dims = [-1 if dim is None else dim for dim in tensor.dims[batched:]]
    yield f'  name: "{_escaped(tensor.name)}"'
    yield f"  data_type: {TYPES[tensor.dtype]}"
    yield f"  dims: [ {', '.join(map(str, dims or [1]))} ]"
    if not dims:  # the server has no scalars
        yield "  reshape: { shape: [ ] }"


def _escaped(text: str) -> str:
    """A text for a quoted string: non-ASCII and special bytes as octal escapes."""
    plain = set(range(32, 127)) - {34, 92}
    return "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode("utf-8"))
