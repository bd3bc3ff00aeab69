"""Legalization: version, inputs and attributes of a call in a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tenonnx.errors import NotRepresentable
from tenonnx.graph.containers import Operator
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.types import TensorType, Type
from tenonnx.op.binding import foreseeing
from tenonnx.op.dtypes import type_code
from tenonnx.op.op import Op
from tenonnx.op.rules import moves_data
from tenonnx.op.signature import Input
from tenonnx.op.versioned_signature import signature_at, unbind_attributes
from tenonnx.registry.registry import default_registry
from tenonnx.transforms.promotion import QUANTIZED
from tenonnx.transforms.rewrite import Call, body_nodes
from tenonnx.transforms.target import INTERNAL_DOMAIN, Target

#: For each element type the wider ones that hold all its values, nearest first. Integer types precede floating-point
#: types, which are only suitable for ops that select elements without computing.
WIDER: Mapping[DType, tuple[DType, ...]] = {
    DType.bool: (DType.uint8, DType.int32, DType.int64, DType.float32),
    DType.uint8: (DType.int32, DType.int64, DType.float32, DType.float64),
    DType.int8: (DType.int32, DType.int64, DType.float32, DType.float64),
    DType.uint16: (DType.int32, DType.int64, DType.float32, DType.float64),
    DType.int16: (DType.int32, DType.int64, DType.float32, DType.float64),
    DType.int32: (DType.int64, DType.float64),
    DType.uint32: (DType.int64, DType.uint64, DType.float64),
    DType.float16: (DType.float32, DType.float64),
    DType.bfloat16: (DType.float32, DType.float64),
    DType.float32: (DType.float64,),
}


class LegalCall(NamedTuple):
    """A call in the target's signature; ``as_written`` if it equals the node."""

    version: int | None
    inputs: Sequence[Value | None]
    attributes: Mapping[str, Any]
    as_written: bool


class _Rules(NamedTuple):
    """Decisions shared by all calls of an op at one version; ``why`` is the reason if none can be expressed."""

    version: int
    as_written: bool = False
    version_differs: bool = False
    why: str = ""


class Legalizer:
    """Legalization of a graph's calls for a target."""

    def __init__(self, target: Target, graph: Graph) -> None:
        self.target, self.graph = target, graph
        self.registry = graph.registry or default_registry()
        self._rules: dict[tuple[Op, int | None], _Rules] = {}

    def of(self, call: Call) -> LegalCall:
        """The legal form of a call. Raises ``NotRepresentable`` with the reason if there is none."""
        op, node = call.op, call.node
        if self.is_local(op):
            return self._of_function(call)
        key = (op, None if node is None else node.version)
        rules = self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = self._rules_of(op, node)
        if rules.why:
            raise NotRepresentable(rules.why)
        version = rules.version
        for step in op.signature_changes if rules.version_differs else ():
            if step.unless is not None and version < step.before:
                with foreseeing(op.title, call.inputs, call.attributes):
                    why = step.unless(*call.inputs, **call.attributes)
                if why:
                    raise NotRepresentable(why)
        inputs, static = _written_inputs(call, version)
        outputs = [None if k is None else k.type for k in call.known[: call.outputs]]
        if why := self._problem(op, version, inputs, outputs, call.attributes):
            raise NotRepresentable(why)
        if rules.as_written:
            return LegalCall(version, inputs, {}, True)
        rank = next((v.rank for v in call.inputs if v is not None), None)
        return LegalCall(version, inputs, unbind_attributes(op, version, call.attributes, static, rank), False)

    def is_local(self, op: Operator) -> bool:
        """Whether the op is a model-local function."""
        return op in self.graph.functions.values()

    def _rules_of(self, op: Op, node: Node | None) -> _Rules:
        version = self.target.version(op.domain)
        if version is None:
            return _Rules(0, why=f"domain {op.domain} is not in the target")
        if not op.holds_at(version):
            since = f"exists from version {op.since}" if version < op.since else f"changed at version {op.before}"
            why = f"{op.domain}::{op.name} with this meaning {since}, the target has {version}"
            return _Rules(version, why=why)
        if op.domain == INTERNAL_DOMAIN or not self.target.specifies(op):
            return _Rules(version, why=f"{op.domain}::{op.name} is not in the specification of version {version}")
        version_differs = node is None or node.version != version
        same_signature = node is not None and signature_at(op, node.version) == signature_at(op, version)
        as_written = not version_differs or same_signature
        return _Rules(version, as_written, version_differs)

    def _of_function(self, call: Call) -> LegalCall:
        """A local function is kept if its body is legal, which depends on element types."""
        domain, target = call.op.domain, self.target
        allowed = not target.chooses and domain in target.opsets
        if call.node is None or not allowed or any(target.version(n.domain) != n.version for n in body_nodes(call.op)):
            raise NotRepresentable("the function calls ops that are not in the target")
        return LegalCall(target.version(domain), call.inputs, {}, True)

    def opaque_problem(self, node: Node) -> str:
        """Reason why a node whose op is unknown cannot be kept, or an empty string.

        Vendors add ops to the default domain, whose meaning does not depend on its version.
        """
        import onnx

        version = self.target.version(node.domain)
        unknown = "no installed package knows the op"
        if version is None:
            return f"{unknown}, and domain {node.domain} is not in the target"
        if version != node.version and (node.domain != "ai.onnx" or onnx.defs.has(node.op_type)):
            return f"{unknown}, so it cannot move from version {node.version} to {version}"
        problem = self.target.problem(node.op, version, node.inputs, _types(node.outputs), node.attributes)
        return f"{unknown}, and {problem}" if problem else ""

    # ----- element types ------------------------------------------------------------------------------------------

    def _problem(
        self,
        op: Op,
        version: int,
        inputs: Sequence[Value | None],
        outputs: Sequence[Type | None],
        attributes: Mapping[str, Any],
    ) -> str:
        """Reason why the target does not accept the op with these element types, or an empty string."""
        table = self.registry.dtypes(op.domain, op.name, version)
        found = None if table is None else refused_type(table, _types(inputs), outputs)
        if found is not None:
            verb, kind = found
            shown = kind.dtype if isinstance(kind, TensorType) else kind
            return f"{op.domain}::{op.name} at version {version} does not {verb} {shown}"
        return self.target.problem(op, version, inputs, outputs, attributes)

    def wider(self, call: Call) -> Iterator[tuple[DType, DType]]:
        """Pairs of an element type of the call, and a wider one that the target may accept instead.

        Quantized types, in which nothing computes, are widened only for constants, and if no output has that type.
        """
        op, version = call.op, self.target.version(call.op.domain)
        if version is None or not op.holds_at(version):
            return
        try:
            inputs, _ = _written_inputs(call, version)
        except NotRepresentable:
            return
        any_kind = moves_data(op, call.attributes)
        given = [v for v in inputs if v is not None and isinstance(v.type, TensorType)]
        results = [k.type.dtype for k in call.known if k is not None and isinstance(k.type, TensorType)]
        for narrow in dict.fromkeys(v.dtype for v in given):
            stored = narrow not in results and all(v.data is not None for v in given if v.dtype is narrow)
            for wide in WIDER.get(narrow, QUANTIZED.get(narrow, ()) if stored else ()):
                if (narrow.is_float == wide.is_float or any_kind) and self._supports(op, version, inputs, narrow, wide):
                    yield narrow, wide

    def _supports(self, op: Op, version: int, inputs: Sequence[Value | None], narrow: DType, wide: DType) -> bool:
        """Whether the op accepts ``wide`` in all positions with ``narrow``."""
        table = self.registry.dtypes(op.domain, op.name, version)
        for position, value in enumerate(inputs):
            if value is not None and isinstance(value.type, TensorType) and value.dtype is narrow:
                allowed = None if table is None else allowed_at(table["inputs"], position)
                if allowed is not None and int(wide) not in allowed:
                    return False
        return self.target.chooses or table is not None


