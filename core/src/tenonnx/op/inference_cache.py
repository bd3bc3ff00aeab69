"""Cache of inferred output types, keyed by everything that inference may depend on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenonnx.graph.constants import Constant
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Value

if TYPE_CHECKING:
    from tenonnx.errors import UnknownType
    from tenonnx.op.known_values import Known
    from tenonnx.op.op import Op

#: Contents of more elements are hidden from bodies during inference, so that more calls share a cache entry.
SIZES = 64

#: The same limit for floats.
FACTORS = 8

#: Maximum number of cached calls.
CALLS = 4096


#: Inferred outputs and, if they are guesses, the error that names the missing facts.
Found: TypeAlias = "tuple[list[Known | None], UnknownType | None]"


class Memo:
    """Cache of a bounded number of inferred outputs, by op, types and sizes of the inputs, and attributes.

    Threads may share one; at worst a call is inferred twice.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, Found] = {}

    def get(self, key: Hashable | None, guessing: bool, infer: Callable[[], Found]) -> list[Known | None]:
        """Cached outputs for ``key``; else the result of ``infer``, which is then cached.

        Guesses are returned only to callers with ``guessing``; others get the ``UnknownType`` error.
        """
        found = None if key is None else self._found.get(key)
        if found is None:
            found = infer()
            if key is None:
                return found[0]
            if len(self._found) >= CALLS:
                self._found = {}
            self._found[key] = found[0], copy.copy(found[1])  # without the traceback
        known, reason = found
        if reason is not None and not guessing:
            raise copy.copy(reason)
        return [None if entry is None else entry.copy() for entry in known]


def sizes_alone(op: Op, inputs: Sequence[Value | None]) -> list[Value | None]:
    """Inputs with only those contents on which shapes may depend: small integers, and small ``Index`` inputs."""
    return [
        v if v is None or v.data is None or _is_sizes(v.data, op.signature.input_at(k).index) else _without_data(v)
        for k, v in enumerate(inputs)
    ]


def types_alone(op: Op, inputs: Sequence[Value | None]) -> list[Value | None]:
    """Inputs with only the contents of ``Index`` inputs, which determine shapes rather than elements."""
    return [
        v if v is None or v.data is None or op.signature.input_at(k).index else _without_data(v)
        for k, v in enumerate(inputs)
    ]


def _is_sizes(data: Constant, index: bool) -> bool:
    """Whether a shape may depend on contents; a short list of floats may be scale factors for the axes."""
    dtype, shape = data.type.dtype, data.type.shape or ()
    if dtype.is_float and not index:
        return len(shape) == 1 and data.nbytes * 8 <= FACTORS * dtype.bits
    return data.nbytes * 8 <= SIZES * max(dtype.bits, 8)


def _without_data(value: Value) -> Value:
    return Value(value.name, value.type, graph=value.graph)


def call_key(
    op: Op, inputs: Iterable[Value | None], attributes: Mapping[str, Any], outputs: int | None
) -> Hashable | None:
    """Key of everything that types depend on, for inputs from ``sizes_alone``; None for calls that cannot be cached."""
    written = attributes_key(attributes, exact=True)
    if written is None:
        return None
    known = tuple(None if v is None else (v.type, _contents(v)) for v in inputs)
    return op, op.requirements, known, written, outputs


def _contents(value: Value) -> Hashable:
    if value.symbolic_contents is not None:
        return tuple(value.symbolic_contents.reshape(-1).tolist())
    if value.data is None:
        return None
    array = value.data.array()
    return tuple(array.reshape(-1).tolist()) if array.dtype == object else array.tobytes()


def attributes_key(attributes: Mapping[str, Any], *, exact: bool = False) -> Hashable | None:
    """Key of the attributes of a call; None if one is a graph or has more than ``SIZES`` entries.

    With ``exact``, 1, 1.0 and True are different, although files do not distinguish them.
    """
    try:
        return tuple((name, _frozen(given, exact)) for name, given in sorted(attributes.items()) if given is not None)
    except TypeError:
        return None


def _frozen(attribute: Any, exact: bool) -> Hashable:
    if isinstance(attribute, float) and (exact or str(attribute) == "-0.0"):
        return float, attribute.hex()
    if isinstance(attribute, int | float | str):
        return (type(attribute), attribute) if exact else attribute
    if isinstance(attribute, list | tuple) and len(attribute) <= SIZES:
        return tuple(_frozen(each, exact) for each in attribute)
    if isinstance(attribute, Constant) and attribute.nbytes <= SIZES and attribute.type.dtype is not DType.string:
        return attribute.type, attribute.array().tobytes()
    raise TypeError(attribute)
