"""Table of the checks, each a function of a case and one drawn call.

A check raises ``Failure`` if it fails, and returns whether it compared anything. ``expected`` are the outputs of the op
itself for the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from tenonnx.extend import Op, Value, find_rule, find_trait
from tenonnx.extend.transforms import Builder, invoke
from tenonnx_testing import (
    broadcast,
    claims,
    derivatives,
    edges,
    exports,
    extremes,
    frameworks,
    gradients,
    inference,
    kinks,
    knowledge,
    laws,
    mutations,
    oracles,
    repetition,
    schemas,
    sizes,
    specialization,
    variations,
)
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.models import single_node
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, expect, present, run_graph, run_reference, trace


@dataclass(frozen=True, slots=True)
class Check:
    """A check: ``run`` is called at each of ``versions``, which is ``[None]`` if the check has no versions.

    - ``stride``: each drawn call runs at every ``stride``-th version only;
    - ``examples``: number of calls, where it differs from the default;
    - ``prefers``: sort key; calls with higher values are checked first;
    - ``covering``: select the calls from a larger pool so that they cover all drawn features;
    - ``missing``: reason that a skipped test shows.
    """

    name: str
    run: Callable[[Case, Call, Outputs], bool]
    applies: Callable[[Case], bool] = lambda case: True
    versions: Callable[[Case], Sequence[int | None]] = lambda case: [None]
    stride: int = 1
    examples: int | None = None
    prefers: Callable[[Call], int] = lambda drawn: 0
    covering: bool = False
    missing: str = "no version takes these element types"


# ----- the body -----------------------------------------------------------------------------------------------------


def numpy_equals_body(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that the numpy rule equals the body, on arrays and traced into a graph with symbolic dims."""
    op = case.op
    if find_rule(op, "numpy") is not None:
        with blaming(f"the body of {op.title}"):
            by_body = evaluate(op, drawn, body_of=op)
        expect(case, drawn, "its body", by_body, expected)

    def body(_: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return invoke(op, op.function, values, drawn.attributes, drawn.outputs)

    with blaming(f"tracing the body of {op.title} with symbolic dims"):
        graph, feeds = trace(op, drawn, body, symbolic=True)
    with blaming(f"the body of {op.title}, traced with symbolic dims,"):
        traced = run_graph(graph, feeds)
    try:
        expect(case, drawn, "its body traced with symbolic dims", traced, present(expected))
    except Failure as failure:
        if op.pure and any(isinstance(node.op, Op) and not node.op.pure for node in graph.walk()):
            failure.add_note("the body draws at random: declare the op with pure=False")
        raise
    return True


def equals_reference(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Compare the op with the reference of its case, on as many outputs as the reference returns.

    Large numbers, white space and the like are compared too, unless the op or the reference rejects them.
    """
    with blaming(f"the reference of {case.op.title}"):
        found = run_reference(case, drawn)
    expect(case, drawn, "the reference of its case", found, present(expected)[: len(found)])
    for name, call in chain(edges.planted(case, drawn), extremes.extremes(case, drawn, expected)):
        if name not in edges.COMMON:
            continue
        try:
            outputs, found = evaluate(case.op, call), run_reference(case, call)
        except Exception:  # noqa: S112 - references may raise any error
            continue
        try:
            what = f"the reference of its case where an input holds {name}"
            expect(case, call, what, found, present(outputs)[: len(found)])
        except Failure as failure:
            failure.call = call
            raise
    return True


# ----- oracles ------------------------------------------------------------------------------------------------------


def equals_oracle(
    name: str, run: Callable[..., list[Any]], newest: Callable[[], int], case: Case, drawn: Call, expected: Outputs
) -> bool:
    """Compare the op with another implementation that runs a single-node model, at one version."""
    assert drawn.version is not None
    with blaming(f"writing {case.op.title} as a node at version {drawn.version}"):
        trial = single_node(case.op, drawn, drawn.version, expected, newest())
    if trial is None:
        return False
    if not case.op.primitive or case.law:  # compared with its body or law, even if the oracle has no kernel
        case.reached.add(drawn.version)
    schema = schemas.schema_at(case.op, drawn.version)
    if schema is not None and schema.judged:
        with blaming(f"onnx.checker on {case.op.title} written at version {drawn.version}"):
            oracles.check(trial)
    try:
        actual = run(trial)
    except oracles.Refused as refusal:
        case.refusals.setdefault(name, f"at version {drawn.version}: {refusal}")
        return False
    case.reached.add(drawn.version)
    expect(case, drawn, f"{name} at version {drawn.version}", actual, trial.expected)
    return True


def _versions_of_onnxruntime(case: Case) -> list[int | None]:
    newest = oracles.newest_of_onnxruntime() if case.op.domain == "ai.onnx" else 10**9
    return [version for version in schemas.versions(case.op) if version <= newest]


def some_oracle(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that an oracle or another check has compared this primitive with more than its own numpy rule."""
    for check in (_ONNXRUNTIME, _REFERENCE):
        for version in check.versions(case) if check.applies(case) and not case.compared.get(check.name) else ():
            try:
                compared = check.run(case, Call(drawn.inputs, drawn.attributes, drawn.outputs, version), expected)
            except Failure:
                compared = True
            case.compared[check.name] = case.compared.get(check.name, 0) + compared
    return any(case.compared.values())


def _is_known(case: Case) -> bool:
    """Whether oracles may have the op: its domain or name is known to the onnx package or onnxruntime."""
    return case.op.domain in schemas.domains() or bool(schemas.history(case.op.domain, case.op.name))


def _specified_versions(case: Case) -> list[int]:
    return [version for version in schemas.versions(case.op) if case.op.is_specified_at(version)]


def _has(*consumers: str) -> Callable[[Case], bool]:
    """Return a condition: whether the op of a case has a rule for one of these consumers."""
    return lambda case: any(find_rule(case.op, consumer) is not None for consumer in consumers)


def _is_elementwise(case: Case) -> bool:
    return find_trait(case.op, "elementwise") is not None


def _moves(case: Case) -> bool:
    return find_trait(case.op, "data_movement") is not None


def _alike_on(framework: frameworks.Framework) -> Check:
    missing = f"it cannot be {framework.form}"
    return Check(framework.name, framework.is_alike, applies=framework.applies, missing=missing)


# ----- the table ----------------------------------------------------------------------------------------------------

_ONNXRUNTIME = Check(
    "onnxruntime",
    partial(equals_oracle, "onnxruntime", oracles.run_onnxruntime, oracles.newest_of_onnxruntime),
    applies=lambda case: oracles.has_onnxruntime() and _is_known(case),
    versions=_versions_of_onnxruntime,
)
_REFERENCE = Check(
    "reference",
    partial(equals_oracle, "onnx.reference", oracles.run_reference, oracles.newest_of_onnx),
    applies=lambda case: case.op.domain in schemas.domains() and bool(_specified_versions(case)),
    versions=_specified_versions,
)

CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        Check("numpy=body", numpy_equals_body, applies=lambda case: not case.op.primitive, examples=16, covering=True),
        _ONNXRUNTIME,
        _REFERENCE,
        Check("types", inference.inferred_are_real),
        Check(
            "gradient",
            gradients.equals_differences,
            applies=gradients.applies,
            examples=12,
            prefers=lambda drawn: min(0, edges.floats_first(drawn)),
            covering=True,
            missing="there are no floats to derive",
        ),
        Check("law", laws.is_followed, applies=lambda case: case.law is not None),
        Check("export", exports.equals_exported, versions=exports.versions, stride=10),
        Check(
            "own versions",
            exports.keeps_meaning,
            applies=exports.has_versions,
            versions=exports.own_versions,
            examples=16,
        ),
        Check(
            "specialized",
            specialization.kernels_agree,
            applies=specialization.specializes,
            missing="the numpy rule serves as well",
        ),
        Check("layout", edges.any_layout_serves, examples=4, prefers=edges.most_axes),
        Check(
            "special values", edges.special_values_agree, applies=edges.has_rule_and_body, examples=16, covering=True
        ),
        Check("empty axes", edges.empty_axes_agree, examples=4, missing="no input has an axis"),
        Check("bad input", mutations.mutations_agree),
        Check("oracle", some_oracle, applies=lambda case: case.op.primitive and case.law is None),
        Check(
            "negative axes",
            edges.axes_count_from_either_end,
            applies=edges.names_axes,
            examples=16,
            missing="no axis is given",
        ),
        Check("data movement", claims.moves_alone, applies=_moves, missing="nothing could be wider"),
        Check("symbolic", claims.symbolic_alike, applies=_has("symbolic"), missing="nothing was of integers"),
        Check(
            "rewrite",
            claims.rewritten_alike,
            applies=_has("rewrite", "rewrite.if_fewer"),
            examples=16,
            covering=True,
            missing="each call stays",
        ),
        Check(
            "expected",
            equals_reference,
            applies=lambda case: case.reference is not None,
            examples=16,
            covering=True,
        ),
        Check("repeated", repetition.gives_the_same_again, examples=2, missing="it draws at random"),
        Check("constants", knowledge.constants_are_alike, examples=3, missing="it draws at random"),
        Check(
            "variations",
            variations.varied_agree,
            examples=8,
            prefers=edges.most_axes,
            covering=True,
            missing="nothing could be otherwise",
        ),
        Check(
            "other attributes",
            variations.other_attributes_agree,
            applies=variations.has_other_ways,
            examples=8,
            missing="no attribute could be another",
        ),
        Check(
            "broadcast",
            broadcast.broadcast_agrees,
            applies=broadcast.applies,
            examples=2,
            prefers=edges.most_axes,
            missing="no operand is broadcast",
        ),
        Check(
            "kinks",
            kinks.between_both_sides,
            applies=gradients.applies,
            examples=4,
            prefers=edges.floats_first,
            missing="no slope is to be had",
        ),
        Check(
            "derivative",
            derivatives.equals_that_of_the_body,
            applies=derivatives.applies,
            examples=4,
            prefers=edges.floats_first,
            covering=True,
            missing="its body has no gradient",
        ),
        Check(
            "elementwise",
            claims.elementwise_alone,
            applies=_is_elementwise,
            covering=True,
            missing="nothing broadcasts",
        ),
        Check(
            "many elements",
            sizes.many_elements_agree,
            applies=edges.has_rule_and_body,
            examples=2,
            prefers=edges.most_axes,
            covering=True,
            missing="no axis could be longer",
        ),
        *map(_alike_on, frameworks.installed()),
    )
}
