"""Decompositions of operations that the exporter lacks, or exports incorrectly."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp import decompositions as known

from tenonnx_torch.attention import attention
from tenonnx_torch.bessel import BESSEL
from tenonnx_torch.empty_tensors import DEGENERATE, count, is_degenerate
from tenonnx_torch.exporter import decomposed_by_pytorch
from tenonnx_torch.indexing import INDEXING
from tenonnx_torch.matrices import MATRICES
from tenonnx_torch.narrow_integers import NARROW, is_narrow
from tenonnx_torch.numerics import NUMERICS
from tenonnx_torch.pooling import POOLING
from tenonnx_torch.primitives import PRIMITIVES
from tenonnx_torch.program_fixes import calls
from tenonnx_torch.random import DRAWING
from tenonnx_torch.sort import ORDER
from tenonnx_torch.special import SPECIAL
from tenonnx_torch.windows import WINDOWS

aten = torch.ops.aten


#: Decompositions by operation.
Table = dict[Any, Callable[..., Any]]


def decomposed(program: Any, registry: Any) -> Any:
    """Decompose a program into operations that the exporter supports, by this module's and PyTorch's decompositions.

    Both are applied in one pass, since each pass traces the whole program again.
    """
    table = _table(registry, _called(program))
    for target in {_functional(node.target) for node in calls(program) if is_degenerate(node)} & DEGENERATE.keys():
        table[target] = _first_of(DEGENERATE[target], table.get(target))
    called = [(node, _functional(node.target)) for node in calls(program)]
    for target in {target for node, target in called if is_narrow(node, target)}:
        table[target] = _first_of(NARROW[target], table.get(target))
    return program.run_decompositions(table)


def wholly_decomposed(program: Any, registry: Any) -> Any:
    """Decompose a program as far as PyTorch can, with all decompositions of this module."""
    return program.run_decompositions(_table(registry, {**_DECOMPOSITIONS, **PRIMITIVES, **_called(program)}))


def _called(program: Any) -> Table:
    """Decompositions of the operations in a program; they may lead to further operations."""
    called = {_functional(node.target) for node in calls(program)}
    return {target: function for target in called if (function := _decomposition(target)) is not None}


def _table(registry: Any, ours: Table) -> Table:
    """Decompositions by operation: ours before PyTorch's, except where the caller has a lowering."""
    theirs = decomposed_by_pytorch()
    given = {each.fx_target for found in registry.functions.values() for each in found if each.is_custom}
    table = {**theirs, **{target: _first_of(function, theirs.get(target)) for target, function in ours.items()}}
    return {target: function for target, function in table.items() if target not in given}


def decomposable() -> set[Any]:
    """Operators that this package or PyTorch can decompose."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {*_DECOMPOSITIONS, *PRIMITIVES, *decomposition_table, *core_aten_decompositions()}


def _first_of(function: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    def decomposition(*arguments: Any, **keywords: Any) -> Any:
        result = function(*arguments, **keywords)
        return other(*arguments, **keywords) if result is NotImplemented and other is not None else result

    return decomposition


def _functional(target: Any) -> Any:
    """The functional variant of an in-place operation; the operation itself if it is functional."""
    name, overload = getattr(target, "_opname", ""), getattr(target, "_overloadname", "default")
    plain = f"__{name[3:]}" if name.startswith("__i") else name[:-1]
    functional = getattr(getattr(aten, plain, None), overload, None) if name.endswith("_") else None
    return aten.normal_functional.default if target is aten.normal_.default else functional or target


def _decomposition(target: Any) -> Callable[..., Any] | None:
    if not isinstance(target, torch._ops.OpOverload):
        return None
    found = _DECOMPOSITIONS.get(target) or PRIMITIVES.get(target) or _FOREIGN.get(target._schema.name)
    return found or _view(target) or (decomposition_table.get(target) if "_backward" in target._opname else None)


def _view(target: Any) -> Callable[..., Any] | None:
    """The view operation that corresponds to a copying operation such as ``slice_copy``."""
    name, copy, rest = target._opname.partition("_copy")
    view = getattr(getattr(aten, name, None), target._overloadname, None) if name and copy and not rest else None
    return view if view is not None and view._schema.arguments[0].alias_info is not None else None


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
    """Reduce rows of ``weight`` in bags that begin at ``offsets``; an empty bag results in 0.

    The exporter writes a loop over the bags that builds a sequence, with an If for each mode: onnxruntime 1.31 crashes
    when it folds these.
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


