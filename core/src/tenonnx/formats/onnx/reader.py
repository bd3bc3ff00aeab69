"""Reading an ONNX model as a graph, without loss; tensors are decoded on first use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError

from tenonnx import limits
from tenonnx.errors import InvalidCall, InvalidModel, did_you_mean_file
from tenonnx.formats.external import ExternalFiles
from tenonnx.formats.onnx import proto as onnx
from tenonnx.formats.onnx.attributes import read_attribute
from tenonnx.formats.onnx.functions import read_functions
from tenonnx.formats.onnx.large_tensors import without_large_tensors
from tenonnx.formats.onnx.parameter_roles import take_roles
from tenonnx.formats.onnx.resolve import Resolver
from tenonnx.formats.onnx.sort import sorted_nodes
from tenonnx.formats.onnx.tensors import SparseContents, TensorContents
from tenonnx.formats.onnx.training import take_training_state
from tenonnx.formats.onnx.types import read_type
from tenonnx.formats.sniff import looks_like
from tenonnx.graph.constants import Constant
from tenonnx.graph.gc_paused import gc_paused
from tenonnx.graph.graph import OPTIONAL_INPUTS_IR, Graph, Node, Value
from tenonnx.graph.types import Type
from tenonnx.op.build import Builder, align_captures
from tenonnx.registry.registry import Registry, canonical_domain, default_registry


def parse_model(data: bytes | memoryview, name: str = "the model") -> onnx.ModelProto:
    """Parse a model. Raises ``InvalidModel`` for invalid bytes."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    # UnicodeDecodeError is raised by protobuf in pure Python
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidModel(
            f"{name} is not an ONNX model: no complete protobuf message, or one that is nested too deeply",
            given=looks_like(data) or f"{len(data)} bytes; {error}",
        ) from error
    if not model.HasField("graph"):
        given = looks_like(data) or f"a message of {len(data)} bytes without one"
        raise InvalidModel(f"{name} holds no graph", given=given)
    return model


#: Number of attempts to read a file that is being replaced meanwhile.
READINGS = 20


def read(
    source: str | os.PathLike[str] | bytes | BinaryIO | onnx.ModelProto,
    base_dir: str | os.PathLike[str] | None = None,
    registry: Registry | None = None,
    *,
    mapped: bool = True,
) -> Graph:
    """Read a model as a graph.

    ``base_dir`` is the folder of external data, by default that of the file. These files are mapped, or else read on
    first use. Raises ``InvalidModel`` for a broken model, ``UnsafePath`` for external data outside the folder.
    """
    if isinstance(source, onnx.ModelProto):
        model = source
    elif isinstance(source, bytes | bytearray | memoryview):
        model = parse_model(bytes(source))
    elif isinstance(source, str | os.PathLike):
        folder = Path(source).absolute().parent if base_dir is None else base_dir
        return _read_path(Path(source), ExternalFiles(folder, mapped=mapped), registry)
    else:
        data = source.read()
        if not isinstance(data, bytes | bytearray | memoryview):
            given = f"{type(data).__name__} from {type(source).__name__}"
            raise InvalidCall("the stream does not return bytes", given=given, do="open the file in binary mode")
        model = parse_model(bytes(data))
    return _read_model(model, ExternalFiles(base_dir, mapped=mapped), (), registry)


def _read_path(path: Path, files: ExternalFiles, registry: Registry | None) -> Graph:
    """Read a file together with its matching data files, even if an export replaces them meanwhile.

    A concurrent export may reuse the name of a data file.
    """
    for _ in range(READINGS):
        before = _identity(path)
        try:
            message, large = without_large_tensors(_read_file(path))
            graph = _read_model(parse_model(message, f'"{path}"'), files, (), registry, large)
        except InvalidModel:
            if _identity(path) == before:
                raise
        else:
            if _identity(path) == before:
                return graph
        files.close()
    raise InvalidModel(f'"{path}" changed while it was read', given=f"it changed {READINGS} times")


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Identity of a file, which changes when it is replaced."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # reading reports the error
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_parts(
    model: onnx.ModelProto, initializers: Sequence[tuple[str, Constant]], registry: Registry | None = None
) -> Graph:
    """The graph of a message and its separate initializers, as ``model_and_initializers`` returns them."""
    return _read_model(model, ExternalFiles(None), initializers, registry)


def _read_model(
    model: onnx.ModelProto,
    files: ExternalFiles,
    initializers: Sequence[tuple[str, Constant]],
    registry: Registry | None,
    large: Mapping[int, memoryview] | None = None,
) -> Graph:
    with gc_paused():
        return _ModelReader(model, files, initializers, registry or default_registry(), large or {}).graph()


def _read_file(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        what = f'cannot read "{os.fspath(path)}": {getattr(error, "strerror", None) or error}'
        raise InvalidCall(what, do=did_you_mean_file(path)) from error


class DeclaredTypes(Mapping[str, Type]):
    """The types of a graph's ``value_info``, decoded on first access."""

    def __init__(self, proto: onnx.GraphProto) -> None:
        self._proto = proto
        self._types: dict[str, Type] | None = None

    def _decoded(self) -> dict[str, Type]:
        if self._types is None:
            self._types = {}
            for info in self._proto.value_info:
                kind = read_declared_type(info)
                if kind is not None:
                    self._types[info.name] = kind
        return self._types

    def __getitem__(self, name: str) -> Type:
        return self._decoded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())


