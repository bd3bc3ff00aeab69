"""Adjustments of PyTorch's exporter."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from torch.onnx._internal.exporter import _decomp, _fx_passes, _registration

_REGISTRY: Any = _registration.ONNXRegistry
_PASSES: Any = _fx_passes
_read = functools.cache(_REGISTRY.from_torchlib)


def operations(opset_version: int = 18) -> Any:
    """Operations that the exporter supports, cached: it would load them in each export.

    Returns a copy, since an export adds operations.
    """
    result = copy.copy(_read(opset_version))
    result.functions = {operation: list(forms) for operation, forms in result.functions.items()}
    return result


@functools.cache
def decomposed_by_pytorch() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's decompositions of the operations that the exporter does not support."""
    written = set(_decomp.get_onnx_implemented_overloads(operations()))
    return MappingProxyType(_decomp.create_onnx_friendly_decomposition_table(written))


@contextlib.contextmanager
def decomposing_by(decompose: Callable[[Any, Any], Any]) -> Iterator[None]:
    """Let the exporter decompose programs by ``decompose(program, registry)``."""
    before = _REGISTRY.from_torchlib, _PASSES.decompose_with_registry
    _REGISTRY.from_torchlib, _PASSES.decompose_with_registry = staticmethod(operations), decompose
    try:
        yield
    finally:
        _REGISTRY.from_torchlib, _PASSES.decompose_with_registry = staticmethod(before[0]), before[1]
