"""Operations on empty tensors and scalars, for which the exporter writes wrong nodes.

ONNX ops accept no axis of a scalar and define no mean of no elements. Runtimes drop the addend of a Gemm whose inner
size is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def is_degenerate(node: Any) -> bool:
    """Whether an operation of a program has an argument without elements or axes, or computes a variance."""
    examples = [argument.meta.get("val") for argument in node.all_input_nodes]
    empty = any(isinstance(x, torch.Tensor) and (not x.ndim or count(x.shape) == 0) for x in examples)
    return empty or getattr(node.target, "_opname", "") in _VARIANCES


def count(sizes: Sequence[Any]) -> int | None:
    """Number of elements; None if it is dynamic."""
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return 0
    known = all(isinstance(size, int) for size in sizes)
    return int(torch.Size(sizes).numel()) if known else None


def _axes(x: Tensor, dim: Any) -> list[int]:
    given = range(x.ndim) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    return sorted({axis % max(x.ndim, 1) for axis in given})


# ----- axes of scalars ------------------------------------------------------------------------------------------------


def _of_scalar(operator: Any) -> Callable[..., Any]:
    """Replace a scalar by a tensor of one element for the operation; other tensors are not affected."""
    names = [argument.name for argument in operator._schema.arguments]
    defaults = {argument.name: argument.default_value for argument in operator._schema.arguments}

    def computed(x: Tensor, *arguments: Any, **keywords: Any) -> Any:
        given = dict(zip(names[1:], arguments, strict=False)) | keywords
        if x.ndim or given.get("dim", defaults["dim"]) is None:
            return NotImplemented
        keywords = {**given, "dim": 0 if isinstance(given.get("dim", defaults["dim"]), int) else [0]}
        found = operator(x.reshape(1), **keywords)
        return found.reshape(()) if isinstance(found, Tensor) else tuple(each.reshape(()) for each in found)

    return computed


# ----- moments of no or one element -----------------------------------------------------------------------------------


def _mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    axes = _axes(x, dim)
    if not x.ndim:
        return x.to(dtype or x.dtype)
    if count([x.shape[axis] for axis in axes]) != 0:
        return NotImplemented
    return torch.full_like(x.sum(axes, keepdim), torch.nan, dtype=dtype)


def _variance(x: Tensor, dim: Any, correction: float, keepdim: bool) -> tuple[Tensor, Tensor] | None:
    """The variance and the mean if no degree of freedom is left; else None."""
    flat, axes = (x, _axes(x, dim)) if x.ndim else (x.reshape(1), [0])
    number = count([flat.shape[axis] for axis in axes])
    if number is None or number > correction:
        return None if x.ndim else ((x - x).square(), x)
    squares = (flat - flat.sum(axes, True) / number).square().sum(axes, keepdim) / 0.0
    mean = flat.sum(axes, keepdim) / number
    return (squares, mean) if x.ndim else (squares.reshape(()), mean.reshape(()))


def _moments(chosen: Callable[[Tensor, Tensor], Any]) -> Iterator[Callable[..., Any]]:
    """One function for each overload of a variance operator: of all elements, along axes, and with a correction."""

    def of_all(x: Tensor, unbiased: bool = True) -> Any:
        return corrected(x, correction=int(unbiased))

    def along(x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
        return corrected(x, dim, correction=int(unbiased), keepdim=keepdim)

    def corrected(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
        found = _variance(x, dim, 1 if correction is None else correction, keepdim)
        return NotImplemented if found is None else chosen(*found)

    yield from (of_all, along, corrected)


def _median(x: Tensor) -> Any:
    return x.new_full((), torch.nan) if count(x.shape) == 0 and x.is_floating_point() else NotImplemented


# ----- sums of no elements --------------------------------------------------------------------------------------------


def _added(x: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """The addend of a matrix product with an inner size of 0."""
    if count(left.shape[-1:]) != 0:
        return NotImplemented
    shape = [*left.shape[:-1], *right.shape[1:]] if right.ndim < 3 else [*left.shape[:-1], right.shape[-1]]
    return (x * beta).expand(shape)


def _added_over_batches(x: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if count([left.shape[0], left.shape[-1]]) != 0:
        return NotImplemented
    return (x * beta).expand([left.shape[1], right.shape[2]])


_WITH_AXIS = """
    amax amin aminmax argmax argmin all.dim cumprod cumsum kthvalue linalg_vector_norm logsumexp max.dim min.dim
    mode nansum norm.ScalarOpt_dim prod.dim_int sort sort.stable sum.dim_IntList topk
"""

_OVERLOADS = ("default", "dim", "correction")
_VARIANCES: Mapping[str, Callable[[Tensor, Tensor], Any]] = {
    "var": lambda variance, mean: variance,
    "std": lambda variance, mean: variance.sqrt(),
    "var_mean": lambda variance, mean: (variance, mean),
    "std_mean": lambda variance, mean: (variance.sqrt(), mean),
}


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


#: Functions by operator, used only for calls that ``is_degenerate``.
DEGENERATE: Mapping[Any, Callable[..., Any]] = {
    **{operator: _of_scalar(operator) for operator in map(_operator, _WITH_AXIS.split())},
    **{
        getattr(getattr(aten, name), overload): function
        for name, chosen in _VARIANCES.items()
        for overload, function in zip(_OVERLOADS, _moments(chosen), strict=True)
    },
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.median.default: _median,
    aten.addmm.default: _added,
    aten.addmv.default: _added,
    aten.baddbmm.default: _added,
    aten.addbmm.default: _added_over_batches,
}