def _check_text(texts: Sequence[Any]) -> None:
    """Raise ``InvalidModel`` for text that is not UTF-8, which protobuf silently returns as bytes."""
    if bytes in set(map(type, texts)):
        wrong = next(text for text in texts if isinstance(text, bytes))
        raise InvalidModel("a name or string of the model is not in UTF-8", given=f"{wrong!r:.200}")


def read_declared_type(info: onnx.ValueInfoProto) -> Type | None:
    try:
        return read_type(info.type) if info.HasField("type") else None
    except (ValueError, TypeError) as error:
        raise InvalidModel(f'value "{info.name}" has a type that ONNX does not define', given=str(error)) from error


class _ModelReader:
    def __init__(
        self,
        model: onnx.ModelProto,
        files: ExternalFiles,
        initializers: Sequence[tuple[str, Constant]],
        registry: Registry,
        large: Mapping[int, memoryview],
    ) -> None:
        self.model = model
        self.large = large
        self.files = files
        self.initializers = initializers
        self.registry = registry
        self.opsets: dict[str, int] = {}
        for entry in model.opset_import:
            self.opsets[canonical_domain(entry.domain)] = entry.version
        self.resolver = Resolver(registry, self.opsets, model.ir_version)

    def graph(self) -> Graph:
        model = self.model
        _check_text([model.graph.name, model.producer_name, model.producer_version, model.domain, model.doc_string])
        _check_text(list(self.opsets))
        _check_text([text for entry in model.metadata_props for text in (entry.key, entry.value)])
        for entry in model.functions:
            _check_text([entry.domain, entry.name, entry.overload, *entry.input, *entry.output, *entry.attribute])
        graph = Graph(model.graph.name, opsets=self.opsets, ir_version=model.ir_version)
        graph.registry = self.registry
        graph.functions = read_functions(model, self.registry, read_closed, self.files)
        self.resolver.functions = graph.functions
        graph.metadata = {entry.key: entry.value for entry in model.metadata_props}
        graph.origin = model
        reader = GraphReader(model.graph, graph, self.resolver, self.files, None)
        reader.initializers, reader.large = self.initializers, self.large
        reader.read()
        for domain, version in self.resolver.assumed.items():
            graph.opsets.setdefault(domain, version)
        take_training_state(graph)
        take_roles(graph)
        return graph


def read_closed(proto: onnx.GraphProto, graph: Graph, resolver: Resolver) -> Graph:
    """Read a graph without captures."""
    return GraphReader(proto, graph, resolver, None, None).read()


