"""Search for the cheapest lowering of a call to the ops of a target."""

from __future__ import annotations

import contextvars
import functools
import heapq
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenonnx.extend import Graph, Op, TenonnxError, TensorType, Value, find_rule, interpreting
from tenonnx.extend.transforms import ALLOWANCE, Call, Retargeting, RetargetState, Ways, defined_by, work
from tenonnx.tools import Plugin, plugins
from tenonnx_targets.accuracy import Accuracy
from tenonnx_targets.recipes import SMALL, Recipe, recipe

#: Entry-point group of modules with ``LOWERINGS``: for each op, pairs of an accuracy class and a function.
GROUP = "tenonnx.lowerings"

#: Maximum number of kinds of calls in the search for one call.
MOST_KINDS = 600

#: Cost of a way without that of its calls: multiply-adds, nodes, and nesting of ways.
_Cost = tuple[int, int, int]

#: Number of ways to try for one call: one may fail for contents that are not part of the call's kind.
_TRIED = 3


class _Way(NamedTuple):
    """A way to express a call: its accuracy, and a function of a rewriter that applies it."""

    key: Hashable
    accuracy: Accuracy
    action: str
    take: Callable[[], Any]


@dataclass(slots=True)
class _Kind:
    """A kind of calls: its cost if the target supports it, else a tracer with a sample call, and its ways.

    ``calls`` maps each traced way to the kinds of its calls, None if it fails.
    """

    legal: _Cost | None
    tracer: _Tracer | None = None
    candidates: list[_Way] = field(default_factory=list)
    calls: dict[Hashable, list[Hashable] | None] = field(default_factory=dict)


def ways_by_cost(target: Any, retargeting: Retargeting, call: Call, own: Ways) -> Ways:
    """The ways of a call, including those of packages, that lead to the target, cheapest first."""
    planner = retargeting.context.plans.get(target.name)
    if planner is None:
        planner = retargeting.context.plans[target.name] = _Planner(target, retargeting.context)
    kind = kind_of_call(call)
    if kind is not None and (known := planner.recipes.get(kind)) is not None:
        return [(known.action, functools.partial(known.replay, retargeting, call))]
    ways = list(_all_ways(retargeting, call, own, target.accuracy))
    if kind is None:
        return [(way.action, way.take) for way in sorted(ways, key=lambda way: way.accuracy)]
    order = planner.order(kind, call)
    if not order:
        return own  # to report the reasons
    found = {way.key: way for way in ways}
    chosen = [found[key] for key in order if key in found][:_TRIED]
    return [(way.action, functools.partial(planner.take, way, kind, retargeting, call)) for way in chosen]


def _all_ways(retargeting: Retargeting, call: Call, own: Ways, most: Accuracy) -> Iterator[_Way]:
    """The ways of the op itself, and for lists of ops those of packages."""
    for action, take in own:
        yield _Way((action, getattr(take, "args", ())[1:]), Accuracy.EXACT, action, take)
    if any(v is not None and not (isinstance(v.type, TensorType) and v.type.shape is not None) for v in call.inputs):
        return
    for accuracy, function in _lowerings(*plugins(GROUP)).get(call.op, ()):
        if accuracy <= most:
            take = functools.partial(retargeting.lowered, call, function)
            yield _Way(("lowered", function), accuracy, "lowered", take)


@functools.cache
def _lowerings(*installed: Plugin) -> dict[Op[Any], list[tuple[Accuracy, Callable[..., Any]]]]:
    """The lowerings of packages by op, cached for this set of packages."""
    result: dict[Op[Any], list[tuple[Accuracy, Callable[..., Any]]]] = {}
    for plugin in installed:
        for op, ways in plugin.load().LOWERINGS.items():
            result.setdefault(op, []).extend((Accuracy[name.upper()], function) for name, function in ways)
    return result


# ----- kinds of calls -------------------------------------------------------------------------------------------------


def kind_of_call(call: Call) -> Hashable | None:
    """Key of similar calls: op, attributes, input types and small contents. None with subgraphs."""
    if any(hasattr(a, "nodes") for a in call.attributes.values()):
        return None
    attributes = tuple((name, _frozen(a)) for name, a in call.attributes.items())
    first: dict[int, int] = {}
    same = tuple(first.setdefault(id(value), place) for place, value in enumerate(call.inputs))
    return call.op, call.outputs, attributes, same, tuple(map(_frozen_value, call.inputs))


