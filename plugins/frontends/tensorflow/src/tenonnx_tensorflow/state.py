"""Contents of variables while a graph is built."""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, InvalidModel, NotRepresentable, TenonnxError, Value, constant, limits
from tenonnx.extend.formats import Role
from tenonnx_tensorflow.forms import Forms
from tenonnx_tensorflow.tracked_values import Complex, Held, Table, Variable

#: What reading raises where numbers of a file lead outside of it, or do not fit each other.
BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)

#: Calls of functions that each node of a file justifies.
_CALLS = 64


class State:
    """Variables by handle. An array becomes a variable of the graph when it is first read; assignments replace it.

    Of variables of the names ``mutable`` nothing may count on the contents: they are inputs, which have these as
    ``defaults`` in the end. ``nodes`` is the size of a file that is read, which may call more functions than the limit
    ``nodes`` allows by itself.
    """

    def __init__(
        self,
        graph: Graph,
        mutable: frozenset[str] = frozenset(),
        restored: Callable[[str], Any] | None = None,
        asset: Callable[[str], Sequence[str]] | None = None,
        nodes: int | None = None,
    ) -> None:
        self.graph, self.mutable = graph, mutable
        self.defaults: dict[str, Any] = {}
        self.restored, self._asset = restored, asset
        self.named: Mapping[str, tuple[str, str]] = {}
        self.forms = Forms()
        #: Names that outputs will have.
        self.reserved: frozenset[str] = frozenset()
        self.keys: dict[Value, str] = {}
        self.tables: dict[str, Table] = {}
        self.initial: dict[Variable, Any] = {}
        self.held: dict[Variable, Held] = {}
        self.sources: dict[Variable, Value] = {}
        self.handles: dict[str, Variable] = {}
        self.is_running = False
        self._is_file = nodes is not None
        self._calls, self._depth = -_CALLS * (nodes or 0), 0
        self.constants: dict[int, Value] = {}
        #: Of images whose blocks are images of a batch: the image, the sizes of the blocks, and what is padded.
        self.blocks: dict[Value, tuple[Value, list[int], Value]] = {}

    def asset(self, name: str) -> Sequence[str]:
        """The lines of a file of a table."""
        if self._asset is None:
            raise NotRepresentable("the file of a table is missing", given=f'"{name}"')
        return self._asset(name)

    @contextmanager
    def calling(self, title: str) -> Iterator[None]:
        """Count a call of a function, one level deeper: functions that call each other twice double at each level.

        Raises ``LimitExceeded`` beyond ``nodes`` or ``depth``, and ``OutOfTime``.
        """
        limits.check_time()
        self._calls += 1
        self._depth += 1
        try:
            limits.check("nodes", self._calls, f"the number of calls of {title} and of the functions around it")
            limits.check("depth", self._depth, f"{title}, with the functions around it,")
            yield
        finally:
            self._depth -= 1

    @contextmanager
    def applying(self, title: str) -> Iterator[None]:
        """Apply a rule. Raises ``InvalidModel`` where it fails on what a file gives: too few inputs, a wrong rank."""
        try:
            yield
        except TenonnxError:
            raise
        except BROKEN as error:
            if not self._is_file:
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise InvalidModel(
                f"inputs or attributes of {title} do not fit each other",
                given=f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})",
            ) from error

    def handle(self, name: str, **known: Any) -> Variable:
        """The one handle of a name."""
        return self.handles.setdefault(name, Variable(name, **known))

    def read(self, variable: Variable) -> Held:
        if variable not in self.held:
            self.held[variable] = self._made(variable)
        return self.held[variable]

    def assign(self, variable: Variable, content: Held) -> None:
        if self.is_running:
            if variable not in self.sources and variable in self.initial:
                self._made(variable)
            self.held[variable] = content
        else:
            self.initial[variable] = content
            key = self.keys.get(content) if isinstance(content, Value) else None
            if key is not None and key in self.named:
                variable.name, variable.kind = self.named[key]

    def changes_since(self, before: Mapping[Variable, Held]) -> list[Variable]:
        """The variables that were assigned, and not only read for the first time."""
        return [v for v, held in self.held.items() if held is not before.get(v, self.sources.get(v))]

    def undo(self, before: Mapping[Variable, Held]) -> None:
        """Let variables hold what they did; those that were read for the first time keep what they were."""
        self.held = {v: before.get(v, self.sources.get(v)) for v in self.held if v in before or v in self.sources}

    def changed(self) -> dict[Variable, Value]:
        """The variables that were assigned since they were read first, with what they hold now."""
        return {v: held for v, held in self.held.items() if held is not self.sources.get(v) and v in self.sources}

    def _made(self, variable: Variable) -> Held:
        if variable in self.sources:
            return self.sources[variable]
        content = self.initial[variable] if variable in self.initial else self._by_name(variable)
        if isinstance(content, Value):
            content = content.data.array() if content.data is not None else content
        if isinstance(content, Value | Complex):
            return content
        array = np.asarray(content)
        if variable.name in self.mutable:
            made = self.graph.input(self._free(variable.name), constant(array).tensor)
            self.defaults[made.name] = array
        else:
            made = self.variable(variable.name, array)
        if array.dtype.kind in "fV" and variable.kind is not None:
            made.role = Role(variable.kind)
        self.sources[variable] = made
        return made

    def _by_name(self, variable: Variable) -> Any:
        """Contents of a checkpoint by name; the graph of a saved model of Keras 3 may restore copies alone."""
        keys = [key for key, (name, _) in self.named.items() if name == variable.name]
        if self.restored is None or len(keys) != 1:
            raise NotRepresentable(
                "a variable is read that holds nothing",
                given=variable.name,
                do="export the model with its variables",
            )
        variable.kind = self.named[keys[0]][1]
        return self.restored(keys[0])

    def variable(self, name: str, array: Any) -> Value:
        """A variable of the graph, of this name or a similar one that is free."""
        return self.graph.variable(self._free(name), np.asarray(array))

    def _free(self, name: str) -> str:
        taken, unique, count = self.reserved.union(self.graph.names()), name, 0
        while unique in taken:
            count += 1
            unique = f"{name}_{count}"
        return unique

    def add_outputs(self) -> None:
        """Outputs for what variables hold after a call."""
        for variable, content in self.changed().items():
            source = self.sources[variable]
            if source.role is None:
                source.role = Role("buffer")
            self.graph.output(f"{source.name}_next", ops.identity(content))

    def add_defaults(self, graph: Graph) -> None:
        """Let the inputs of a graph that was made of this one hold what variables do before the first call."""
        changed = {self.sources[variable].name for variable in self.changed()}
        roles = {source.name: source.role for source in self.sources.values()}
        for name, array in self.defaults.items():
            value = graph.find(name)
            value.data, value.role = array, roles[name]
            if name not in changed:
                graph.all_inputs.remove(value)


def settled(build: Callable[[frozenset[str]], State]) -> State:
    """Build once it is known which variables change, so that nothing is computed of their contents before."""
    mutable: frozenset[str] = frozenset()
    while True:
        state = build(mutable)
        changed = frozenset(variable.name for variable in state.changed())
        if changed <= mutable:
            return state
        mutable |= changed
