"""Writing a graph as an ONNX message. Unmodified parts are written back verbatim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenonnx.formats.onnx import proto as onnx
from tenonnx.formats.onnx.attributes import is_external, write_attribute
from tenonnx.formats.onnx.functions import Function
from tenonnx.formats.onnx.ir import ir_version
from tenonnx.formats.onnx.parameter_roles import add_roles
from tenonnx.formats.onnx.tensors import Initializers, SparseContents, to_inline_proto, to_proto
from tenonnx.formats.onnx.types import read_type, write_type
from tenonnx.graph.gc_paused import gc_paused
from tenonnx.graph.graph import OPTIONAL_INPUTS_IR, Graph, Node, Value
from tenonnx.graph.symbolic import symbols_of
from tenonnx.graph.training import Role
from tenonnx.graph.types import TensorType, Type
from tenonnx.op.op import Op
from tenonnx.op.versioned_signature import signature_at
from tenonnx.transforms.target import undeclared_opsets


def to_model(graph: Graph) -> onnx.ModelProto:
    """The whole model as one message."""
    model, initializers = model_and_initializers(graph)
    for name, contents in initializers:
        model.graph.initializer.append(to_proto(contents, name))
    return model


@gc_paused()
def model_and_initializers(graph: Graph, *, tidy: bool = False) -> tuple[onnx.ModelProto, Initializers]:
    """The model without the initializers of its main graph, and these initializers.

    ``tidy`` declares every domain in use and writes every known type.
    """
    model = onnx.ModelProto()
    if isinstance(graph.origin, onnx.ModelProto):
        copy_fields(graph.origin, model, without=("graph", "opset_import", "functions", "metadata_props"))
    else:
        model.producer_name = "tenonnx"
    model.ir_version = ir_version(graph)
    _write_opsets(graph, model, tidy)
    for key, value in graph.metadata.items():
        model.metadata_props.add(key=key, value=value)
    for function in graph.functions.values():
        assert isinstance(function, Function)
        model.functions.append(function.proto)
    origin = graph.origin.graph if isinstance(graph.origin, onnx.ModelProto) else None
    writer = GraphWriter(graph, model.graph, origin, model.ir_version, tidy)
    initializers = writer.write()
    add_roles(writer.roles, model)
    return model, initializers


def copy_fields(source: Any, target: Any, without: Sequence[str]) -> None:
    """Copy the fields of a message that are set, except ``without``, to another one of the same type."""
    for field, value in source.ListFields():
        if field.name in without:
            continue
        if isinstance(value, int | str | bytes | float):
            setattr(target, field.name, value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, field.name).CopyFrom(value)
        else:
            getattr(target, field.name).extend(value)


def _write_opsets(graph: Graph, model: onnx.ModelProto, tidy: bool) -> None:
    written = {o.domain or "ai.onnx": o.version for o in graph.origin.opset_import} if graph.origin is not None else {}
    added = {node.domain for node in graph.walk() if node.origin is None} - written.keys()
    is_unchanged = all(graph.opsets.get(domain) == version for domain, version in written.items())
    if graph.origin is not None and is_unchanged and not added and not tidy:
        model.opset_import.extend(graph.origin.opset_import)
        return
    names_in_file = (
        {o.domain or "ai.onnx": o.domain for o in graph.origin.opset_import} if graph.origin is not None else {}
    )
    for domain, version in {**graph.opsets, **undeclared_opsets(graph)}.items():
        model.opset_import.add(domain=names_in_file.get(domain, "" if domain == "ai.onnx" else domain), version=version)


class GraphWriter:
    """Writes one graph to ``proto``; ``origin`` is the message that it was read from, or None."""

    def __init__(
        self, graph: Graph, proto: onnx.GraphProto, origin: onnx.GraphProto | None, ir_version: int, tidy: bool
    ) -> None:
        self.graph = graph
        self.proto = proto
        self.origin = origin
        self.ir_version = ir_version
        self.tidy = tidy
        self.roles: dict[str, Role] = {}

    def write(self) -> Initializers:
        """Fill the message and return its initializers, whose roles are then in ``roles``."""
        graph, proto, origin = self.graph, self.proto, self.origin
        if origin is not None:
            copy_fields(
                origin, proto, without=("node", "input", "output", "initializer", "sparse_initializer", "value_info")
            )
        proto.name, doc = graph.name, graph.doc
        if doc or (origin is not None and origin.HasField("doc_string")):
            proto.doc_string = doc
        for node in graph.nodes:
            self._write_node(node, proto.node.add())
        self._write_interface()
        self._write_value_info()
        return self._initializers()

    # ----- nodes --------------------------------------------------------------------------------------------------

    def _write_node(self, node: Node, proto: onnx.NodeProto) -> None:
        origin = node.origin
        for subgraph in node.subgraphs:
            for stand_in, outer in zip(subgraph.captures, node.captures, strict=True):
                stand_in._replace_fields(name=outer.name)
        inputs = ["" if v is None else v.name for v in node.inputs]
        outputs = ["" if v is None else v.name for v in node.outputs]
        if origin is not None:
            proto.CopyFrom(origin)
            if node.name != origin.name:
                proto.name = node.name
            if inputs != list(origin.input):
                del proto.input[:]
                proto.input.extend(inputs)
            if outputs != list(origin.output):
                del proto.output[:]
                proto.output.extend(outputs)
            if node.attributes and (node.subgraphs or any(map(is_external, node.attributes.values()))):
                for attribute in proto.attribute:
                    self._rewrite_outside(attribute, node.attributes[attribute.name])
            return
        while outputs and not outputs[-1]:
            outputs.pop()
        proto.op_type, proto.name = node.op_type, node.name
        proto.domain = "" if node.domain == "ai.onnx" else node.domain
        proto.input.extend(inputs)
        proto.output.extend(outputs)
        for name, value in node.attributes.items():
            write_attribute(name, value, proto.attribute.add(), self._write_subgraph, is_float=_is_float(node, name))
        if isinstance(node.op, Function):
            proto.overload = node.op.proto.overload

    def _rewrite_outside(self, attribute: onnx.AttributeProto, value: Any) -> None:
        """Rewrite an attribute that depends on more than its message: names of outer values, external contents."""
        if is_external(value):
            name = attribute.name
            attribute.Clear()
            write_attribute(name, value, attribute, self._write_subgraph)
        elif isinstance(value, Graph):
            attribute.g.Clear()
            self._write_subgraph(value, attribute.g)
        elif isinstance(value, list) and value and isinstance(value[0], Graph):
            del attribute.graphs[:]
            for graph in value:
                self._write_subgraph(graph, attribute.graphs.add())

    def _write_subgraph(self, graph: Graph, proto: onnx.GraphProto) -> None:
        initializers = GraphWriter(graph, proto, graph.origin, self.ir_version, self.tidy).write()
        for name, contents in initializers:
            proto.initializer.append(to_inline_proto(contents, name))

    # ----- inputs, outputs and types ------------------------------------------------------------------------------

    def _write_interface(self) -> None:
        declared = {} if self.origin is None else {i.name: i for i in (*self.origin.input, *self.origin.output)}
        inputs = self.graph.all_inputs
        if self.ir_version < OPTIONAL_INPUTS_IR and self.graph.parent is None:
            inputs = list(dict.fromkeys((*inputs, *self.graph.variables, *self._loose_constants())))
            places = {} if self.origin is None else {info.name: k for k, info in enumerate(self.origin.input)}
            inputs.sort(key=lambda value: places.get(value.name, len(places)))
        for values, infos in ((inputs, self.proto.input), (self.graph.outputs, self.proto.output)):
            for value in values:
                self._write_info(value, declared.get(value.name), infos.add())

    def _write_info(self, value: Value, declared: onnx.ValueInfoProto | None, info: onnx.ValueInfoProto) -> None:
        if declared is not None and not self._is_stale(value, declared):
            info.CopyFrom(declared)
            return
        if declared is not None:
            copy_fields(declared, info, without=("type",))
        info.name = value.name
        kind = value.type
        if declared is not None and self.graph.root.retyped:
            kind = self._with_declared_dims(kind, read_type(declared.type))
        write_type(kind, info.type)

    def _with_declared_dims(self, kind: Type | None, declared: Type | None) -> Type | None:
        """A type with the dim names that a file declared, for dims of which nothing more is known."""
        if not isinstance(kind, TensorType) or not isinstance(declared, TensorType) or kind.rank != declared.rank:
            return kind
        types = [value.type for value in self.graph.root.all_inputs if isinstance(value.type, TensorType)]
        free = {symbol for known in types for dim in known.shape or () for symbol in symbols_of(dim)}
        dims = []
        for dim, written in zip(kind.shape or (), declared.shape or (), strict=True):
            named = symbols_of(written)
            dims.append(written if not isinstance(dim, int) and named and named <= free else dim)
        return kind if kind.shape is None else kind.with_shape(tuple(dims))

    def _is_stale(self, value: Value, declared: onnx.ValueInfoProto) -> bool:
        """Whether the file's declaration of a graph input or output no longer holds after an edit or with ``tidy``."""
        if self.graph.root.retyped:
            return value.type is not None
        if not self.tidy and self.origin is not None:
            found = read_type(declared.type)
            if found is None or value.type is None:
                return False
            return value.type != found if value.producer is None else type(value.type) is not type(found)
        return self.tidy and value.type is not None and read_type(declared.type) != value.type

    def _write_value_info(self) -> None:
        """Write the declared types of inner values that still exist; with ``tidy`` the inferred ones."""
        shown = {v.name for v in (*self.graph.all_inputs, *self.graph.outputs)}
        computed = {v.name: v for node in self.graph.nodes for v in node.outputs if v is not None}
        if self.tidy or self.graph.root.retyped:
            named = [] if self.origin is None else self.origin.value_info
            declared = computed.keys() if self.tidy else {info.name for info in named}
            for name, value in computed.items():
                if name in declared and name not in shown and value.type is not None:
                    write_type(value.type, self.proto.value_info.add(name=name).type)
        elif self.origin is not None and len(self.origin.value_info):
            removed = {name for node in self.origin.node for name in node.output} - computed.keys() - shown
            for info in self.origin.value_info:
                if info.name not in removed:
                    self.proto.value_info.add().CopyFrom(info)

    # ----- initializers -------------------------------------------------------------------------------------------

    def _initializers(self) -> Initializers:
        result: Initializers = []
        for value in (*self.graph.variables, *self._loose_constants()):
            if isinstance(value.data, SparseContents):
                self.proto.sparse_initializer.append(value.data.inline_proto())
            elif value.data is not None:
                result.append((value.name, value.data))
                if value.role is not None:
                    self.roles[value.name] = value.role
        return result

    def _loose_constants(self) -> Iterable[Value]:
        listed = {*self.graph.all_inputs, *self.graph.variables, *self.graph.captures}
        used = (v for node in self.graph.nodes for v in node.uses)
        for value in dict.fromkeys((*used, *self.graph.outputs)):
            if value.is_constant and value not in listed:
                yield value


def _is_float(node: Node, name: str) -> bool:
    """Whether integers in this attribute are written as floats, by the op's declaration."""
    if not isinstance(node.op, Op):
        return False
    return signature_at(node.op, node.version).attributes.get(name, name) in node.op.signature.floats
