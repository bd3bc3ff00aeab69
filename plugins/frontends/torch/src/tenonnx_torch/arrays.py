"""Conversion between arrays of any library and tensors on a device, by DLPack."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tenonnx.extend import InvalidFeed, TensorType, Value
from tenonnx.extend.backends import FeedCheck, StateFeedCheck, check_feeds
from tenonnx_torch.values import NATIVE, tensors_in, to_arrays


def is_foreign(array: Any) -> bool:
    """Whether an object is an array of a library other than numpy."""
    return hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray | np.generic)


def as_tensor(array: Any) -> Any:
    """An array as a tensor that shares its memory; as a numpy array where PyTorch lacks the element type."""
    if isinstance(array, torch.Tensor):
        return array.detach() if array.layout is torch.strided else array.detach().to_dense()
    try:
        return torch.from_dlpack(array)
    except (RuntimeError, TypeError, ValueError, BufferError):
        return np.asarray(array)


def giver(feeds: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Converter of tensors to arrays of the first library among the feeds other than numpy; else to numpy."""
    for feed in feeds.values():
        if isinstance(feed, torch.Tensor):
            return lambda tensor: tensor
        if is_foreign(feed):
            space = feed.__array_namespace__() if hasattr(feed, "__array_namespace__") else None
            space = space or sys.modules[type(feed).__module__.partition(".")[0]]
            return lambda tensor: space.from_dlpack(tensor.contiguous()) if isinstance(tensor, torch.Tensor) else tensor
    return to_arrays


class TensorFeeds:
    """``FeedCheck`` for feeds that may be tensors on a device, which it checks without copying."""

    def __init__(self, inputs: Sequence[Value], state: Collection[str] = ()) -> None:
        self._inputs = {value.name: value for value in inputs}
        self._state = frozenset(state)
        self._check: Any = FeedCheck(list(inputs))

    @classmethod
    def without_state(cls, graph: Any, state: Collection[str]) -> TensorFeeds:
        """A check of feeds for a graph in which the inputs in ``state`` are optional."""
        result = cls(graph.inputs, state)
        result._check = StateFeedCheck(graph, state)
        return result

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The checked feeds by name. Raises ``InvalidFeed`` as ``check_feeds`` does."""
        tensors = {} if not isinstance(feeds, Mapping) else {k: as_tensor(v) for k, v in feeds.items() if is_foreign(v)}
        if not tensors:
            return self._named(self._check(feeds), feeds)
        shown = {name: self._shown(name, tensors.get(name, feed)) for name, feed in feeds.items()}
        away = any(t.device.type != "cpu" for t in tensors.values() if isinstance(t, torch.Tensor))
        found = self._named(self._stand_ins(shown) if away else self._check(shown), shown)
        same = {name for name in tensors if found.get(name) is shown[name]}  # the others were cast
        return {name: tensors[name] if name in same else array for name, array in found.items()}

    def _stand_ins(self, shown: Mapping[str, Any]) -> Any:
        """The checks of types and shapes only: contents on a device are not read."""
        needed = [v for name, v in self._inputs.items() if name in shown or name not in self._state]
        return dict(zip([v.name for v in needed], check_feeds(needed, shown), strict=True))

    def _named(self, found: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return found if isinstance(found, dict) else dict(zip(self._inputs, found, strict=True))

    def _shown(self, name: str, feed: Any) -> Any:
        """An array of the same shape and dtype: the tensor's own on the CPU, else one without contents."""
        if not isinstance(feed, torch.Tensor):
            return feed
        if feed.device.type == "cpu":
            return to_arrays(feed)
        value = self._inputs.get(name)
        kind = None if value is None else value.type
        if isinstance(kind, TensorType) and NATIVE.get(kind.dtype) is feed.dtype:
            return np.broadcast_to(np.zeros((), kind.dtype.numpy), tuple(feed.shape))
        raise InvalidFeed(
            f'input "{name}" got a feed that is not {kind}' if value is not None else f'no input is called "{name}"',
            given=f"a tensor of {feed.dtype} of shape {list(feed.shape)} on {feed.device}",
        )


class Owned:
    """Copies results that share memory with feeds, constants, states or other outputs."""

    def __init__(self, kept: Iterable[Any]) -> None:
        self._protected = {_memory(t) for each in kept for t in tensors_in(each)}

    def __call__(self, results: Sequence[Any], feeds: Iterable[Any]) -> list[Any]:
        taken = self._protected.union(_memory(t) for each in feeds for t in tensors_in(each))
        return [self._own(each, taken) for each in results]

    def _own(self, content: Any, taken: set[Any]) -> Any:
        if isinstance(content, list):
            return [self._own(each, taken) for each in content]
        if isinstance(content, torch.Tensor):
            place = _memory(content)
            if place in taken:
                return content.clone()
            taken.add(place)
            return content
        return content.copy() if isinstance(content, np.ndarray) else content


def _memory(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()._cdata if tensor.device.type == "meta" else tensor.untyped_storage().data_ptr()
