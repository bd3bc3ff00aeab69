"""Decomposition: keep the ops that a consumer supports, expand the others by their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenonnx.errors import UnsupportedOp, counted, listing
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.op.op import Op
from tenonnx.transforms.default_inputs import leaving_defaults
from tenonnx.transforms.rewrite import Call, Rewriter, body_nodes

#: Whether a consumer supports a call directly.
Keep = Callable[[Call], bool]


@leaving_defaults
def decompose(graph: Graph, keep: Keep) -> Graph:
    """Expand all calls that ``keep`` does not accept by the bodies of their ops, recursively.

    Raises ``UnsupportedOp`` naming every op that is neither kept nor has a body, with its nodes, ``InvalidModel`` for a
    node that its op does not accept.
    """
    refuse_opaque(graph, "decomposed")

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if keep(call):
            return None
        refuse_primitive(call)
        return rewriter.expand(call)

    return Rewriter(graph, decide, strict=True).run()


def refuse_primitive(call: Call) -> None:
    """Raise ``UnsupportedOp`` for a call of an op without a body."""
    if call.op.primitive:
        raise UnsupportedOp(
            f"{call.op.title} is a primitive: it has no body", do="keep it, or give the consumer a rule"
        )


@leaving_defaults
def inline_functions(graph: Graph) -> Graph:
    """``graph`` with calls of its model-local functions replaced by their bodies.

    Calls of a function whose body contains an op that no package provides are kept.
    """
    own = set(graph.functions.values())

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        if call.op not in own or any(not isinstance(n.op, Op) and n.op not in own for n in body_nodes(call.op)):
            return None
        return rewriter.expand(call)

    inlined = Rewriter(graph, decide).run()
    called = {node.op for node in inlined.walk()}
    inlined.functions = graph.functions if called & own else {}
    return inlined


def refuse_opaque(graph: Graph, purpose: str) -> None:
    """Raise ``UnsupportedOp`` listing every node whose op no package defines, and the packages that would."""
    missing: dict[tuple[str, str], list[Node]] = {}
    for node in graph.walk():
        if not isinstance(node.op, Op):
            missing.setdefault((node.domain, node.op_type), []).append(node)
    if not missing:
        return
    from tenonnx.registry.contents import in_words
    from tenonnx.registry.packages import packages_of
    from tenonnx.transforms.missing_ops import absence, remedy

    registry, said = graph.registry, packages_of(graph)
    lines, absences = [], []
    for (domain, name), nodes in sorted(missing.items()):
        lacking = absence(registry, domain, name, nodes[0].version)
        absences.append(lacking)
        reason = lacking.reason
        if domain in said and lacking.package is None:
            reason = f"which the file says is of {said[domain]}"
        shown = listing([f'"{node.label}"' for node in nodes], 5)
        count = f"{counted(len(nodes), 'node')} ({shown})"
        lines.append(f"{domain}::{name}@{nodes[0].version}: {count}, {reason}")
    failures = [] if registry is None else [*registry.failures.values(), *in_words(registry.conflicts)]
    raise UnsupportedOp(
        f"the graph cannot be {purpose}: no installed package provides {len(missing)} of its ops",
        given="\n".join(lines),
        also=[str(failure) for failure in failures],
        do=f"{remedy(absences)}, or add your own rule",
    )
