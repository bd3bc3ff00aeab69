"""Model-local functions. They have priority over ops of packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from tenonnx.formats.external import ExternalFiles
from tenonnx.formats.onnx import proto as onnx
from tenonnx.formats.onnx.attributes import inline_tensors, read_attribute
from tenonnx.formats.onnx.resolve import Resolver
from tenonnx.graph.containers import Operator
from tenonnx.graph.graph import Graph, Value
from tenonnx.op.inline import inline
from tenonnx.op.op import Op
from tenonnx.op.signature import Input, Signature
from tenonnx.registry.registry import Registry, canonical_domain

FunctionKey = tuple[str, str, str]

#: Fills a graph from a message.
ReadGraph = Callable[[onnx.GraphProto, Graph, Resolver], Graph]


class Function(Op):
    """An op whose body is the graph of a ``FunctionProto``, stored in ``proto``."""

    def __init__(self, proto: onnx.FunctionProto, read_body: Callable[[], Graph]) -> None:
        inputs = tuple(Input(name, optional=True) for name in proto.input)
        attributes: dict[str, Any] = dict.fromkeys(proto.attribute)
        super().__init__(
            self._expand, proto.name, domain=canonical_domain(proto.domain), signature=Signature(inputs, attributes)
        )
        del self.pure  # unknown until the body is read, so a cached property instead
        self.proto = proto
        self._read_body = read_body

    @cached_property
    def body(self) -> Graph:
        """The body, read on first use, as functions may call each other in any order."""
        body = self._read_body()
        body.fixed = f'what the function "{self.name}" of the model is'
        return body

    @cached_property
    def pure(self) -> bool:  # type: ignore[override]
        """Whether the body calls no op that draws random numbers."""
        self.pure = True  # temporary value for a recursive body, whose expansion is refused
        return all(getattr(node.op, "pure", True) for node in self.body.walk())

    def _expand(self, *inputs: Value | None, **attributes: Any) -> tuple[Value | None, ...]:
        return inline(self.body, inputs, attributes=attributes)


def read_functions(
    model: onnx.ModelProto, registry: Registry, read_graph: ReadGraph, files: ExternalFiles | None = None
) -> dict[FunctionKey, Operator]:
    """The functions of a model by (domain, name, overload); ``files`` holds their external tensors."""
    result: dict[FunctionKey, Operator] = {}
    functions = []
    for stored in model.functions:
        proto = inline_tensors(stored, files)
        key = (canonical_domain(proto.domain), proto.name, proto.overload)
        reader = _FunctionReader(proto, model, result, registry, read_graph)
        function = result[key] = Function(proto, reader.body)
        functions.append((function, reader))
    for function, reader in functions:  # in a second pass: a default may be a graph, whose nodes may call any function
        defaults = {each.name: read_attribute(each, reader.graph) for each in reader.proto.attribute_proto}
        attributes = {**function.signature.attributes, **defaults}
        function.signature = function.signature._replace(attributes=attributes)
    return result


class _FunctionReader:
    """Reads one function."""

    def __init__(
        self,
        proto: onnx.FunctionProto,
        model: onnx.ModelProto,
        functions: Mapping[FunctionKey, Operator],
        registry: Registry,
        read_graph: ReadGraph,
    ) -> None:
        self.proto, self.model, self.functions, self.registry = proto, model, functions, registry
        self.read_graph = read_graph
        self.opsets = {canonical_domain(o.domain): o.version for o in proto.opset_import}

    def body(self) -> Graph:
        proto = self.proto
        body = onnx.GraphProto(name=proto.name, node=proto.node, value_info=proto.value_info)
        body.input.extend(onnx.ValueInfoProto(name=name) for name in proto.input)
        body.output.extend(onnx.ValueInfoProto(name=name) for name in proto.output)
        return self.graph(body)

    def graph(self, proto: onnx.GraphProto) -> Graph:
        """Read a graph that calls what the function may call, and captures nothing."""
        resolver = Resolver(self.registry, self.opsets, self.model.ir_version, in_function=True)
        resolver.functions = self.functions
        return self.read_graph(proto, Graph(proto.name, opsets=self.opsets), resolver)
