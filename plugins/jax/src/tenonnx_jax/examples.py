"""Examples: what a function is called with, as named arrays whose dims may vary."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tenonnx.extend import InvalidCall
from tenonnx_jax.sources import Source, path_name

#: Dims that vary, by input (its name, or its position among the arrays) and axis.
Dims = Mapping[str | int, Mapping[int, str] | Sequence[str | None]]


@dataclass(frozen=True)
class Examples:
    """The arguments of one call, the arrays among them by name, and of each the names of the axes that vary."""

    structure: Any
    leaves: Sequence[Any]
    places: Sequence[int]
    names: Sequence[str]
    dims: Mapping[str, Mapping[int, str]]

    @classmethod
    def of(
        cls,
        source: Source,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
        dims: Dims | str | os.PathLike[str] | None = None,
        dynamic_batch: bool = False,
        names: Sequence[str] | None = None,
    ) -> Examples:
        """Raises ``InvalidCall`` where the function does not take them, and for dims of none."""
        given, named = tuple(arguments), dict(keywords or {})
        try:
            bound = source.signature.bind(*given, **named)
        except TypeError as error:
            raise InvalidCall(
                f"the examples must be what {source.name} takes",
                given=str(error),
                available=f"{source.name}{source.signature}",
                do="give one example for each argument: tx.load(function, *examples)",
            ) from error
        labels = _labels(source, bound, given, named)
        pairs, structure = jax.tree_util.tree_flatten_with_path((given, named))
        leaves = [_as_array(leaf) for _, leaf in pairs]
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)]
        found = [_label(labels, pairs[k][0]) for k in places]
        chosen = (
            list(names)
            if names is not None
            else [n if found.count(n) == 1 else f"{n}_{k}" for k, n in enumerate(found)]
        )
        if len(chosen) != len(places) or len(set(chosen)) != len(chosen):
            raise InvalidCall(
                f"the names of inputs must be different, and one for each of the {len(places)} inputs",
                given=", ".join(chosen),
            )
        ranks = {name: np.ndim(leaves[k]) for name, k in zip(chosen, places, strict=True)}
        varying = _checked(_read(dims), chosen, found, ranks)
        if dynamic_batch:
            batched = {name: {0: "batch"} for name, rank in ranks.items() if rank}
            varying = {name: {**batched.get(name, {}), **varying.get(name, {})} for name in chosen}
        return cls(structure, leaves, places, chosen, varying)

    @property
    def arrays(self) -> dict[str, Any]:
        return {name: self.leaves[k] for name, k in zip(self.names, self.places, strict=True)}

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each dim that has a name. Raises ``InvalidCall`` where one name has two."""
        found: dict[str, tuple[int, str]] = {}
        for name, axes in self.dims.items():
            for axis, dim in axes.items():
                size = int(self.arrays[name].shape[axis])
                first, where = found.setdefault(dim, (size, name))
                if first != size:
                    given = f'{first} in "{where}", {size} in "{name}"'
                    raise InvalidCall(f'dim "{dim}" must be one number', given=given)
        return {dim: size for dim, (size, _) in found.items()}

    def arguments(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call with other arrays."""
        filled = list(self.leaves)
        for place, array in zip(self.places, arrays, strict=True):
            filled[place] = array
        given, named = jax.tree_util.tree_unflatten(self.structure, filled)
        return given, named

    def resized(self, sizes: Mapping[str, int]) -> list[Any]:
        """The arrays, those dims of these names at other sizes, made of the same elements."""
        found = []
        for name, array in self.arrays.items():
            for axis, dim in self.dims.get(name, {}).items():
                if dim in sizes:
                    array = _resized(array, axis, sizes[dim])
            found.append(array)
        return found

    def types(self) -> list[jax.ShapeDtypeStruct]:
        """Shapes with a symbol of JAX for each dim that varies."""
        names = list(self.sizes)
        held = dict(zip(names, jax.export.symbolic_shape(",".join(names)), strict=True)) if names else {}
        found = []
        for name, array in self.arrays.items():
            axes = self.dims.get(name, {})
            shape = tuple(held[axes[k]] if k in axes else int(n) for k, n in enumerate(array.shape))
            found.append(
                jax.ShapeDtypeStruct(
                    shape, jax.dtypes.canonicalize_dtype(array.dtype) if not _is_key(array) else array.dtype
                )
            )
        return found


def _is_key(array: Any) -> bool:
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))


def _as_array(leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        return np.asarray(leaf)
    return leaf


def _resized(array: Any, axis: int, size: int) -> Any:
    """More or fewer elements along an axis: those there are, repeated, floats a little smaller each time."""
    length = array.shape[axis]
    if not length:
        raise InvalidCall("a dim that varies must have elements in the examples", given=f"shape {list(array.shape)}")
    if _is_key(array):
        return array[jax.numpy.arange(size) % length] if not axis else array
    array = np.asarray(array)
    rounds = [
        array * array.dtype.type(0.875**k) if array.dtype.kind in "fcV" else array for k in range(-(-size // length))
    ]
    return np.take(np.concatenate(rounds, axis), range(size), axis).astype(array.dtype)


def _labels(source: Source, bound: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[Any, str]:
    """The parameter that each argument is given for."""
    found: dict[Any, str] = {(1, name): name for name in named}
    parameters = [
        p for p in source.signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    rest = next((p.name for p in source.signature.parameters.values() if p.kind is p.VAR_POSITIONAL), "args")
    for k in range(len(given)):
        found[(0, k)] = parameters[k].name if k < len(parameters) else f"{rest}_{k - len(parameters)}"
    return found


def _label(labels: Mapping[Any, str], path: Any) -> str:
    first, second, *others = path
    start = labels[(first.idx, getattr(second, "idx", getattr(second, "key", None)))]
    return "_".join([start, *(part for part in path_name(others).split(".") if others)])


def _read(dims: Any) -> Any:
    if isinstance(dims, str | os.PathLike):
        text = str(dims)
        if not text.lstrip().startswith("{"):
            text = Path(dims).read_text()
        try:
            dims = json.loads(text)
        except ValueError as error:
            raise InvalidCall("dims must be JSON, or a file of it", given=str(error)) from error
        return {
            name: {int(axis): dim for axis, dim in axes.items()} if isinstance(axes, dict) else axes
            for name, axes in dims.items()
        }
    return dims or {}


def _checked(
    dims: Any, names: Sequence[str], found: Sequence[str], ranks: Mapping[str, int]
) -> dict[str, dict[int, str]]:
    if not isinstance(dims, Mapping):
        raise InvalidCall("dims must be a mapping of inputs to axes and names", given=repr(dims)[:100])
    checked: dict[str, dict[int, str]] = {}
    for key, given in dims.items():
        name = names[key] if isinstance(key, int) and 0 <= key < len(names) else key
        if name not in names and list(found).count(name) == 1:
            name = names[list(found).index(name)]
        if name not in names:
            raise InvalidCall("dims must name inputs that are arrays", given=repr(key), available=", ".join(names))
        axes = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
        rank = ranks[name]
        for axis, dim in axes.items():
            if not isinstance(axis, int) or not -rank <= axis < rank:
                raise InvalidCall(
                    f'dims of input "{name}" must be of its axes', given=f"axis {axis!r}", available=f"0 to {rank - 1}"
                )
            if dim is not None and not (isinstance(dim, str) and dim.isidentifier()):
                raise InvalidCall("a dim that varies must have a name", given=repr(dim), do='as in {"x": {0: "batch"}}')
        checked[name] = {axis % rank: dim for axis, dim in axes.items() if dim is not None}
    return checked
