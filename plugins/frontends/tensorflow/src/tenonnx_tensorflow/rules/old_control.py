"""Control flow of TensorFlow 1 (Switch, Merge, Enter, Exit) as If and Loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenonnx.extend import NotRepresentable
from tenonnx_tensorflow.graphs import Node, Reference
from tenonnx_tensorflow.loops import Looping, branched, looped
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.rules.control import condition_of

#: Rules of ops that read their inputs themselves, by walking back to the Switch or Enter of the branch or loop.
DEFERRED: dict[str, Callable[..., Any]] = {}

_SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
_MERGES = frozenset({"Merge", "RefMerge"})
_ENTERS = frozenset({"Enter", "RefEnter"})
_EXITS = frozenset({"Exit", "RefExit"})
_NEXT = frozenset({"NextIteration", "RefNextIteration"})


def deferred(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def registered(function: Callable[..., Any]) -> Callable[..., Any]:
        DEFERRED.update(dict.fromkeys(names, function))
        rule(*names)(function)
        return function

    return registered


@rule(*_SWITCHES, outputs="output_false output_true")
def switch(node: Any, x: Any, condition: Any) -> list[Any]:
    """Pass the input to both outputs; only reached outside of branches that begin at this Switch."""
    return [x, x]


@rule(*_ENTERS, *_NEXT)
def passed(node: Any, x: Any) -> Any:
    """Pass the input; only reached outside of the loop."""
    return x


# ----- branches -------------------------------------------------------------------------------------------------------


@deferred("Merge", "RefMerge")
def merge(scope: Any, node: Node) -> Any:
    """Result of the taken branch, which consists of the nodes between a Switch and this Merge."""
    sides: dict[int, Reference] = {}
    condition: Reference | None = None
    for reference in node.inputs:
        guarded = _guard(scope.nodes, reference)
        if guarded is None:
            continue
        guard, side = guarded
        condition = guard.inputs[1]
        sides[side] = reference
    if condition is None:
        raise NotRepresentable("a Merge does not follow a Switch", given=node.title)
    if len(sides) == 1:  # the other input does not come from a Switch
        (side,) = sides
        rest = next(reference for reference in node.inputs if reference is not sides[side])
        sides[1 - side] = rest
    value = scope.read(condition)
    found = branched(
        scope.interpreter.state,
        condition_of(value),
        lambda: [scope.inside(sides[1])],
        lambda: [scope.inside(sides[0])],
        node.title,
    )
    return [found[0], value]


def _guard(nodes: Mapping[str, Node], start: Reference) -> tuple[Node, int] | None:
    """The Switch at which a branch begins, with the output index of the branch, skipping nested branches."""
    pending: list[tuple[str, int, int]] = [(start.node, start.position, 0)]
    seen = set()
    while pending:
        name, position, depth = pending.pop()
        if (name, depth) in seen or name not in nodes:
            continue
        seen.add((name, depth))
        node = nodes[name]
        if node.op in _SWITCHES:
            if depth == 0:
                return node, position
            depth -= 1
        elif node.op in _MERGES:
            depth += 1
        elif node.op in _EXITS:
            continue
        pending += [(r.node, r.position, depth) for r in node.inputs]
        pending += [(each, 0, depth) for each in node.controls]
    return None


# ----- loops ----------------------------------------------------------------------------------------------------------


@deferred("Exit", "RefExit")
def leave(scope: Any, node: Node) -> Any:
    """Final value of a loop variable. All Exits of a frame share one loop."""
    nodes: Mapping[str, Node] = scope.nodes
    frame = _frame(nodes, node)
    loops = scope.loops
    if frame not in loops:
        loops[frame] = _loop(scope, frame, node)
    return [loops[frame][nodes[node.inputs[0].node].inputs[0].node]]


def _frame(nodes: Mapping[str, Node], node: Node) -> str:
    merged = nodes[nodes[node.inputs[0].node].inputs[0].node]
    for reference in merged.inputs:
        if nodes[reference.node].op in _ENTERS:
            return str(nodes[reference.node]["frame_name"])
    raise NotRepresentable("an Exit belongs to no loop: no Enter leads to it", given=node.title)


def _loop(scope: Any, frame: str, node: Node) -> dict[str, Any]:
    """Final value of each Merge of a frame."""
    nodes: Mapping[str, Node] = scope.nodes
    merges: list[Node] = []
    for each in nodes.values():
        if each.op in _MERGES and any(
            nodes[r.node].op in _ENTERS and nodes[r.node]["frame_name"] == frame for r in each.inputs if r.node in nodes
        ):
            merges.append(each)
    starts = [_input_of(nodes, each, _ENTERS) for each in merges]
    following = [_input_of(nodes, each, _NEXT) for each in merges]
    switches = [
        next((n for n in nodes.values() if n.op in _SWITCHES and n.inputs[0].node == each.name), None)
        for each in merges
    ]
    condition = nodes[next(s for s in switches if s is not None).inputs[1].node]
    constants = [
        n for n in nodes.values() if n.op in _ENTERS and n["frame_name"] == frame and n.get("is_constant", False)
    ]
    fixed = {n.name: [scope.read(n.inputs[0])] for n in constants}
    initial = [scope.read(n.inputs[0]) for n in starts]

    def given(states: Any) -> dict[str, Any]:
        known = dict(fixed)
        for merged, switched, each in zip(merges, switches, states, strict=True):
            known[merged.name] = [each, each]
            if switched is not None:
                known[switched.name] = [each, each]
        return known

    def going(states: Any) -> Any:
        return condition_of(scope.within(given(states), condition.inputs[0]))

    def step(states: Any) -> Any:
        known = given(states)
        inner = scope.nested(known)
        return [inner.read(n.inputs[0]) for n in following]

    found = looped(
        Looping(scope.interpreter.state, initial, going, step, [False] * len(initial), f'the loop "{frame}"')
    )
    return {merged.name: each for merged, each in zip(merges, found, strict=True)}


def _input_of(nodes: Mapping[str, Node], merged: Node, kinds: frozenset[str]) -> Node:
    return next(nodes[reference.node] for reference in merged.inputs if nodes[reference.node].op in kinds)
