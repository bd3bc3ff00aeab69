"""Values and nodes of a graph by key: producers, consumers and paths."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tenonnx import Graph, Value
from tenonnx_cli.drawing import subgraphs
from tenonnx_serve.tasks.keys import keyed


@dataclass(slots=True)
class Places:
    """The key of a value is its node's key with the output number (``n3:0``), or an input's key (``i0``)."""

    values: dict[Value, str] = field(default_factory=dict)
    by_key: dict[str, Value] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    consumers: dict[Value, list[str]] = field(default_factory=dict)
    _outer: dict[Value, Value] = field(default_factory=dict)

    def add(self, graph: Graph, prefix: str = "") -> None:
        """Add a graph, whose keys begin with ``prefix``, with its subgraphs."""
        for node in graph.walk():
            for _, inner in subgraphs(node):
                self._outer |= zip(inner.captures, node.captures, strict=True)
        self._add_ends(graph, prefix)
        for key, label, node in keyed(graph, prefix):
            self.labels[key] = label
            for place, value in enumerate(node.outputs):
                if value is not None:
                    self._add_value(f"{key}:{place}", value)
            for value in dict.fromkeys(node.inputs):
                if value is not None:
                    self.consumers.setdefault(self.origin(value), []).append(key)
            for name, inner in subgraphs(node):
                self._add_ends(inner, f"{key}/{name}/")

    def _add_ends(self, graph: Graph, prefix: str) -> None:
        for place, value in enumerate(graph.all_inputs):
            self.labels[f"{prefix}i{place}"] = value.name
            self._add_value(f"{prefix}i{place}", value)
        for place, value in enumerate(graph.outputs):
            self.labels[f"{prefix}o{place}"] = value.name
            self.consumers.setdefault(self.origin(value), []).append(f"{prefix}o{place}")

    def _add_value(self, key: str, value: Value) -> None:
        self.values[value] = key
        self.by_key[key] = value

    def origin(self, value: Value) -> Value:
        """The original value of a captured one."""
        while value in self._outer:
            value = self._outer[value]
        return value

    def key(self, value: Value) -> str | None:
        """The key of a value, or None if it is a constant or not drawn."""
        return self.values.get(self.origin(value))

    def producer(self, value: Value) -> dict[str, str] | None:
        """The node or input that produces a value, as a link."""
        key = self.key(value)
        return None if key is None else self.link(key.partition(":")[0])

    def readers(self, value: Value) -> list[dict[str, str]]:
        """The nodes and outputs that read a value, as links."""
        return [self.link(key) for key in self.consumers.get(self.origin(value), ())]

    def link(self, key: str) -> dict[str, str]:
        return {"key": key, "label": self.labels.get(key, key)}

    def path_to_output(self, start: str) -> list[dict[str, str]]:
        """The shortest path from a node or input to an output of its graph; empty if there is none."""
        scope = start.rpartition("/")[0]
        before: dict[str, str] = {start: ""}
        waiting = deque([start])
        while waiting:
            key = waiting.popleft()
            way, _, last = key.rpartition("/")
            if last.startswith("o") and way == scope:
                steps = [key]
                while before[steps[-1]]:
                    steps.append(before[steps[-1]])
                return [self.link(step) for step in reversed(steps)]
            for following in self._following(key, way, last):
                if following not in before:
                    before[following] = key
                    waiting.append(following)
        return []

    def _following(self, key: str, way: str, last: str) -> Iterator[str]:
        """The consumers of a node's outputs, or of the outer output that a subgraph output determines."""
        if last.startswith("o"):
            key = way.rpartition("/")[0]
        if key in self.by_key:
            yield from self.consumers.get(self.by_key[key], ())
        place = 0
        while (value := self.by_key.get(f"{key}:{place}")) is not None:
            yield from self.consumers.get(value, ())
            place += 1
