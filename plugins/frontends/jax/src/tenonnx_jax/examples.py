"""Example arguments as named arrays with dynamic dims."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tenonnx.extend import InvalidCall
from tenonnx_frontends import Dims, batched, chosen_names, named_axes, read_dims, resized, sizes_of, unknown_dims
from tenonnx_jax.sources import Source, path_name


@dataclass(frozen=True)
class Examples:
    """The arguments of one call, with its arrays by name, and the names of their dynamic axes."""

    structure: Any
    leaves: Sequence[Any]
    array_positions: Sequence[int]
    names: Sequence[str]
    dims: Mapping[str, Mapping[int, str]]

    @classmethod
    def of(
        cls,
        source: Source,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
        dims: Dims | str | os.PathLike[str] | None = None,
        dynamic_axes: Dims | str | os.PathLike[str] | None = None,
        dynamic_batch: bool = False,
        names: Sequence[str] | None = None,
    ) -> Examples:
        """The examples of a call. Raises ``InvalidCall`` where the function rejects them, and for unknown dims."""
        given, named = tuple(arguments), dict(keywords or {})
        try:
            bound = source.signature.bind(*given, **named)
        except TypeError as error:
            raise InvalidCall(
                f"{source.name} does not take these examples",
                given=str(error),
                available=f"{source.name}{source.signature}",
                do="give one example for each argument: tx.load(function, *examples)",
            ) from error
        labels = _labels(source, bound, given, named)
        pairs, structure = jax.tree_util.tree_flatten_with_path((given, named))
        leaves = [_as_array(leaf) for _, leaf in pairs]
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)]
        found = [_label(labels, pairs[k][0]) for k in places]
        default = [n if found.count(n) == 1 else f"{n}_{k}" for k, n in enumerate(found)]
        chosen = chosen_names("inputs", names, default)
        shapes = {name: np.shape(leaves[k]) for name, k in zip(chosen, places, strict=True)}
        varying, others = named_axes(read_dims(dims, dynamic_axes), shapes, dict(zip(default, chosen, strict=True)))
        if others:
            raise unknown_dims(next(iter(others)), chosen)
        if dynamic_batch:
            varying = batched(varying, shapes)
        for dim in (dim for axes in varying.values() for dim in axes.values()):
            if not (isinstance(dim, str) and dim.isidentifier()):
                raise InvalidCall("a dynamic dim has no name", given=repr(dim), do='as in {"x": {0: "batch"}}')
        return cls(structure, leaves, places, chosen, varying)

    @property
    def arrays(self) -> dict[str, Any]:
        return {name: self.leaves[k] for name, k in zip(self.names, self.array_positions, strict=True)}

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each named dim. Raises ``InvalidCall`` for inconsistent sizes."""
        return sizes_of(self.dims, {name: array.shape for name, array in self.arrays.items()})

    def arguments(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, with other arrays."""
        filled = list(self.leaves)
        for place, array in zip(self.array_positions, arrays, strict=True):
            filled[place] = array
        given, named = jax.tree_util.tree_unflatten(self.structure, filled)
        return given, named

    def resized(self, sizes: Mapping[str, int]) -> list[Any]:
        """The arrays with other sizes of these dims, filled by repeating or cutting the elements."""
        return [
            _resized(array, {axis: sizes[dim] for axis, dim in self.dims.get(name, {}).items() if dim in sizes})
            for name, array in self.arrays.items()
        ]

    def types(self) -> list[jax.ShapeDtypeStruct]:
        """Shapes with a JAX symbol for each dynamic dim."""
        names = list(self.sizes)
        symbols = dict(zip(names, jax.export.symbolic_shape(",".join(names)), strict=True)) if names else {}
        result = []
        for name, array in self.arrays.items():
            axes = self.dims.get(name, {})
            shape = tuple(symbols[axes[k]] if k in axes else int(n) for k, n in enumerate(array.shape))
            result.append(
                jax.ShapeDtypeStruct(
                    shape, jax.dtypes.canonicalize_dtype(array.dtype) if not _is_key(array) else array.dtype
                )
            )
        return result


def _is_key(array: Any) -> bool:
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))


def _as_array(leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        return np.asarray(leaf)
    return leaf


def _resized(array: Any, sizes: Mapping[int, int]) -> Any:
    if not sizes:
        return array
    if not _is_key(array):
        return resized(np.asarray(array), sizes)
    return array[jax.numpy.arange(sizes[0]) % len(array)] if 0 in sizes else array


def _labels(source: Source, bound: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[Any, str]:
    """The parameter of each argument."""
    result: dict[Any, str] = {(1, name): name for name in named}
    parameters = [
        p for p in source.signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    rest = next((p.name for p in source.signature.parameters.values() if p.kind is p.VAR_POSITIONAL), "args")
    for k in range(len(given)):
        result[(0, k)] = parameters[k].name if k < len(parameters) else f"{rest}_{k - len(parameters)}"
    return result


def _label(labels: Mapping[Any, str], path: Any) -> str:
    first, second, *others = path
    start = labels[(first.idx, getattr(second, "idx", getattr(second, "key", None)))]
    return "_".join([start, *(part for part in path_name(others).split(".") if others)])
