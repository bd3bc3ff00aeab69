"""What a graph is read from: functions, bound methods, and modules of Flax and Equinox, with their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tenonnx.extend import InvalidCall


@dataclass(frozen=True)
class Source:
    """A function of its parameters and its arguments. ``parameters`` has the arrays by the path that leads to them."""

    name: str
    signature: inspect.Signature
    parameters: Mapping[str, Any]
    call: Callable[..., Any]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.call(list(self.parameters.values()), arguments, keywords)


def source_of(given: Any, variables: Any = None, method: str | None = None) -> Source:
    """Raises ``InvalidCall`` for what cannot be called, and a linen module without its variables."""
    kinds = {
        f"{kind.__module__.split('.')[0]}.{kind.__module__.split('.')[1] if '.' in kind.__module__ else ''}"
        for kind in type(given).__mro__
    }
    if "flax.linen" in kinds:
        return _linen(given, variables, method)
    if variables is not None:
        raise InvalidCall("variables are for modules of flax.linen", given=type(given).__qualname__)
    if "flax.nnx" in kinds:
        return _nnx(given, method)
    function = getattr(given, method) if method else given
    if not callable(function):
        raise InvalidCall("a model of JAX must be a function or a module", given=type(given).__qualname__)
    if "equinox._module" in kinds or "equinox." in kinds or any(k.startswith("equinox.") for k in kinds):
        return _tree(given, function, method)
    owner = getattr(function, "__self__", None)
    if owner is not None and any(kind.__module__.startswith("flax.nnx") for kind in type(owner).__mro__):
        return _nnx(owner, function.__name__)
    return _function(function)


def _function(function: Any) -> Source:
    """A function; arrays that it holds, of its closure and of ``functools.partial``, are its parameters by name."""
    name = getattr(function, "__name__", type(function).__name__)
    return Source(name, _signature(function), {}, lambda held, arguments, keywords: function(*arguments, **keywords))


def _signature(function: Any) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return inspect.Signature(
            [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        )


def _tree(given: Any, function: Any, method: str | None) -> Source:
    leaves, structure = jax.tree_util.tree_flatten_with_path(given)
    places = [k for k, (_, leaf) in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)]

    def call(held: Any, arguments: Any, keywords: Any) -> Any:
        filled = [leaf for _, leaf in leaves]
        for place, array in zip(places, held, strict=True):
            filled[place] = array
        module = jax.tree_util.tree_unflatten(structure, filled)
        return (getattr(module, method) if method else module)(*arguments, **keywords)

    parameters = _named([(leaves[k][0], leaves[k][1]) for k in places])
    return Source(type(given).__name__, _signature(function), parameters, call)


def _nnx(module: Any, method: str | None) -> Source:
    from flax import nnx

    definition, state = nnx.split(module)
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    places = [k for k, (_, leaf) in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)]

    def call(held: Any, arguments: Any, keywords: Any) -> Any:
        filled = [leaf for _, leaf in leaves]
        for place, array in zip(places, held, strict=True):
            filled[place] = array
        merged = nnx.merge(definition, jax.tree_util.tree_unflatten(structure, filled))
        return getattr(merged, method or "__call__")(*arguments, **keywords)

    parameters = _named([(leaves[k][0], leaves[k][1]) for k in places])
    return Source(type(module).__name__, _signature(getattr(module, method or "__call__")), parameters, call)


def _linen(module: Any, variables: Any, method: str | None) -> Source:
    if variables is None:
        if module.scope is None:
            raise InvalidCall(
                f"{type(module).__name__} must be bound to its variables",
                given="a module of flax.linen without them",
                do="give them: tx.load(module.bind(variables), *examples), or variables=variables",
            )
        module, variables = module.unbind()
    leaves, structure = jax.tree_util.tree_flatten_with_path(variables)

    def call(held: Any, arguments: Any, keywords: Any) -> Any:
        return module.apply(jax.tree_util.tree_unflatten(structure, held), *arguments, **keywords, method=method)

    parameters = _named(leaves, "params.")
    return Source(type(module).__name__, _signature(getattr(module, method or "__call__")), parameters, call)


def _named(leaves: Sequence[tuple[Any, Any]], without: str = "") -> dict[str, Any]:
    """Arrays by their paths, ``without`` what these begin with where they differ without that, too."""
    names = [path_name(path) for path, _ in leaves]
    shorter = [name.removeprefix(without) for name in names]
    names = shorter if len(set(shorter)) == len(shorter) else names
    if len(set(names)) != len(names):
        names = [f"{name}.{k}" for k, name in enumerate(names)]
    return dict(zip(names, (array for _, array in leaves), strict=True))


def path_name(path: Any) -> str:
    """The name of what lies at a path of a tree, ``layers.0.kernel``."""
    keys = list(path)
    if len(keys) > 1 and getattr(keys[-1], "name", None) == "value":  # what a variable of nnx holds
        keys.pop()
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in keys]
    return ".".join(parts) or "constant"
