"""A graph as one function of tensors, compiled by PyTorch as a single operator."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch

from tenonnx.extend import InvalidFeed, TensorType, Value
from tenonnx.extend.backends import check_feeds
from tenonnx_torch.autograd_bridge import exact
from tenonnx_torch.plan import Plan
from tenonnx_torch.values import NATIVE, is_traced, to_arrays, to_contents


class Whole:
    """A function from inputs by name and tensors of a plan to outputs; compiled programs refer to it by ``key``."""

    def __init__(self, plan: Plan, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self.plan, self._inputs, self._outputs = plan, inputs, outputs
        self.key = str(next(_COUNT))
        _BY_KEY[self.key] = self

    def __deepcopy__(self, memo: Any) -> Whole:
        return self  # it holds no state

    def __call__(self, given: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Run the graph. Raises ``InvalidFeed`` for feeds that do not match its inputs."""
        found = self.plan([_checked(value, given) for value in self._inputs], tensors)
        return tuple(exact(contents, value) for contents, value in zip(found, self._outputs, strict=True))


_COUNT = itertools.count()

_BY_KEY: WeakValueDictionary[str, Whole] = WeakValueDictionary()


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def run_whole(key: str, given: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Call the function of a key; hidden from the compiler, which cannot trace sizes as Python numbers."""
    return _BY_KEY[key](given, tensors)


def _checked(value: Value, given: Mapping[str, Any]) -> Any:
    """Check the type of one input; tensors are checked without a copy."""
    feed = given.get(value.name)
    kind = value.type
    if isinstance(feed, torch.Tensor) and isinstance(kind, TensorType) and NATIVE.get(kind.dtype) is feed.dtype:
        shape = kind.shape
        if shape is None or (
            len(shape) == feed.ndim
            and all(not isinstance(d, int) or d == n for d, n in zip(shape, feed.shape, strict=True))
        ):
            return feed
    if is_traced(feed):
        raise InvalidFeed(
            f'the example of input "{value.name}" has another type', given=_described(feed), available=str(kind)
        )
    feeds = {value.name: to_arrays(feed)} if value.name in given else {}
    (checked,) = check_feeds([value], feeds)
    return to_contents(checked)


def _described(feed: Any) -> str:
    return f"{str(feed.dtype).removeprefix('torch.')}{list(feed.shape)}" if isinstance(feed, torch.Tensor) else "none"
