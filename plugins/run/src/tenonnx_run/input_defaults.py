"""Inputs with a default: constants until a call feeds one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program
from tenonnx.transforms.default_inputs import opened
from tenonnx_run.wrapped import WrappedProgram

Made = TypeVar("Made")


class Defaults(Generic[Made]):
    """Programs of a graph from ``make``: ``closed`` takes inputs without a default, ``open`` all inputs."""

    def __init__(self, graph: Graph, make: Callable[[Graph], Made]) -> None:
        self._graph, self._make = graph, make
        self._contents = {v.name: v.data for v in graph.all_inputs if v.data is not None}
        self._open: Made | None = None
        self.closed = make(graph)

    def are_fed(self, feeds: Mapping[str, Any]) -> bool:
        """Whether one of the inputs with a default is fed."""
        return bool(self._contents) and any(name in self._contents for name in feeds)

    @property
    def open(self) -> Made:
        """Built on first use."""
        if self._open is None:
            self._open = self._make(opened(self._graph, self._contents))
        return self._open

    def complete(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The feeds for ``open``, completed with defaults."""
        missing = {name: data.array() for name, data in self._contents.items() if name not in feeds}
        return {**missing, **feeds}


class DefaultsProgram(WrappedProgram):
    """A program that accepts inputs with a default, built of programs that take them as constants."""

    def __init__(self, graph: Graph, make: Callable[[Graph], Program]) -> None:
        self._programs = Defaults(graph, make)
        super().__init__(self._programs.closed)

    @property
    def is_plain(self) -> bool:
        """Whether a plain session of the backend computes the same, according to the program without defaults."""
        return bool(getattr(self._program, "is_plain", False))

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        if self._programs.are_fed(feeds):
            return self._programs.open(self._programs.complete(feeds))
        return self._program(feeds)

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        return super().bind(feeds) if self._programs.are_fed(feeds) else self._program.bind(feeds)
