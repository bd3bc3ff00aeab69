"""Model-specific states: caches of the model's own class, and attributes of its modules."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, cache_utils

#: Path from a cache to one of its tensors: attribute names, keys and list indices.
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class OwnStates:
    """Model-specific states. ``cache`` is a cache after one call, or None if the model uses one of transformers.

    ``attributes`` are pairs of a module name and an attribute name.
    """

    parameter: str
    cache: Any
    attributes: tuple[tuple[str, str], ...]

    def cache_with(self, states: Mapping[tuple[int, str], Tensor]) -> Any:
        """Return a copy of the cache with the tensors ``states``, by layer and kind."""
        return _copy_with(self.cache, (self.parameter,), states)

    def tensors_of(self, cache: Any) -> dict[tuple[int, str], Tensor]:
        """Return the tensors of a cache, by layer and kind."""
        return {_key(path): tensor for path, tensor in _leaves(cache, (self.parameter,))}

    @contextlib.contextmanager
    def attributes_with(self, model: nn.Module, states: Mapping[tuple[int, str], Tensor]) -> Iterator[None]:
        """Set the attributes to the tensors ``states`` (None if missing), and restore them at the end."""
        before = {place: getattr(model.get_submodule(place[0]), place[1]) for place in self.attributes}
        try:
            for module, name in self.attributes:
                setattr(model.get_submodule(module), name, states.get(_key((*module.split("."), name))))
            yield
        finally:
            for (module, name), value in before.items():
                setattr(model.get_submodule(module), name, value)

    def attributes_of(self, model: nn.Module) -> dict[tuple[int, str], Tensor]:
        """Return the tensors of the attributes, by layer and kind."""
        return {
            _key((*module.split("."), name)): getattr(model.get_submodule(module), name)
            for module, name in self.attributes
        }


_KNOWN: WeakKeyDictionary[nn.Module, OwnStates] = WeakKeyDictionary()


def own_states(model: Any, parameter: str, given: Mapping[str, Tensor]) -> OwnStates:
    """Find the states of a model by one call with the inputs ``given``. ``parameter`` is that of its cache."""
    if model not in _KNOWN:
        before = _attributes(model)
        with torch.no_grad():
            found = model(**given, use_cache=True)
        after = _attributes(model)
        # attributes that the call creates are not states: modules test whether they exist
        moved = [
            place
            for place, value in after.items()
            if place in before and isinstance(value, Tensor) and before[place] is not value
        ]
        for module, name in moved:
            setattr(model.get_submodule(module), name, before[module, name])
        cache = found.get(parameter)
        usual = cache is None or type(cache) is cache_utils.DynamicCache
        _KNOWN[model] = OwnStates(parameter, None if usual else cache, tuple(moved))
    return _KNOWN[model]


def has_own_cache(model: nn.Module) -> bool:
    """Whether a model, whose states were found, keeps them in a cache of its own class."""
    return _KNOWN[model].cache is not None


def _attributes(model: nn.Module) -> dict[tuple[str, str], Tensor | None]:
    """Attributes of modules, other than parameters and buffers, that are tensors or None."""
    return {
        (name, attribute): value
        for name, module in model.named_modules()
        for attribute, value in vars(module).items()
        if name and not attribute.startswith("_") and (value is None or isinstance(value, Tensor))
    }


def _parts(value: Any) -> dict[str | int, Any]:
    """Items of a container, or attributes of an object of transformers, by name; empty for anything else."""
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, dict):
        return dict(value)
    if type(value).__module__.startswith("transformers.") and not isinstance(value, PreTrainedConfig):
        return dict(vars(value))
    return {}


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    for name, part in _parts(value).items():
        yield from _leaves(part, (*path, name))


def _copy_with(value: Any, path: Path, states: Mapping[tuple[int, str], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return states.get(_key(path), value).clone()  # models write to cache tensors
    parts = {name: _copy_with(part, (*path, name), states) for name, part in _parts(value).items()}
    if isinstance(value, list | tuple):
        return type(value)(parts.values())
    if isinstance(value, dict):
        return parts
    if parts:
        value = copy.copy(value)
        vars(value).update(parts)
    return value


#: Kinds of state by attribute name in caches of transformers.
_KINDS = {"keys": "key", "values": "value"}


def _key(path: Path) -> tuple[int, str]:
    """Layer and kind of a tensor: the first number on its path, and its name followed by further numbers."""
    numbers = [int(part) for part in path if str(part).isdigit()]
    names = [part for part in path if not str(part).isdigit()]
    kind = str(_KINDS.get(str(names[-1]), names[-1]))
    return (numbers or [0])[0], ".".join([kind, *map(str, numbers[1:])])
