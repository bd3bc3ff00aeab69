"""Program state: inputs that a program keeps between calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from typing import Any

from tenonnx.errors import InvalidCall, InvalidFeed, did_you_mean, listing
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Bindable
from tenonnx.transforms.default_inputs import opened
from tenonnx_run.feeds import FeedCheck, check_feeds
from tenonnx_run.input_defaults import Defaults


class State(MutableMapping[str, Any]):
    """The state of a program, by input name. Reading and assigning copy.

    ``hold`` converts an array of the caller to what the program keeps, ``show`` converts it back; ``arrays`` are the
    kept contents.
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
        self.arrays: dict[str, Any] = {n: hold(v.data.array()) for n, v in self.inputs.items() if v.data is not None}
        self._hold, self._show = hold, show

    def __getitem__(self, name: str) -> Any:
        return self._show(self.arrays[name])

    def __setitem__(self, name: str, contents: Any) -> None:
        if name not in self.inputs:
            do = did_you_mean(name, self.inputs)
            raise InvalidFeed(f'no state is called "{name}"', available=listing(self.inputs), do=do)
        self.arrays[name] = self._hold(check_feeds([self.inputs[name]], {name: contents})[0])

    def __delitem__(self, name: str) -> None:
        raise InvalidCall(f'state "{name}" cannot be deleted', do="assign other contents to it")

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def check_set(self, feeds: Mapping[str, Any]) -> None:
        """Raise ``InvalidFeed`` if a state input has no contents yet and is not fed."""
        if len(self.arrays) < len(self.inputs):
            missing = [name for name in self.inputs if name not in self.arrays and name not in feeds]
            if missing:
                raise InvalidFeed(
                    f'state "{missing[0]}" is not set before the first call', do=f"program.state[{missing[0]!r}] = ..."
                )


class MovingState(MutableMapping[str, Any]):
    """The state of the program that currently holds it."""

    def __init__(self, arrays: Callable[[], MutableMapping[str, Any]]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Any:
        return self._arrays()[name]

    def __setitem__(self, name: str, contents: Any) -> None:
        self._arrays()[name] = contents

    def __delitem__(self, name: str) -> None:
        del self._arrays()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays())

    def __len__(self) -> int:
        return len(self._arrays())


class Results(MutableMapping[str, Any]):
    """Outputs by name. Those that the program keeps as state are copied on first access."""

    def __init__(self, names: Iterable[str], show: Callable[[Any], Any] = deepcopy) -> None:
        self._outputs: dict[str, Any] = dict.fromkeys(names)
        self._show = show
        self.replaced: Mapping[str, Any] = {}
        self._unread: dict[str, Any] = {}

    def keep(self, kept: Mapping[str, Any], replaced: Mapping[str, Any]) -> None:
        """Set the outputs ``kept``, which are copied (``show``) on access, and the new state by input."""
        self.replaced = replaced
        self._unread = dict(kept)

    def take(self) -> None:
        """Copy all outputs that were not accessed yet."""
        for name in list(self._unread):
            self[name]

    def __getitem__(self, name: str) -> Any:
        if name in self._unread:
            self._outputs[name] = self._show(self._unread.pop(name))
        return self._outputs[name]

    def __setitem__(self, name: str, contents: Any) -> None:
        self._unread.pop(name, None)
        self._outputs[name] = contents

    def __delitem__(self, name: str) -> None:
        self._unread.pop(name, None)
        del self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def copy(self) -> dict[str, Any]:
        return dict(self)


#: Function that computes one call: maps the kept state and the feeds to the outputs, which carry the new state.
Turn = Callable[[Mapping[str, Any], Mapping[str, Any]], Results]


class StatefulProgram(Bindable):
    """Program that keeps some inputs between calls: each is replaced by an output after every successful call.

    ``make(graph)`` returns the function that computes a call. It takes the kept state and the feeds by name, checks the
    feeds (``StateFeedCheck``), and returns ``Results`` after calling its ``keep``. ``hold`` converts an array of the
    caller to what is kept, ``show`` converts it back.
    """

    def __init__(
        self,
        backend: str,
        graph: Graph,
        state: Mapping[str, str],
        make: Callable[[Graph], Turn],
        hold: Callable[[Any], Any] = deepcopy,
        show: Callable[[Any], Any] = deepcopy,
    ) -> None:
        check_state(graph, state)
        self.backend = backend
        self._turns = Defaults(opened(graph, state), make)
        self.state = State(graph, state, hold, show)

    def __call__(self, feeds: Mapping[str, Any]) -> Any:
        """The outputs by name, as a mapping that copies state on access."""
        self.state.check_set(feeds)
        if self._turns.are_fed(feeds):
            results = self._turns.open(self.state.arrays, self._turns.complete(feeds))
        else:
            results = self._turns.closed(self.state.arrays, feeds)
        self.state.arrays.update(results.replaced)
        return results


class StateFeedCheck:
    """``FeedCheck`` for a graph with ``state`` inputs, which need not be fed."""

    def __init__(self, graph: Graph, state: Collection[str]) -> None:
        self._inputs, self._state = graph.inputs, frozenset(state)
        self._check = FeedCheck([value for value in graph.inputs if value.name not in state])

    def __call__(self, feeds: Mapping[str, Any]) -> MutableMapping[str, Any]:
        check = self._check
        if not self._state.isdisjoint(feeds):
            check = FeedCheck([v for v in self._inputs if v.name not in self._state or v.name in feeds])
        return {value.name: array for value, array in zip(check.all_inputs, check(feeds), strict=True)}


def check_state(graph: Graph, state: Mapping[str, str]) -> None:
    """Raise ``InvalidCall`` unless every state input and the output that replaces it exist."""
    inputs, outputs = {v.name for v in graph.all_inputs}, {v.name for v in graph.outputs}
    for name, output in state.items():
        if name not in inputs or output not in outputs:
            wrong, known, kind = (name, inputs, "input") if name not in inputs else (output, outputs, "output")
            raise InvalidCall(
                f'no graph {kind} "{wrong}" for state',
                available=", ".join(sorted(known)),
                do=did_you_mean(wrong, known),
            )
