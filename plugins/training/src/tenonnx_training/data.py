"""Batches from arrays, or from an iterable that is restarted every epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tenonnx.extend import InvalidFeed
from tenonnx_data.loaders import Samples, as_array, as_data, flat_batch, is_tensor

#: Arrays by name, a tuple (inputs ..., labels), an iterable of batches in either form, or anything that ``as_data``
#: takes.
Data = Any

Batch = dict[str, Any]

Array = np.ndarray[Any, Any]


def _epoch_setter(source: Any) -> Callable[[int], object] | None:
    """``set_epoch`` of a loader or of its sampler, with which PyTorch reshuffles each epoch."""
    for each in (source, getattr(source, "sampler", None)):
        if callable(result := getattr(each, "set_epoch", None)):
            return result  # type: ignore[no-any-return]
    return None


class Batches:
    """Batches of ``data`` for every epoch.

    Arrays, or ``Samples``, are cut into batches of ``batch_size`` samples along their first axis; ``shuffle`` permutes
    them by ``seed`` and epoch. An iterable yields complete batches in its own order. ``inputs`` are the names of the
    model's inputs. In a mapping, the only other name is that of the labels, which a batch calls ``labels``. ``weights``
    is the name of the sample weights, which are last in a tuple.
    """

    def __init__(
        self,
        data: Data,
        inputs: Iterable[str],
        labels: str | None,
        weights: str | None = None,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
    ) -> None:
        self._weights = [] if weights is None else [weights]
        self._inputs, self._labels = list(inputs), labels
        data = as_data(data, [*self._inputs, *self._weights], labels, batch_size=batch_size, shuffle=shuffle, seed=seed)
        self._batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self._arrays: Batch | None = None
        self._source = data
        if _holds_arrays(data):
            given = _as_arrays(data if isinstance(data, Mapping) else self._named(data))
            self._samples = _common_length(given)
            self._arrays = self._named(given)
        elif not isinstance(data, Iterable):
            raise InvalidFeed("data is neither arrays nor an iterable of batches", given=type(data).__name__)

    @property
    def arrays(self) -> Mapping[str, Any]:
        """All samples by name; empty where the data is an iterable of batches."""
        return self._arrays or {}

    @property
    def repeats(self) -> bool:
        """Whether iterating an epoch again yields the same order."""
        return self._arrays is not None or _epoch_setter(self._source) is not None

    def count(self, skip: int) -> int | None:
        """Number of batches of an epoch without its first ``skip`` samples, None where unknown."""
        if self._arrays is not None:
            return max(-(-(self._samples - skip) // self._batch_size), 0)
        try:
            return None if skip else len(self._source)
        except TypeError:  # some loaders have a length only for certain data sets
            return None

    def epoch(self, number: int, *, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch without the first ``skip`` samples.

        Raises ``InvalidFeed`` if the epoch has no batches, and where ``skip`` ends within a batch of an iterable.
        """
        if self._arrays is not None:
            yield from self._cut(number, skip)
            return
        set_epoch = _epoch_setter(self._source)
        if set_epoch is not None:
            set_epoch(number)
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
                    f"cannot resume epoch {number + 1} after {skip} samples: no batch ends there",
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
        names = [*self._inputs, *([self._labels] if self._labels else []), *self._weights]
        if isinstance(batch, tuple | list) and batch and (found := flat_batch(batch, names)) is not None:
            return {name: as_array(value) for name, value in found.items()}
        if not isinstance(batch, Mapping):
            raise InvalidFeed(
                "a batch is neither a mapping of names to arrays nor a tuple of arrays for all names",
                given=type(batch).__name__ + (f" of {len(batch)}" if hasattr(batch, "__len__") else ""),
                available=", ".join(names),
                do="give all samples at once as a tuple of numpy arrays, or as a mapping",
            )
        named = {name: as_array(value) for name, value in batch.items()}
        others = [name for name in named if name not in (*self._inputs, *self._weights)]
        if self._labels is not None and self._labels not in named:
            if len(others) != 1:
                raise InvalidFeed(
                    f'labels "{self._labels}" not found in the data',
                    given=", ".join(map(str, named)) or "nothing",
                    available=f"inputs: {', '.join(self._inputs)}",
                )
            named[self._labels] = named.pop(others[0])
        return named


def _holds_arrays(data: Data) -> bool:
    parts = data if isinstance(data, tuple) else ()
    return isinstance(data, Mapping) or (bool(parts) and all(is_tensor(part) for part in parts))


def _as_arrays(data: Mapping[str, Any]) -> dict[str, Array | Samples]:
    arrays: dict[str, Array | Samples] = {}
    for name, rows in data.items():
        try:
            arrays[name] = as_array(rows)
        except ValueError as error:
            raise InvalidFeed(f'"{name}" is not an array: its rows differ in length', given=str(error)) from error
    return arrays


def _common_length(arrays: Mapping[str, Any]) -> int:
    lengths = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or min(lengths.values()) < 1:
        raise InvalidFeed(
            "arrays differ in the number of samples, or have none",
            given=", ".join(f"{name}: {list(arrays[name].shape)}" for name in arrays),
        )
    return next(iter(lengths.values()))


def samples_of(batch: Mapping[str, Any]) -> int:
    """Number of samples of a batch: the length of its first array."""
    first = next(iter(batch.values()))
    first = first if isinstance(first, Samples) else np.asarray(first)
    return len(first) if first.ndim else 1
