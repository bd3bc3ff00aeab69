"""Conversion of node attributes from and to ``AttributeProto``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenonnx.errors import InvalidModel
from tenonnx.formats.external import ExternalFiles
from tenonnx.formats.onnx import proto as onnx
from tenonnx.formats.onnx.proto import AttributeProto
from tenonnx.formats.onnx.tensors import SparseContents, TensorContents, to_inline_proto
from tenonnx.formats.onnx.types import read_type, write_type
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type


@dataclass(frozen=True, slots=True)
class AttributeReference:
    """In a function body: a reference to an attribute of the call, with its type code."""

    refers_to: str
    kind: int


#: reader and writer callbacks for subgraphs, which depend on the enclosing scope
ReadGraph = Callable[[onnx.GraphProto], Graph]
WriteGraph = Callable[[Graph, onnx.GraphProto], None]


def text(raw: bytes) -> str | bytes:
    """A decoded string attribute; bytes that are not UTF-8 are returned as bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def read_attribute(
    proto: AttributeProto, read_graph: ReadGraph, files: ExternalFiles | None = None, *, in_function: bool = False
) -> Any:
    """The value of an attribute; its tensors may be in ``files``.

    Raises ``InvalidModel`` for an unknown type.
    """
    if proto.ref_attr_name:
        if not in_function:
            raise InvalidModel(
                f'attribute "{proto.name}" refers to an attribute of a call, but is not in the body of a function',
                given=f'a reference to "{proto.ref_attr_name}"',
            )
        return AttributeReference(proto.ref_attr_name, proto.type)
    kind: int = proto.type or _guess(proto)
    found = _FIELDS.get(kind)
    if found is None:
        raise InvalidModel(f'attribute "{proto.name}" has an unknown type', given=f"type code {proto.type}")
    field, item = found
    content = getattr(proto, field)
    if item in _NUMBERS:
        return content if item == kind else list(content)
    if item == AttributeProto.GRAPH:
        return read_graph(content) if item == kind else [read_graph(each) for each in content]
    if item == kind:
        return _read_item(item, content, proto.name, files)
    return [_read_item(item, each, proto.name, files) for each in content]


#: Field of each attribute type, and the type of list items; for other types, the type itself.
_FIELDS: Mapping[int, tuple[str, int]] = {
    getattr(AttributeProto, name): (field, getattr(AttributeProto, item))
    for item, single, several in (
        ("INT", "i", "ints"),
        ("FLOAT", "f", "floats"),
        ("STRING", "s", "strings"),
        ("TENSOR", "t", "tensors"),
        ("GRAPH", "g", "graphs"),
        ("SPARSE_TENSOR", "sparse_tensor", "sparse_tensors"),
        ("TYPE_PROTO", "tp", "type_protos"),
    )
    for name, field in ((item, single), (f"{item}S", several))
}
_NUMBERS = {AttributeProto.INT, AttributeProto.FLOAT}


def _read_item(kind: int, content: Any, name: str, files: ExternalFiles | None) -> Any:
    if kind == AttributeProto.STRING:
        return text(content)
    if kind == AttributeProto.TENSOR:
        return TensorContents(content, files)
    return SparseContents(content, files) if kind == AttributeProto.SPARSE_TENSOR else _read_type(name, content)


def _read_type(name: str, declared: onnx.TypeProto) -> Type:
    try:
        if (kind := read_type(declared)) is not None:
            return kind
        reason = "none"
    except (ValueError, TypeError) as error:
        reason = str(error)
    raise InvalidModel(f'attribute "{name}" is of a type that ONNX does not define', given=reason)


def _guess(proto: AttributeProto) -> int:
    """The type of an attribute without one, which the first IR version allowed."""
    several = [kind for kind, (field, item) in _FIELDS.items() if kind != item and len(getattr(proto, field))]
    single = [kind for kind, (field, item) in _FIELDS.items() if kind == item and proto.HasField(field)]
    return next(iter((*several, *single)), AttributeProto.UNDEFINED)


