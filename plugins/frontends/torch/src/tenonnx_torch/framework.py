"""Adapter of PyTorch for the conformance kit: its name, and running and differentiating graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Graph

#: A function from cotangents of the outputs, None for those without, to gradients.
Pullback = Callable[[Sequence[Any]], list[Any]]

runtime = "torch"

#: Description of a converted graph.
form = "a module of PyTorch"


def run(graph: Graph, feeds: Mapping[str, Any], wrt: Sequence[str]) -> tuple[list[Any], Pullback]:
    """The outputs of a graph for feeds, and the pullback to ``wrt``."""
    import torch

    from tenonnx_torch import module

    tensors = {name: torch.from_numpy(feed.copy()) for name, feed in feeds.items()}
    given = [tensors[name].requires_grad_(True) for name in wrt]
    found = module(graph)(*tensors.values())
    outputs = [found] if isinstance(found, torch.Tensor) else list(found)

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if c is not None and y.requires_grad]
        if pairs:
            torch.autograd.backward([y for y, _ in pairs], [torch.from_numpy(c) for _, c in pairs])
        return [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in given]

    return [each.detach().numpy() for each in outputs], pullback
