"""The IR version of a file, and removal of fields that older versions lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tenonnx.errors import InvalidModel, NotRepresentable
from tenonnx.formats.onnx import proto as onnx
from tenonnx.formats.onnx.functions import Function
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import SparseTensorType, TensorType
from tenonnx.transforms.runtimes import Runtime

#: Fields without influence on results, by the IR version that introduced them. Readers of older versions reject the
#: file for its IR version, so these fields are removed.
_NOTES = {
    "quantization_annotation": (5, "quantization annotations"),
    "training_info": (7, "training information"),
    "metadata_props": (10, "metadata"),
    "configuration": (11, "device configurations"),
    "device_configurations": (11, "device configurations"),
}


def ir_version(graph: Graph, runtime: Runtime | None = None) -> int:
    """The graph's own IR version, else the one that its contents or the ONNX release of its opsets need.

    Raises ``NotRepresentable`` if the target's IR version cannot hold the contents. An opset itself needs no IR
    version, so a target may lower the one that was released with it.
    """
    needed = max(_needs(graph))[0]
    wanted = graph.ir_version or max(needed, _published_ir_version(graph))
    limit = None if runtime is None else runtime.ir_version
    if runtime is None or limit is None or wanted <= limit:
        return wanted
    if needed > limit:
        raise NotRepresentable(
            f"target {runtime.name} does not support the IR version that the graph needs",
            given=_new_features(graph, limit),
            available=f"IR version up to {limit}",
            do="go to a newer target",
        )
    return max(needed, min(limit, _published_ir_version(graph)))


def check_ir_version(graph: Graph, wanted: int) -> None:
    """Raise ``NotRepresentable``, naming the unsupported features, if a file of an IR version cannot hold the graph."""
    needed, newest = max(_needs(graph))[0], onnx.IR_VERSION
    if not needed <= wanted <= newest:
        raise NotRepresentable(
            f"IR version {wanted} is {f'too old for {_new_features(graph, wanted)}' if wanted < needed else 'unknown'}",
            available=f"{needed} to {newest}",
        )


def leave_out_notes(model: onnx.ModelProto) -> dict[str, int]:
    """Remove fields that the message's IR version lacks and that do not affect results; returns counts.

    The counts are by description: ``{"metadata of nodes": 54}``.
    """
    newest = max(version for version, _ in _NOTES.values())
    return {} if model.ir_version >= newest else dict(Counter(_removed_fields(model, model.ir_version)))


def _removed_fields(message: Any, version: int) -> Iterator[str]:
    for field, value in message.ListFields():
        since, about = _NOTES.get(field.name, (0, ""))
        if since > version and not (field.name == "metadata_props" and isinstance(message, onnx.ModelProto)):
            message.ClearField(field.name)
            yield f"{about} of {_CALLED.get(type(message).__name__, 'values')}"
        elif field.message_type is not None and field.name != "tensor_type":
            for each in value if hasattr(value, "__len__") else (value,):
                if isinstance(each, onnx.NodeProto) and not _may_have_notes(each):
                    continue
                if type(each).__name__ in _CALLED or isinstance(each, onnx.AttributeProto):
                    yield from _removed_fields(each, version)


def _may_have_notes(node: onnx.NodeProto) -> bool:
    """Whether a node may have such fields; a fast check, as listing the fields of thousands of nodes is slow."""
    return bool(node.metadata_props or node.device_configurations) or any(a.type not in _FLAT for a in node.attribute)


#: Attribute types without nested messages.
_FLAT = frozenset(
    getattr(onnx.AttributeProto, kind) for kind in ("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS")
)

#: Names of messages in descriptions.
_CALLED = {
    "ModelProto": "the model",
    "GraphProto": "graphs",
    "NodeProto": "nodes",
    "FunctionProto": "functions",
    "ValueInfoProto": "values",
    "TensorProto": "tensors",
}


# ----- what is needed ---------------------------------------------------------------------------------------------


def _needs(graph: Graph) -> Iterator[tuple[int, str]]:
    """The IR versions that contents need, with the reasons. Node metadata is not included, as readers skip it."""
    yield 4, "an ONNX file"
    kinds = (value.type for each in graph.nested() for value in each.values())
    for dtype in {kind.dtype for kind in kinds if isinstance(kind, TensorType | SparseTensorType)}:
        yield dtype.first_ir_version, f"the element type {dtype}"
    if graph.functions:
        yield 8, "functions of the model"
    if any(len(f.proto.attribute_proto) for f in graph.functions.values() if isinstance(f, Function)):
        yield 9, "functions whose attributes have a default"
    called = (node.origin.overload for node in graph.walk() if node.origin is not None)
    if any(called) or any(overload for _, _, overload in graph.functions):
        yield 10, "overloads of functions"


def _new_features(graph: Graph, limit: int) -> str:
    """The features that need a newer IR version than ``limit``."""
    return ", ".join(sorted({f"{what} (IR version {version})" for version, what in _needs(graph) if version > limit}))


def _published_ir_version(graph: Graph) -> int:
    """The IR version of the ONNX release that introduced the opsets."""
    from onnx import helper

    imports = [
        helper.make_opsetid("" if d == "ai.onnx" else d, v)
        for d, v in graph.opsets.items()
        if d in ("ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
    ]
    try:
        version = helper.find_min_ir_version_for(imports, ignore_unknown=True) if imports else 4
    except ValueError as error:
        raise InvalidModel("the onnx package does not know the opsets of the graph", given=str(graph.opsets)) from error
    return max(4, int(version))