def write_attribute(
    name: str, value: Any, proto: AttributeProto, write_graph: WriteGraph, *, is_float: bool = False
) -> None:
    """Fill a message with an attribute. ``is_float`` means that integers are written as floats."""
    proto.name = name
    match value:
        case AttributeReference():
            proto.ref_attr_name = value.refers_to
            proto.type = value.kind  # type: ignore[assignment]
        case bool() | int() if not is_float:
            proto.type, proto.i = AttributeProto.INT, int(value)
        case int() | float():
            proto.type, proto.f = AttributeProto.FLOAT, float(value)
        case str() | bytes():
            proto.type, proto.s = AttributeProto.STRING, _encoded(value)
        case Graph():
            proto.type = AttributeProto.GRAPH
            write_graph(value, proto.g)
        case TensorType() | SparseTensorType() | SequenceType() | OptionalType() | MapType():
            proto.type = AttributeProto.TYPE_PROTO
            write_type(value, proto.tp)
        case SparseContents():
            proto.type = AttributeProto.SPARSE_TENSOR
            proto.sparse_tensor.CopyFrom(value.inline_proto())
        case list() | tuple():
            try:
                _write_list(list(value), proto, write_graph, is_float)
            except (AttributeError, TypeError, ValueError) as error:
                raise InvalidModel(f'attribute "{name}" does not hold items of one type', given=repr(value)) from error
        case _ if hasattr(value, "array"):
            proto.type = AttributeProto.TENSOR
            proto.t.CopyFrom(_tensor(value))
        case _:
            raise InvalidModel(f'attribute "{name}" is of a type that ONNX does not define', given=type(value).__name__)


def _write_list(values: list[Any], proto: AttributeProto, write_graph: WriteGraph, is_float: bool) -> None:
    first = values[0] if values else 0
    if isinstance(first, Graph):
        proto.type = AttributeProto.GRAPHS
        for graph in values:
            write_graph(graph, proto.graphs.add())
    elif isinstance(first, str | bytes):
        proto.type = AttributeProto.STRINGS
        proto.strings.extend(map(_encoded, values))
    # fast for millions of items, which have few types
    elif is_float or any(issubclass(kind, float) for kind in set(map(type, values))):
        proto.type = AttributeProto.FLOATS
        proto.floats.extend(map(float, values))
    elif isinstance(first, int):
        proto.type = AttributeProto.INTS
        proto.ints.extend(values)
    elif isinstance(first, SparseContents):
        proto.type = AttributeProto.SPARSE_TENSORS
        proto.sparse_tensors.extend(v.inline_proto() for v in values)
    elif hasattr(first, "array"):
        proto.type = AttributeProto.TENSORS
        proto.tensors.extend(_tensor(v) for v in values)
    elif not all(isinstance(v, Type) for v in values):
        raise TypeError("items of no type that ONNX defines")
    else:
        proto.type = AttributeProto.TYPE_PROTOS
        for kind in values:
            write_type(kind, proto.type_protos.add())


def _tensor(value: Any) -> onnx.TensorProto:
    return to_inline_proto(value, value.proto.name if isinstance(value, TensorContents) else "")


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def is_external(value: Any) -> bool:
    """Whether an attribute is, or has in a list, a tensor with external contents."""
    items = value if isinstance(value, list) else (value,)
    return any(isinstance(item, TensorContents | SparseContents) and item.is_external for item in items)


def inline_tensors(function: onnx.FunctionProto, files: ExternalFiles | None) -> onnx.FunctionProto:
    """The function with external tensors inlined in its message; unchanged if there are none."""
    if not any(_external_tensors(function)):
        return function
    inlined = onnx.FunctionProto()
    inlined.CopyFrom(function)
    for tensor in list(_external_tensors(inlined)):
        tensor.CopyFrom(to_inline_proto(TensorContents(tensor, files), tensor.name))
    return inlined


def _external_tensors(message: Any) -> Iterator[onnx.TensorProto]:
    """Tensors with external contents in a message and its nested messages."""
    if isinstance(message, onnx.TensorProto):
        yield from [message] if message.data_location == onnx.TensorProto.EXTERNAL else []
        return
    for field, content in message.ListFields():
        for each in () if field.message_type is None else [content] if hasattr(content, "ListFields") else content:
            yield from _external_tensors(each)