def _types(values: Sequence[Value | None]) -> list[Type | None]:
    return [None if v is None else v.type for v in values]


def allowed_at(entries: Sequence[Any], position: int) -> Any:
    """Element types, as ONNX codes, allowed at a position; the last entry applies to all further (variadic) ones."""
    return entries[min(position, len(entries) - 1)] if entries else None


def refused_type(
    table: Mapping[str, Any], inputs: Sequence[Type | None], outputs: Sequence[Type | None]
) -> tuple[str, Type | None] | None:
    """``take`` or ``give``, and the first type of an input or output that a table of element types does not allow."""
    for verb, where, types in (("take", "inputs", inputs), ("give", "outputs", outputs)):
        for position, kind in enumerate(types):
            allowed = allowed_at(table[where], position)
            code = None if allowed is None else type_code(kind)
            if code is not None and code not in allowed:
                return verb, kind
    return None


# ----- signatures -----------------------------------------------------------------------------------------------------


def _written_inputs(call: Call, version: int) -> tuple[list[Value | None], dict[str, Any]]:
    """The inputs of a call at ``version``, and the contents of those that are attributes there.

    Raises ``NotRepresentable`` if the version cannot express the call.
    """
    op = call.op
    inputs: list[Value | None] = []
    static: dict[str, Any] = {}
    if op.signature_changes:
        form = signature_at(op, version)
        for position, value in enumerate(call.inputs):
            parameter = op.signature.input_at(position)
            name = parameter.name
            if name not in form.lacks and name not in form.input_attributes:
                inputs.append(value)
            elif value is not None and name in form.lacks:
                raise NotRepresentable(f'{op.domain}::{op.name} has no input "{name}" at version {version}')
            elif value is not None:
                is_number = name in form.vectors or isinstance(form.defaults[name], float)
                static[name] = _as_attribute(op, parameter, value, version, is_number)
    else:
        inputs += call.inputs
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs, static


def _as_attribute(op: Op, parameter: Input, value: Value, version: int, is_number: bool) -> Any:
    name = parameter.name
    if value.data is None:
        raise NotRepresentable(
            f'{op.domain}::{op.name} at version {version} has "{name}" as an attribute, but here it is computed'
        )
    import numpy as np  # imported lazily, as reading a file does not need it

    array = value.data.array()
    if array.dtype == np.float64 and not np.array_equal(array, array.astype(np.float32), equal_nan=True):
        raise NotRepresentable(
            f'{op.domain}::{op.name} at version {version} holds "{name}" as float32, which would round it'
        )
    if is_number:
        return array.reshape(-1)[0].item()
    return array.reshape(-1).tolist() if parameter.index else array.tolist()
