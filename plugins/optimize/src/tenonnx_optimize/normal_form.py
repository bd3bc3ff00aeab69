"""Normal form of graphs, in which equivalent subgraphs look the same.

Rules define it: ``normal`` expresses a call by other ops (a difference as a sum, a square as a product), or returns
None. Older definitions of ops are expressed by the newest. Equal computations become one value.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Any

from tenonnx.extend import Graph, Node, Op, TenonnxError, Value, find_trait, operators
from tenonnx.extend.transforms import Call, Decision, Rewriter, attributes_key


class Normalizer(Rewriter):
    """Copies a typed graph to its normal form; ``mapping`` maps its values to those of the copy.

    If ``among`` names nodes, only these are copied, and outputs of others become inputs.
    """

    def __init__(
        self,
        source: Graph,
        decide: Decision | None = None,
        *,
        among: Container[Node] | None = None,
        outer: Rewriter | None = None,
    ) -> None:
        super().__init__(source, _normal if decide is None else decide, outer=outer)
        self.inferred = True
        self.among = among
        self.calls: dict[Hashable, tuple[Value | None, ...]] = {}
        known = operators()
        #: commutative and associative ops, with their neutral elements
        self.associative = {op: unit for op, unit in ((known.add, 0.0), (known.multiply, 1.0)) if isinstance(op, Op)}

    def visit(self, node: Node) -> None:
        if self.among is None or node in self.among:
            super().visit(node)

    def exists(self, op: Op) -> bool:
        """Whether the graph's opsets have the op or a successor of it.

        An op with the trait ``any_version`` may be used at any version. A graph without ai.onnx may use its newest
        version.
        """
        version = self.graph.root.opsets.get(op.domain, op.since if op.domain == "ai.onnx" else None)
        return version is not None and (op.since <= version or find_trait(op, "any_version") is True)

    def add(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], known: Any, **options: Any
    ) -> tuple[Value | None, ...]:
        """The results of a call, or of an equal earlier one; equal constants are shared."""
        written = attributes_key(attributes)
        if written is None or not op.pure:
            return super().add(op, inputs, attributes, known, **options)
        given = [v if v is None or v.data is None else self.intern_constant(v) for v in inputs]
        while given and given[-1] is None:
            given.pop()
        key = op, tuple(sorted(given, key=id) if op in self.associative else given), written
        result = self.calls.get(key)
        if result is None or len(result) < len(known) or None in result:
            result = self.calls[key] = super().add(op, inputs, attributes, known, **options)
        return result


def _normal(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
    assert isinstance(rewriter, Normalizer)
    if any(isinstance(a, Graph) for a in call.attributes.values()) or not call.op.pure:
        return None
    counted = {"_outputs": call.outputs} if call.op.signature.counts_outputs else {}
    try:
        said = rewriter.ask("normal", call, **counted)
        if said is not None:
            return said
        if not call.op.primitive and (call.op.before is not None or not rewriter.exists(call.op)):
            return rewriter.expand(call)
    except TenonnxError:  # keep the call: a required rank is unknown
        return None
    return None if call.node is None else rewriter.add(call.op, call.inputs, call.attributes, call.known)
