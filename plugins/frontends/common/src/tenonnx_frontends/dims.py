"""Dynamic dims: the forms in which callers give them, and the sizes to compare at."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.extend import InvalidCall, did_you_mean, listing

#: Dims that vary, by input (its name, or its position) and axis: a name, or what stands for one in the framework.
Dims = Mapping[str | int, Mapping[int, Any] | Sequence[Any]]


def read_dims(
    dims: Dims | str | os.PathLike[str] | None = None, dynamic_axes: Dims | str | os.PathLike[str] | None = None
) -> dict[str | int, Any]:
    """Dims as a mapping of inputs to axes, whichever of the two was given: a mapping, JSON, or a file of it.

    Numbers of axes may be texts, as JSON has them; a list of axes gives each a name of its own. Raises ``InvalidCall``.
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
    """The axes that vary by input, no axis negative, and what is said of others, which may be outputs.

    ``shapes`` are those of the inputs; ``aliases`` other names of these. Raises ``InvalidCall`` for axes of none.
    """
    names, found, others = list(shapes), {}, {}
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
        found[name] = {axis % rank: dim for axis, dim in axes.items() if dim is not None}
    return found, others


def batched(axes: Mapping[str, Mapping[int, Any]], shapes: Mapping[str, Sequence[Any]]) -> dict[str, dict[int, Any]]:
    """Axes that vary, and the first of every input as "batch" where it has no other name."""
    return {name: {0: "batch", **axes.get(name, {})} for name, shape in shapes.items() if len(shape)}


def unknown_dims(key: Any, names: Sequence[str]) -> InvalidCall:
    """The error for dims of what is neither input nor output."""
    return InvalidCall(
        "dims name no input that is a tensor, and no output",
        given=repr(key),
        available=listing(names),
        do=did_you_mean(key, names),
    )


def sizes_of(axes: Mapping[str, Mapping[int, Any]], shapes: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """The size of each dim that has a name. Raises ``InvalidCall`` where one name has two."""
    found: dict[str, tuple[int, str]] = {}
    for name, held in axes.items():
        for axis, dim in held.items():
            if isinstance(dim, str):
                size = int(shapes[name][axis])
                first, where = found.setdefault(dim, (size, name))
                if first != size:
                    given = f'{first} in "{where}", {size} in "{name}"'
                    raise InvalidCall(f'dim "{dim}" has two sizes', given=given)
    return {dim: size for dim, (size, _) in found.items()}


def sizes_to_compare(given: Mapping[str, int]) -> list[dict[str, int]]:
    """Those of the examples, and for each dim 1 and one more than two times as many; all of them at 1.

    An example of size 1 is followed by two larger ones.
    """
    alone = [{dim: n} for dim, size in given.items() for n in [n for n in (1, 2 * size + 1, 4) if n != size][:2]]
    return [{}, *alone, *([dict.fromkeys(given, 1)] if len(given) > 1 else [])]


def resized(array: np.ndarray[Any, Any], sizes: Mapping[int, int]) -> np.ndarray[Any, Any]:
    """The elements again and again along each axis; floats shrink in each round, so that no two are equal for that.

    Integers in order, such as offsets, stay in order; what has no elements gets zeros.
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
    """``{"0": "batch"}`` by number; ``[0, 2]``, axes that have no name yet, with names of their own."""
    if isinstance(axes, Mapping):
        return {int(axis) if _is_number(axis) else axis: dim for axis, dim in axes.items()}
    if isinstance(axes, Sequence) and axes and all(type(axis) is int for axis in axes):
        return {axis: f"{key}_dim_{axis}" for axis in axes}
    if not isinstance(axes, Sequence) or isinstance(axes, str):
        raise InvalidCall(f'dims of input "{key}" are not a mapping or a list of its axes', given=repr(axes)[:200])
    return axes


def _is_number(text: Any) -> bool:
    return isinstance(text, str) and text.removeprefix("-").isdecimal() and text.isascii()
