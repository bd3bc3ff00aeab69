"""Batches of data loaders and datasets of PyTorch, Keras and Hugging Face, and of generators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import InvalidFeed

Array = np.ndarray[Any, Any]


class Samples:
    """Base class of lazily read samples.

    Indexing with an array of positions returns an array; ``shape[0]`` is the number of samples.
    """

    shape: tuple[int, ...]

    def __getitem__(self, chosen: Array) -> Array:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)


class _Generated:
    """Batches of a function that is called for each epoch."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self._make())


class _Indexed:
    """Batches of a Keras ``PyDataset``, which is indexed, and shuffled at the end of an epoch."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Any]:
        getattr(self._source, "on_epoch_begin", lambda: None)()
        yield from (self._source[k] for k in range(len(self._source)))
        self._source.on_epoch_end()


class _MapDataset:
    """Batches of a dataset that is indexed by sample, in an order determined by seed and epoch."""

    def __init__(self, source: Any, *, batch_size: int, shuffle: bool, seed: int) -> None:
        self._source, self._size, self._shuffle, self._seed, self._epoch = source, batch_size, shuffle, seed, 0

    def __len__(self) -> int:
        return -(-len(self._source) // self._size)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(len(self._source))
        if self._shuffle:
            np.random.default_rng([self._seed, self._epoch]).shuffle(order)
        for start in range(0, len(order), self._size):
            yield _collated([self._source[int(k)] for k in order[start : start + self._size]])


class _Column(Samples):
    """A column of a Hugging Face ``datasets.Dataset``."""

    def __init__(self, source: Any, name: str) -> None:
        self._rows, self._name = source.select_columns([name]).with_format("numpy"), name
        self.shape = (len(source), *np.shape(self._rows[0][name]))

    def __getitem__(self, chosen: Array) -> Array:
        return np.asarray(self._rows[chosen.tolist()][self._name])


def as_data(source: Any, names: Sequence[str], labels: str | None, **cutting: Any) -> Any:
    """Convert ``source`` to arrays by name or an iterable of batches.

    A function is called for the batches of each epoch; a dataset that is indexed by sample is split as ``cutting``
    says. A ``tf.data.Dataset`` of samples is batched.
    """
    if hasattr(source, "element_spec") and hasattr(source, "batch") and _has_scalar(source.element_spec):
        return source.batch(cutting["batch_size"])
    if hasattr(source, "on_epoch_end") and hasattr(source, "__getitem__"):
        return _Indexed(source)  # the iterator of a PyDataset may be infinite
    if isinstance(source, Mapping | Iterable) and not hasattr(source, "column_names"):
        return source
    if hasattr(source, "select_columns") and len(source):
        columns = list(source.column_names)
        wanted = [name for name in columns if name in (*names, labels)]
        others = [name for name in columns if name not in wanted]
        chosen = wanted if labels is None or labels in wanted or len(others) != 1 else [*wanted, *others]
        return {name: _Column(source, name) for name in chosen}
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return _MapDataset(source, **cutting)
    return _Generated(source) if callable(source) else source


def _has_scalar(spec: Any) -> bool:
    """Whether an element has a tensor without axes, so that it is a sample rather than a batch."""
    if isinstance(spec, Mapping | tuple | list):
        return any(map(_has_scalar, spec.values() if isinstance(spec, Mapping) else spec))
    return bool(getattr(getattr(spec, "shape", None), "rank", None) == 0)


def is_tensor(value: Any) -> bool:
    """Whether a value is a numpy array, or a tensor that can be converted to one."""
    return isinstance(value, np.ndarray | Samples) or (hasattr(value, "__array__") and hasattr(value, "shape"))


def as_array(value: Any) -> Any:
    """Convert to an array, also a PyTorch tensor on a device or with a gradient."""
    if isinstance(value, Samples):
        return value
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def flat_batch(batch: Sequence[Any], names: Sequence[str]) -> dict[str, Any] | None:
    """The values of a tuple by ``names``, or None if it does not fit.

    The inputs may be a nested tuple or mapping, as in Keras.
    """
    first, *rest = batch
    if isinstance(first, Mapping):
        left = [name for name in names if name not in first]
        return {**first, **dict(zip(left, rest, strict=True))} if len(left) == len(rest) else None
    if isinstance(first, tuple | list) and rest and len(first) + len(rest) == len(names):
        return dict(zip(names, [*first, *rest], strict=True))
    return dict(zip(names, batch, strict=True)) if len(batch) == len(names) else None


def _collated(samples: Sequence[Any]) -> Any:
    """Samples as one batch: tuples and mappings of stacked arrays."""
    first = samples[0]
    try:
        if isinstance(first, Mapping):
            return {name: _collated([sample[name] for sample in samples]) for name in first}
        if isinstance(first, tuple | list):
            return tuple(_collated(parts) for parts in zip(*samples, strict=True))
        return np.stack([as_array(sample) for sample in samples])
    except (ValueError, KeyError) as error:
        raise InvalidFeed(
            "samples of one batch differ in shape or names", given=str(error), do="pad them to one length"
        ) from error
