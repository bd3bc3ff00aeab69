"""Conversion of graphs to the ops of OpenVINO's ONNX front end, and compilation for a device."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import openvino

from tenonnx.extend import DType, InvalidCall, NotRepresentable, TensorType, Type, UnsupportedOp
from tenonnx.extend.backends import Target, retarget_to, target_for
from tenonnx.extend.formats import LARGEST_MESSAGE, message_of, write_stream
from tenonnx_openvino.unlike import without_unlike

if TYPE_CHECKING:
    from tenonnx.extend import Graph, Op

#: The ops supported by the front end, and the ``ai.onnx`` version of this list. All graphs are converted to it, so that
#: one version of each op is in use, which the tests compare.
TARGET, OPSET = "openvino-2024", 22

#: Element types of inputs and outputs in OpenVINO. Its CPU plugin has 32-bit integers, so wider feeds are checked, and
#: float32 instead of float64; inside of a graph that is accurate enough, as for the learning rate of an optimizer.
TYPES = {
    DType.bool: openvino.Type.boolean,
    DType.int8: openvino.Type.i8,
    DType.uint8: openvino.Type.u8,
    DType.int16: openvino.Type.i16,
    DType.uint16: openvino.Type.u16,
    DType.int32: openvino.Type.i32,
    DType.int64: openvino.Type.i64,
    DType.float16: openvino.Type.f16,
    DType.bfloat16: openvino.Type.bf16,
    DType.float32: openvino.Type.f32,
}
_WITHIN = {*TYPES, DType.float64}

#: The ops in an error message of the front end about failed conversions.
_FAILED = re.compile(r"(?:No conversion rule found for operations|Conversion is failed for):\s*(.+)")
_NAME = re.compile(r"(\w+)-\d+")


def converted(graph: Graph) -> openvino.Model:
    """``graph`` for OpenVINO's front end; ops that it cannot convert are expanded. Raises ``UnsupportedOp``."""
    _check_interface(graph.infer())
    without: set[str] = set()
    while True:
        try:
            return _read(_moved(graph, without))
        except NotRepresentable as error:
            raise _unsupported(error.given or error.what) from error
        except RuntimeError as error:
            failed = {name for names in _FAILED.findall(str(error)) for name in _NAME.findall(names)}
            if not failed - without:
                raise _unsupported(shortened(error)) from error
            without |= failed


def compiled(graph: Graph, device: str, properties: Mapping[str, Any]) -> openvino.CompiledModel:
    """``graph`` compiled for a device. Raises ``UnsupportedOp``."""
    model = converted(graph)
    try:
        return core().compile_model(model, device, dict(properties))
    except RuntimeError as error:
        if "property" in str(error):
            raise InvalidCall("the device rejects the value of a property", given=shortened(error)) from error
        raise _unsupported(shortened(error)) from error


def _unsupported(why: str) -> UnsupportedOp:
    return UnsupportedOp(
        f"OpenVINO {openvino.__version__.partition('-')[0]} cannot run the graph", given=why, do="use another backend"
    )


def _moved(graph: Graph, without: Set[str]) -> Graph:
    runtime = target_for(graph, name=TARGET).runtime
    target = Target({"ai.onnx": OPSET}, functools.partial(_accepts, without), runtime)
    while True:
        graph = retarget_to(graph, target, spare_defaults=False).graph
        alike = without_unlike(graph)
        if alike is None:
            return graph
        graph = alike


def _accepts(
    without: Set[str], op: Op, version: int, inputs: Sequence[Type | None], outputs: Sequence[Type | None]
) -> bool:
    kinds = [kind for kind in (*inputs, *outputs) if kind is not None]
    return op.name not in without and all(isinstance(kind, TensorType) and kind.dtype in _WITHIN for kind in kinds)


def _check_interface(graph: Graph) -> None:
    values = (*graph.all_inputs, *graph.outputs)
    if any(0 in (v.tensor.shape or ()) for v in values if isinstance(v.type, TensorType)):
        raise _unsupported("no tensor may be empty")
    wrong = [f"{v.name}: {v.type}" for v in values if not isinstance(v.type, TensorType) or v.dtype not in TYPES]
    if wrong:
        raise UnsupportedOp(
            "OpenVINO does not support these types",
            given=", ".join(wrong),
            available=", ".join(sorted(dtype.name for dtype in TYPES)),
            do="use another backend",
        )


def _read(graph: Graph) -> openvino.Model:
    """Read a graph, with default values of inputs as constants, which OpenVINO makes of them."""
    model, initializers = message_of(graph)
    if sum(contents.nbytes for _, contents in initializers) > LARGEST_MESSAGE:
        raise _unsupported("its tensors have more than the 2 GiB of one message")
    defaults = {value.name for value in graph.all_inputs if value.data is not None}
    inputs = [info for info in model.graph.input if info.name not in defaults]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    message = io.BytesIO()
    write_stream(message, model, initializers)
    return core().read_model(message.getvalue())


#: Prefixes of lines with source locations of the runtime.
_PLACES = ("Exception from ", "Check '", "FrontEnd API failed", "To facilitate the conversion")


@functools.cache
def core() -> openvino.Core:
    """The runtime, which enumerates devices when created."""
    return openvino.Core()


def shortened(error: Exception) -> str:
    """The runtime's message without source locations."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(_PLACES)]
    text = " ".join(said) or " ".join(lines)
    return text if len(text) <= 500 else text[:500] + " ..."
