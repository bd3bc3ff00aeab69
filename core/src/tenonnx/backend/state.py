"""Inputs that live in a program between its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from typing import Any

from tenonnx.backend.base import check_feeds
from tenonnx.errors import InvalidCall, InvalidFeed
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Program


class State(MutableMapping[str, Any]):
    """The inputs that live in a program, by name. What is read is a copy, and so is what a program keeps.

    ``hold`` makes what a program keeps of an array of the caller, ``show`` an array for the caller of that; ``held``
    has the kept contents.
    """

    def __init__(
        self,
        graph: Graph,
        names: Iterable[str],
        hold: Callable[[Any], Any] = deepcopy,
        show: Callable[[Any], Any] = deepcopy,
    ) -> None:
        wanted = set(names)
        self.inputs = {v.name: v for v in graph.all_inputs if v.name in wanted}
        self.held: dict[str, Any] = {}
        self._hold, self._show = hold, show
        for name, value in self.inputs.items():
            if value.data is not None:
                self.held[name] = hold(value.data.array())

    def __getitem__(self, name: str) -> Any:
        return self._show(self.held[name])

    def __setitem__(self, name: str, contents: Any) -> None:
        if name not in self.inputs:
            raise InvalidFeed(f'no state is called "{name}"', available=", ".join(self.inputs))
        self.held[name] = self._hold(check_feeds([self.inputs[name]], {name: contents})[0])

    def __delitem__(self, name: str) -> None:
        raise InvalidCall(f'state "{name}" cannot be taken out of a program', do="set it to other contents")

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def check_set(self, feeds: Mapping[str, Any]) -> None:
        """Raise ``InvalidFeed`` if a state has no contents yet and is not fed either."""
        if len(self.held) < len(self.inputs):
            missing = [name for name in self.inputs if name not in self.held and name not in feeds]
            if missing:
                raise InvalidFeed(
                    f'state "{missing[0]}" must be set before the first call', do=f"program.state[{missing[0]!r}] = ..."
                )


class MovingState(MutableMapping[str, Any]):
    """The state of whichever program has it at the moment."""

    def __init__(self, held: Callable[[], MutableMapping[str, Any]]) -> None:
        self._held = held

    def __getitem__(self, name: str) -> Any:
        return self._held()[name]

    def __setitem__(self, name: str, contents: Any) -> None:
        self._held()[name] = contents

    def __delitem__(self, name: str) -> None:
        del self._held()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())


class Results(dict[str, Any]):
    """The outputs by name. Those that the program keeps as state are copied (``show``) when they are read.

    ``replaced`` has the new state by input.
    """

    def __init__(self, names: Iterable[str], show: Callable[[Any], Any] = deepcopy) -> None:
        super().__init__(dict.fromkeys(names))
        self._show = show
        self.replaced: Mapping[str, Any] = {}
        self._unread: dict[str, Any] = {}

    def keep(self, kept: Mapping[str, Any], replaced: Mapping[str, Any]) -> None:
        self.replaced = replaced
        self._unread = dict(kept)

    def take(self) -> None:
        """Copy what is not copied yet."""
        for name, value in self._unread.items():
            super().__setitem__(name, self._show(value))
        self._unread = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._unread:
            super().__setitem__(name, self._show(self._unread.pop(name)))
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:  # also keeps dict(results) and **results from reading past __getitem__
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        self.take()
        return super().get(name, default)

    def values(self) -> Any:
        self.take()
        return super().values()

    def items(self) -> Any:
        self.take()
        return super().items()

    def pop(self, name: str, *default: Any) -> Any:
        self.take()
        return super().pop(name, *default)

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)


class StatefulProgram:
    """Keeps some inputs between calls: each is replaced by an output after every call that succeeds.

    ``program`` gives arrays that nobody writes again, so they are the new state as they are.
    """

    def __init__(self, program: Program, graph: Graph, state: Mapping[str, str]) -> None:
        self.backend = program.backend
        self.state = State(graph, state)
        self._run = program
        self._outputs = [value.name for value in graph.outputs]
        self._names = dict(state)

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        self.state.check_set(feeds)
        found = self._run({**self.state.held, **feeds})
        kept = {output: found.pop(output) for output in set(self._names.values())}
        results = Results(self._outputs)
        results.update(found)
        results.keep(kept, {name: kept[output] for name, output in self._names.items()})
        self.state.held.update(results.replaced)
        return results


def check_state(graph: Graph, state: Mapping[str, str]) -> None:
    """Raise ``InvalidCall`` unless every state input and the output that replaces it exist."""
    inputs, outputs = {v.name for v in graph.all_inputs}, {v.name for v in graph.outputs}
    for name, output in state.items():
        if name not in inputs or output not in outputs:
            wrong, known = (name, inputs) if name not in inputs else (output, outputs)
            raise InvalidCall(
                f'state must map graph inputs to graph outputs; "{wrong}" is none', available=", ".join(sorted(known))
            )
