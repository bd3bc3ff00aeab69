"""Calls of operators: values are traced into a graph, arrays are computed.

The active interpreter decides how a call is carried out. Transforms install their own, so that they share one body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.constants import ArrayConstant
from tenonnx.graph.definitions import operators
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.symbolic import Expr
from tenonnx.graph.training import Role
from tenonnx.graph.types import TensorType

if TYPE_CHECKING:
    import numpy as np

    from tenonnx.op.op import Op


class Interpreter(Protocol):
    """Strategy for executing calls of ops."""

    def call(
        self, op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None = None
    ) -> tuple[Value | None, ...]:
        """Apply ``op`` to inputs and complete attributes; ``outputs`` is the number of outputs, if known."""
        ...

    def constant(self, array: np.ndarray[Any, Any], dtype: DType, role: Role | None = None) -> Value:
        """A value of static contents; ``role`` is its role in training, if any."""
        ...


_ambient: ContextVar[Interpreter | None] = ContextVar("tenonnx_interpreter", default=None)


class interpreting:  # noqa: N801 - a word of a with statement
    """Make ``interpreter`` execute the calls in the block; with None arrays are computed, inside any interpreter."""

    __slots__ = ("_interpreter", "_token")

    def __init__(self, interpreter: Interpreter | None) -> None:
        self._interpreter = interpreter

    def __enter__(self) -> None:
        self._token = _ambient.set(self._interpreter)

    def __exit__(self, *_: object) -> None:
        _ambient.reset(self._token)


def current() -> Interpreter | None:
    return _ambient.get()


def as_inputs(op: Op, inputs: Sequence[Any]) -> list[Any]:
    """Convert Python numbers, lists and arrays among the inputs to values of the right dtype; keep sequences and maps.

    A Python number, like a float64 of numpy, takes the dtype of the first numeric tensor among the inputs, or int64 for
    an ``Index`` parameter; a list of ints becomes an int64 tensor. Raises ``TypeMismatch`` if the dtype cannot
    represent the number exactly.
    """
    if all(map(_is_input, inputs)):
        return list(inputs)
    beside = _dtype_beside(inputs)
    return [_as_input(op, position, item, beside) for position, item in enumerate(inputs)]


def _is_input(item: Any) -> bool:
    return item is None or isinstance(item, Value)


def _dtype_beside(inputs: Sequence[Any]) -> DType | None:
    import numpy as np

    weak = None
    for item in inputs:
        if isinstance(item, Value) and isinstance(item.type, TensorType) and item.type.dtype.is_numeric:
            return item.type.dtype
        if isinstance(item, np.ndarray | np.generic) and (dtype := DType.of(item.dtype)).is_numeric:
            if not isinstance(item, np.float64):
                return dtype
            weak = weak or dtype
    return weak


def _as_input(op: Op, position: int, item: Any, beside: DType | None) -> Any:
    import numpy as np

    if _is_input(item):
        return item
    interpreter = current()
    assert interpreter is not None
    parameter = op.signature.input_at(position)
    # a number such as np.pi is a Python float
    is_weak = isinstance(item, np.float64) and beside is not None and beside.is_float
    if isinstance(item, np.ndarray | np.generic) and not is_weak:
        return interpreter.constant(np.asarray(item), DType.of(item.dtype))
    if isinstance(item, range):
        item = list(item)
    if isinstance(item, bool):
        return interpreter.constant(np.asarray(item), DType.bool)
    if isinstance(item, Expr):
        raise TypeMismatch(
            f"{op.title}: a symbolic dim was given for a tensor",
            given=str(item),
            do="use dims(value), which gives int64 values for them; cast these beside another dtype",
        )
    if isinstance(item, int | float):
        dtype = DType.int64 if parameter.index else beside
        if dtype is None:
            dtype = DType.int64 if isinstance(item, int) else DType.float32
        if isinstance(item, float) and not (dtype.is_float or dtype.is_complex):
            what = f'{op.title}: input "{parameter.name}" is a float, and other inputs are tensors of {dtype}'
            raise TypeMismatch(what, given=f"the Python float {item!r}", do="cast one of the two")
        return interpreter.constant(np.asarray(item).astype(dtype.numpy), dtype)
    if isinstance(item, str):
        return interpreter.constant(np.asarray(item, dtype=object), DType.string)
    if isinstance(item, dict) or (isinstance(item, list) and any(isinstance(v, np.ndarray | list) for v in item)):
        return item
    if isinstance(item, list | tuple):
        return vector(item)
    raise TypeMismatch(
        f'{op.title}: input "{parameter.name}" is neither a value, an array nor a number',
        given=f"{type(item).__name__}",
    )


def vector(items: Sequence[Any]) -> Value:
    """A one-dimensional tensor: of ints (int64), floats (float32), bools or strings; ints may be mixed with values."""
    import numpy as np

    interpreter = current()
    if interpreter is None:
        raise InvalidCall("vector() was called while no graph is built")
    kinds = set(map(type, items))
    if any(issubclass(kind, Expr) for kind in kinds):
        do = "use dims(x) in place of x.shape, which gives int64 values for them"
        raise TypeMismatch("a list holds a symbolic dim", given=f"{items!r}"[:200], do=do)
    if any(issubclass(kind, Value) for kind in kinds):
        return operators().vector(list(items))  # type: ignore[no-any-return]
    if kinds == {int} or all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        dtype = DType.int64
    elif all(issubclass(kind, str) for kind in kinds):
        dtype = DType.string
    else:
        dtype = DType.bool if kinds == {bool} else DType.float32
    try:
        if type(None) in kinds:  # numpy would convert None to a number
            raise TypeError
        return interpreter.constant(np.asarray(items, dtype=dtype.numpy), dtype)
    except OverflowError as error:
        raise TypeMismatch("an integer of a graph does not fit in 64 bits", given=f"{items!r}"[:200]) from error
    except (TypeError, ValueError) as error:
        raise TypeMismatch(
            "a list holds something other than numbers, bools or strings", given=f"{items!r}"[:200]
        ) from error


def constant(array: Any, dtype: DType | str | None = None, *, made_of: Sequence[Value | None] = ()) -> Value:
    """A tensor of static contents, for a body or while a graph is built; it inherits the role of ``made_of``."""
    import numpy as np

    interpreter = current()
    if interpreter is None:
        raise InvalidCall("constant() was called while no graph is built", do="use graph.variable(name, array)")
    kind = DType.of(np.asarray(array).dtype if dtype is None else dtype)
    return interpreter.constant(np.asarray(array).astype(kind.numpy, copy=False), kind, role_of_result(made_of))


def is_trainable(value: Value | None) -> bool:
    """Whether a constant is, or derives from, a parameter (trained or frozen), by its ``role``."""
    role = value.role if value is not None and value.is_constant else None
    return role is not None and role.kind in ("parameter", "frozen")


def role_of_result(values: Iterable[Value | None]) -> Role | None:
    """The role of a result computed from constants: it replaces the first parameter among them, if any."""
    roles = [(v.role, v.name) for v in values if v is not None and v.role is not None and is_trainable(v)]
    if not roles:
        return None
    names = dict.fromkeys(each for role, name in roles for each in role.made_of or (role.name or name,))
    role, name = roles[0]
    return replace(role, name=role.name or name, made_of=tuple(names))


def static(value: Value | None) -> np.ndarray[Any, Any] | None:
    """The contents of ``value`` if it is an initializer or was folded, else None."""
    return None if value is None or value.data is None else value.data.array()


def dims(value: Value) -> list[Any]:
    """The dims of a tensor of known rank: ints if known, else scalar int64 values."""
    return [dim if isinstance(dim, int) else operators().dimension(value, axis) for axis, dim in enumerate(value.shape)]


def elements(value: Value) -> list[Any] | None:
    """The contents of a small integer tensor as a flat list of ints, symbolic expressions and None; None if unknown."""
    if value.symbolic_contents is not None:
        return list(value.symbolic_contents.reshape(-1))
    if value.data is not None and value.data.type.dtype.is_integer and value.data.nbytes <= 8192:
        return [int(v) for v in value.data.array().reshape(-1)]
    return None


def constant_value(array: np.ndarray[Any, Any], dtype: DType, graph: Graph | None, name: str) -> Value:
    """A loose constant: static contents owned by a graph without being one of its variables."""
    data = ArrayConstant(array, dtype)
    return Value(name, data.type, data=data, graph=graph)
