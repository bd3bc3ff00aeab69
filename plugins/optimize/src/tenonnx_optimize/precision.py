"""Half precision: float32 to float16 or bfloat16, except nodes that need the range or precision of float32."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tenonnx import default_registry
from tenonnx.extend import (
    Constant,
    Contents,
    DType,
    Graph,
    InvalidCall,
    InvalidModel,
    Known,
    Node,
    Op,
    TensorType,
    Value,
    chunks_of,
    copy_graph,
    counted,
    find_trait,
    operators,
    rows_of,
)
from tenonnx.extend.transforms import (
    Rewriter,
    allowed_at,
    bind,
    drop_dead_nodes,
    ensure_inferred,
    in_registry_of_graph,
    infer_outputs,
    inline_functions,
    leaving_defaults,
)

#: Supported types of half precision.
HALVES = (DType.float16, DType.bfloat16)


@dataclass(slots=True)
class Lowered:
    """A graph in half precision.

    ``float32_nodes`` maps the labels of nodes in float32 to the reason, ``clipped`` lists scalars beyond the range of
    the type. Measurements add ``notes`` on differences, and the ``largest`` number of outputs.
    """

    graph: Graph
    float32_nodes: dict[str, str] = field(default_factory=dict)
    clipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    largest: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"float32_nodes": self.float32_nodes, "clipped": self.clipped, "notes": self.notes}

    def __str__(self) -> str:
        """Nodes in float32 with the reasons, clipped scalars, and measurements."""
        reasons: dict[str, list[str]] = {}
        for label, reason in self.float32_nodes.items():
            reasons.setdefault(reason, []).append(label)
        lines = []
        for reason, labels in reasons.items():
            named = ", ".join(f'"{label}"' for label in labels[:5])
            more = f" and {len(labels) - 5:,} more" if len(labels) > 5 else ""
            lines.append(f"in float32: {counted(len(labels), 'node')} ({named}{more}): {reason}")
        if self.clipped:
            lines.append(f"clipped to the range of the type: {', '.join(self.clipped)}")
        return "\n".join([*lines, *self.notes])


@in_registry_of_graph
def lower_precision(
    graph: Graph,
    dtype: DType | str,
    *,
    keep: Collection[str] = (),
    widen: Collection[str] = (),
    convert_interface: bool = False,
) -> Lowered:
    """``graph`` with float32 tensors as ``dtype``, float16 or bfloat16.

    Inputs and outputs keep their types unless ``convert_interface``. A node stays in float32 if its label is in
    ``keep``, if the op does not support the type at its version, if the trait ``half`` excludes it, or if a weight has
    values beyond the range. A node whose label is in ``widen`` also computes in float32, but its weights are stored in
    half precision. Scalars beyond the range are clipped; those that would become zero become the smallest number.
    Raises ``InvalidCall`` for another dtype, and for an unknown label.
    """
    half = DType.of(dtype)
    if half not in HALVES:
        raise InvalidCall("unknown half precision", given=str(dtype), available="float16, bfloat16")
    graph = inline_functions(graph) if graph.functions else graph
    strange = {*keep, *widen} - {node.label for node in graph.walk()}
    if strange:
        raise InvalidCall(
            "nodes to keep in float32 are not given by their labels", given=", ".join(sorted(strange)[:5])
        )
    lowered = Lowered(graph)
    lowered.graph = _lowered(graph, half, frozenset(keep), frozenset(widen), convert_interface, lowered)
    for value in lowered.graph.all_inputs:
        if value.data is not None and value.data.type != value.type:
            value._replace_fields(data=Converted(value.data, half))
    return lowered


@leaving_defaults
def _lowered(
    graph: Graph, half: DType, keep: frozenset[str], widen: frozenset[str], convert_interface: bool, lowered: Lowered
) -> Graph:
    lowered.float32_nodes, lowered.clipped = {}, []
    source = copy_graph(graph)
    ensure_inferred(source)
    rewriter = _Lowering(source, half, keep, widen, convert_interface, lowered)
    result = rewriter.run()
    drop_dead_nodes(result)
    used = {*result.uses(), *result.outputs, *result.all_inputs}
    result.variables = [value for value in (*result.variables, *rewriter.converted) if value in used]
    taken = {value.name for value in used}
    for value, name in rewriter.converted.items():
        if value in used and name not in taken:
            value._replace_fields(name=name)
            taken.add(name)
    result.forget_names()
    result.forget_declared()
    return result


class Converted(Contents):
    """Contents in another float type, converted on access.

    Numbers beyond its range are clipped; a scalar that would become zero becomes the smallest positive number.
    """

    __slots__ = ("source", "type")

    def __init__(self, source: Constant, dtype: DType) -> None:
        self.source, self.type = source, TensorType(dtype, source.type.shape)

    @property
    def nbytes(self) -> int:
        return self.source.nbytes // 2

    def array(self) -> np.ndarray[Any, Any]:
        return self._converted(self.source.array())

    def rows(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        return self._converted(rows_of(self.source, start, stop))

    def _converted(self, given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if beyond(given, self.type.dtype):
            greatest = greatest_of(self.type.dtype)
            given = np.where(np.isfinite(given), np.clip(given, -greatest, greatest), given)
        narrowed = given.astype(self.type.dtype.numpy)
        if self.source.nbytes == given.nbytes and vanishes(given, self.type.dtype):
            narrowed = np.copysign(smallest_of(self.type.dtype), given)
        return np.asarray(narrowed, self.type.dtype.numpy)


def greatest_of(dtype: DType) -> float:
    """The greatest finite number of a float type."""
    return float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]


def smallest_of(dtype: DType) -> float:
    """The smallest positive number of a float type."""
    return float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)  # type: ignore[no-untyped-call]


def vanishes(array: np.ndarray[Any, Any], dtype: DType) -> bool:
    """Whether an array is a scalar, such as an epsilon, that would become zero."""
    return array.size == 1 and 0.0 < abs(array.item()) <= smallest_of(dtype) / 2


def beyond(array: np.ndarray[Any, Any], dtype: DType) -> bool:
    """Whether a finite element of an array would become infinite."""
    greatest, (least, most) = greatest_of(dtype), (array.min(initial=0.0), array.max(initial=0.0))
    if -greatest <= least and most <= greatest:
        return False
    finite = array[np.isfinite(array)]
    return bool(finite.size) and bool(np.abs(finite).max() > greatest)


class _Lowering(Rewriter):
    """Copies a graph and casts the inputs of each node to the type in which it computes."""

    def __init__(
        self,
        source: Graph,
        half: DType,
        kept: frozenset[str],
        widened: frozenset[str],
        convert_interface: bool,
        lowered: Lowered,
        *,
        outer: Rewriter | None = None,
    ) -> None:
        super().__init__(source, lambda rewriter, call: None, strict=True, outer=outer)
        self.inferred = False  # also in a subgraph, whose owner inferred the original types
        self.half, self.convert_interface, self.lowered = half, convert_interface, lowered
        self.float32_nodes, self.widened = kept, widened
        self.cast_values: dict[tuple[Value, DType], Value] = {}
        self.converted: dict[Value, str] = {}
        self._exceeding: dict[Value, bool] = {}
        self._captures: Sequence[Value] = ()

    def inner(self, subgraph: Graph, attribute: str) -> Rewriter:
        return _Lowering(subgraph, self.half, self.float32_nodes, self.widened, False, self.lowered, outer=self)

    def run(self) -> Graph:
        if self.convert_interface:
            for value in self.source.all_inputs:
                if _is_float(value):
                    value._replace_fields(type=TensorType(self.half, value.tensor.shape))
        return super().run()

    def _translated(self, node: Node) -> Node:
        copied = super()._translated(node)
        if node.subgraphs:
            return self._with_bodies(copied)
        reads = [v for v in copied.inputs if v is not None and _is_any(v, DType.float32, self.half)]
        reason = self._reason(node, copied) if reads else ""
        if not reads or (not reason and self._in_half(node, copied)):
            return copied
        if node.label in self.widened and node.label not in self.float32_nodes:
            copied.inputs = tuple(self._as(v, self.half) if self._is_large(v) else v for v in copied.inputs)
        copied.inputs = tuple(self._as(v, DType.float32) for v in copied.inputs)
        self.lowered.float32_nodes[node.label] = reason or "the op does not support the type at its version"
        return copied

    def _with_bodies(self, copied: Node) -> Node:
        """Give subgraphs float32 inputs, captures and outputs; each is lowered separately."""
        copied.inputs = tuple(self._as(v, DType.float32) for v in copied.inputs)
        captures = [found for v in copied.captures if (found := self._as(v, DType.float32)) is not None]
        copied._replace_fields(captures=captures)
        for subgraph in copied.subgraphs:
            for outer, inner in zip(captures, subgraph.captures, strict=True):
                inner._replace_fields(type=outer.type, data=outer.data)
        return copied

    def keep(self, node: Node) -> None:
        self._captures = node.captures
        super().keep(node)

    def _reason(self, node: Node, copied: Node) -> str:
        """Reason why a node has to compute in float32, or an empty string."""
        if not isinstance(node.op, Op):
            return "no installed package knows the op"
        if node.label in self.float32_nodes:
            return "asked for, or beyond the budget"
        if node.label in self.widened:
            return "its values exceed the range"
        if any(v is not None and v.type is not None and not isinstance(v.type, TensorType) for v in node.outputs):
            return "its output is not a tensor"
        said = str(find_trait(node.op, "needs_float32") or "")
        for value in copied.inputs if not said else ():
            if value is not None and self._is_weight(value) and value.tensor.shape != () and self._exceeds(value):
                return f'"{value.name}" has values beyond the range'
        return said

    def _in_half(self, node: Node, copied: Node) -> bool:
        """Cast the inputs of a node to half precision where its op allows it; False if it then rejects the call."""
        wanted = copied.inputs
        copied._replace_fields(
            inputs=tuple(
                self._as(v, self.half if self._takes_half(node, place) else DType.float32)
                for place, v in enumerate(wanted)
            )
        )
        try:
            bound, attributes = bind(copied)
            infer_outputs(copied, bound, attributes, [Known(None) for _ in node.outputs])
        except InvalidModel:
            pass
        else:
            return any(v is not None and _is_any(v, self.half) for v in copied.inputs)
        copied._replace_fields(inputs=wanted)
        return False

    def _takes_half(self, node: Node, place: int) -> bool:
        table = (self.registry or default_registry()).dtypes(node.domain, node.op_type, node.version)
        allowed = None if table is None else allowed_at(table["inputs"], place)
        return allowed is None or int(self.half) in allowed

    def _is_weight(self, value: Value) -> bool:
        return value.is_constant and value not in self.graph.all_inputs and _is_any(value, DType.float32)

    def _is_large(self, value: Value | None) -> bool:
        """Whether a value is a weight of at least two axes within the range."""
        if value is None or value.data is None or not self._is_weight(value):
            return False
        return len(value.shape) > 1 and not self._exceeds(value)

    def _exceeds(self, value: Value) -> bool:
        """Whether a weight has numbers beyond the range."""
        if value not in self._exceeding:
            self._exceeding[value] = any(beyond(part, self.half) for part in chunks_of(value.data))
        return self._exceeding[value]

    def _as(self, value: Value | None, dtype: DType) -> Value | None:
        """A float value cast to another float type; other values are unchanged."""
        if value is None or not _is_any(value, DType.float32, self.half) or value.tensor.dtype is dtype:
            return value
        result = self.cast_values.get((value, dtype))
        if result is None:
            result = self._weight(value) if self._is_weight(value) else operators().cast(value, dtype)
            self.cast_values[value, dtype] = result
        return result

    def _weight(self, value: Value) -> Value:
        assert value.data is not None
        if (shared := self._shared_weight(value)) is not None:
            return shared
        scalar = value.data.array() if value.data.nbytes <= 4 else np.zeros(())
        if vanishes(scalar, self.half) or beyond(scalar, self.half):
            self.lowered.clipped.append(value.name)
        contents = Converted(value.data, self.half)
        weight = Value(self.name(f"{value.name}/half"), contents.type, data=contents, graph=self.graph)
        self.converted[weight] = value.name
        return weight

    def _shared_weight(self, value: Value) -> Value | None:
        """Replacement of a captured weight in a subgraph, shared with the enclosing graph and its other subgraphs."""
        if not isinstance(self.outer, _Lowering) or value not in self.graph.captures:
            return None
        place = self.graph.captures.index(value)
        outer = self.outer._captures[place] if place < len(self.outer._captures) else None
        if outer is None or not self.outer._is_weight(outer):
            return None
        lowered = self.outer._as(outer, self.half)
        return None if lowered is None else self.capture(lowered)

    def _output(self, value: Value) -> Value:
        result = super()._output(value)
        if self.convert_interface or not _is_any(result, self.half) or not _is_float(value):
            return result
        self.prefix = value.name
        name = result.name
        result._replace_fields(name=self.name(f"{name}/half"))
        back = operators().cast(result, DType.float32)
        back._replace_fields(name=name)
        return back  # type: ignore[no-any-return]


def _is_any(value: Value, *dtypes: DType) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in dtypes


def _is_float(value: Value) -> bool:
    return _is_any(value, DType.float32)