class GraphReader:
    """Reads one graph; ``outer`` is the reader of the enclosing graph, whose values it may capture."""

    def __init__(
        self,
        proto: onnx.GraphProto,
        graph: Graph,
        resolver: Resolver,
        files: ExternalFiles | None,
        outer: GraphReader | None,
    ) -> None:
        self.proto = proto
        self.graph = graph
        self.builder = Builder(graph)
        self.resolver = resolver
        self.files = files
        self.outer = outer
        self.level: int = 0 if outer is None else outer.level + 1
        self.scope: dict[str, Value] = {}
        self.initializers: Sequence[tuple[str, Constant]] = ()
        self.large: Mapping[int, memoryview] = {}

    def read(self) -> Graph:
        proto, graph, scope = self.proto, self.graph, self.scope
        _check_text([proto.doc_string])
        graph.doc = proto.doc_string
        if len(proto.value_info):
            graph.value_types = DeclaredTypes(proto)
        for info in proto.input:
            if info.name in scope:
                raise InvalidModel(f'graph "{proto.name}" has two inputs named "{info.name}"')
            value = Value(info.name, read_declared_type(info), graph=graph)
            scope[info.name] = value
            graph.all_inputs.append(value)
        self._read_initializers()
        if self.outer is None and (graph.ir_version or OPTIONAL_INPUTS_IR) < OPTIONAL_INPUTS_IR:
            graph.all_inputs = graph.inputs[:]
        if id(proto) in self.resolver.unsorted or not self._read_nodes(proto.node):
            self.resolver.unsorted[id(proto)] = proto
            del graph.nodes[:]
            self._read_nodes(sorted_nodes(proto, self._names_outside()), final=True)
        for info in proto.output:
            output = self.lookup(info.name)
            if output is None:
                raise InvalidModel(
                    f'graph "{proto.name}" does not compute its output "{info.name}"', given="no value of that name"
                )
            declared = read_declared_type(info)  # even if a better type is known, as the writer relies on it
            if output.type is None:
                output._replace_fields(type=declared)
            # in an If, onnxruntime returns None for the second of two equal outputs
            if self.outer is not None and output in graph.outputs:
                output = self.builder.as_output(output)
            graph.outputs.append(output)
        _check_text([proto.name, *scope, *(node.name for node in graph.nodes)])
        _check_text([each.doc_string for each in (*proto.input, *proto.output, *proto.initializer)])
        return graph

    def _read_initializers(self) -> None:
        for name, contents in self.initializers:
            self._add_variable(name, contents)
        for number, tensor in enumerate(self.proto.initializer):
            self._add_variable(tensor.name, TensorContents(tensor, self.files, self.large.get(number)))
        for sparse in self.proto.sparse_initializer:
            self._add_variable(sparse.values.name, SparseContents(sparse, self.files))

    def _add_variable(self, name: str, contents: Constant) -> None:
        value = self.scope.get(name)
        if value is None:
            value = self.scope[name] = Value(name, contents.type, graph=self.graph)
        elif value.data is not None:
            raise InvalidModel(f'graph "{self.proto.name}" has two initializers named "{name}"')
        value._replace_fields(data=contents, type=contents.type)
        self.graph.variables.append(value)

    def _read_nodes(self, protos: Any, *, final: bool = False) -> bool:
        """Read nodes in order. Returns False if a node reads the output of a later one, unless ``final``."""
        scope, graph, resolve = self.scope, self.graph, self.resolver.resolve
        read_subgraph, files, in_function = self._read_subgraph, self.files, self.resolver.in_function
        nodes = graph.nodes
        for proto in protos:
            inputs: list[Value | None] = []
            for name in proto.input:
                if not name:
                    inputs.append(None)
                    continue
                value = scope.get(name)
                if value is None:
                    value = self._from_outside(name)
                    if value is None:
                        error = self._unknown_name(name, proto)
                        if not final and self._sorting_helps(error, nodes):
                            return False
                        raise error
                inputs.append(value)
            try:
                attributes = {
                    a.name: read_attribute(a, read_subgraph, files, in_function=in_function) for a in proto.attribute
                }
            except _Unsorted as error:
                if not final and self._sorting_helps(error, nodes):
                    return False
                raise
            op, version = resolve(proto, attributes, len(inputs))
            outputs: list[Value | None] = []
            for name in proto.output:
                if not name:
                    outputs.append(None)
                    continue
                if name in scope:
                    given = f"{Node(op, version, inputs, attributes, name=proto.name).title} computes it again"
                    raise InvalidModel(f'two values have the name "{name}"', given=given)
                value = scope[name] = Value(name, None, graph=graph)
                outputs.append(value)
            node = Node(op, version, inputs, attributes, outputs, name=proto.name, origin=proto)
            for value in outputs:
                if value is not None:
                    value.producer = node
            if attributes and (subgraphs := node.subgraphs):
                node._replace_fields(captures=align_captures(subgraphs, self.builder))
            nodes.append(node)
        return True

    def _sorting_helps(self, error: InvalidModel, nodes: list[Node]) -> bool:
        """Whether a later node of this graph computes the missing value; then the nodes read so far are discarded.

        Names of enclosing graphs are left to their readers: a retry at each level would take exponential time.
        """
        if not isinstance(error, _Unsorted) or error.proto is not self.proto:
            return False
        for node in nodes:
            for value in node.outputs:
                if value is not None:
                    del self.scope[value.name]
        self.graph.captures = []
        self.builder = Builder(self.graph)
        return True

    def _read_subgraph(self, proto: onnx.GraphProto) -> Graph:
        _check_text([proto.name])
        graph = Graph(proto.name, parent=self.graph)
        graph.origin = proto
        reader = GraphReader(proto, graph, self.resolver, self.files, self)
        limits.check("depth", reader.level, f'graph "{proto.name}", with the graphs around it,')
        return reader.read()

    def lookup(self, name: str) -> Value | None:
        """The value called ``name`` in this graph or an enclosing one."""
        value = self.scope.get(name)
        return value if value is not None else self._from_outside(name)

    def _from_outside(self, name: str) -> Value | None:
        if self.outer is None:
            return None
        value = self.outer.lookup(name)
        return None if value is None else self.builder.capture(value)

    def _names_outside(self) -> set[str]:
        names = set(self.scope)
        reader = self.outer
        while reader is not None:
            names.update(reader.scope)
            reader = reader.outer
        return names

    def _unknown_name(self, name: str, node: onnx.NodeProto) -> InvalidModel:
        reader: GraphReader | None = self
        while reader is not None:
            if any(name in other.output for other in reader.proto.node):
                return _Unsorted(name, node, reader.proto)
            reader = reader.outer
        return InvalidModel(
            f'node "{node.name}" ({node.domain or "ai.onnx"}::{node.op_type}) reads "{name}", which is not a '
            "graph input, an initializer or an output of a node"
        )


class _Unsorted(InvalidModel):
    """A node reads the output of a later node in the graph ``proto``, its own or an enclosing one."""

    def __init__(self, name: str, node: onnx.NodeProto, proto: onnx.GraphProto) -> None:
        self.proto = proto
        super().__init__(
            f'the nodes are not in topological order: "{node.name or node.op_type}" '
            f'reads "{name}" too early or in a cycle'
        )
