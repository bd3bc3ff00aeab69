"""Local functions: ops that a model defines for itself. They win over the ops of packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import onnx

from tenonnx.formats.onnx.attributes import read_attribute
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Operator, Value
from tenonnx.op.inline import inline
from tenonnx.op.op import Op
from tenonnx.op.signature import Input, Signature
from tenonnx.registry.registry import Registry, canonical_domain

FunctionKey = tuple[str, str, str]


class Function(Op):
    """An op whose body is the graph of a ``FunctionProto``; ``proto`` is that message."""

    def __init__(self, proto: onnx.FunctionProto, read_body: Callable[[], Graph]) -> None:
        inputs = tuple(Input(name, optional=True) for name in proto.input)
        attributes: dict[str, Any] = dict.fromkeys(proto.attribute)
        for attribute in proto.attribute_proto:
            attributes[attribute.name] = read_attribute(attribute, _no_graph)
        super().__init__(
            self._expand, proto.name, domain=canonical_domain(proto.domain), signature=Signature(inputs, attributes)
        )
        del self.pure  # what the body does is not known before it is read
        self.proto = proto
        self._read_body = read_body

    @cached_property
    def body(self) -> Graph:
        """The graph that a call stands for, read on first use: functions may call each other in any order."""
        return self._read_body()

    @cached_property
    def pure(self) -> bool:  # type: ignore[override]
        """Whether nothing that the body calls draws random numbers."""
        self.pure = True  # meanwhile, for a body that calls itself; its expansion refuses that
        return all(getattr(node.op, "pure", True) for node in self.body.walk())

    def _expand(self, *inputs: Value | None, **attributes: Any) -> tuple[Value | None, ...]:
        return inline(self.body, inputs, attributes=attributes)


def _no_graph(proto: onnx.GraphProto) -> Graph:
    raise NotImplementedError("a function attribute has no default graph")


def read_functions(model: onnx.ModelProto, registry: Registry) -> dict[FunctionKey, Operator]:
    """The functions of a model by (domain, name, overload)."""
    found: dict[FunctionKey, Operator] = {}
    for proto in model.functions:
        key = (canonical_domain(proto.domain), proto.name, proto.overload)
        found[key] = Function(proto, _body_reader(proto, model, found, registry))
    return found


def _body_reader(
    proto: onnx.FunctionProto, model: onnx.ModelProto, functions: Mapping[FunctionKey, Operator], registry: Registry
) -> Callable[[], Graph]:
    def read() -> Graph:
        from tenonnx.formats.onnx.reader import GraphReader
        from tenonnx.formats.onnx.resolve import Resolver

        opsets = {canonical_domain(o.domain): o.version for o in proto.opset_import}
        resolver = Resolver(registry, opsets, model.ir_version)
        resolver.functions = functions
        body = onnx.GraphProto(name=proto.name, node=proto.node, value_info=proto.value_info)
        body.input.extend(onnx.ValueInfoProto(name=name) for name in proto.input)
        body.output.extend(onnx.ValueInfoProto(name=name) for name in proto.output)
        graph = Graph(proto.name, opsets=opsets)
        return GraphReader(body, graph, resolver, None, None).read()

    return read
