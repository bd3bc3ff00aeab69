"""Dynamic dims: forms in which callers pass them, and sizes for verification."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import InvalidCall, did_you_mean, listing

#: Dynamic dims by input (name or index) and axis: a name, or the framework's dim object.
Dims = Mapping[str | int, Mapping[int, Any] | Sequence[Any]]


def read_dims(
    dims: Dims | str | os.PathLike[str] | None = None, dynamic_axes: Dims | str | os.PathLike[str] | None = None
) -> dict[str | int, Any]:
    """Read dims as a mapping of inputs to axes, from either argument: a mapping, JSON, or a JSON file.

    Axes may be strings, as in JSON; a list of axes generates names. Raises ``InvalidCall`` for both or invalid ones.
    """
    if dims is not None and dynamic_axes is not None:
        raise InvalidCall("dynamic dims were given both by dims and by dynamic_axes")
    given: Any = dynamic_axes if dims is None else dims
    if isinstance(given, str | os.PathLike):
        given = _decoded(given)
    if not isinstance(given, Mapping | None):
        raise InvalidCall("dims are not a mapping of inputs", given=repr(given)[:200], available='{"x": {0: "batch"}}')
    return {key: _axes(key, axes) for key, axes in (given or {}).items()}


def named_axes(
    dims: Mapping[str | int, Any], shapes: Mapping[str, Sequence[Any]], aliases: Mapping[str, str] | None = None
) -> tuple[dict[str, dict[int, Any]], dict[str, Any]]:
    """Dynamic axes by input, non-negative, and the entries for other names, which may be outputs.

    ``shapes`` are those of the inputs, ``aliases`` other names of these. Raises ``InvalidCall`` for axes out of range.
    """
    names, result, others = list(shapes), {}, {}
    for key, given in dims.items():
        name = names[key] if isinstance(key, int) and 0 <= key < len(names) else (aliases or {}).get(str(key), key)
        if not isinstance(name, str):
            raise unknown_dims(key, names)
        if name not in shapes:
            others[name] = given
            continue
        axes = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
        rank = len(shapes[name])
        wrong = [axis for axis in axes if not isinstance(axis, int) or not -rank <= axis < rank]
        if wrong:
            raise InvalidCall(
                f'dims of input "{name}" name an axis that it does not have',
                given=f"axis {wrong[0]!r}",
                available=f"0 to {rank - 1}, as its shape is {list(shapes[name])}" if rank else "none, it is a scalar",
            )
        result[name] = {axis % rank: dim for axis, dim in axes.items() if dim is not None}
    return result, others


def batched(axes: Mapping[str, Mapping[int, Any]], shapes: Mapping[str, Sequence[Any]]) -> dict[str, dict[int, Any]]:
    """Dynamic axes with the first axis of every input named "batch", unless it has a name."""
    return {name: {0: "batch", **axes.get(name, {})} for name, shape in shapes.items() if len(shape)}


def unknown_dims(key: Any, names: Sequence[str]) -> InvalidCall:
    """The error for dims of a name that is neither an input nor an output."""
    return InvalidCall(
        "dims name no input that is a tensor, and no output",
        given=repr(key),
        available=listing(names),
        do=did_you_mean(key, names),
    )


def sizes_of(axes: Mapping[str, Mapping[int, Any]], shapes: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Size of each named dim. Raises ``InvalidCall`` for inconsistent sizes."""
    found: dict[str, tuple[int, str]] = {}
    for name, dims in axes.items():
        for axis, dim in dims.items():
            if isinstance(dim, str):
                size = int(shapes[name][axis])
                first, where = found.setdefault(dim, (size, name))
                if first != size:
                    given = f'{first} in "{where}", {size} in "{name}"'
                    raise InvalidCall(f'dim "{dim}" has two sizes', given=given)
    return {dim: size for dim, (size, _) in found.items()}


def sizes_to_compare(given: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes for verification: those of the examples; for each dim 1 and 2 * size + 1; and all dims 1.

    For an example of size 1, two larger sizes are used.
    """
    alone = [{dim: n} for dim, size in given.items() for n in [n for n in (1, 2 * size + 1, 4) if n != size][:2]]
    return [{}, *alone, *([dict.fromkeys(given, 1)] if len(given) > 1 else [])]


def resized(array: np.ndarray[Any, Any], sizes: Mapping[int, int]) -> np.ndarray[Any, Any]:
    """Repeat or cut the elements along each axis; repeated floats are scaled down, so that repetitions differ.

    Sorted integers, such as offsets, stay sorted; an empty array is padded with zeros.
    """
    changed = array
    ordered = array.ndim == 1 and array.dtype.kind in "iu" and bool((array[1:] >= array[:-1]).all())
    for axis, size in sizes.items():
        length = changed.shape[axis]
        if not length:
            return np.zeros([sizes.get(k, n) for k, n in enumerate(array.shape)], array.dtype)
        shrinks = array.dtype.kind in "fcV"
        rounds = [
            (changed * 0.875**k).astype(array.dtype) if shrinks and k else changed for k in range(-(-size // length))
        ]
        changed = np.take(np.concatenate(rounds or [changed], axis), range(size), axis)
    return np.sort(changed) if ordered else np.ascontiguousarray(changed).reshape(changed.shape)


def _decoded(given: str | os.PathLike[str]) -> Any:
    text = os.fspath(given)
    try:
        return json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidCall(
            "dims are neither JSON nor a JSON file", given=f"{text[:200]}: {error}", available='{"x": {"0": "batch"}}'
        ) from error


def _axes(key: Any, axes: Any) -> Any:
    """Axes as a mapping: ``{"0": "batch"}`` with integer keys; a list such as ``[0, 2]`` with generated names."""
    if isinstance(axes, Mapping):
        return {int(axis) if _is_number(axis) else axis: dim for axis, dim in axes.items()}
    if isinstance(axes, Sequence) and axes and all(type(axis) is int for axis in axes):
        return {axis: f"{key}_dim_{axis}" for axis in axes}
    if not isinstance(axes, Sequence) or isinstance(axes, str):
        raise InvalidCall(f'dims of input "{key}" are not a mapping or a list of its axes', given=repr(axes)[:200])
    return axes


def _is_number(text: Any) -> bool:
    return isinstance(text, str) and text.removeprefix("-").isdecimal() and text.isascii()