def _one_number(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **placed: Any) -> Any:
    """A range of one number, from tensors, as a vector: PyTorch's decomposition returns a scalar."""
    if steps != 1:
        return NotImplemented
    return (torch.full((), start) if isinstance(start, int | float) else start).to(dtype or torch.float32).reshape(1)


def _einsum(equation: str, tensors: Sequence[torch.Tensor], *, path: Any = None) -> Any:
    """Equalize the ranks of ellipses, as ONNX requires, by prepending axes of size 1."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    ranks = [x.ndim - len(term) + 3 for x, term in zip(tensors, terms, strict=True) if "..." in term]
    if not ranks or min(ranks) == max(ranks):
        return NotImplemented
    wide = list(tensors)
    for place, term in enumerate(terms):
        while "..." in term and wide[place].ndim - len(term) + 3 < max(ranks):
            wide[place] = wide[place].unsqueeze(term.index("..."))
    return torch.einsum(equation, wide)


def _cumulative_product(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Cumulative products, computed by prefixes: ONNX has CumProd only from opset 26 on."""
    if dtype is None:
        dtype = x.dtype if x.is_floating_point() else torch.int64
    last = x.to(dtype).movedim(dim, -1)
    places = torch.arange(last.shape[-1])
    beginnings = torch.where(places.unsqueeze(1) >= places, last.unsqueeze(-2), 1)
    return beginnings.prod(-1).movedim(-1, dim)


