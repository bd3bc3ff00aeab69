"""Operations for which the exporter has no form, or none that can be used, in terms of others."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp.decompositions import lstm_impl

aten = torch.ops.aten


def decomposed(program: Any) -> Any:
    """A program without the operations of this file; the program itself where it has none of them."""
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    table = {operation: function for operation, function in _DECOMPOSITIONS.items() if operation in targets}
    return program.run_decompositions(table) if table else program


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of ``weight`` joined by bags, of which each begins at its offset; an empty bag is 0.

    The exporter writes a loop over the bags that gathers a sequence, with an If for each mode inside: onnxruntime 1.31
    ends the process when it folds these.
    """
    first, sizes = offsets.unsqueeze(1), (offsets.shape[0], weight.shape[1])
    bags = (first <= torch.arange(indices.shape[0])).sum(0) - 1
    counted = torch.ones_like(indices) if padding_idx is None else (indices != padding_idx).to(indices.dtype)
    counts = torch.zeros_like(offsets).scatter_add(0, bags, counted.to(offsets.dtype)).unsqueeze(1)
    rows = torch.nn.functional.embedding(indices, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    into, kept = bags.unsqueeze(1).expand(-1, weight.shape[1]), counted.unsqueeze(1) > 0
    if mode == 2:
        lowest = weight.new_full(sizes, -torch.inf)
        joined = lowest.scatter_reduce(0, into, torch.where(kept, rows, -torch.inf), "amax")
        joined = torch.where(counts > 0, joined, 0.0)
    else:
        joined = weight.new_zeros(sizes).scatter_add(0, into, torch.where(kept, rows, 0.0))
    if mode == 1:
        joined = joined / counts.clamp(min=1).to(joined.dtype)
    return joined[:-1] if include_last_offset else joined, bags, counts, offsets


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *masks_and_flags: Any, **keywords: Any
) -> Any:
    """With fewer axes than the exporter takes, by axes of one element before them."""
    missing = 4 - query.ndim
    if missing <= 0:
        return NotImplemented
    wide = [x.reshape([1] * missing + list(x.shape)) for x in (query, key, value)]
    joined = torch.nn.functional.scaled_dot_product_attention(*wide, *masks_and_flags, **keywords)
    return joined.reshape(joined.shape[missing:])


def _median(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = _kth(x, (x.shape[dim] + 1) // 2, dim, keepdim)
    if x.is_floating_point():
        values = torch.where(x.isnan().any(dim, keepdim), torch.nan, values)
    return values, places


def _kth(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = x.sort(dim)
    found = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _cumulative_product(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The product of each beginning, of all at once: ONNX has CumProd from opset 26 alone."""
    if dtype is None:
        dtype = x.dtype if x.is_floating_point() else torch.int64
    last = x.to(dtype).movedim(dim, -1)
    places = torch.arange(last.shape[-1])
    beginnings = torch.where(places.unsqueeze(1) >= places, last.unsqueeze(-2), 1)
    return beginnings.prod(-1).movedim(-1, dim)


def _scatter_mean(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Of the ways to reduce, the mean alone: ScatterElements has no such reduction, and the exporter writes none."""
    if reduce != "mean":
        return NotImplemented
    source = source[tuple(slice(size) for size in index.shape)]
    counts = torch.full_like(x, include_self).scatter_add(dim, index, torch.ones_like(source))
    total = (x if include_self else torch.where(counts > 0, 0, x)).scatter_add(dim, index, source)
    counts = counts.clamp(min=1)
    return total / counts if x.is_floating_point() else torch.div(total, counts, rounding_mode="floor")


def _smoothed(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Where labels are smoothed, which the exporter forgets, what PyTorch makes of it."""
    if not label_smoothing:
        return NotImplemented
    arguments = (x, target, weight, reduction, ignore_index, label_smoothing)
    return aten.cross_entropy_loss.default._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *arguments)


def _places(
    edges: torch.Tensor,
    values: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """How many edges are below each value, all of them below NaN."""
    edges = edges if sorter is None else edges.gather(-1, sorter)
    edges, values = edges.unsqueeze(-2), values.unsqueeze(-1)
    above = edges > values if right or side == "right" else edges >= values
    return above.logical_not().sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _distances(a: torch.Tensor, b: torch.Tensor, p: float = 2.0, compute_mode: int | None = None) -> torch.Tensor:
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1)


def _hypotenuse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Without the squares of large numbers."""
    a, b = a.abs(), b.abs()
    larger, smaller = torch.maximum(a, b), torch.minimum(a, b)
    ratio = smaller / torch.where(larger > 0, larger, 1.0)
    return larger * (1 + ratio * ratio).sqrt()


#: An LSTM that is not kept whole has projections, which the exporter forgets: it is unrolled.
_DECOMPOSITIONS = {
    aten.lstm.input: lstm_impl,
    aten.embedding_bag.default: _embedding_bag,
    aten.embedding_bag.padding_idx: _embedding_bag,
    aten.scaled_dot_product_attention.default: _attention,
    aten.median.dim: _median,
    aten.kthvalue.default: _kth,
    aten.cumprod.default: _cumulative_product,
    aten.scatter_reduce.two: _scatter_mean,
    aten.searchsorted.Tensor: _places,
    aten.cross_entropy_loss.default: _smoothed,
    aten.cdist.default: _distances,
    aten.hypot.default: _hypotenuse,
}
