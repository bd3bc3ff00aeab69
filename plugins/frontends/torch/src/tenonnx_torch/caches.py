"""Caches of ``transformers`` as arguments and results: the tensors of their layers by position and name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from tenonnx.extend import NotRepresentable

#: State tensors of a layer.
_STATES = ("keys", "values")


def recognize() -> None:
    """Register caches of ``transformers``, if it is imported, as pytrees in PyTorch.

    A class that is registered already is left alone.
    """
    module = sys.modules.get("transformers.cache_utils")
    for name, flatten, unflatten in (
        ("DynamicCache", _layers, _with_layers),
        ("EncoderDecoderCache", _parts, _with_parts),
    ):
        kind = getattr(module, name, None)
        if kind is not None and kind not in pytree.SUPPORTED_NODES:
            pytree.register_pytree_node(
                kind,
                lambda cache, flatten=flatten: ([each for _, each in flatten(cache)], _context(cache, flatten)),
                unflatten,
                serialized_type_name=f"transformers.{name}",
                flatten_with_keys_fn=lambda cache, flatten=flatten: (flatten(cache), _context(cache, flatten)),
            )


def is_cache(tree: Any) -> bool:
    return type(tree).__module__ == "transformers.cache_utils" and type(tree) in pytree.SUPPORTED_NODES


def children(cache: Any) -> list[Any]:
    """Parts of a cache: tensors or caches."""
    result: list[Any] = pytree.SUPPORTED_NODES[type(cache)].flatten_fn(cache)[0]
    return result


def _context(cache: Any, flatten: Any) -> Any:
    """Structure of a cache without its tensors: its class, the classes of its layers, and which are initialized."""
    layers = getattr(cache, "layers", ()) if flatten is _layers else ()
    return type(cache), tuple((type(layer), bool(layer.is_initialized)) for layer in layers)


def _layers(cache: Any) -> list[tuple[Any, Any]]:
    result = []
    for place, layer in enumerate(cache.layers):
        if type(layer).__name__ != "DynamicLayer":
            raise NotRepresentable(
                "a layer of the cache keeps more than keys and values",
                given=f"layer {place} is a {type(layer).__name__}",
                do="give a DynamicCache() that was made without a config",
            )
        if layer.is_initialized:
            result += [(pytree.MappingKey(f"{place}_{name}"), getattr(layer, name)) for name in _STATES]
    return result


def _with_layers(children: Sequence[Any], context: Any) -> Any:
    kind, layers = context
    cache, left = kind(), iter(children)
    cache.layers = []
    for layer_type, is_filled in layers:
        layer = layer_type()
        if is_filled:
            layer.keys, layer.values = next(left), next(left)
            layer.dtype, layer.device = getattr(layer.keys, "dtype", None), getattr(layer.keys, "device", None)
            layer.is_initialized = True
        cache.layers.append(layer)
    return cache


def _holds_tensors(cache: Any) -> bool:
    layers = getattr(cache, "layers", None)
    return layers is not None and all(isinstance(each.keys, Tensor) for each in layers if each.is_initialized)


def _parts(cache: Any) -> list[tuple[Any, Any]]:
    return [(pytree.GetAttrKey(n), getattr(cache, n)) for n in ("self_attention_cache", "cross_attention_cache")]


def _with_parts(children: Sequence[Any], context: Any) -> Any:
    kind, _ = context
    if all(_holds_tensors(child) for child in children):
        return kind(*children)
    cache = object.__new__(kind)  # of names of dims, for example, for which the constructor would fail
    cache.self_attention_cache, cache.cross_attention_cache = children
    return cache
