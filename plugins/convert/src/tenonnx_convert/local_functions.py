"""Model-local functions that replace ops of packages.

An op's body may branch on attributes, types and known contents of inputs; a model-local function may not. So one
function without attributes is generated for each kind of call, with all branches resolved.
"""

from __future__ import annotations

import onnx

from tenonnx.errors import NotRepresentable, TenonnxError
from tenonnx.formats.onnx.functions import read_functions
from tenonnx.formats.onnx.reader import read_closed
from tenonnx.formats.onnx.tensors import to_inline_proto
from tenonnx.formats.onnx.writer import GraphWriter
from tenonnx.graph.containers import Operator
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.op.binding import known_op
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import Op
from tenonnx.registry.hints import is_ours
from tenonnx.registry.registry import Registry, default_registry
from tenonnx.transforms.report import Change, Retargeted, labeled, refusal
from tenonnx.transforms.retarget import retarget_to
from tenonnx.transforms.rewrite import body_nodes, copy_graph
from tenonnx.transforms.target import INTERNAL_DOMAIN, Target

#: The first IR version with model-local functions.
FUNCTIONS_IR = 8

_ADVICE = "define the op by ops that the target has, or expand it: leave its domain out of domains="


def carry_vendor_ops(moved: Retargeted, target: Target, *, refuse: bool = True) -> Retargeted:
    """Retargeted graph with third-party ops as model-local functions.

    Raises ``NotRepresentable`` naming each call that cannot become a function: one with a subgraph, or of an op without
    body or definition. With ``refuse`` False these are kept and reported.
    """
    graph = copy_graph(moved.graph)
    infer(graph, strict=False)
    registry, local = graph.registry or default_registry(), set(graph.functions.values())
    vendors = {
        label: node for label, node in labeled(graph) if node.op not in local and _is_of_others(node.op, registry)
    }
    carried = _VendorFunctions(graph, target, {node.domain for node in vendors.values()})
    changes = {change.node: change for change in moved.changes}
    for label, node in vendors.items():
        change = changes.setdefault(label, Change.of(node, label, ""))
        try:
            name = carried.add(node)
        except TenonnxError as error:
            change.refuse([f"cannot be expressed as a function: {error.what}"], _ADVICE)
        else:
            change.action, change.reason = "carried", f"as the function {node.domain}::{name}"
    carried.redirect_calls()
    result = Retargeted(graph, list(changes.values()))
    if refuse and result.refused:
        raise refusal(result.refused, target)
    return result


def calls_vendor_ops(graph: Graph) -> bool:
    """Whether a model-local function calls a third-party op."""
    registry = graph.registry or default_registry()
    nodes = (node for function in graph.functions.values() for node in body_nodes(function))
    return any(_is_of_others(node.op, registry) for node in nodes if node.op not in graph.functions.values())


def _is_of_others(op: Operator, registry: Registry) -> bool:
    """Whether an op is neither ours nor in a domain that we provide."""
    if isinstance(op, Op):
        return op.domain != INTERNAL_DOMAIN and not is_ours(registry.source(op).split(" ")[0])
    return registry.provider(op.domain, op.name) is None


class _VendorFunctions:
    """The model-local functions of a graph that replace ops of ``domains``."""

    def __init__(self, graph: Graph, target: Target, domains: set[str]) -> None:
        opsets = {domain: version for domain, version in target.opsets.items() if domain not in domains}
        self.graph, self.target = graph, Target(opsets, target.accepts, target.runtime)
        self.names: dict[tuple[str, str, bytes], str] = {}
        self.protos: list[onnx.FunctionProto] = []
        self.calls: list[tuple[Node, str]] = []

    def add(self, node: Node) -> str:
        """The name of the function for a call. Raises a ``TenonnxError`` if there can be none."""
        op = known_op(node)
        if node.subgraphs:
            raise NotRepresentable("the call has a subgraph")
        if op.primitive and not op.lowerings:
            raise NotRepresentable("a primitive has no body")
        try:
            proto = self._function(node, contents=False)
        except TenonnxError:  # retry with contents, as the body may branch on a constant
            proto = self._function(node, contents=True)
        key = node.domain, node.op_type, proto.SerializeToString(deterministic=True)
        if key not in self.names:
            taken = {(domain, name) for domain, name, _ in self.graph.functions} | {
                (p.domain, p.name) for p in self.protos
            }
            count, name = 1, node.op_type
            while (node.domain, name) in taken:
                count, name = count + 1, f"{node.op_type}_{count + 1}"
            self.names[key] = proto.name = name
            proto.domain = node.domain
            self.protos.append(proto)
        self.calls.append((node, self.names[key]))
        return self.names[key]

    def _function(self, node: Node, *, contents: bool) -> onnx.FunctionProto:
        """An unnamed function for a call, with or without the ``contents`` of its constant inputs."""
        alone = Graph("body", opsets={**self.graph.opsets, node.domain: node.version})
        alone.registry = self.graph.registry
        inputs: list[Value | None] = []
        for place, value in enumerate(node.inputs):
            if value is None:
                inputs.append(None)
            elif contents and value.data is not None:
                inputs.append(alone.variable(f"known{place}", value.data))
            else:
                alone.all_inputs.append(Value(f"input{place}", value.type, graph=alone))
                inputs.append(alone.all_inputs[-1])
        wanted = max(k + 1 for k, v in enumerate(node.outputs) if v is not None)
        alone.outputs = [Value(f"output{k}", graph=alone) for k in range(wanted)]
        alone.append(Node(node.op, node.version, inputs, node.attributes, alone.outputs, name=node.op_type))
        moved = retarget_to(alone, self.target, refuse=False)
        if moved.refused:
            raise NotRepresentable(moved.refused[0].reasons[-1])
        moved.graph.variables = []  # constants in use were written as nodes
        written = onnx.GraphProto()
        initializers = GraphWriter(moved.graph, written, None, onnx.IR_VERSION, tidy=False).write()
        proto = onnx.FunctionProto(output=[v.name for v in alone.outputs])
        proto.input.extend(f"input{k}" for k in range(len(inputs)))
        for name, constant in initializers:
            proto.node.append(onnx.helper.make_node("Constant", [], [name], value=to_inline_proto(constant, name)))
        proto.node.extend(written.node)
        for domain, version in moved.graph.opsets.items():
            proto.opset_import.add(domain="" if domain == "ai.onnx" else domain, version=version)
        return proto

    def redirect_calls(self) -> None:
        """Redirect the calls to the functions."""
        if not self.protos:
            return
        model = onnx.ModelProto(ir_version=FUNCTIONS_IR, functions=self.protos)
        functions = read_functions(model, self.graph.registry or default_registry(), read_closed)
        self.graph.functions |= functions
        for proto in self.protos:
            self.graph.opsets |= {each.domain or "ai.onnx": each.version for each in proto.opset_import}
        for node, name in self.calls:
            node._replace_fields(op=functions[node.domain, name, ""], attributes={})
        if self.graph.ir_version is not None and self.graph.ir_version < FUNCTIONS_IR:
            self.graph.ir_version = None
