"""Convolutions whose kernels are inputs, as in training, in the layout in which the runtime convolves fastest.

The runtime's optimiser moves convolutions there only where the kernels are constants. The layout has the channels in
blocks, whose size depends on the processor, and a block innermost.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from tenonnx.extend import DType, TensorType
from tenonnx_onnxruntime.kernels import CPU
from tenonnx_onnxruntime.session import RUNTIME_ERRORS

if TYPE_CHECKING:
    from tenonnx.extend import Graph

DOMAIN = "com.microsoft.nchwc"

#: Kernels with fewer elements are not worth the change of layout.
_SMALLEST = 1 << 10


@functools.cache
def block_size() -> int:
    """How many channels make a block on this machine; 0 where the runtime has no such layout."""
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 32, 1, 2]) for name in ("x", "y")]
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)
    graph = helper.make_graph([node], "probe", info[:1], info[1:])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)], ir_version=7
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    x = np.arange(64, dtype=np.float32).reshape(1, 32, 1, 2)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[CPU])
        (y,) = session.run(None, {"x": x})
    except RUNTIME_ERRORS:
        return 0
    return int(np.argmax(np.asarray(y).reshape(-1) == 1))  # the second pixel of the first channel


def block_convolutions(model: onnx.ModelProto, graph: Graph) -> bool:
    """Change the convolutions of ``model``, which is ``graph`` as a message, where that pays; whether one was."""
    open_inputs = {v.name: v.type for v in graph.inputs}
    if not any(node.op_type in _FORMS for node in model.graph.node) or not block_size():
        return False
    made, changed = [], False
    for node in model.graph.node:
        form = _FORMS.get(node.op_type) if node.domain == "" else None
        kernel = open_inputs.get(node.input[1]) if form is not None else None
        replaced = None if form is None else form(model, node, _sizes(kernel))
        changed |= replaced is not None
        made += [node] if replaced is None else replaced
    if changed:
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return changed


def _sizes(kernel: Any) -> list[int] | None:
    """The static shape of kernels that fit: float32, two spatial axes, and whole blocks of channels both ways."""
    if not isinstance(kernel, TensorType) or kernel.dtype is not DType.float32 or kernel.rank != 4:
        return None
    sizes = [d for d in kernel.shape or () if isinstance(d, int)]
    fit = len(sizes) == 4 and not any(d % block_size() for d in sizes[:2]) and math.prod(sizes) >= _SMALLEST
    return sizes if fit else None


def _convolution(model: onnx.ModelProto, node: onnx.NodeProto, sizes: list[int] | None) -> list[onnx.NodeProto] | None:
    """Conv with its kernels turned into blocks."""
    attributes = _window(node, sizes)
    if sizes is None or attributes is None:
        return None
    return list(_nodes(model, node, node.input[1], [0, 2, 4, 5, 3, 1], sizes, sizes[0], attributes))


def _transposed(model: onnx.ModelProto, node: onnx.NodeProto, sizes: list[int] | None) -> list[onnx.NodeProto] | None:
    """ConvTranspose without strides: a convolution with the kernels turned round."""
    attributes = _window(node, sizes)
    if sizes is None or attributes is None or set(attributes["strides"]) != {1} or attributes["beyond"]:
        return None
    reach = [d * (k - 1) for d, k in zip(attributes["dilations"], sizes[2:], strict=True)]
    attributes["pads"] = [r - p for r, p in zip(reach * 2, attributes["pads"], strict=True)]
    if min(attributes["pads"]) < 0:
        return None
    turned = f"{node.output[0]}/turned"
    ends = {"starts": [-1, -1], "ends": [-sizes[2] - 1, -sizes[3] - 1], "axes": [2, 3], "steps": [-1, -1]}
    inputs = [_constant(model, f"{turned}/{name}", numbers) for name, numbers in ends.items()]
    turn = helper.make_node("Slice", [node.input[1], *inputs], [turned])
    return [turn, *_nodes(model, node, turned, [2, 0, 4, 5, 1, 3], sizes, sizes[1], attributes)]


_FORMS = {"Conv": _convolution, "ConvTranspose": _transposed}


def _window(node: onnx.NodeProto, sizes: list[int] | None) -> dict[str, Any] | None:
    """The attributes of the blocked convolution, None where it has no form for those of ``node``."""
    given: Mapping[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if sizes is None or given.get("group", 1) != 1 or given.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    if "output_shape" in given:
        return None
    found = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1]}
    found = {name: list(given.get(name, default)) for name, default in found.items()}
    return {**found, "kernel_shape": sizes[2:], "beyond": any(given.get("output_padding", ()))}


def _nodes(
    model: onnx.ModelProto, node: onnx.NodeProto, kernel: str, order: list[int], sizes: list[int], channels: int,
    attributes: dict[str, Any],
) -> Iterator[onnx.NodeProto]:  # fmt: skip
    """The convolution with what changes the layout before and after it; ``order`` is that of the kernel's blocks."""
    name, size = node.output[0], block_size()
    x, apart, swapped, w, y = (f"{name}/{part}" for part in ("x", "apart", "swapped", "kernel", "y"))
    shape = _constant(model, f"{apart}/shape", [sizes[0] // size, size, sizes[1] // size, size, *sizes[2:]])
    joined = _constant(model, f"{w}/shape", [channels, math.prod(sizes[:2]) // channels, *sizes[2:]])
    yield helper.make_node("Reshape", [kernel, shape], [apart])
    yield helper.make_node("Transpose", [apart], [swapped], perm=order)
    yield helper.make_node("Reshape", [swapped, joined], [w])
    yield helper.make_node("ReorderInput", [node.input[0]], [x], domain=DOMAIN)
    del attributes["beyond"]
    yield helper.make_node("Conv", [x, w, *node.input[2:]], [y], domain=DOMAIN, group=1, **attributes)
    yield helper.make_node("ReorderOutput", [y], [name], domain=DOMAIN, channels=channels)


def _constant(model: onnx.ModelProto, name: str, numbers: list[int]) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
    return name
