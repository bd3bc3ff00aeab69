"""Modules that call ``torch.func``, decomposed before tracing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tenonnx_torch.examples import Examples


@contextlib.contextmanager
def written_out(module: torch.nn.Module, examples: Examples) -> Iterator[None]:
    """Replace ``forward`` of ``module`` by the plain operations of one traced call, on the module's own parameters."""
    names = [name for name, _ in _state(module)]
    leaves, spec = pytree.tree_flatten((examples.arguments, dict(examples.keywords)))
    results: list[Any] = []

    def compute(state: list[torch.Tensor], tensors: list[torch.Tensor]) -> list[Any]:
        remaining = iter(tensors)
        given = [next(remaining) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        arguments, keywords = pytree.tree_unflatten(given, spec)
        found = torch.func.functional_call(module, dict(zip(names, state, strict=True)), arguments, keywords)
        flat, results[:] = pytree.tree_flatten(found)[0], [pytree.tree_structure(found)]
        return list(flat)

    tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    state = [tensor.detach() for _, tensor in _state(module)]
    functional = torch.func.functionalize(compute, remove="mutations_and_views")
    plain = make_fx(functional, tracing_mode="symbolic")(state, tensors)
    original = module.forward

    @functools.wraps(original)
    def forward(*arguments: Any, **keywords: Any) -> Any:
        given = [leaf for leaf in pytree.tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor)]
        return pytree.tree_unflatten(plain([tensor for _, tensor in _state(module)], given), results[0])

    module.forward = forward
    try:
        yield
    finally:
        del module.forward


def _state(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]