def _smoothed(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Cross-entropy with label smoothing, which the exporter ignores, or with a single row."""
    if not label_smoothing and x.ndim > 1:
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
    """Number of edges below each value; all edges are below NaN."""
    edges = edges if sorter is None else edges.gather(-1, sorter)
    edges, values = edges if edges.ndim == 1 else edges.unsqueeze(-2), values.unsqueeze(-1)
    above = edges > values if right or side == "right" else edges >= values
    return above.logical_not().sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _distances(a: torch.Tensor, b: torch.Tensor, p: float = 2.0, compute_mode: int | None = None) -> torch.Tensor:
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1)


def _beginnings(x: torch.Tensor, dim: int, filled: Any) -> torch.Tensor:
    """The prefixes along ``dim``, moved to the second last axis, as rows of a last axis, padded by ``filled``."""
    last = x.movedim(dim, -1)
    places = torch.arange(last.shape[-1])
    return torch.where(places.unsqueeze(1) >= places, last.unsqueeze(-2), filled)


def _cumulative_extreme(x: torch.Tensor, dim: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if not x.ndim or count(x.shape) == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    widened = x.to(torch.int64) if x.dtype is torch.bool else x
    last = widened.movedim(dim, -1)
    places = torch.arange(last.shape[-1])
    before = places.unsqueeze(1) >= places
    first = widened.narrow(dim, 0, 1).movedim(dim, -1).unsqueeze(-1)
    ends = _beginnings(widened, dim, first)  # each contains the first
    values = ends.amax(-1) if largest else ends.amin(-1)
    if x.is_floating_point():
        values = torch.where(ends.isnan().any(-1), torch.nan, values)
    same = (last.unsqueeze(-2) == values.unsqueeze(-1)) | (last.unsqueeze(-2) != last.unsqueeze(-2))
    found = torch.where(same & before, places, -1).amax(-1)
    return values.to(x.dtype).movedim(-1, dim), found.movedim(-1, dim)


def _cumulative_maximum(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _cumulative_extreme(x, dim, True)


def _cumulative_minimum(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _cumulative_extreme(x, dim, False)


def _log_cumulative_sum(x: torch.Tensor, dim: int) -> torch.Tensor:
    return _beginnings(x, dim, -torch.inf).logsumexp(-1).movedim(-1, dim) if x.ndim else x.clone()


def _stably_sorted(
    x: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort stably: TopK returns the first of equal elements first, too."""
    values, places = x.sort(dim, descending)
    return values, places


def _place(edges: torch.Tensor, value: float, **options: Any) -> torch.Tensor:
    return _places(edges, torch.full((), value, dtype=edges.dtype), **options)


def _bucket(values: torch.Tensor, edges: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> torch.Tensor:
    return _places(edges, values, out_int32=out_int32, right=right)


def _bucket_of_number(value: float, edges: torch.Tensor, **options: Any) -> torch.Tensor:
    return _bucket(torch.full((), value), edges, **options)


def _with_corners(x: torch.Tensor, size: Any, corners: bool, *scales: Any) -> Any:
    """Linear resizing with aligned corners, one axis at a time: the exporter writes wrong scales for size 1."""
    if not corners:
        return NotImplemented
    factors = scales[0] if scales and isinstance(scales[0], list | tuple) else None
    for axis, length in enumerate(known.upsample_compute_output_size(x.shape, size, factors), 2):
        parts, ends = torch.sym_max(length - 1, 1), x.shape[axis] - 1
        place = torch.arange(length) * ends
        low = place // parts
        weight = ((place - low * parts) / parts).to(x.dtype).reshape([-1] + [1] * (x.ndim - axis - 1))
        first, second = x.index_select(axis, low), x.index_select(axis, (low + 1).clamp(max=ends))
        x = first * (1 - weight) + second * weight
    return x


def _products_by_group(x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """Grouped matrix product: rows of ``x``, in groups that end at ``offs``; computes all products and selects."""
    if x.ndim != 2 or weight.ndim != 3:
        return NotImplemented
    group = (torch.arange(x.shape[0]).unsqueeze(0) >= offs.unsqueeze(1)).sum(0)
    chosen = group.unsqueeze(0) == torch.arange(weight.shape[0]).unsqueeze(1)
    return torch.where(chosen.unsqueeze(-1), x.unsqueeze(0) @ weight, 0).sum(0)


def _linear_loss(
    x: torch.Tensor,
    rows: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    weight: torch.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *chunks_and_gradients: Any,
) -> Any:
    """Linear layer and cross-entropy without chunking, which only saves memory; rejects gradients as results."""
    if any(chunks_and_gradients[-3:]):
        return NotImplemented
    scores = torch.nn.functional.linear(x, rows, bias)
    loss = torch.nn.functional.cross_entropy(
        scores, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return loss, *(x.new_zeros(0) for _ in range(3))


def _multilabel_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    """Multi-label margin loss over the labels before the first -1; PyTorch's decomposition counts the others, too."""
    scores, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    given = (labels == -1).to(torch.int64).cumsum(-1) == 0
    chosen = scores.gather(-1, torch.where(given, labels, 0))
    is_target = (torch.where(given, labels, -1).unsqueeze(-1) == torch.arange(scores.shape[1])).any(1)
    margins = (1 - chosen.unsqueeze(-1) + scores.unsqueeze(1)).clamp(min=0)
    counted = given.unsqueeze(-1) & ~is_target.unsqueeze(1)
    losses = torch.where(counted, margins, 0).sum((1, 2)) / scores.shape[1]
    losses = losses.reshape(x.shape[:-1])
    return losses.mean() if reduction == 1 else losses.sum() if reduction == 2 else losses


def _linear_losses(
    x: torch.Tensor,
    rows: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    weight: torch.Tensor | None,
    ignore_index: int,
    *chunks: Any,
) -> Any:
    return _linear_loss(x, rows, target, bias, weight, "none", ignore_index, 0.0)[0]


#: Decompositions of operators that are imported on demand, from other packages and parts of PyTorch, by name.
_FOREIGN: Mapping[str, Callable[..., Any]] = {
    "transformers::grouped_mm_fallback": _products_by_group,
    "torch_nn::_linear_cross_entropy_batch_chunked": _linear_loss,
    "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction": _linear_losses,
}

_LINEAR_RESIZES = (
    aten.upsample_linear1d.vec,
    aten.upsample_linear1d.default,
    aten.upsample_bilinear2d.vec,
    aten.upsample_bilinear2d.default,
    aten.upsample_trilinear3d.vec,
    aten.upsample_trilinear3d.default,
)

#: Aliases of operations for which the exporter does not promote the operands' dtypes, with the other name.
_SECOND_NAMES = {
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
    "arctan2": "atan2",
    "clip": "clamp",
}


def _stacked(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    """Stack tensors after promoting them to a common dtype."""
    kinds = [each.dtype for each in tensors]
    if len(set(kinds)) == 1:
        return NotImplemented
    kind = functools.reduce(torch.promote_types, kinds)
    return torch.stack([each.to(kind) for each in tensors], dim)


def _copied(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy with broadcasting, which the exporter omits."""
    return source.to(x.dtype).expand(x.shape)


def _any(x: torch.Tensor, dim: Any = None, keepdim: bool = False) -> torch.Tensor:
    """Any by a sum, which is 0 for no elements; the exporter's maximum would be the lowest number, thus true."""
    axes = list(range(x.ndim)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)
    return x.to(torch.bool).sum(axes, keepdim).to(torch.bool) if x.ndim else x.to(torch.bool)


def _by_first_names() -> Table:
    result: Table = {}
    for second, first in _SECOND_NAMES.items():
        packet = getattr(aten, first)
        overloads = [name for name in getattr(aten, second).overloads() if name in packet.overloads()]
        result |= {getattr(getattr(aten, second), name): getattr(packet, name) for name in overloads}
    return result


#: An LSTM that reaches this point has projections, which the exporter ignores: it is unrolled.
_DECOMPOSITIONS: Table = {
    aten.lstm.input: known.lstm_impl,
    aten.embedding_bag.default: _embedding_bag,
    aten.embedding_bag.padding_idx: _embedding_bag,
    aten.scaled_dot_product_attention.default: attention,
    aten.einsum.default: _einsum,
    aten.linspace.Tensor_Tensor: _one_number,
    aten.linspace.Tensor_Scalar: _one_number,
    aten.linspace.Scalar_Tensor: _one_number,
    aten.cumprod.default: _cumulative_product,
    aten.searchsorted.Tensor: _places,
    aten.cross_entropy_loss.default: _smoothed,
    aten.cdist.default: _distances,
    aten._cdist_forward.default: _distances,
    aten.cummax.default: _cumulative_maximum,
    aten.cummin.default: _cumulative_minimum,
    aten.logcumsumexp.default: _log_cumulative_sum,
    aten.searchsorted.Scalar: _place,
    aten.sort.stable: _stably_sorted,
    aten.bucketize.Tensor: _bucket,
    aten.bucketize.Scalar: _bucket_of_number,
    **dict.fromkeys(_LINEAR_RESIZES, _with_corners),
    aten.stack.default: _stacked,
    aten.copy.default: _copied,
    aten._neg_view.default: torch.neg,
    aten.multilabel_margin_loss.default: _multilabel_margin_loss,
    aten.any.default: _any,
    aten.any.dim: _any,
    aten.any.dims: _any,
    **_by_first_names(),
    **NUMERICS,
    **MATRICES,
    **ORDER,
    **WINDOWS,
    **POOLING,
    **SPECIAL,
    **BESSEL,
    **DRAWING,
    **INDEXING,
}
