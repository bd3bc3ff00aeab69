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

#: Errors of reading a file with invalid or inconsistent numbers.
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

#: Number of function calls that each node of a file justifies.
_CALLS = 64


class State:
    """Variables by handle. An array becomes a variable of the graph on its first read; assignments replace it.

    Contents of variables in ``mutable`` must not be relied upon: these are inputs, and get the contents as ``defaults``
    at the end. ``nodes`` is the size of a file, which may justify more function calls than the limit ``nodes``.
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
        self.names_by_key: Mapping[str, tuple[str, str]] = {}
        self.forms = Forms()
        #: Names of outputs.
        self.reserved: frozenset[str] = frozenset()
        self.keys: dict[Value, str] = {}
        self.tables: dict[str, Table] = {}
        self.initial: dict[Variable, Any] = {}
        self.contents: dict[Variable, Held] = {}
        self.sources: dict[Variable, Value] = {}
        self.handles: dict[str, Variable] = {}
        self.is_running = False
        self._is_file = nodes is not None
        self._calls, self._depth = -_CALLS * (nodes or 0), 0
        self.constants: dict[int, Value] = {}
        #: For images whose blocks were moved to the batch: the original image, the block sizes, and the padding.
        self.blocks: dict[Value, tuple[Value, list[int], Value]] = {}

    def asset(self, name: str) -> Sequence[str]:
        """The lines of the file of a table."""
        if self._asset is None:
            raise NotRepresentable("the file of a table is missing", given=f'"{name}"')
        return self._asset(name)

    @contextmanager
    def calling(self, title: str) -> Iterator[None]:
        """Count a call of a function, at one more level: mutual double calls grow exponentially.

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
        """Apply a rule. Raises ``InvalidModel`` where it fails on invalid content, such as missing inputs."""
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
        """The unique handle of a name."""
        return self.handles.setdefault(name, Variable(name, **known))

    def read(self, variable: Variable) -> Held:
        if variable not in self.contents:
            self.contents[variable] = self._first_content(variable)
        return self.contents[variable]

    def assign(self, variable: Variable, content: Held) -> None:
        if self.is_running:
            if variable not in self.sources and variable in self.initial:
                self._first_content(variable)
            self.contents[variable] = content
        else:
            self.initial[variable] = content
            key = self.keys.get(content) if isinstance(content, Value) else None
            if key is not None and key in self.names_by_key:
                variable.name, variable.role = self.names_by_key[key]

    def changes_since(self, before: Mapping[Variable, Held]) -> list[Variable]:
        """The variables that were assigned, rather than only read for the first time."""
        return [v for v, content in self.contents.items() if content is not before.get(v, self.sources.get(v))]

    def undo(self, before: Mapping[Variable, Held]) -> None:
        """Restore the contents of variables; those that were read for the first time keep their initial contents."""
        self.contents = {
            v: before.get(v, self.sources.get(v)) for v in self.contents if v in before or v in self.sources
        }

    def changed(self) -> dict[Variable, Value]:
        """The variables that were assigned after their first read, with their contents."""
        return {
            v: content
            for v, content in self.contents.items()
            if content is not self.sources.get(v) and v in self.sources
        }

    def _first_content(self, variable: Variable) -> Held:
        if variable in self.sources:
            return self.sources[variable]
        content = self.initial[variable] if variable in self.initial else self._by_name(variable)
        if isinstance(content, Value):
            content = content.data.array() if content.data is not None else content
        if isinstance(content, Value | Complex):
            return content
        array = np.asarray(content)
        if variable.name in self.mutable:
            new_input = self.graph.input(self._free(variable.name), constant(array).tensor)
            self.defaults[new_input.name] = array
        else:
            new_input = self.variable(variable.name, array)
        if array.dtype.kind in "fV" and variable.role is not None:
            new_input.role = Role(variable.role)
        self.sources[variable] = new_input
        return new_input

    def _by_name(self, variable: Variable) -> Any:
        """Contents of a checkpoint by variable name: Keras 3 SavedModels may restore only copies of variables."""
        keys = [key for key, (name, _) in self.names_by_key.items() if name == variable.name]
        if self.restored is None or len(keys) != 1:
            raise NotRepresentable(
                "a variable is read that holds nothing",
                given=variable.name,
                do="export the model with its variables",
            )
        variable.role = self.names_by_key[keys[0]][1]
        return self.restored(keys[0])

    def variable(self, name: str, array: Any) -> Value:
        """A variable of the graph with this name, made unique."""
        return self.graph.variable(self._free(name), np.asarray(array))

    def _free(self, name: str) -> str:
        taken, unique, count = self.reserved.union(self.graph.names()), name, 0
        while unique in taken:
            count += 1
            unique = f"{name}_{count}"
        return unique

    def add_outputs(self) -> None:
        """Add outputs for the contents of variables after a call."""
        for variable, content in self.changed().items():
            source = self.sources[variable]
            if source.role is None:
                source.role = Role("buffer")
            self.graph.output(f"{source.name}_next", ops.identity(content))

    def add_defaults(self, graph: Graph) -> None:
        """Set the defaults of inputs of a transformed graph: the contents of variables before the first call."""
        changed = {self.sources[variable].name for variable in self.changed()}
        roles = {source.name: source.role for source in self.sources.values()}
        for name, array in self.defaults.items():
            value = graph.find(name)
            value.data, value.role = array, roles[name]
            if name not in changed:
                graph.all_inputs.remove(value)


def build_until_stable(build: Callable[[frozenset[str]], State]) -> State:
    """Build a graph again until all changing variables are known, so that their initial contents are not folded."""
    mutable: frozenset[str] = frozenset()
    while True:
        state = build(mutable)
        changed = frozenset(variable.name for variable in state.changed())
        if changed <= mutable:
            return state
        mutable |= changed
