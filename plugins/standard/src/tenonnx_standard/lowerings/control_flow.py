"""Lowerings of branches and loops without control flow: folded, selected by Where, or unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, NotRepresentable, Op, TensorType, Value, constant, inline, static
from tenonnx_standard.control_flow import counter_shape
from tenonnx_standard.lowerings.registry import lowering, numbers, unless

#: Maximum nodes of an unrolled loop.
_MOST_NODES = 10_000

#: Ops that fail for some indices.
_INDEXED = {"Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "OneHot", "TopK"}


@lowering(ops.if_)
def if_by_branch(cond, *, then_branch, else_branch):
    """Inline the branch of a constant condition."""
    return inline(then_branch if _truth(numbers(cond)) else else_branch, [])


@lowering(ops.if_)
def if_by_where(cond, *, then_branch, else_branch):
    """Compute both branches and select each output. Branches that could fail are refused."""
    _must_be_safe(then_branch, else_branch)
    pairs = list(zip(then_branch.outputs, else_branch.outputs, strict=True))
    unless(cond.rank is None or not all(_have_one_type(a, b) for a, b in pairs), "the branches have other types")
    truth = _scalar(cond)
    chosen = zip(inline(then_branch, []), inline(else_branch, []), strict=True)
    return tuple(ops.where(truth, a, b) for a, b in chosen)


@lowering(ops.loop)
def loop_unrolled(M, cond, *v_initial, body, _outputs=None):
    """Unroll a loop whose number of iterations is known."""
    limit = None if M is None else int(numbers(M).reshape(-1)[0])
    carried: Sequence[Any] = v_initial
    scanned: list[Sequence[Any]] = []
    going_on = cond is None or _truth(numbers(cond))
    while going_on and (limit is None or len(scanned) < limit):
        found = _iteration(body, len(scanned), carried)
        carried = found[1 : 1 + len(v_initial)]
        scanned.append(found[1 + len(v_initial) :])
        truth = None if found[0] is None else static(found[0])
        if truth is None:
            raise NotRepresentable("the number of iterations depends on inputs")
        going_on = _truth(truth)
    stacked = [
        _stacked([each[k] for each in scanned], value) for k, value in enumerate(body.outputs[1 + len(carried) :])
    ]
    return (*carried, *stacked)


@lowering(ops.loop)
def loop_by_where(M, cond, *v_initial, body, _outputs=None):
    """Run all iterations; a carried value keeps its value once the condition is false."""
    limit = max(int(numbers(M).reshape(-1)[0]), 0)
    unless(len(body.outputs) > 1 + len(v_initial), "the length of a scan output depends on inputs")
    unless(limit * len(body.nodes) > _MOST_NODES, f"unrolling takes {limit} times {len(body.nodes)} nodes")
    _must_be_safe(body)
    going_on = constant(np.array(True)) if cond is None else _scalar(cond)
    carried = list(v_initial)
    for step in range(limit):
        next_one, *found = _iteration(body, step, carried)
        unless(
            not all(_have_one_type(a, b) for a, b in zip(found, carried, strict=True)),
            "a carried value changes its type",
        )
        carried = [ops.where(going_on, a, b) for a, b in zip(found, carried, strict=True)]
        going_on = ops.and_(going_on, _scalar(next_one))
    return tuple(carried)


def _iteration(body: Graph, step: int, carried: Sequence[Any]) -> Sequence[Any]:
    """The outputs of an iteration whose condition is true."""
    unless((step + 1) * len(body.nodes) > _MOST_NODES, f"unrolling takes over {step} times {len(body.nodes)} nodes")
    counter, condition = (counter_shape(value) for value in body.inputs[:2])
    given = [constant(np.full(counter, step, np.int64)), constant(np.full(condition, True))]
    return inline(body, [*given, *carried])


def _stacked(values: Sequence[Any], like: Value) -> Any:
    """Stack the values along a new first axis."""
    if values:
        rows = [ops.unsqueeze(value, [0]) for value in values]
        return rows[0] if len(rows) == 1 else ops.concat(*rows, axis=0)
    kind = like.type
    if not isinstance(kind, TensorType) or kind.shape is None or not all(isinstance(dim, int) for dim in kind.shape):
        raise NotRepresentable("the shape of a scan output without iterations is not known")
    return constant(np.zeros((0, *kind.shape), kind.dtype.numpy), kind.dtype)


def _truth(array: Any) -> bool:
    return bool(np.reshape(array, -1)[0])


def _scalar(condition: Value) -> Value:
    return condition if condition.rank == 0 else ops.reshape(condition, constant(np.zeros(0, np.int64)))  # type: ignore[no-any-return]


def _have_one_type(a: Any, b: Any) -> bool:
    """Whether two values have the same element type and static shape."""
    kind = getattr(a, "type", None)
    return isinstance(kind, TensorType) and kind == b.type and kind.shape is not None and None not in kind.shape


def _must_be_safe(*graphs: Graph) -> None:
    """Raise ``NotRepresentable`` for subgraphs with nodes that may fail, are random or may not terminate."""
    for node in (node for graph in graphs for node in graph.walk()):
        unless(not isinstance(node.op, Op) or not node.op.pure or bool(node.subgraphs), f"{node.op.name} is not pure")
        indexed = node.op.name in _INDEXED and any(v is not None and v.data is None for v in node.inputs[1:2])
        divided = node.op.name in ("Div", "Mod") and not all(v is not None and v.dtype.is_float for v in node.inputs)
        unless(indexed or divided, f"{node.op.name} may fail outside of the branch that it belongs to")
        kinds = [value.type for value in node.outputs if value is not None]
        known = all(isinstance(k, TensorType) and k.shape is not None and None not in k.shape for k in kinds)
        unless(not known, f"the shape that {node.op.name} has is not known")
