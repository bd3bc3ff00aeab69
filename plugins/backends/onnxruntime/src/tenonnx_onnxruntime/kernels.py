"""Versions and kernels of the installed onnxruntime, by element type."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from tenonnx.extend import DType, MapType, OptionalType, SequenceType, TensorType, Type
from tenonnx.extend.formats import IR_VERSION, AttributeProto, ModelProto, NodeProto, TensorProto, array_to_proto
from tenonnx_onnxruntime import extensions
from tenonnx_onnxruntime.session import RUNTIME_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tenonnx.extend import Op

CPU = "CPUExecutionProvider"

#: End version of a kernel that supports only the schema version it starts at.
_OPEN_END = 2**31 - 1

#: IR version and opset that the oldest supported onnxruntime loads, so that no test is needed.
_OLDEST_IR, _OLDEST_OPSET = 10, 21

#: Ops without kernels, which the runtime converts to initializers.
_BUILT_IN = frozenset({("ai.onnx", "Constant")})

#: Element types for which the runtime's name differs from ours.
_NAMES = {DType.float32: "float", DType.float64: "double"}


# ----- versions -------------------------------------------------------------------------------------------------------


@functools.cache
def newest(domain: str) -> int:
    """The newest version of a domain that the runtime loads; 0 for an unknown domain.

    The runtime has schemas of versions unreleased at its build time, which it refuses to load. So the newest version is
    found by loading models.
    """
    if domain in extensions.DOMAINS:
        return extensions.VERSION if extensions.library() else 0
    known = max((s.since_version for s in _schemas().get(domain, {}).values() for s in s), default=0)
    if domain == "ai.onnx":
        import onnx

        known = max(known, onnx.defs.onnx_opset_version())
    return next((version for version in range(known, 0, -1) if _loads(domain, version, 4)), 0)


@functools.cache
def newest_ir() -> int:
    """The newest IR version that the runtime loads."""
    return next((version for version in range(IR_VERSION, 4, -1) if _loads("ai.onnx", 13, version)), 4)


def loaded_ir(version: int) -> int:
    """An IR version, limited to the newest one that the runtime loads."""
    return version if version <= _OLDEST_IR else min(version, newest_ir())


def has_version(domain: str, version: int) -> bool:
    """Whether the runtime loads a version of a domain; for ai.onnx without querying all schemas, which is slow."""
    if domain != "ai.onnx":
        return version <= newest(domain)
    return version <= _OLDEST_OPSET or _loads(domain, version, 4)


@functools.cache
def _loads(domain: str, version: int, ir_version: int) -> bool:
    """Whether the runtime loads a model of one Identity that imports a version of a domain."""
    node = NodeProto(op_type="Identity", input=["x"], output=["y"])
    try:
        opened(node, [1], {"ai.onnx": 13} | {domain: version}, ir_version)
    except RUNTIME_ERRORS:
        return False
    return True


def opened(
    node: NodeProto,
    shape: Sequence[int],
    opsets: Mapping[str, int],
    ir_version: int,
    weights: Sequence[TensorProto] = (),
    element: int = TensorProto.FLOAT,
) -> onnxruntime.InferenceSession:
    """A session of a model with one node, from ``x`` to ``y``, for testing the runtime."""
    model = ModelProto(ir_version=ir_version)
    for domain, version in opsets.items():
        model.opset_import.add(domain="" if domain == "ai.onnx" else domain, version=version)
    model.graph.name = "probe"
    model.graph.node.append(node)
    model.graph.initializer.extend(weights)
    for name, info in (("x", model.graph.input.add()), ("y", model.graph.output.add())):
        info.name, info.type.tensor_type.elem_type = name, element
    for size in shape:
        model.graph.input[0].type.tensor_type.shape.dim.add(dim_value=size)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[CPU])


# ----- kernels --------------------------------------------------------------------------------------------------------


def has_schema(op: Op, version: int, inputs: Sequence[Type | None], outputs: Sequence[Type | None]) -> bool:
    """Whether the runtime has a schema of an op at a version, on any provider."""
    if op.domain in extensions.DOMAINS:
        return extensions.has_op(op.domain, op.name)
    schema = _schema_at(op.domain, op.name, version)
    return schema is not None and not schema.deprecated


def is_faulty(op: Op, inputs: Sequence[Type | None]) -> bool:
    """Whether a kernel crashes on these types, or computes wrong results in the installed version.

    Crashes cannot be tested for: BatchNormalization of rank 1 crashes below 1.21, ConvTransposeWithDynamicPads without
    pads below 1.32.
    """
    first = inputs[0] if inputs else None
    rank = first.rank if isinstance(first, TensorType) else None
    if op.domain in extensions.DOMAINS:
        return not extensions.has_op(op.domain, op.name)
    match op.name:
        case "BatchNormalization":
            return rank == 1
        case "ConvTransposeWithDynamicPads":
            return len(inputs) < 3 or inputs[2] is None
        case "DFT":
            return rank == 2 and not _transforms_one_signal()
        case "MoE":
            return isinstance(first, TensorType) and first.dtype is DType.float16 and not _mixes_half_floats()
        case "DepthToSpace" | "SpaceToDepth":
            return op.domain == _NHWC and not _has_channels_last()
    return False


@functools.cache
def _mixes_half_floats() -> bool:
    """Whether MoE in float16 is correct: below 1.32 it returns 0 on CPUs without float16 products."""
    node = NodeProto(op_type="MoE", domain="com.microsoft", input=["x", "p", "w", "", "w"], output=["y"])
    node.attribute.add(name="activation_type", type=AttributeProto.STRING, s=b"identity")
    shapes = {"p": (1, 1), "w": (1, 1, 1)}
    weights = [array_to_proto(np.ones(shape, np.float16), DType.float16, name) for name, shape in shapes.items()]
    try:
        session = opened(node, [1, 1], {"ai.onnx": 13, "com.microsoft": 1}, 8, weights, TensorProto.FLOAT16)
        (mixed,) = session.run(None, {"x": np.ones((1, 1), np.float16)})
    except RUNTIME_ERRORS:
        return False
    return bool(mixed.item() == 1)


#: The domain of channels-last ops.
_NHWC = "com.ms.internal.nhwc"


@functools.cache
def _has_channels_last() -> bool:
    """Whether SpaceToDepth in this domain is channels-last; the kernel of 1.32 is not."""
    node = NodeProto(op_type="SpaceToDepth", domain=_NHWC, input=["x"], output=["y"])
    node.attribute.add(name="blocksize", type=AttributeProto.INT, i=2)
    try:
        session = opened(node, [1, 2, 2, 4], {"ai.onnx": 13, _NHWC: newest(_NHWC)}, 8)
        (moved,) = session.run(None, {"x": np.zeros((1, 2, 2, 4), np.float32)})
    except RUNTIME_ERRORS:
        return False
    return bool(moved.shape == (1, 1, 1, 16))


@functools.cache
def _transforms_one_signal() -> bool:
    """Whether DFT of a signal without batch axis returns one spectrum; old kernels return one per element."""
    node = NodeProto(op_type="DFT", input=["x"], output=["y"])
    node.attribute.add(name="axis", type=AttributeProto.INT, i=0)
    try:
        (spectrum,) = opened(node, [2, 1], {"ai.onnx": 17}, 8).run(None, {"x": np.ones((2, 1), np.float32)})
    except RUNTIME_ERRORS:
        return False
    return bool(spectrum.shape == (2, 2))


def has_kernel(op: Op, version: int, inputs: Sequence[Type | None], outputs: Sequence[Type | None]) -> bool:
    """Whether the CPU provider runs an op at a version on these types; an unknown type matches any."""
    if op.domain in extensions.DOMAINS:
        return extensions.has_op(op.domain, op.name)
    schema = _schema_at(op.domain, op.name, version)
    if schema is None or schema.deprecated or is_faulty(op, inputs):
        return False
    if (op.domain, op.name) in _BUILT_IN:
        return True
    given = [*_typed(schema.inputs, inputs), *_typed(schema.outputs, outputs)]
    for constraints in _kernels_of(op.domain, op.name, schema.since_version):
        if all(_is_allowed(constraints, formal, name) for formal, name in given):
            return True
    kernels = _kernels().get((op.domain, op.name))
    return not kernels and op.primitive and _has_body(op.domain, op.name, schema.since_version)


def _is_allowed(constraints: dict[str, frozenset[str]], formal: Any, name: str) -> bool:
    """Whether a kernel allows a type; it is constrained by the schema's type parameter, or by input or output name."""
    allowed = constraints.get(formal.typeStr)
    if allowed is None:
        allowed = constraints.get(formal.name)
    # The runtime inserts casts around float16 nodes without kernels.
    return allowed is None or name in allowed or (name == "tensor(float16)" and "tensor(float)" in allowed)


