"""Normal form of graphs, in which equivalent subgraphs look the same.

Families give the words: an op's rule ``normal`` says a call by other ops (a difference as a sum, a square as a
product), or returns None. Older meanings are said by today's. What is computed twice from the same is one value.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Any

from tenonnx.extend import Graph, Node, Op, TenonnxError, Value, find_trait, operators
from tenonnx.extend.transforms import Call, Decision, Rewriter, attributes_key


class Normalizer(Rewriter):
    """Copies a graph with types into its normal form; ``mapping`` leads from its values to those of the copy.

    Where ``among`` names nodes, it copies these alone, and what others compute is given.
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
        self.seen: dict[Hashable, tuple[Value | None, ...]] = {}
        known = operators()
        #: The ops whose operands may come in any order and grouping, each with what changes nothing.
        self.associative = {op: unit for op, unit in ((known.add, 0.0), (known.multiply, 1.0)) if isinstance(op, Op)}

    def visit(self, node: Node) -> None:
        if self.among is None or node in self.among:
            super().visit(node)

    def exists(self, op: Op) -> bool:
        """Whether the graph may hold the op: it, or one that it became, is there at its opsets.

        An op with the rule ``word`` says what its older meanings say, and may stand at any version. A graph without
        ai.onnx may use its newest version.
        """
        version = self.graph.root.opsets.get(op.domain, op.since if op.domain == "ai.onnx" else None)
        return version is not None and (op.since <= version or find_trait(op, "any_version") is True)

    def add(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], known: Any, **options: Any
    ) -> tuple[Value | None, ...]:
        """The results of a call, which are those of one that is alike where there is one; equal constants are one."""
        written = attributes_key(attributes)
        if written is None or not op.pure:
            return super().add(op, inputs, attributes, known, **options)
        given = [v if v is None or v.data is None else self.intern_constant(v) for v in inputs]
        while given and given[-1] is None:
            given.pop()
        key = op, tuple(sorted(given, key=id) if op in self.associative else given), written
        found = self.seen.get(key)
        if found is None or len(found) < len(known) or None in found:
            found = self.seen[key] = super().add(op, inputs, attributes, known, **options)
        return found


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
    except TenonnxError:  # it stays as it is: a rank that must be known is not
        return None
    return None if call.node is None else rewriter.add(call.op, call.inputs, call.attributes, call.known)
