"""Calls of a source at several sizes of its dynamic dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tenonnx.extend.checks import WorkerEnded
from tenonnx_frontends.verification import SourceCall, one_line

#: Sizes to try in place of sizes that the source rejects: kernels, strides and halvings need larger ones.
_LARGER = (3, 4, 8, 12, 16, 32, 48, 64, 96, 128)


class SizedCalls:
    """Calls of a source at several sizes, each made once.

    ``make`` returns the feeds of the graph at these sizes of dims, and a function that computes the source's outputs.
    An error of that function means that the source rejects the size.
    """

    def __init__(self, make: Callable[[Mapping[str, int]], tuple[Mapping[str, Any], Callable[[], list[Any]]]]) -> None:
        self._make = make
        self._calls: dict[frozenset[tuple[str, int]], tuple[Mapping[str, Any], list[Any], Exception | None]] = {}

    def calls_at(self, wanted: Sequence[Mapping[str, int]]) -> Iterator[SourceCall]:
        """Calls at the wanted sizes, of which the first are those of the examples.

        For a size that the source rejects, the smallest larger size that it accepts is added.
        """
        first = base = wanted[0]
        for each in wanted:
            varied = [name for name in each if each[name] != first[name]]
            sizes = {**base, **{name: each[name] for name in varied}}
            yield self._call(sizes)
            if self._takes(sizes):
                continue
            varied = varied or list(sizes)
            varied = [name for name in varied if name != "batch"] or varied
            most = max((first[name] for name in varied), default=0)
            for size in dict.fromkeys((*_LARGER, 2 * most, 3 * most)) if varied else ():
                larger = {**sizes, **dict.fromkeys(varied, size)}
                if frozenset(larger.items()) not in self._calls and self._takes(larger):
                    base = larger if each is first else base
                    yield self._call(larger)
                    break

    def why_fixed(self, name: str, source: str) -> str:
        """Reason why a dim is static, namely that the source accepts only one size; else empty."""
        failures = [(dict(key).get(name), error) for key, (_, _, error) in self._calls.items()]
        taken = {size for size, error in failures if error is None}
        refused = [
            (size, error)
            for size, error in failures
            if error is not None and size not in taken and not isinstance(error, WorkerEnded)
        ]
        if len(taken) != 1 or not refused:
            return ""
        size, error = refused[0]
        return f'"{name}" cannot vary: {source} takes {taken.pop()} alone; at {size}: {one_line(error)}'

    def _call(self, sizes: Mapping[str, int]) -> SourceCall:
        def expected() -> Sequence[Any]:
            _, result, error = self._call_at(sizes)
            if error is not None:
                raise error
            return result

        where = ", ".join(f"{dim}={size}" for dim, size in sizes.items())
        return SourceCall(lambda: self._call_at(sizes)[0], expected, where)

    def _takes(self, sizes: Mapping[str, int]) -> bool:
        return self._call_at(sizes)[2] is None

    def _call_at(self, sizes: Mapping[str, int]) -> tuple[Mapping[str, Any], list[Any], Exception | None]:
        key = frozenset(sizes.items())
        if key not in self._calls:
            feeds, compute = self._make(sizes)
            try:
                self._calls[key] = feeds, compute(), None
            except Exception as error:  # the source rejects these feeds
                self._calls[key] = feeds, [], error
        return self._calls[key]