def _typed(formals: Sequence[Any], kinds: Sequence[Type | None]) -> Iterator[tuple[Any, str]]:
    for position, kind in enumerate(kinds):
        name = _type_name(kind)
        if name is not None and formals:
            yield formals[min(position, len(formals) - 1)], name


def _type_name(kind: Type | None) -> str | None:
    """A type in the runtime's notation."""
    match kind:
        case TensorType():
            return f"tensor({_NAMES.get(kind.dtype, kind.dtype.name)})"
        case SequenceType():
            inner = _type_name(kind.element)
            return None if inner is None else f"seq({inner})"
        case OptionalType():
            inner = _type_name(kind.element)
            return None if inner is None else f"optional({inner})"
        case MapType():
            inner = _type_name(kind.value)
            return None if inner is None else f"map({_NAMES.get(kind.key, kind.key.name)},{inner})"
    return None


def _kernels_of(domain: str, name: str, since: int) -> Iterator[dict[str, frozenset[str]]]:
    """Type constraints of the kernels for the schema of an op introduced in a version."""
    for first, last, constraints in _kernels().get((domain, name), ()):
        if first == since or first < since <= last != _OPEN_END:
            yield constraints


@functools.cache
def left_behind() -> list[int]:
    """The versions of ``ai.onnx`` that introduced a schema without kernel, minus one, newest first."""
    found = set()
    for name, versions in _schemas()["ai.onnx"].items():
        served = [any(True for _ in _kernels_of("ai.onnx", name, schema.since_version)) for schema in versions]
        for newer, has_newer, has_older in zip(versions, served, served[1:], strict=False):
            if has_older and not has_newer and not newer.deprecated and newer.since_version <= newest("ai.onnx"):
                found.add(newer.since_version - 1)
    return sorted(found, reverse=True)


