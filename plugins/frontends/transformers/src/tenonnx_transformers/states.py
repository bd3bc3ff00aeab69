"""States of a decoder: the tensors of its cache as named inputs and outputs."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import cache_utils

from tenonnx.extend import NotRepresentable
from tenonnx_transformers.own_states import own_states

#: Names of the dynamic dims of inputs and outputs.
BATCH, LENGTH, PAST, TOTAL = "batch_size", "sequence_length", "past_sequence_length", "total_sequence_length"

#: Name of the input with the positions in a cache of fixed length at which new keys and values are written.
POSITIONS = "cache_position"

#: Replacements of sliding-window cache layers by layers that keep all tokens; the model's masks exclude older ones.
_WITHOUT_WINDOW = {
    "DynamicSlidingWindowLayer": lambda layer: cache_utils.DynamicLayer(),
    "LinearAttentionAndSlidingWindowAttentionLayer": lambda layer: cache_utils.LinearAttentionAndFullAttentionLayer(
        number_of_states=layer.number_of_states
    ),
}

#: Supported classes of cache layers.
_KNOWN = (
    "DynamicLayer",
    "DynamicIndexedLayer",
    "LinearAttentionLayer",
    "LinearAttentionAndFullAttentionLayer",
    "DummyLayer",
)


@dataclass(frozen=True)
class State:
    """One tensor of a cache, of a ``layer`` and a ``kind`` such as ``key``; ``axes`` names the dynamic axes."""

    layer: int
    kind: str
    axes: Mapping[int, str]
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def past(self) -> str:
        """Name of the input."""
        return f"past_key_values.{self.layer}.{self.kind}"

    @property
    def present(self) -> str:
        """Name of the output."""
        return f"present.{self.layer}.{self.kind}"

    def empty(self, batch: int, past: int = 0) -> Tensor:
        """Return zeros for a batch, with ``past`` tokens if the state grows with the text."""
        sizes = {BATCH: batch, PAST: past}
        shape = [sizes[self.axes[axis]] if axis in self.axes else size for axis, size in enumerate(self.shape)]
        return torch.zeros(shape, dtype=self.dtype)


def cache_parameter(model: torch.nn.Module) -> str:
    """Name of the cache parameter of ``forward``. Raises ``NotRepresentable`` if there is none."""
    parameters = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values", "cache_params", "state"):
        if name in parameters:
            return name
    raise NotRepresentable(
        f"{type(model).__name__} takes no cache, so that it cannot generate step by step",
        given=", ".join(parameters),
        do="choose another task, such as --task feature-extraction",
    )


def new_cache(config: Any) -> Any:
    """Return an empty cache whose attention layers keep all tokens.

    Raises ``NotRepresentable`` for unsupported cache layers.
    """
    cache = cache_utils.DynamicCache(config=config)
    cache.layers = [
        _WITHOUT_WINDOW[type(layer).__name__](layer) if type(layer).__name__ in _WITHOUT_WINDOW else layer
        for layer in cache.layers
    ]
    for place, layer in enumerate(cache.layers):
        if type(layer).__name__ not in _KNOWN:
            raise NotRepresentable(
                "a layer of the cache keeps states of an unknown kind",
                given=f"layer {place} is a {type(layer).__name__}",
                available=", ".join(_KNOWN),
            )
        if hasattr(layer, "update_conv_state"):
            layer.update_conv_state = _starting_from_zeros(layer)
    return cache


def _starting_from_zeros(layer: Any) -> Callable[..., Tensor]:
    """Return an ``update_conv_state`` that starts from zeros, so that texts shorter than the window need no branch."""
    update = layer.update_conv_state

    def update_conv_state(
        conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **keywords: Any
    ) -> Tensor:
        if conv_kernel_size is not None and not layer.has_previous_state[state_idx]:
            layer.lazy_initialization(conv_states=conv_states, state_idx=state_idx, conv_kernel_size=conv_kernel_size)
            layer.has_previous_state[state_idx] = True
        result: Tensor = update(conv_states, state_idx, conv_kernel_size, **keywords)
        return result

    return update_conv_state


def has_window(config: Any) -> bool:
    """Whether a model has layers with sliding-window attention."""
    return any(type(layer).__name__ in _WITHOUT_WINDOW for layer in cache_utils.DynamicCache(config=config).layers)


def tensors_of(cache: Any) -> dict[tuple[int, str], Tensor]:
    """Return the tensors of a cache, by layer and kind."""
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
    model: Any, given: Mapping[str, Tensor], past: Mapping[tuple[int, str], Tensor]
) -> tuple[Tensor, dict[tuple[int, str], Tensor]]:
    """Run one call with the states ``past`` of earlier ones; return the logits and new states, by layer and kind.

    If ``given`` has ``cache_position``, new keys and values are written at these positions of states of fixed length.
    """
    name = cache_parameter(model)
    positions = given.get(POSITIONS)
    given = {key: tensor for key, tensor in given.items() if key != POSITIONS}
    own = own_states(model, name, given)
    with own.attributes_with(model, past):
        if own.cache is not None:
            before = {name: own.cache_with(past)} if past else {}
            found = model(**given, **before, use_cache=True)
            return found.logits, own.tensors_of(found[name])
        cache = new_cache(model.config)
        fill(cache, {key: tensor for key, tensor in past.items() if key not in own.attributes_of(model)})
        with contextlib.nullcontext() if positions is None else _recurrent_masks_at(model, positions):
            if positions is not None:
                _write_at(cache, positions)
            found = model(**given, **{name: cache}, use_cache=True)
        return found.logits, tensors_of(cache) | own.attributes_of(model)


def fill(cache: Any, tensors: Mapping[tuple[int, str], Tensor]) -> None:
    """Set the tensors of an empty cache, as if earlier calls had computed them."""
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
            getattr(layer, f"{name}_states")[at] = tensor.clone()  # layers write to this tensor
            getattr(layer, f"is_{name}_states_initialized")[at] = True
            layer.has_previous_state[at] = True
            if name == "conv":
                layer.conv_kernel_size[at] = tensor.shape[-1]


def _write_at(cache: Any, positions: Tensor) -> None:
    """Let the attention layers of a filled cache write at ``positions``, int64 of shape (new tokens,), and not grow."""
    for layer in cache.layers:
        if getattr(layer, "is_initialized", False):
            layer.update = _writing(layer, "keys", "values", axis=2, positions=positions)
            layer.get_seq_length = lambda: positions[0]
            layer.get_mask_sizes = lambda new, length=layer.keys.shape[2]: (length, 0)
        if getattr(layer, "is_indexer_initialized", False):
            layer.update_indexer = _writing(layer, "indexer_keys", axis=1, positions=positions)


def _writing(layer: Any, *names: str, axis: int, positions: Tensor) -> Callable[..., Any]:
    """Return a function that writes new tensors into attributes of a layer along an axis, and returns these."""

    def update(*new: Any, **_: Any) -> Any:
        for name, tensor in zip(names, new, strict=False):
            setattr(layer, name, getattr(layer, name).index_copy(axis, positions, tensor))
        whole = tuple(getattr(layer, name) for name in names)
        return whole if len(whole) > 1 else whole[0]

    return update


#: Function that cuts a mask for recurrent layers, which modules of models import.
_RECURRENT_MASK = "create_recurrent_attention_mask"


@contextlib.contextmanager
def _recurrent_masks_at(model: torch.nn.Module, positions: Tensor) -> Iterator[None]:
    """Let recurrent layers take the entries of a mask at ``positions``, since transformers takes the last ones."""
    places = {sys.modules[type(module).__module__] for module in model.modules()}
    before = [(place, function) for place in places if (function := getattr(place, _RECURRENT_MASK, None)) is not None]

    def mask_at(config: Any, inputs_embeds: Tensor, attention_mask: Tensor | None, *_: Any, **__: Any) -> Tensor | None:
        if attention_mask is None or attention_mask.ndim != 2 or inputs_embeds.shape[1] == 1:
            return None
        return attention_mask.index_select(1, positions)

    try:
        for place, _ in before:
            setattr(place, _RECURRENT_MASK, mask_at)
        yield
    finally:
        for place, function in before:
            setattr(place, _RECURRENT_MASK, function)


def states_of(
    pair: Sequence[Mapping[tuple[int, str], Tensor]],
    sizes: Sequence[tuple[int, int]],
    dims: tuple[str, str] = (BATCH, PAST),
) -> list[State]:
    """Find the states and their dynamic axes from the tensors (``pair``) after two calls of different ``sizes``.

    An axis is one of ``dims`` if it has the corresponding sizes. Raises ``NotRepresentable`` for other varying axes.
    """
    first, second = pair
    names = {(a, b): name for name, a, b in zip(dims, *sizes, strict=True)}
    result = []
    for key, tensor in first.items():
        other = second[key]
        pairs = list(zip(tensor.shape, other.shape, strict=True))
        axes = {axis: names.get(pair, "") for axis, pair in enumerate(pairs) if pair[0] != pair[1]}
        if not all(axes.values()):
            raise NotRepresentable(
                "a state of the cache has an axis that is neither the batch nor the number of tokens",
                given=f"layer {key[0]}, {key[1]}: {tuple(tensor.shape)} and {tuple(other.shape)}",
            )
        result.append(State(*key, axes, tuple(tensor.shape), tensor.dtype))
    return result