def _frozen(attribute: Any) -> Hashable:
    if isinstance(attribute, list | tuple):
        return tuple(map(_frozen, attribute))
    try:
        hash(attribute)
    except TypeError:
        return repr(attribute)
    return type(attribute).__name__, attribute


def _frozen_value(value: Value | None) -> Hashable:
    if value is None:
        return None
    symbols = None if value.symbolic_contents is None else repr(value.symbolic_contents)
    if value.data is None:
        return value.type, symbols
    if value.data.nbytes > SMALL:
        return value.type, True
    array = value.data.array()
    return value.type, repr(array.tolist()) if array.dtype == object else array.tobytes()


class _Tracer(Retargeting):
    """Records the calls of one way without converting them."""

    def __init__(self, registry: Any, context: RetargetState) -> None:
        blank = Graph("way")
        blank.registry = registry
        super().__init__(blank, context)
        self.calls: list[Call] = []

    def _decide(self, call: Call) -> Any:
        self.calls.append(call)
        return self.add(call.op, call.inputs, call.attributes, call.known[: call.outputs])

    def own_ways(self, call: Call) -> Ways:
        return list(self._ways(call))

    def alike(self, call: Call) -> Call:
        """A copy of the call on values of this graph."""
        stand_ins = {value: self._stand_in_for(value) for value in call.inputs if value is not None}
        inputs = [None if value is None else stand_ins[value] for value in call.inputs]
        return Call(call.op, inputs, call.attributes, call.outputs, None, call.known)

    def _stand_in_for(self, value: Value) -> Value:
        stand_in = Value(self.name("x"), value.type, data=value.data, graph=self.graph)
        stand_in.symbolic_contents, stand_in.role = value.symbolic_contents, value.role
        return stand_in