@functools.cache
def _schemas() -> dict[str, dict[str, list[Any]]]:
    """The runtime's schemas by domain and op, newest first."""
    result: dict[str, dict[str, list[Any]]] = {}
    for schema in runtime.get_all_operator_schema():
        result.setdefault(schema.domain or "ai.onnx", {}).setdefault(schema.name, []).append(schema)
    for ops in result.values():
        for versions in ops.values():
            versions.sort(key=lambda schema: -schema.since_version)
    return result


@functools.cache
def _schema_at(domain: str, name: str, version: int) -> Any:
    versions = _schemas().get(domain, {}).get(name, ())
    return next((schema for schema in versions if schema.since_version <= version), None)


@functools.cache
def _kernels() -> dict[tuple[str, str], list[tuple[int, int, dict[str, frozenset[str]]]]]:
    """The kernels of the CPU provider: start and end version, and type constraints."""
    result: dict[tuple[str, str], list[tuple[int, int, dict[str, frozenset[str]]]]] = {}
    for kernel in runtime.get_all_opkernel_def():
        if kernel.provider == CPU:
            constraints = {name: frozenset(types) for name, types in kernel.type_constraints.items()}
            entry = (*kernel.version_range, constraints)
            result.setdefault((kernel.domain or "ai.onnx", kernel.op_name), []).append(entry)
    return result


def _has_body(domain: str, name: str, version: int) -> bool:
    """Whether ONNX defines an op as a function, which the runtime then inlines."""
    import onnx

    try:
        schema = onnx.defs.get_schema(name, version, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]
