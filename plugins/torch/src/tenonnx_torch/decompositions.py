"""Operations whose form by the exporter cannot be used, in terms of others."""

from __future__ import annotations

from typing import Any

import torch

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


_DECOMPOSITIONS = {aten.embedding_bag.default: _embedding_bag, aten.embedding_bag.padding_idx: _embedding_bag}
