"""Batches: from arrays, or from anything that can be gone through once an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tenonnx.extend import InvalidFeed

#: Arrays by name, a pair (input, labels), or an iterable of batches in either form.
Data = Any

Batch = dict[str, Any]

Array = np.ndarray[Any, Any]


class Samples:
    """Samples that are read when a batch wants them, for classes of one's own to begin with.

    Indexed by an array of positions, they give an array; ``shape`` begins with how many there are.
    """

    shape: tuple[int, ...]

    def __getitem__(self, chosen: Array) -> Array:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Batches:
    """Batches of ``data``, anew for every epoch.

    Arrays, or ``Samples``, are cut into batches of ``batch_size`` samples along their first axis, in an order that
    ``seed`` and the epoch decide if ``shuffle``; an iterable gives whole batches in its own order. ``inputs`` are the
    names that a model takes; in a mapping the one other name is that of the labels, and what is called ``labels`` in a
    batch.
    """

    def __init__(
        self, data: Data, inputs: Iterable[str], labels: str | None, *, batch_size: int, shuffle: bool, seed: int
    ) -> None:
        self._inputs, self._labels = list(inputs), labels
        self._batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self._arrays: Batch | None = None
        self._source = data
        if _holds_arrays(data):
            given = _as_arrays(data if isinstance(data, Mapping) else self._named(data))
            self._samples = _common_length(given)
            self._arrays = self._named(given)
        elif not isinstance(data, Iterable):
            raise InvalidFeed(
                "data must be arrays by name, a tuple of arrays, or an iterable of batches", given=type(data).__name__
            )

    def count(self, skip: int) -> int | None:
        """How many batches an epoch has without its first ``skip`` samples, None where that is not known."""
        if self._arrays is not None:
            return max(-(-(self._samples - skip) // self._batch_size), 0)
        return len(self._source) if hasattr(self._source, "__len__") and not skip else None

    def epoch(self, number: int, *, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch without the first ``skip`` samples.

        Raises ``InvalidFeed`` if the epoch has no batches at all, and where a batch that is given whole begins among
        the samples to skip and ends behind them.
        """
        if self._arrays is not None:
            yield from self._cut(number, skip)
            return
        passed, empty = 0, True
        for batch in map(self._named, self._source):
            samples = samples_of(batch)
            if not samples:
                continue
            empty = False
            if passed >= skip:
                yield batch
                continue
            passed += samples
            if passed > skip:
                raise InvalidFeed(
                    f"epoch {number + 1} was interrupted after {skip} samples, and batches must be split there, too",
                    given=f"batches, the first of which have {passed} samples",
                    do="give batches of the same size as before, or arrays",
                )
        if empty:
            raise InvalidFeed(
                f"the data has no batches in epoch {number + 1}",
                given="an iterator that is exhausted" if number else "no data",
                do="give arrays, a list, or an object whose __iter__ begins anew",
            )

    def _cut(self, number: int, skip: int) -> Iterator[Batch]:
        assert self._arrays is not None
        order = np.arange(self._samples)
        if self._shuffle:
            np.random.default_rng([self._seed, number]).shuffle(order)
        for start in range(skip, self._samples, self._batch_size):
            chosen = order[start : start + self._batch_size]
            yield {name: array[chosen] for name, array in self._arrays.items()}

    def _named(self, batch: Any) -> Batch:
        """A batch by the names of the graph."""
        if isinstance(batch, tuple | list) and len(batch) == len(self._inputs) + (self._labels is not None):
            return dict(zip([*self._inputs, *([self._labels] if self._labels else [])], batch, strict=True))
        if not isinstance(batch, Mapping):
            wanted = ", ".join([*self._inputs, *([self._labels] if self._labels else [])])
            raise InvalidFeed(
                "a batch must be a mapping of names to arrays, or a tuple of arrays in the order of the names",
                given=type(batch).__name__ + (f" of {len(batch)}" if hasattr(batch, "__len__") else ""),
                available=wanted,
                do="give all samples at once as a tuple of numpy arrays, or as a mapping",
            )
        named = dict(batch)
        others = [name for name in named if name not in self._inputs]
        if self._labels is not None and self._labels not in named:
            if len(others) != 1:
                raise InvalidFeed(
                    f'data must hold the labels: "{self._labels}", or one array beside the model\'s inputs',
                    given=", ".join(map(str, named)) or "nothing",
                    available=f"inputs: {', '.join(self._inputs)}",
                )
            named[self._labels] = named.pop(others[0])
        return named


def _holds_arrays(data: Data) -> bool:
    parts = data if isinstance(data, tuple) else ()
    return isinstance(data, Mapping) or (bool(parts) and all(isinstance(part, np.ndarray | Samples) for part in parts))


def _as_arrays(data: Mapping[str, Any]) -> dict[str, Array | Samples]:
    arrays: dict[str, Array | Samples] = {}
    for name, rows in data.items():
        try:
            arrays[name] = rows if isinstance(rows, Samples) else np.asarray(rows)
        except ValueError as error:
            raise InvalidFeed(f'"{name}" must be an array, or rows of equal lengths', given=str(error)) from error
    return arrays


def _common_length(arrays: Mapping[str, Any]) -> int:
    lengths = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or min(lengths.values()) < 1:
        raise InvalidFeed(
            "all arrays must have the same number of samples along their first axis, at least one",
            given=", ".join(f"{name}: {list(arrays[name].shape)}" for name in arrays),
        )
    return next(iter(lengths.values()))


def samples_of(batch: Mapping[str, Any]) -> int:
    """How many samples a batch has: the length of its first array."""
    first = next(iter(batch.values()))
    first = first if isinstance(first, Samples) else np.asarray(first)
    return len(first) if first.ndim else 1
