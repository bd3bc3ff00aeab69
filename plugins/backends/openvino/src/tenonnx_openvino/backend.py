"""Compilation for OpenVINO, specialized by the shapes of feeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenonnx.extend import InvalidCall, UnsupportedOp
from tenonnx.extend.backends import DefaultsProgram, FallbackProgram, Program, ShapeSpecializedProgram, fall_back

if TYPE_CHECKING:
    from tenonnx.extend import Graph

speed = 90

runtime = "openvino"

#: By default, OpenVINO computes in bfloat16, and rounds activations to 8 bits for weights of few bits, on CPUs that
#: support it.
PROPERTIES = {
    "INFERENCE_PRECISION_HINT": "f32",
    "PERFORMANCE_HINT": "LATENCY",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
}


def compile(
    graph: Graph,
    *,
    state: Mapping[str, str] | None = None,
    device: str = "CPU",
    properties: Mapping[str, Any] | None = None,
    threads: int | None = None,
    strict: bool = False,
) -> Program:
    """Compile ``graph`` for OpenVINO.

    ``device`` is a device that OpenVINO finds. ``properties`` are device properties in OpenVINO's terms, such as
    ``{"INFERENCE_PRECISION_HINT": "bf16"}`` for less than float32. ``threads`` is the number of threads per call. A
    graph or call that OpenVINO rejects runs on numpy with a ``FallbackWarning``. If ``strict``, it raises
    ``UnsupportedOp`` or ``InvalidCall`` instead. Raises ``InvalidCall`` for wrong options.
    """
    from tenonnx_openvino.conversion import compiled, converted
    from tenonnx_openvino.programs import OpenVinoProgram, stateful_program

    settings = _settings(device, properties)
    if threads is not None:
        if not (isinstance(threads, int) and threads > 0):
            raise InvalidCall("threads is not a positive integer", given=repr(threads))
        settings = {"INFERENCE_NUM_THREADS": threads, **settings}

    def make(each: Graph, names: Mapping[str, str]) -> Program:
        try:
            if names:
                return stateful_program(each, names, lambda form: compiled(form, device, settings))
            return DefaultsProgram(each, lambda form: OpenVinoProgram(form, compiled(form, device, settings)))
        except UnsupportedOp as error:
            if strict:
                raise
            return fall_back(each, error, names)

    try:
        program = ShapeSpecializedProgram(graph, make, state)
        if not program.is_made:
            converted(graph)
    except UnsupportedOp as error:
        if strict:
            raise
        return fall_back(graph, error, state)
    return program if strict else FallbackProgram(program, graph, state)


def _settings(device: str, properties: Mapping[str, Any] | None) -> dict[str, Any]:
    """The properties to compile with. Raises ``InvalidCall`` for an unknown device or property."""
    from tenonnx_openvino.conversion import core

    if device not in (available := core().available_devices):
        raise InvalidCall("unknown OpenVINO device", given=device, available=", ".join(available))
    if not isinstance(properties or {}, Mapping):
        raise InvalidCall("properties are not a mapping of names to values", given=type(properties).__name__)
    known = core().get_property(device, "SUPPORTED_PROPERTIES")
    unknown = [name for name in properties or {} if name not in known]
    if unknown:
        raise InvalidCall(
            f"the device {device} does not have these properties",
            given=", ".join(map(str, unknown)),
            available=", ".join(known),
        )
    return {**PROPERTIES, **(properties or {})}
