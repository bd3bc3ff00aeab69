"""Operations on integers of 8 and 16 bits that ONNX or onnxruntime lacks, computed in int32."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten

#: Operators without int16, those without any integers of 8 and 16 bits, and those whose result for uint8 is uint8.
_OF_16_BITS = (
    *(aten.amax.default, aten.amin.default, aten.aminmax.default, aten.argmax.default, aten.argmin.default),
    *(aten.max.default, aten.max.dim, aten.min.default, aten.min.dim, aten.maximum.default, aten.minimum.default),
    *(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.masked_fill.Scalar, aten.masked_fill.Tensor),
    *(aten.clamp.default, aten.clamp.Tensor, aten.clamp_min.default, aten.clamp_max.default),
    *(aten.clamp_min.Tensor, aten.clamp_max.Tensor, aten.cummax.default, aten.cummin.default),
    *(aten.pad.default, aten.constant_pad_nd.default),
)
_OF_ALL = (
    *(aten.tril.default, aten.triu.default, aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor),
    *(aten.matmul.default, aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default),
    *(aten.relu.default, aten.neg.default),
)
_OF_TRUTH = tuple(
    getattr(getattr(aten, name), overload) for name in ("any", "all") for overload in ("default", "dim", "dims")
)
_BITS_8_AND_16 = (torch.int8, torch.uint8, torch.int16)

#: Element types that each operator lacks.
_TYPES = {
    **dict.fromkeys(_OF_16_BITS, (torch.int16,)),
    **dict.fromkeys(_OF_ALL, _BITS_8_AND_16),
    **dict.fromkeys(_OF_TRUTH, (torch.uint8,)),
    aten._unique2.default: (*_BITS_8_AND_16, torch.int32),
}


def _widened(operator: Any, dtypes: Collection[torch.dtype]) -> Callable[..., Any]:
    def computed(*arguments: Any, **keywords: Any) -> Any:
        leaves, spec = pytree.tree_flatten((arguments, keywords))
        kinds = [leaf.dtype for leaf in leaves if isinstance(leaf, Tensor) and leaf.dtype is not torch.bool]
        dtype = functools.reduce(torch.promote_types, kinds) if kinds else None
        if dtype not in dtypes or any(isinstance(leaf, torch.dtype) for leaf in leaves):
            return NotImplemented
        wide = [
            leaf.to(torch.int32) if isinstance(leaf, Tensor) and leaf.dtype is not torch.bool else leaf
            for leaf in leaves
        ]
        given, options = pytree.tree_unflatten(wide, spec)
        return pytree.tree_map(
            lambda found: found.to(dtype) if isinstance(found, Tensor) and found.dtype is torch.int32 else found,
            operator(*given, **options),
        )

    return computed


def _unique(x: Tensor, *arguments: Any, **keywords: Any) -> Any:
    """Distinct elements, in int64: onnxruntime has no other kernel of integers."""
    if x.dtype not in _TYPES[aten._unique2.default]:
        return NotImplemented
    found, *rest = aten._unique2.default(x.to(torch.int64), *arguments, **keywords)
    return found.to(x.dtype), *rest


def _as_bytes(operator: Any) -> Callable[..., Any]:
    """Any and all of uint8, which are uint8 in PyTorch."""

    def computed(x: Tensor, *arguments: Any, **keywords: Any) -> Any:
        if x.dtype is not torch.uint8:
            return NotImplemented
        return operator(x.to(torch.bool), *arguments, **keywords).to(torch.uint8)

    return computed


#: Functions by operator, for calls with the element types of ``_TYPES``.
NARROW: Mapping[Any, Callable[..., Any]] = {
    **{operator: _widened(operator, _TYPES[operator]) for operator in (*_OF_16_BITS, *_OF_ALL)},
    **{operator: _as_bytes(operator) for operator in _OF_TRUTH},
    aten._unique2.default: _unique,
}


def is_narrow(node: Any, operator: Any) -> bool:
    """Whether a call of an operator has a tensor argument of a type that the operator lacks."""
    dtypes = _TYPES.get(operator, ())
    values = [argument.meta.get("val") for argument in node.all_input_nodes] if dtypes else []
    return any(isinstance(value, Tensor) and value.dtype in dtypes for value in values)
