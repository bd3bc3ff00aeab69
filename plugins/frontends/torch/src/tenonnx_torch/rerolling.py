"""Loop rerolling: replacing unrolled iterations in a trace by one loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import sympy
import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from tenonnx_torch import lines
from tenonnx_torch.unrolled_traces import aten, int_of, remove_unread

#: Minimum number of iterations of a loop, and maximum number of operations in one iteration.
_FEWEST, _LARGEST = 3, 2000


class NotRerolled(Exception):
    """A loop cannot be written as an ONNX loop. ``line`` is the line of the module."""

    def __init__(self, reason: str, node: Node | None = None, line: str = "") -> None:
        super().__init__(reason)
        self.line = line if node is None else lines.of_node(node)


class Leaf(NamedTuple):
    """An argument of an operation in a body: a literal, or a reference of one of these kinds.

    ``number``: an entry of the loop's numbers. ``index``: one that grows by ``step`` in each iteration. ``outer``: a
    value from outside. ``inner``: the result of an operation in the same iteration. ``state``: of an earlier iteration.
    ``remade``: the result of an operation on outside values that is recomputed in each iteration.
    """

    kind: str
    value: Any
    step: int = 0


class Operation(NamedTuple):
    """An operation of a body, with its arguments as leaves of a pytree."""

    target: Any
    tree: Any
    leaves: tuple[Leaf, ...]


@dataclass(eq=False)
class Loop:
    """The body of a loop, which takes the number of iterations, initial states, values from outside and numbers.

    ``states`` are pairs of an operation and a number of iterations back. ``rows`` are operations whose results are
    stacked over all iterations. Results are the final states, followed by the rows.
    """

    operations: list[Operation]
    remade: list[Operation]
    states: list[tuple[int, int]]
    rows: list[int]
    line: str
    __name__ = "loop"

    @property
    def key(self) -> str:
        return repr((self.operations, self.remade, self.states, self.rows))

    def __repr__(self) -> str:  # bodies of outer loops are compared by this
        return self.key

    def __call__(self, *given: Any) -> Any:
        raise NotImplementedError("a loop is written before it is called")


class Region(NamedTuple):
    """Nodes of ``times`` iterations with ``period`` operations each."""

    start: int
    period: int
    times: int


def rerolled(first: Graph, second: Graph) -> list[Loop]:
    """Replace loops in two traces of one module at two lengths, where the number of iterations differs.

    Raises ``NotRerolled`` naming the line of a loop that cannot be replaced.
    """
    result: list[Loop] = []
    while (loop := _roll_smallest(first, second)) is not None:
        result.append(loop)
    return result


def _roll_smallest(first: Graph, second: Graph) -> Loop | None:
    nodes = [_calls(graph) for graph in (first, second)]
    numbers: dict[Any, int] = {}
    tokens = [np.array([numbers.setdefault(token_of(node), len(numbers)) for node in each]) for each in nodes]
    longest = min(_LARGEST, min(map(len, tokens)) // 2)
    for period in range(1, longest + 1):
        regions = [list(_repeats(each, period)) for each in tokens]
        groups = next(_matched(nodes, tokens, regions), None)  # one at a time: replacing it may remove nodes of others
        if groups is None:
            continue
        loops: list[list[Loop]] = [[], []]
        for nodes_of_loop, group, graph, new_loops in zip(nodes, groups, (first, second), loops, strict=True):
            for region in reversed(group):  # later ones read earlier ones
                plan = _plan(nodes_of_loop, region)
                plan.apply(graph)
                new_loops.append(plan.loop)
        keys = [[loop.key for loop in each] for each in loops]
        if keys[0] != keys[1] and len({*keys[0], *keys[1]}) > 1:
            raise NotRerolled("its iterations do other things at another length", line=loops[0][0].line)
        remove_unread(first)
        remove_unread(second)
        return loops[0][0]
    return None


def _calls(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def flattened(node: Node) -> tuple[list[Any], Any]:
    """The arguments of a node as leaves and a pytree; sizes are expressions."""
    return pytree.tree_flatten((node.args, node.kwargs))


def is_number(leaf: Any) -> bool:
    """Whether an argument is an integer or an expression of sizes."""
    return type(leaf) is int or isinstance(leaf, sympy.Expr)


def token_of(node: Node) -> Any:
    """A key that is equal for nodes that differ only in their tensors and numbers."""
    leaves, tree = flattened(node)
    kinds = tuple("node" if isinstance(v, Node) else "int" if is_number(v) else repr(v) for v in leaves)
    target = node.target.key if isinstance(node.target, Loop) else node.target
    return target, str(tree), kinds, node.meta.get("stack_trace")


def _repeats(tokens: np.ndarray[Any, Any], period: int) -> Iterator[Region]:
    """Regions that repeat the same operations, ending with a complete iteration."""
    same = np.concatenate([[0], tokens[:-period] == tokens[period:], [0]]).astype(np.int8)
    begins, ends = np.flatnonzero(np.diff(same) == 1), np.flatnonzero(np.diff(same) == -1)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        count, left = divmod(end - begin + period, period)
        if count >= _FEWEST:
            yield Region(begin + left, period, count)


def _matched(
    nodes: Sequence[list[Node]], tokens: Sequence[np.ndarray[Any, Any]], regions: Sequence[list[Region]]
) -> Iterator[tuple[list[Region], list[Region]]]:
    """Regions with equal operations in both traces, whose numbers of iterations differ."""
    grouped: list[dict[Any, list[Region]]] = [{}, {}]
    for each, held, groups in zip(tokens, regions, grouped, strict=True):
        for region in held:
            body = tuple(each[region.start : region.start + region.period].tolist())
            groups.setdefault(body, []).append(region)
    for body, group in grouped[0].items():
        other = grouped[1].get(body, [])
        inside = nodes[0][group[0].start : group[0].start + group[0].period]
        if _differ(group, other) and not all(node.target in _VIEWS for node in inside):
            yield group, other


def _differ(group: Sequence[Region], other: Sequence[Region]) -> bool:
    """Whether numbers of iterations differ: of each region, one of which may lack an iteration, or of all as one."""
    if len(group) == len(other):
        return all(one.times != two.times for one, two in zip(group, other, strict=True))
    counts = [{region.times for region in each} for each in (group, other)]
    return [len(each) for each in counts] == [1, 1] and counts[0] != counts[1]


_VIEWS = {aten.select.int, aten.slice.Tensor}


def _plan(nodes: list[Node], region: Region) -> _Plan:
    """A region as a loop, dropping its first or last iteration if that differs from the others."""
    start, period, count = region
    failure = None
    for tried in (region, Region(start + period, period, count - 1), Region(start, period, count - 1)):
        try:
            return _Plan(nodes, tried)
        except NotRerolled as error:
            failure = failure or error
    assert failure is not None
    raise failure


@dataclass
class _Plan:
    """A region as a loop, with its inputs and the readers of its results."""

    nodes: list[Node]
    region: Region
    loop: Loop = field(init=False)

    def __post_init__(self) -> None:
        start, period, count = self.region
        inside = self.nodes[start : start + period * count]
        self.owner = {node: divmod(place, period) for place, node in enumerate(inside)}
        self.outer: list[Node] = []
        self.numbers: list[Any] = []
        self.starts: dict[tuple[int, int], Node] = {}
        self.sequences: list[tuple[list[Node], Node | None]] = []
        self.remade: list[Operation] = []
        operations = []
        for place in range(period):
            rows = [flattened(self.node_at(k, place))[0] for k in range(count)]
            tree = flattened(self.node_at(0, place))[1]
            leaves = tuple(self._leaf(list(column), self.node_at(0, place)) for column in zip(*rows, strict=True))
            operations.append(Operation(self.node_at(0, place).target, tree, leaves))
        self.loop = Loop(operations, self.remade, list(self.starts), [], lines.of_node(self.node_at(0, 0)))
        self._find_rows()

    def node_at(self, iteration: int, place: int) -> Node:
        return self.nodes[self.region.start + iteration * self.region.period + place]

    def _leaf(self, values: list[Any], node: Node) -> Leaf:
        first = values[0]
        if all(map(is_number, values)):
            return self._number(values, node)
        if not any(isinstance(value, Node) for value in values):
            return Leaf("literal", first)
        if not all(isinstance(value, Node) for value in values):
            raise NotRerolled("an argument is a tensor in some iterations alone", node)
        places = [self.owner.get(value) for value in values]
        if not any(places):
            return self._outside(values, node)
        last = places[-1]
        delay = len(values) - 1 - last[0] if last else -1
        expected = [(k - delay, last[1]) if k >= delay else None for k in range(len(values))] if last else []
        if places != expected:
            raise NotRerolled("an iteration reads results of others than the last ones", node)
        if delay == 0:
            return Leaf("inner", last[1] if last else 0)
        assert last is not None
        for back in range(1, delay + 1):  # a value moves from one state to the next
            start = values[delay - back]
            if self.starts.setdefault((last[1], back), start) is not start:
                raise NotRerolled("a state begins with several values", node)
        return Leaf("state", (last[1], delay))

    def _number(self, values: list[Any], node: Node) -> Leaf:
        step = values[1] - values[0]
        if not isinstance(step, int | sympy.Integer) or any(v != values[0] + k * step for k, v in enumerate(values)):
            raise NotRerolled("a number does not grow evenly from one iteration to the next", node)
        self.numbers.append(values[0])
        return Leaf("index" if step else "number", len(self.numbers) - 1, int(step))

    def _outside(self, values: list[Node], node: Node) -> Leaf:
        if len(set(values)) == 1:
            if values[0] not in self.outer:
                self.outer.append(values[0])
            return Leaf("outer", self.outer.index(values[0]))
        if values[0].target in _VIEWS and len({token_of(value) for value in values}) == 1:
            columns = zip(*(flattened(value)[0] for value in values), strict=True)
            leaves = tuple(self._leaf(list(column), node) for column in columns)
            self.remade.append(Operation(values[0].target, flattened(values[0])[1], leaves))
            return Leaf("remade", len(self.remade) - 1)
        with (graph := values[0].graph).inserting_before(self.node_at(0, 0)):
            stacked = graph.call_function(aten.stack.default, (list(values), 0))
        stacked.meta["stack_trace"] = None
        self.outer.append(stacked)
        self.numbers.append(0)
        leaves = (Leaf("outer", len(self.outer) - 1), Leaf("literal", 0), Leaf("index", len(self.numbers) - 1, 1))
        tree = pytree.tree_flatten(((stacked, 0, 0), {}))[1]
        self.remade.append(Operation(aten.select.int, tree, leaves))
        return Leaf("remade", len(self.remade) - 1)

    # ----- results ----------------------------------------------------------------------------------------------------

    def _find_rows(self) -> None:
        """Find results that are read outside: of all iterations in a list, or of the last one."""
        self.readers: dict[Node, list[Any]] = {}
        self.written = {
            place: axis for place in range(self.region.period) if (axis := self._written(place)) is not None
        }
        for place in self.written:
            self.starts.pop((place, 1))
            self.loop.operations[place] = self.loop.operations[place]._replace(
                target=None, leaves=self.loop.operations[place].leaves[1:2]
            )
        self.loop.states = list(self.starts)
        for node in self.owner:
            for reader in node.users:
                if reader not in self.owner and reader not in self.readers:
                    self.readers[reader] = self._read(reader, self.region.times)
        parts = [part for each in self.readers.values() for part in each]
        read = {part.operation for part in parts if isinstance(part, _Rows)}
        read |= {part.operation for part in parts if isinstance(part, _Last) and (part.operation, 1) not in self.starts}
        self.loop.rows += sorted(read)

    def _written(self, place: int) -> int | None:
        """The axis along which an operation writes successive rows of a state that nothing else reads."""
        operation, state = self.loop.operations[place], Leaf("state", (place, 1))
        target, leaves = operation.target, operation.leaves
        others = [leaf for k, each in enumerate(self.loop.operations) for leaf in each.leaves if k != place]
        if target is not aten.select_scatter.default or len(leaves) != 4 or leaves[0] != state or state in others:
            return None
        if Leaf("inner", place) in others or (place, 2) in self.starts or leaves[2].kind != "number":
            return None
        value = self.node_at(0, place).meta["val"]
        axis = self.numbers[leaves[2].value] % value.ndim
        whole = int_of(value.shape[axis]) == self.region.times and self.numbers[leaves[3].value] == 0
        return axis if leaves[3].kind == "index" and leaves[3].step == 1 and whole else None

    def _read(self, reader: Node, count: int) -> list[Any]:
        leaves, parts, at = flattened(reader)[0], list[Any](), 0
        while at < len(leaves):
            leaf = leaves[at]
            where = self.owner.get(leaf) if isinstance(leaf, Node) else None
            run = [self.owner.get(each) if isinstance(each, Node) else None for each in leaves[at : at + count]]
            if where is None:
                parts.append(leaf)
            elif run == [(k, where[1]) for k in range(count)]:
                parts.append(_Rows(where[1], False))
                at += count - 1
            elif run == [(k, where[1]) for k in reversed(range(count))]:
                parts.append(_Rows(where[1], True))
                at += count - 1
            elif where[0] == count - 1:
                parts.append(_Last(where[1]))
            else:
                raise NotRerolled("results of some iterations alone are read after the loop", leaf)
            at += 1
        if any(isinstance(part, _Rows) for part in parts) and reader.target not in (
            aten.stack.default,
            aten.cat.default,
        ):
            raise NotRerolled("the results of all iterations are read other than by stack and cat", reader)
        return parts

    def apply(self, graph: Graph) -> None:
        """Replace the iterations by the loop."""
        after = self.node_at(self.region.times - 1, self.region.period - 1)
        with graph.inserting_after(after):
            loop = graph.call_function(
                self.loop, (self.region.times, list(self.starts.values()), self.outer, self.numbers)
            )
        loop.meta["stack_trace"] = self.node_at(0, 0).meta.get("stack_trace")
        results: dict[Any, Node] = {}
        point = loop

        def call(target: Any, *args: Any, like: Node | None = None) -> Node:
            nonlocal point
            with graph.inserting_after(point):
                point = graph.call_function(target, args)
            if like is not None:
                point.meta["val"] = like.meta.get("val")
            return point

        def item(key: tuple[str, int]) -> Node:
            if key not in results:
                kind, place = key
                at = self.loop.states.index((place, 1)) if kind == "state" else len(self.loop.states)
                at += self.loop.rows.index(place) if kind == "row" else 0
                results[key] = call(_item, loop, at)
            return results[key]

        def last(place: int) -> Node:
            final = self.node_at(self.region.times - 1, place)
            if place in self.written:
                return call(torch.movedim, item(("row", place)), 0, self.written[place], like=final)
            if (place, 1) in self.starts:
                result = item(("state", place))
                result.meta["val"] = final.meta.get("val")
                return result
            return call(aten.select.int, item(("row", place)), 0, -1, like=final)

        for reader, parts in self.readers.items():
            last_values = {part.operation: last(part.operation) for part in parts if isinstance(part, _Last)}
            self.readers[reader] = [last_values[part.operation] if isinstance(part, _Last) else part for part in parts]
        joined = {
            reader: self._join(graph, reader, parts, item)
            for reader, parts in self.readers.items()
            if any(isinstance(part, _Rows) for part in parts)
        }
        for reader, parts in self.readers.items():
            if reader not in joined:
                left = [joined.get(part, part) if isinstance(part, Node) else part for part in parts]
                reader.args, reader.kwargs = pytree.tree_unflatten(left, flattened(reader)[1])
        for reader, whole in joined.items():
            reader.replace_all_uses_with(whole)
        for reader in joined:
            graph.erase_node(reader)
        for node in reversed(self.owner):
            graph.erase_node(node)

    def _join(self, graph: Graph, reader: Node, parts: list[Any], item: Any) -> Node:
        """Replace a stack or cat of results of all iterations."""
        stacks = reader.target is aten.stack.default
        tensors = [part for part in parts if isinstance(part, _Rows | Node)]
        numbers: list[Any] = [part for part in parts if type(part) is int]
        one = self.node_at(0, next(part.operation for part in parts if isinstance(part, _Rows))).meta["val"]
        axis = (numbers[0] if numbers else 0) % (one.ndim + stacks)
        items = {part.operation: item(("row", part.operation)) for part in tensors if isinstance(part, _Rows)}
        with graph.inserting_before(reader):
            joined = []
            for part in tensors:
                if isinstance(part, Node):
                    joined.append(graph.call_function(torch.unsqueeze, (part, axis)) if stacks else part)
                    continue
                rows = items[part.operation]
                rows = graph.call_function(torch.flip, (rows, [0])) if part.reverse else rows
                moved = graph.call_function(torch.movedim, (rows, 0, axis)) if axis else rows
                joined.append(moved if stacks else graph.call_function(torch.flatten, (moved, axis, axis + 1)))
            whole = joined[0] if len(joined) == 1 else graph.call_function(torch.cat, (joined, axis))
        whole.meta["val"] = reader.meta.get("val")
        return whole


class _Rows(NamedTuple):
    operation: int
    reverse: bool


class _Last(NamedTuple):
    operation: int


def _item(results: Any, place: int) -> Any:
    return results[place]
