"""Reduction to a minimal failing model by delta debugging (Zeller and Hildebrandt, 2002)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from onnx import GraphProto, ModelProto, checker

from tenonnx import Graph, InvalidCall, TenonnxError, load
from tenonnx_debug.files import bodies
from tenonnx_debug.nested import at_older_opsets, with_one_iteration, with_smaller_bodies
from tenonnx_debug.parts import Parts, inlined, with_branches
from tenonnx_debug.shrinking import smaller_models

#: A predicate: whether a model fails in the same way as the original.
Test = Callable[[ModelProto], bool]


def reduce(graph: Graph, failing: Callable[[Graph], bool]) -> Graph:
    """Search a smallest part of a graph for which ``failing`` is true.

    The search removes nodes, outputs, functions and branches. Missing values become inputs, or constants: sizes and
    indices always, others if the failure depends on their contents in a run of the whole graph. It also removes nodes
    of subgraphs, and replaces a Loop by one iteration. Then it shrinks dims, weights and attributes, and tries older
    opsets. Every candidate is a valid model, unless the original is invalid.

    A candidate for which ``failing`` raises a ``TenonnxError`` counts as not failing. Raises ``InvalidCall`` if the
    graph itself does not fail.
    """

    def test(message: ModelProto) -> bool:
        try:
            return bool(failing(load(message)))
        except TenonnxError:
            return False

    return load(Reducer(graph.to_proto(), test).run())


class Reducer:
    """A search for a smallest model for which ``test`` is true.

    ``keep`` is called with each smaller model. ``results`` maps digests of models to what ``test`` returned for them in
    an earlier search; new ones are added. ``seed`` is the seed of the random inputs on which intermediate values are
    recorded.
    """

    def __init__(
        self,
        model: ModelProto,
        test: Test,
        keep: Callable[[ModelProto], None] = lambda model: None,
        results: dict[str, bool] | None = None,
        seed: int = 0,
    ) -> None:
        self.best, self._test, self._keep, self._seed = model, test, keep, seed
        self.results = {} if results is None else results
        self.tried = 0
        self._is_checked = _is_valid(model)

    def run(self) -> ModelProto:
        """Run the search; returns the smallest model. Raises ``InvalidCall`` if the original does not fail."""
        if not self._fails(self.best):
            raise InvalidCall("the model does not fail", do="give a check that fails for the whole model")
        self._take_first(inlined(self.best))
        while True:
            before = self.best.SerializeToString(deterministic=True)
            self._reduce_nodes()
            self._take_all(with_branches)
            self._take_all(with_one_iteration)
            self._take_all(with_smaller_bodies)
            self._take_all(smaller_models)
            if self.best.SerializeToString(deterministic=True) == before:
                break
        self._take_first(at_older_opsets(self.best))
        return self.best

    def _fails(self, model: ModelProto) -> bool:
        digest = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
        if digest not in self.results:
            self.tried += 1
            self.results[digest] = (not self._is_checked or _is_valid(model)) and self._test(model)
        return self.results[digest]

    def _take(self, model: ModelProto | None) -> bool:
        """Continue the search from a model if it fails."""
        if model is None or not self._fails(model):
            return False
        self.best = model
        self._keep(model)
        return True

    def _take_first(self, models: Iterator[ModelProto]) -> bool:
        return any(self._take(model) for model in models)

    def _take_all(self, candidates: Callable[[ModelProto], Iterator[ModelProto]]) -> None:
        """Take failing candidates, generated from the current best model, until none fails."""
        while self._take_first(candidates(self.best)):
            pass

    # ----- nodes ------------------------------------------------------------------------------------------------------

    def _reduce_nodes(self) -> None:
        parts = Parts(self.best, self._seed)
        nodes = list(range(parts.count))
        nodes = self._shortest_prefix(parts, nodes)
        size = max(1, len(nodes) // 2)
        while len(nodes) > 1:
            nodes, is_smaller = self._without_chunks(parts, nodes, size)
            if size == 1 and not is_smaller:
                return
            size = max(1, min(size // 2, len(nodes) // 2))

    def _shortest_prefix(self, parts: Parts, nodes: list[int]) -> list[int]:
        """The shortest prefix of the nodes that fails, by bisection."""
        low, high = 0, len(nodes)  # the first ``high`` fail
        while high - low > 1:
            middle = (low + high) // 2
            if self._take(parts.model(nodes[:middle])):
                high = middle
            else:
                low = middle
        return nodes[:high]

    def _without_chunks(self, parts: Parts, nodes: list[int], size: int) -> tuple[list[int], bool]:
        """Remove chunks of ``size`` nodes that the failure does not need, from first to last."""
        is_smaller, start = False, 0
        while start < len(nodes) and len(nodes) > 1:
            fewer = [*nodes[:start], *nodes[start + size :]]
            if fewer and (self._take(parts.model(fewer)) or self._take(parts.model(fewer, recorded=True))):
                nodes, is_smaller = fewer, True
            else:
                start += size
        return nodes, is_smaller


def _is_valid(model: ModelProto) -> bool:
    try:
        checker.check_model(model)
    except (checker.ValidationError, ValueError, RuntimeError):
        return False
    return True


def sizes(model: ModelProto) -> tuple[int, int]:
    """The number of nodes, including subgraphs, and the size of the weights in bytes."""

    return _count(model.graph), sum(each.ByteSize() for each in model.graph.initializer)


def _count(graph: GraphProto) -> int:
    return len(graph.node) + sum(_count(inner) for node in graph.node for inner in bodies(node))