class _Planner:
    """Costs of the kinds of calls in one graph on the way to one target."""

    def __init__(self, target: Any, context: RetargetState) -> None:
        self.target, self.legalizer = target, context.legalizer
        self.nodes: dict[Hashable, _Kind] = {}
        self.orders: dict[Hashable, list[Hashable]] = {}
        self.recipes: dict[Hashable, Recipe] = {}

    def take(self, way: _Way, kind: Hashable, retargeting: Retargeting, call: Call) -> Any:
        """Apply a way, and record its nodes for further calls of the kind."""
        start = len(retargeting.nodes)
        results = way.take()
        if (
            results is not None
            and (found_recipe := recipe(way.action, call, retargeting.nodes[start:], results)) is not None
        ):
            self.recipes[kind] = found_recipe
        return results

    def order(self, root: Hashable, call: Call) -> list[Hashable]:
        """The keys of the ways that lead to the target, sorted by accuracy class and cost."""
        if root not in self.orders:
            self.nodes.setdefault(root, self._kind_of_calls(call))
            self.orders[root] = self._order(root, self._reachable(root))
        return self.orders[root]

    def _order(self, root: Hashable, reached: Sequence[Hashable]) -> list[Hashable]:
        found: dict[Hashable, None] = {}
        kind = self.nodes[root]
        for accuracy in Accuracy:
            costs = self._solve(reached, accuracy)
            ways = []
            for place, way in enumerate(kind.candidates):
                calls = kind.calls.get(way.key)
                if way.accuracy <= accuracy and calls is not None and all(each in costs for each in calls):
                    ways.append((_sum(costs[each] for each in calls), place, way.key))
            found.update((key, None) for _, _, key in sorted(ways, key=lambda way: way[:2]))
        return list(found)

    def _reachable(self, root: Hashable) -> list[Hashable]:
        """Kinds of calls reachable by ways, breadth first: until a way is found, and one step further."""
        seen = dict.fromkeys([root])
        costs: dict[Hashable, _Cost] = {}
        layer, further = [root], 1
        while layer and len(seen) < MOST_KINDS:
            reached = [each for kind in layer for each in self._next(self.nodes[kind])]
            layer = [each for each in dict.fromkeys(reached) if each not in seen]
            seen.update(dict.fromkeys(layer))
            if root in (costs := self._solve(list(seen), self.target.accuracy)):
                further -= 1
                if further < 0:
                    break
        if not layer:  # kinds without a cost by now cannot be expressed
            self.orders.update((kind, []) for kind in seen if kind not in costs)
        return list(seen)

    def _next(self, kind: _Kind) -> Iterator[Hashable]:
        """The kinds of calls in the ways of a kind."""
        for way in kind.candidates:
            if way.key not in kind.calls:
                kind.calls[way.key] = self._calls(kind, way)
            yield from kind.calls[way.key] or ()

    def _kind_of_calls(self, call: Call) -> _Kind:
        try:
            self.legalizer.of(call)
        except TenonnxError:
            tracer = _Tracer(self.legalizer.registry, RetargetState(self.legalizer))
            alike = tracer.alike(call)
            own = tracer.own_ways(alike)
            return _Kind(None, tracer, list(_all_ways(tracer, alike, own, self.target.accuracy)))
        return _Kind((_multiply_adds(call), 1, 0))

    def _calls(self, kind: _Kind, way: _Way) -> list[Hashable] | None:
        """The kinds of calls in one way; None if it fails."""
        tracer = kind.tracer
        assert tracer is not None
        tracer.calls = []
        try:
            with work(ALLOWANCE, apart=True), defined_by(tracer.registry), interpreting(tracer):
                if way.take() is None:
                    return None
        except TenonnxError:
            return None
        result = []
        for inner in tracer.calls:
            key = kind_of_call(inner)
            if key is None:
                return None
            if key not in self.nodes:
                self.nodes[key] = self._kind_of_calls(inner)
            result.append(key)
        return result

    def _solve(self, kinds: Sequence[Hashable], accuracy: Accuracy) -> dict[Hashable, _Cost]:
        """The minimum cost of each kind, by Knuth's generalization of Dijkstra's algorithm to AND-OR graphs."""
        costs: dict[Hashable, _Cost] = {}
        ready: list[tuple[_Cost, int, Hashable]] = []
        waiting: dict[Hashable, list[tuple[Hashable, list[Hashable], set[Hashable]]]] = {}
        count = 0
        for kind in kinds:
            found = self.nodes[kind]
            if found.legal is not None:
                ready.append((found.legal, count, kind))
            for way in found.candidates:
                calls = found.calls.get(way.key)
                if way.accuracy <= accuracy and calls is not None:
                    open_calls = set(calls)
                    if not calls:
                        ready.append(((0, 0, 1), count, kind))
                    for each in open_calls:
                        waiting.setdefault(each, []).append((kind, calls, open_calls))
            count += 1
        heapq.heapify(ready)
        while ready:
            cost, _, kind = heapq.heappop(ready)
            if kind in costs:
                continue
            costs[kind] = cost
            for owner, calls, open_calls in waiting.get(kind, ()):
                open_calls.discard(kind)
                if not open_calls and owner not in costs:
                    count += 1
                    heapq.heappush(ready, (_sum(costs[each] for each in calls), count, owner))
        return costs


def _sum(costs: Any) -> _Cost:
    listed = list(costs)
    return sum(cost[0] for cost in listed), sum(cost[1] for cost in listed), 1 + sum(cost[2] for cost in listed)


def _multiply_adds(call: Call) -> int:
    """The multiply-adds of a call as far as sizes are known; the number of elements for elementwise ops.

    Rules build their own graphs, so they run outside of the trace.
    """
    rule = find_rule(call.op, "cost")
    shapes = [v.type.shape for v in call.inputs if v is not None and isinstance(v.type, TensorType)]
    if rule is not None and all(s is not None and all(isinstance(dim, int) for dim in s) for s in shapes):
        return int(contextvars.Context().run(rule, *call.inputs, **call.attributes))
    if call.op.facts.get("data_movement") or not call.known or call.known[0] is None:
        return 0
    kind = call.known[0].type
    dims = kind.shape if isinstance(kind, TensorType) else None
    return math.prod(dim for dim in dims or () if isinstance(dim, int)) if dims is not None else 0
