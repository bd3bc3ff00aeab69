"""Tables of the element types that an op accepts, by version."""

from __future__ import annotations

import functools
import json
import pkgutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tenonnx.errors import TypeMismatch
from tenonnx.graph.definitions import definitions
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Value
from tenonnx.graph.types import OptionalType, SequenceType, TensorType, Type
from tenonnx.op.op import Op


@functools.cache
def load_dtypes(package: str, name: str = "dtypes.json") -> Mapping[str, Any]:
    """The table of a package's data file: op to version to ``{"inputs": [...], "outputs": [...], "shared": [...]}``.

    An entry of the first two is the set of allowed type codes, or None for any. Inputs with the same number in
    ``shared`` have the same type; -1 is unconstrained. The last entry applies to all further (variadic) positions.
    """
    contents = pkgutil.get_data(package, name)
    assert contents is not None, f"the loader of {package} gives no data"
    data = json.loads(contents)
    sets = [None if codes is None else frozenset(codes) for codes in data["sets"]]
    return {op: _Versions(versions, sets) for op, versions in data["ops"].items()}


class _Versions(Mapping[str, Any]):
    """Element types of one op by version, decoded on first use: a graph uses few of hundreds of ops."""

    def __init__(self, versions: Mapping[str, Any], sets: Sequence[frozenset[int] | None]) -> None:
        self._versions, self._sets = versions, sets

    def __getitem__(self, version: str) -> dict[str, Any]:
        inputs, outputs, shared = self._versions[version]
        inputs, outputs = ([self._sets[k] for k in numbers] for numbers in (inputs, outputs))
        return {"inputs": inputs, "outputs": outputs, "shared": shared}

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)


def type_code(kind: Type | None) -> int | None:
    """The code of a type: that of the element type, plus 100 in a sequence, plus 200 in an optional."""
    if isinstance(kind, TensorType):
        return int(kind.dtype)
    if isinstance(kind, SequenceType | OptionalType):
        inner = type_code(kind.element)
        return None if inner is None else inner + (100 if isinstance(kind, SequenceType) else 200)
    return None


def _accepts(allowed: Collection[int], code: int, is_index: bool) -> bool:
    """Whether an unlisted input type is acceptable; the element of an optional may replace the optional."""
    if is_index:
        return code == DType.int64 or code + 200 in allowed
    return code + 200 in allowed or _kind(code) in map(_kind, allowed)


def check_dtypes(op: Op, inputs: Sequence[Value | None]) -> None:
    """Raise ``TypeMismatch`` for elements of an unsupported kind, and for different types where one is required.

    The kinds are floats, integers, complex numbers, bools and strings. Another width is accepted, since the body works
    for any and exports insert casts. Positions and sizes must have a listed type, or int64, to which Python ints
    convert.
    """
    table = definitions().element_types(op)
    if table is None or not table["inputs"]:
        return
    last, first = len(table["inputs"]) - 1, dict[int, Value]()
    for position, value in enumerate(inputs):
        code = None if value is None else type_code(value.type)
        if value is None or code is None:
            continue
        place = min(position, last)
        allowed, number = table["inputs"][place], table["shared"][place]
        parameter = op.signature.input_at(position)
        if allowed is not None and code not in allowed and not _accepts(allowed, code, parameter.index):
            what = f'{op.title}: input "{parameter.name}" takes no {_name(code)}'
            raise TypeMismatch(what, given=repr(value), available=", ".join(map(_name, sorted(allowed))), do="cast it")
        other = value if number < 0 or parameter.index else first.setdefault(number, value)
        if other is not value and type_code(other.type) != code:
            raise TypeMismatch(
                f'{op.title}: input "{parameter.name}" has another element type than the inputs that share it',
                given=f"{other!r}, {value!r}",
                do="cast one of the two"
                + "; dims() gives int64" * (TensorType(DType.int64, ()) in (other.type, value.type)),
            )


def newest_types(op: Op, versions: Mapping[str, Any]) -> Any:
    """The newest entry of this meaning in a table by version, with the element types of all its versions merged.

    None if no entry fits the op.
    """
    available = sorted(int(version) for version in versions if op.holds_at(int(version)))
    table = versions[str(available[-1])] if available else None
    if table is None or len(table["inputs"]) != len(op.signature.inputs):
        return None
    alike = [inputs for v in available if len(inputs := versions[str(v)]["inputs"]) == len(table["inputs"])]
    return {**table, "inputs": [_union(sets) for sets in zip(*alike, strict=True)]}


def _union(sets: Sequence[frozenset[int] | None]) -> frozenset[int] | None:
    """The union of sets of types; None, for any type, absorbs the others."""
    known = [allowed for allowed in sets if allowed is not None]
    return frozenset[int]().union(*known) if len(known) == len(sets) else None


@functools.cache
def _kind(code: int) -> tuple[int, str]:
    container, element = divmod(code, 100)
    dtype = DType(element)
    return container, "integer" if dtype.is_integer else dtype.kind


def _name(code: int) -> str:
    container, element = divmod(code, 100)
    return ("", "sequence of ", "optional ", "optional sequence of ")[container] + str(DType(element))
