"""Feeds of a graph: checks of their types, and of the requirements of the nodes that read them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import InvalidFeed, did_you_mean
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Value
from tenonnx.graph.symbolic import symbols_of
from tenonnx.graph.types import MapType, TensorType
from tenonnx.op.binding import bind
from tenonnx.op.op import Op
from tenonnx.op.requirements import Requirement

Array = np.ndarray[Any, Any]


def check_feeds(all_inputs: Sequence[Value], feeds: Mapping[str, Any]) -> list[Any]:
    """The feed of every input in order; None for a default that is not fed.

    Numbers are cast to the float dtype of an input, with one warning if the feed has another dtype. Other casts must be
    exact.

    Raises ``InvalidFeed`` for a missing or unknown name, and for a dtype, rank or dim other than the input's.
    """
    names = {value.name for value in all_inputs}
    if not isinstance(feeds, Mapping):
        raise InvalidFeed(
            "feeds do not map names of inputs to arrays",
            given=type(feeds).__name__,
            available=", ".join(f"{v.name}: {v.type}" for v in all_inputs),
            do='call it as graph.run({"name": array})',
        )
    unknown = [name for name in feeds if name not in names]
    missing = [v.name for v in all_inputs if v.name not in feeds and v.data is None]
    if unknown or missing:
        problem = f'no input is called "{unknown[0]}"' if unknown else f'input "{missing[0]}" is not fed'
        raise InvalidFeed(
            problem,
            given=", ".join(map(str, feeds)) or "no feeds",
            available=", ".join(f"{v.name}: {v.type}" for v in all_inputs),
            do=did_you_mean(unknown[0], [v.name for v in all_inputs]) if unknown else "",
        )
    symbols: dict[str, tuple[int, str]] = {}
    return [_check_feed(value, feeds[value.name], symbols) if value.name in feeds else None for value in all_inputs]


def _check_feed(value: Value, feed: Any, symbols: dict[str, tuple[int, str]]) -> Any:
    if isinstance(value.type, MapType):
        return _check_map(value, value.type, feed)
    if not isinstance(value.type, TensorType):
        return feed
    kind = value.type
    try:
        array = np.asarray(feed)
    except Exception as error:  # whatever numpy or the object itself raises if it cannot become an array
        given = f"{type(feed).__name__}, which is not an array: {error}"
        raise InvalidFeed(f'input "{value.name}" got a feed that is not {kind}', given=given) from error
    given = f"{array.dtype} array of shape {array.shape}"
    if kind.dtype is DType.string:
        if array.dtype.kind not in "OUST":
            raise InvalidFeed(f'input "{value.name}" got a feed that is not {kind}', given=given)
        array = array.astype(object)
        others = {type(each).__name__ for each in array.flat if not isinstance(each, str | bytes)}
        if others:
            raise InvalidFeed(
                f'input "{value.name}" got a feed that is not {kind}',
                given=f"{given} with {', '.join(sorted(others))}",
            )
    elif array.dtype != kind.dtype.numpy:
        array = _cast(value, array, kind, is_typed=hasattr(feed, "dtype"))
    shape = kind.shape
    if shape is None:
        return array
    wrong = len(shape) != array.ndim
    for dim, size in zip(shape, array.shape, strict=False):
        if isinstance(dim, int):
            wrong = wrong or dim != size
        elif dim is not None and str(dim) in symbols_of(dim):
            first, where = symbols.setdefault(str(dim), (size, value.name))
            if first != size:
                raise InvalidFeed(
                    f'dim "{dim}" has two sizes',
                    given=f'{first} in "{where}", {size} in "{value.name}"',
                    available=f"{value.name}: {kind}",
                )
    if wrong:
        raise InvalidFeed(f'input "{value.name}" got a feed that is not {kind}', given=given)
    return array


def _check_map(value: Value, kind: MapType, feed: Any) -> dict[Any, Any]:
    """A map with values of the element type; Python floats take that type."""
    keys = str if kind.key is DType.string else int | np.integer
    if not isinstance(feed, dict) or not all(isinstance(key, keys) for key in feed):
        given = f"a dict with the keys {list(feed)[:5]}" if isinstance(feed, dict) else type(feed).__name__
        raise InvalidFeed(f'input "{value.name}" got a feed that is not {kind}', given=given)
    if not isinstance(kind.value, TensorType) or not feed:
        return feed
    contents: Any = list(feed.values())
    if kind.value.dtype.is_float and all(type(each) is float for each in contents):
        contents = np.asarray(contents, kind.value.dtype.numpy)
    whole = Value(value.name, TensorType(kind.value.dtype, (len(feed),)))
    return dict(zip(feed, _check_feed(whole, contents, {}), strict=True))


def _cast(value: Value, array: Array, kind: TensorType, *, is_typed: bool) -> Array:
    """Cast the numbers to the dtype of the input: rounded to floats, otherwise exactly. Raises ``InvalidFeed``."""
    if not kind.dtype.is_float or kind.dtype.bits < 16 or array.dtype.kind not in "biuf":
        return _exact_cast(value, array, kind)
    with np.errstate(all="ignore"):
        cast = array.astype(kind.dtype.numpy)
        lost = np.isfinite(array) & ~np.isfinite(cast.astype(np.float64))
    if lost.any():
        raise InvalidFeed(
            f'input "{value.name}" is fed with numbers beyond the range of {kind.dtype}',
            given=f"{array[lost].flat[0]} in an array of {array.dtype}",
        )
    if is_typed and array.dtype.newbyteorder("=") != kind.dtype.numpy:
        warnings.warn(f'input "{value.name}": {array.dtype} is cast to {kind.dtype}', stacklevel=2)
    return cast


def _exact_cast(value: Value, array: Array, kind: TensorType) -> Array:
    given = f"{array.dtype} array of shape {array.shape}"
    kinds = "biufcV" if kind.dtype.is_complex else "biufV"
    exact = array.dtype.kind in kinds and array.dtype.names is None
    if exact:
        try:
            with np.errstate(all="ignore"):
                cast = array.astype(kind.dtype.numpy)
                same = (cast if kind.dtype.is_complex else cast.astype(array.dtype)) == array
                exact = bool(np.all(same | (array != array) if kind.dtype.is_float else same))
        except (TypeError, ValueError):
            exact = False
    if not exact:
        raise InvalidFeed(
            f'input "{value.name}" got a feed that is not {kind}', given=given, do=f"cast it to {kind.dtype}"
        )
    return cast


class FeedCheck:
    """``check_feeds`` for repeated calls: feeds that need no cast are checked quickly.

    Requirements of the nodes that read a feed's numbers are checked, too.
    """

    def __init__(self, all_inputs: Sequence[Value]) -> None:
        self.all_inputs = list(all_inputs)
        self._plain = [_plain(value) for value in all_inputs]
        self._is_simple = all(dtype is not None for _, dtype, _ in self._plain)
        self._of_numbers = list(_of_numbers(self.all_inputs))

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any]:
        arrays = self._checked(feeds)
        for place, what, requirement in self._of_numbers:
            found = requirement.numbers(arrays[place]) if requirement.numbers is not None else ()
            if found:
                raise InvalidFeed(f"{what} holds numbers that are not {requirement.constructor}", given=str(found))
        return arrays

    def passes(self, feeds: Mapping[str, Any]) -> bool:
        """Whether the feeds are certainly valid without defaults or casts; False requires the full check."""
        return not self._of_numbers and self._are_plain(feeds)

    def _checked(self, feeds: Mapping[str, Any]) -> list[Any]:
        if self._are_plain(feeds):
            return [feeds[name] for name, _, _ in self._plain]
        return check_feeds(self.all_inputs, feeds)

    def _are_plain(self, feeds: Mapping[str, Any]) -> bool:
        if not self._is_simple or type(feeds) is not dict or len(feeds) != len(self._plain):
            return False
        symbols: dict[str, int] = {}
        for name, dtype, dims in self._plain:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or not _fits(array.shape, dims, symbols):
                return False
        return True


def _of_numbers(all_inputs: Sequence[Value]) -> Iterator[tuple[int, str, Requirement]]:
    """Requirements on fed numbers: the input's position, its name in the node that requires it, and the test.

    Defaults that are not fed are constants, which are checked when the graph is built.
    """
    places = {value: place for place, value in enumerate(all_inputs) if value.data is None}
    graph = next((value.graph for value in places if value.graph is not None), None)
    for node in () if graph is None else graph.nodes:
        op = node.op
        if not isinstance(op, Op):
            continue
        for requirement in op.requirements.of_numbers:
            for place, value in enumerate(bind(node)[0]):
                name = op.signature.input_at(place).name
                if name in requirement.names and value in places:
                    yield places[value], f'{node.title}: "{name}", which is fed as "{value.name}",', requirement


def _plain(value: Value) -> tuple[str, Any, tuple[int | str | None, ...] | None]:
    """Name, numpy dtype and dims of an input, with symbols as strings. The dtype is None for the full check."""
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype is DType.string:
        return value.name, None, None
    if kind.shape is None:
        return value.name, kind.dtype.numpy, None
    dims = [
        d if isinstance(d, int) else str(d) if d is not None and str(d) in symbols_of(d) else None for d in kind.shape
    ]
    return value.name, kind.dtype.numpy, tuple(dims)


def _fits(shape: tuple[int, ...], dims: tuple[int | str | None, ...] | None, symbols: dict[str, int]) -> bool:
    if dims is None or shape == dims:
        return True
    if len(shape) != len(dims):
        return False
    for size, dim in zip(shape, dims, strict=True):
        if size != dim and dim is not None and (isinstance(dim, int) or symbols.setdefault(dim, size) != size):
            return False
    return True
