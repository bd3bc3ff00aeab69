"""States of a decoder between two calls: the tensors of its cache as named inputs and outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import cache_utils

from tenonnx.extend import NotRepresentable
from tenonnx_transformers.own_states import own_states

#: Names of dims of inputs and outputs.
BATCH, LENGTH, PAST, TOTAL = "batch_size", "sequence_length", "past_sequence_length", "total_sequence_length"

#: Layers that keep every token, in the place of those that keep a window: masks of the model leave out the others.
_WHOLE = {
    "DynamicSlidingWindowLayer": lambda layer: cache_utils.DynamicLayer(),
    "LinearAttentionAndSlidingWindowAttentionLayer": lambda layer: cache_utils.LinearAttentionAndFullAttentionLayer(
        number_of_states=layer.number_of_states
    ),
}

#: Layers whose tensors are read and set here.
_KNOWN = (
    "DynamicLayer",
    "DynamicIndexedLayer",
    "LinearAttentionLayer",
    "LinearAttentionAndFullAttentionLayer",
    "DummyLayer",
)


@dataclass(frozen=True)
class State:
    """One tensor of a cache: of ``layer``, of a ``kind`` such as ``key``; ``axes`` are those that vary, by name."""

    layer: int
    kind: str
    axes: Mapping[int, str]
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def past(self) -> str:
        """The name of the input."""
        return f"past_key_values.{self.layer}.{self.kind}"

    @property
    def present(self) -> str:
        """The name of the output."""
        return f"present.{self.layer}.{self.kind}"

    def empty(self, batch: int, past: int = 0) -> Tensor:
        """Zeros for a batch, with ``past`` tokens where the state grows with these."""
        sizes = {BATCH: batch, PAST: past}
        shape = [sizes[self.axes[axis]] if axis in self.axes else size for axis, size in enumerate(self.shape)]
        return torch.zeros(shape, dtype=self.dtype)


def cache_parameter(model: torch.nn.Module) -> str:
    """The parameter of ``forward`` that takes the cache. Raises ``NotRepresentable`` where there is none."""
    known = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values", "cache_params", "state"):
        if name in known:
            return name
    raise NotRepresentable(
        f"{type(model).__name__} takes no cache, so that it cannot generate step by step",
        given=", ".join(known),
        do="choose another task, such as --task feature-extraction",
    )


def new_cache(config: Any) -> Any:
    """An empty cache whose attention layers keep every token."""
    cache = cache_utils.DynamicCache(config=config)
    cache.layers = [
        _WHOLE[type(layer).__name__](layer) if type(layer).__name__ in _WHOLE else layer for layer in cache.layers
    ]
    for place, layer in enumerate(cache.layers):
        if type(layer).__name__ not in _KNOWN:
            raise NotRepresentable(
                "a layer of the cache keeps states of an unknown kind",
                given=f"layer {place} is a {type(layer).__name__}",
                available=", ".join(_KNOWN),
            )
        if hasattr(layer, "update_conv_state"):
            layer.update_conv_state = _behind_zeros(layer)
    return cache


def _behind_zeros(layer: Any) -> Callable[..., Tensor]:
    """Let a convolution begin with a state of zeros: a text shorter than its window is no case of its own then."""
    update = layer.update_conv_state

    def update_conv_state(
        conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **keywords: Any
    ) -> Tensor:
        if conv_kernel_size is not None and not layer.has_previous_state[state_idx]:
            layer.lazy_initialization(conv_states=conv_states, state_idx=state_idx, conv_kernel_size=conv_kernel_size)
            layer.has_previous_state[state_idx] = True
        found: Tensor = update(conv_states, state_idx, conv_kernel_size, **keywords)
        return found

    return update_conv_state


def has_window(config: Any) -> bool:
    """Whether layers of a model attend to a window of tokens."""
    return any(type(layer).__name__ in _WHOLE for layer in cache_utils.DynamicCache(config=config).layers)


def tensors_of(cache: Any) -> dict[tuple[int, str], Tensor]:
    """Tensors of a cache by layer and kind."""
    found: dict[tuple[int, str], Tensor | None] = {}
    for place, layer in enumerate(cache.layers):
        if getattr(layer, "is_initialized", False):
            found[place, "key"], found[place, "value"] = layer.keys, layer.values
        if getattr(layer, "is_indexer_initialized", False):
            found[place, "indexer_key"] = layer.indexer_keys
        for kind in ("conv", "recurrent"):
            for index, tensor in getattr(layer, f"{kind}_states", {}).items():
                found[place, f"{kind}_state{index or ''}"] = tensor
    return {key: tensor for key, tensor in found.items() if isinstance(tensor, Tensor)}


def run_model(
    model: Any, given: Mapping[str, Tensor], held: Mapping[tuple[int, str], Tensor]
) -> tuple[Tensor, dict[tuple[int, str], Tensor]]:
    """The logits of one call behind states of earlier ones, by layer and kind, and the states after it."""
    name = cache_parameter(model)
    own = own_states(model, name, given)
    with own.attributes_with(model, held):
        if own.cache is not None:
            before = {name: own.cache_with(held)} if held else {}
            found = model(**given, **before, use_cache=True)
            return found.logits, own.tensors_of(found[name])
        cache = new_cache(model.config)
        fill(cache, {key: tensor for key, tensor in held.items() if key not in own.attributes_of(model)})
        found = model(**given, **{name: cache}, use_cache=True)
        return found.logits, tensors_of(cache) | own.attributes_of(model)


def fill(cache: Any, tensors: Mapping[tuple[int, str], Tensor]) -> None:
    """Set tensors of an empty cache, which is then as after the calls that made them."""
    for (place, kind), tensor in tensors.items():
        layer = cache.layers[place]
        layer.dtype, layer.device = tensor.dtype, tensor.device
        if kind in ("key", "value"):
            setattr(layer, f"{kind}s", tensor)
            layer.is_initialized = True
        elif kind == "indexer_key":
            layer.indexer_keys, layer.is_indexer_initialized = tensor, True
        else:
            name, _, index = kind.partition("_state")
            at = int(index or 0)
            getattr(layer, f"{name}_states")[at] = tensor.clone()  # layers write to it
            getattr(layer, f"is_{name}_states_initialized")[at] = True
            layer.has_previous_state[at] = True
            if name == "conv":
                layer.conv_kernel_size[at] = tensor.shape[-1]


def states_of(
    pair: Sequence[Mapping[tuple[int, str], Tensor]],
    sizes: Sequence[tuple[int, int]],
    dims: tuple[str, str] = (BATCH, PAST),
) -> list[State]:
    """The states after two calls, by layer and kind, of two ``sizes``, which tell the axes of the two ``dims``.

    Raises ``NotRepresentable`` for an axis that is neither.
    """
    first, second = pair
    names = {(a, b): name for name, a, b in zip(dims, *sizes, strict=True)}
    found = []
    for key, tensor in first.items():
        other = second[key]
        pairs = list(zip(tensor.shape, other.shape, strict=True))
        axes = {axis: names.get(pair, "") for axis, pair in enumerate(pairs) if pair[0] != pair[1]}
        if not all(axes.values()):
            raise NotRepresentable(
                "a state of the cache has an axis that is neither the batch nor the number of tokens",
                given=f"layer {key[0]}, {key[1]}: {tuple(tensor.shape)} and {tuple(other.shape)}",
            )
        found.append(State(*key, axes, tuple(tensor.shape), tensor.dtype))
    return found
