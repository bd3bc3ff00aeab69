"""Programs specialized for the shapes of feeds: dims become constants, and shape computations are folded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import InvalidModel, UnsupportedOp
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.program import Bindable, Program
from tenonnx.graph.types import TensorType
from tenonnx.registry.extensions import find_extension
from tenonnx.transforms.default_inputs import opened
from tenonnx.transforms.dims import fix_shapes
from tenonnx_run.feeds import FeedCheck
from tenonnx_run.folding import fold
from tenonnx_run.state import MovingState, State

#: Number of shape-specialized programs; further shapes share the generic one. Training needs two, as its last batch is
#: smaller.
KINDS = 2

Make = Callable[[Graph, Mapping[str, str]], Program]
Kind = tuple[tuple[str, tuple[int, ...]], ...]
Check = Callable[[Mapping[str, Any]], Any]


class ShapeSpecializedProgram(Bindable):
    """Runs ``graph`` by one program for each combination of input shapes, built by ``make(graph, state)`` on first use.

    State carries over from call to call. If the state's shapes are unknown or the shapes of all feeds are known, a
    single program is built at once. Specialized programs take inputs with a default as constants; a call that feeds one
    uses the generic program. Without state, several threads may call it. ``checking(inputs)`` returns a function that
    checks feeds, which may be arrays of the backend's library.
    """

    def __init__(
        self,
        graph: Graph,
        make: Make,
        state: Mapping[str, str] | None = None,
        checking: Callable[[Sequence[Value]], Check] = FeedCheck,
    ) -> None:
        self._graph, self._make, self._names = graph, make, dict(state or {})
        self._free = [v for v in graph.inputs if v.name not in self._names and not _is_static(v)]
        self._defaults = {v.name for v in graph.all_inputs if v.data is not None} - self._names.keys()
        self._check = checking(self._free)
        self._shaped: dict[Kind, Program] = {}
        self._general: Program | None = None
        self._owner: Program | None = None
        self._lock = threading.Lock()
        if not self._free or not all(_is_static(v) for v in graph.all_inputs if v.name in self._names):
            self._free, self._owner = [], self._for_all()
        self._first = State(graph, self._names if self._owner is None else ())
        self._state = MovingState(lambda: self._first if self._owner is None else self._owner.state)

    @property
    def state(self) -> MutableMapping[str, Any]:
        return self._state

    @property
    def backend(self) -> str:
        programs = (self._general, *self._shaped.values())
        return next((program.backend for program in programs if program is not None), "none before the first call")

    @property
    def is_made(self) -> bool:
        """Whether the generic program is built already."""
        return self._general is not None

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        program = self._program(feeds) if self._free and self._defaults.isdisjoint(feeds) else self._for_all()
        if self._names and program is not self._owner:
            program.state.update(self._state)
            self._owner, self._first = program, State(self._graph, ())
        return program(feeds)

    def _program(self, feeds: Mapping[str, Any]) -> Program:
        kind = tuple((v.name, np.shape(feeds[v.name]) if v.name in feeds else ()) for v in self._free)
        if kind not in self._shaped:
            self._check({v.name: feeds[v.name] for v in self._free if v.name in feeds})
            with self._lock:
                if kind not in self._shaped and len(self._shaped) < KINDS:
                    self._shaped[kind] = self._for_one(kind)
                if kind not in self._shaped:
                    return self._for_all()
        return self._shaped[kind]

    def _for_one(self, kind: Kind) -> Program:
        try:
            fixed = fix_shapes(opened(self._graph, self._names), dict(kind))
            smaller = find_extension("simplify") or fold
            return self._make(smaller(fixed), self._names)
        except (InvalidModel, UnsupportedOp):  # sizes that a node rejects; the generic program reports them better
            return self._for_all()

    def _for_all(self) -> Program:
        if self._general is None:
            self._general = self._make(self._graph, self._names)
        return self._general


def _is_static(value: Value) -> bool:
    """Whether the shape is fully known, or fully unknown."""
    shape = value.type.shape if isinstance(value.type, TensorType) else ()
    return shape is None or all(isinstance(dim, int) for dim in shape)
