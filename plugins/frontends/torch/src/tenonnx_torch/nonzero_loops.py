"""Loops over the nonzero entries of a tensor, such as the experts that some token selects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tenonnx_torch.indexing import get_item

#: Attributes of tensors: the number of entries that ``nonzero`` tested, and an index that a loop takes from them.
_TESTED, _PLACE = "tenonnx_tested", "tenonnx_place"

#: Maximum number of iterations.
_MOST = 1024


@dataclass
class _Iteration:
    """An iteration that is being traced; ``selects`` whether it has selected rows."""

    selects: bool = False


#: Iterations that are being traced, of nested loops.
_ACTIVE: list[_Iteration] = []


def nonzero(x: Tensor, *args: Any, **keywords: Any) -> Any:
    """``torch.nonzero``, whose indices of a vector can be iterated over in a trace."""
    _note_selection()
    result = torch.nonzero(x, *args, **keywords)
    if isinstance(result, Tensor) and x.ndim == 1 and isinstance(x.shape[0], int) and x.shape[0] <= _MOST:
        setattr(result, _TESTED, x.shape[0])
    return result


def where(*args: Any, **keywords: Any) -> Any:
    """``torch.where``, which selects rows if its only argument is a condition."""
    if len(args) + len(keywords) == 1:
        _note_selection()
    return torch.where(*args, **keywords)


def _note_selection() -> None:
    if _ACTIVE:
        _ACTIVE[-1].selects = True


def unbind(x: Tensor, dim: int = 0) -> Any:
    """``torch.unbind``; for nonzero indices all indices, since a trace does not know which ones are nonzero.

    Iterations for the others select no rows, so that they change nothing. Raises ``RuntimeError`` in a loop that
    selects none.
    """
    tested = getattr(x, _TESTED, None)
    return torch.unbind(x, dim) if tested is None or dim != 0 else _indices(tested)


def _indices(count: int) -> Iterator[Tensor]:
    for place in range(count):
        iteration = _Iteration()
        _ACTIVE.append(iteration)
        try:
            yield _marked(torch.tensor([place]), place)
        finally:
            _ACTIVE.pop()
        if not iteration.selects:
            raise RuntimeError("a loop over nonzero entries selects no rows by them")  # reported with its line


def _marked(x: Tensor, place: int) -> Tensor:
    setattr(x, _PLACE, place)
    return x


def getitem(x: Tensor, index: Any) -> Any:
    """``x[index]``, which keeps the mark of an index."""
    result = get_item(x, index)
    return _marked(result, getattr(x, _PLACE)) if hasattr(x, _PLACE) else result


def select(x: Tensor, dim: int, index: int) -> Tensor:
    """``torch.select``; in such a loop an index beyond the end is the last one, since it cannot select any rows."""
    last = x.shape[dim] - 1
    beyond = _ACTIVE and isinstance(index, int) and isinstance(last, int) and index > last
    return torch.select(x, dim, last if beyond else index)


def numel(x: Tensor) -> int:
    """``torch.numel``; in such a loop rows of unknown number are not empty, since empty ones are skipped."""
    result = torch.numel(x)
    if _ACTIVE and isinstance(result, torch.SymInt):
        torch._check(result != 0)
    return result


def formatted(x: Tensor, spec: str) -> str:
    """Format an index, as in the name of an expert's module."""
    return format(getattr(x, _PLACE), spec) if hasattr(x, _PLACE) else Tensor.__format__(x, spec)


#: Replacements of PyTorch's functions.
NONZERO: Mapping[Any, Callable[..., Any]] = {
    torch.nonzero: nonzero,
    Tensor.nonzero: nonzero,
    torch.unbind: unbind,
    Tensor.unbind: unbind,
    torch.where: where,
    torch.numel: numel,
    Tensor.numel: numel,
    Tensor.__getitem__: getitem,
    torch.select: select,
    Tensor.__format__: formatted,
}


@contextlib.contextmanager
def without_conversions() -> Iterator[None]:
    """Skip conversions of modules that change nothing, such as to their own dtype, since a trace rejects them."""
    kind: Any = nn.Module
    apply = kind._apply

    def converted(self: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        held = [*self.parameters(recurse), *self.buffers(recurse)]
        result: nn.Module = self if all(function(x) is x for x in held) else apply(self, function, recurse)
        return result

    kind._apply = converted
    try:
        yield
    finally:
        kind._apply = apply
