"""PyTorch's own samples of its operators (OpInfo) as modules."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import Apply

#: Number of samples of an operator to look at, and number to select evenly among them.
LOOKED_AT, TAKEN = 60, 3


@functools.cache
def operators() -> dict[str, Any]:
    """PyTorch's OpInfo by name and variant, except operators that draw random numbers without a seed."""
    from torch.testing._internal import common_methods_invocations as known

    known.wrapper_set_seed = lambda operator, *arguments, **keywords: operator(*arguments, **keywords)
    return {f"{info.name}.{info.variant_test_name}".rstrip("."): info for info in known.op_db}


def dtype_of(info: Any) -> torch.dtype:
    """float32 if the operator supports it."""
    known = info.supported_dtypes("cpu")
    return next(d for d in (torch.float32, torch.int64, torch.bool, *known) if d in known)


def samples(name: str, taken: int = TAKEN) -> Iterator[tuple[Apply, tuple[Any, ...]]]:
    """Modules that call the operator with one sample each, and the sample's tensors."""
    info = operators()[name]
    torch.manual_seed(0)
    result = [
        sample
        for sample in itertools.islice(info.sample_inputs("cpu", dtype_of(info), requires_grad=False), LOOKED_AT)
        if any(
            isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        )
    ]
    for place in sorted({round(k * (len(result) - 1) / max(taken - 1, 1)) for k in range(min(taken, len(result)))}):
        yield _as_module(info.op, result[place])


def _as_module(operator: Any, sample: Any) -> tuple[Apply, tuple[Any, ...]]:
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def compute(*tensors: torch.Tensor) -> Any:
        held = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            held[place] = tensor
        arguments, keywords = pytree.tree_unflatten(held, spec)
        return operator(*arguments, **keywords)

    return Apply(compute), tuple(leaves[place].detach() for place in places)
