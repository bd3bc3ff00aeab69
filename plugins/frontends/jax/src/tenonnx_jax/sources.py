"""Sources: functions, bound methods, and modules of Flax and Equinox, with their parameters."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tenonnx.extend import InvalidCall


@dataclass(frozen=True)
class Source:
    """A function of its parameters and its arguments.

    ``parameters`` has the arrays by their path, ``buffers`` the names of those that are not trained. A call returns the
    result of the function, and by name the new contents of parameters.
    """

    name: str
    signature: inspect.Signature
    parameters: Mapping[str, Any]
    call: Callable[..., tuple[Any, Mapping[str, Any]]]
    buffers: frozenset[str] = frozenset()

    def __call__(self, *arguments: Any, **keywords: Any) -> tuple[Any, Mapping[str, Any]]:
        return self.call(list(self.parameters.values()), arguments, keywords)


def source_of(
    given: Any, variables: Any = None, method: str | None = None, mutable: Sequence[str] | str = ()
) -> Source:
    """Wrap a source. Raises ``InvalidCall`` for objects that are not callable, and linen modules without variables."""
    if isinstance(given, Source):
        return given
    exported = isinstance(given, jax.export.Exported)
    if exported or isinstance(given, str | os.PathLike):
        what = f"jax.export.Exported of {given.fun_name}" if exported else f'"{os.fspath(given)}"'
        raise InvalidCall(
            "cannot load a model exported from JAX without the exported function",
            given=f"{what}, which is StableHLO and has no jaxpr any more",
            do="tx.load(function, *examples), or write the module and give FILE.py:FUNCTION to tenonnx convert",
        )
    kinds = {
        f"{kind.__module__.split('.')[0]}.{kind.__module__.split('.')[1] if '.' in kind.__module__ else ''}"
        for kind in type(given).__mro__
    }
    if "flax.linen" in kinds:
        return _linen(given, variables, method, [mutable] if isinstance(mutable, str) else list(mutable))
    if variables is not None or mutable:
        raise InvalidCall(
            "variables or mutable was given for something other than a module of flax.linen",
            given=type(given).__qualname__,
        )
    if "flax.nnx" in kinds:
        return _nnx(given, method)
    function = getattr(given, method) if method else given
    if not callable(function):
        raise InvalidCall("a model of JAX is neither a function nor a module", given=type(given).__qualname__)
    if "equinox._module" in kinds or "equinox." in kinds or any(k.startswith("equinox.") for k in kinds):
        return _tree(given, function, method)
    owner = getattr(function, "__self__", None)
    if owner is not None and any(kind.__module__.startswith("flax.nnx") for kind in type(owner).__mro__):
        return _nnx(owner, function.__name__)
    return _function(function)


def _function(function: Any) -> Source:
    """A function without parameters; arrays in its closure are constants."""
    name = getattr(function, "__name__", type(function).__name__)
    return Source(
        name, _signature(function), {}, lambda state, arguments, keywords: (function(*arguments, **keywords), {})
    )


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

    def call(state: Any, arguments: Any, keywords: Any) -> Any:
        filled = [leaf for _, leaf in leaves]
        for place, array in zip(places, state, strict=True):
            filled[place] = array
        module = jax.tree_util.tree_unflatten(structure, filled)
        return (getattr(module, method) if method else module)(*arguments, **keywords), {}

    parameters = _named([(leaves[k][0], leaves[k][1]) for k in places])
    return Source(type(given).__name__, _signature(function), parameters, call)


def _nnx(module: Any, method: str | None) -> Source:
    from flax import nnx

    definition, state = nnx.split(module)
    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    places = [k for k, (_, leaf) in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)]

    def call(state: Any, arguments: Any, keywords: Any) -> Any:
        filled = [leaf for _, leaf in leaves]
        for place, array in zip(places, state, strict=True):
            filled[place] = array
        merged = nnx.merge(definition, jax.tree_util.tree_unflatten(structure, filled))
        result = getattr(merged, method or "__call__")(*arguments, **keywords)
        left = dict(jax.tree_util.tree_flatten_with_path(nnx.state(merged))[0])
        changed = {
            name: left[leaves[k][0]]
            for name, k, array in zip(parameters, places, state, strict=True)
            if left.get(leaves[k][0], array) is not array
        }
        return result, changed

    parameters = _named([(leaves[k][0], leaves[k][1]) for k in places])
    trained = {path for path, _ in jax.tree_util.tree_flatten_with_path(nnx.state(module, nnx.Param))[0]}
    buffers = frozenset(name for name, k in zip(parameters, places, strict=True) if leaves[k][0] not in trained)
    signature = _signature(getattr(module, method or "__call__"))
    return Source(type(module).__name__, signature, parameters, call, buffers)


def _linen(module: Any, variables: Any, method: str | None, mutable: Sequence[str]) -> Source:
    if variables is None:
        if module.scope is None:
            raise InvalidCall(
                f"{type(module).__name__} is not bound to its variables",
                given="a module of flax.linen",
                do="give them: tx.load(module.bind(variables), *examples), or variables=variables",
            )
        module, variables = module.unbind()
    leaves, structure = jax.tree_util.tree_flatten_with_path(variables)

    def call(state: Any, arguments: Any, keywords: Any) -> Any:
        given = jax.tree_util.tree_unflatten(structure, state)
        if not mutable:
            return module.apply(given, *arguments, **keywords, method=method), {}
        result, changed = module.apply(given, *arguments, **keywords, method=method, mutable=mutable)
        left = dict(jax.tree_util.tree_flatten_with_path(changed)[0])
        names = zip(parameters, (path for path, _ in leaves), strict=True)
        return result, {name: left[path] for name, path in names if path in left}

    parameters = _named(leaves, "params.")
    buffers = frozenset(n for n, (path, _) in zip(parameters, leaves, strict=True) if path[0].key != "params")
    signature = _signature(getattr(module, method or "__call__"))
    rngs = inspect.Parameter("rngs", inspect.Parameter.KEYWORD_ONLY, default=None)
    if "rngs" not in signature.parameters and inspect.Parameter.VAR_KEYWORD not in {
        each.kind for each in signature.parameters.values()
    }:
        signature = signature.replace(parameters=[*signature.parameters.values(), rngs])
    return Source(type(module).__name__, signature, parameters, call, buffers)


def _named(leaves: Sequence[tuple[Any, Any]], without: str = "") -> dict[str, Any]:
    """Arrays by path, with the prefix ``without`` removed if paths stay distinct."""
    names = [path_name(path) for path, _ in leaves]
    shorter = [name.removeprefix(without) for name in names]
    names = shorter if len(set(shorter)) == len(shorter) else names
    if len(set(names)) != len(names):
        names = [f"{name}.{k}" for k, name in enumerate(names)]
    return dict(zip(names, (array for _, array in leaves), strict=True))


def path_name(path: Any) -> str:
    """The name of a path in a tree, such as ``layers.0.kernel``."""
    keys = list(path)
    if len(keys) > 1 and getattr(keys[-1], "name", None) == "value":  # the content of an nnx variable
        keys.pop()
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in keys]
    return ".".join(parts) or "constant"
