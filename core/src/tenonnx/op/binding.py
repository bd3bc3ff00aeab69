"""Map a node at its opset version to a call with the op's newest signature, and to rules that take such calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidCall, InvalidModel, LimitExceeded, TenonnxError, TypeMismatch, UnsupportedOp, counted
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Node, Value
from tenonnx.graph.types import TensorType
from tenonnx.op.call import constant_value, static
from tenonnx.op.op import Op
from tenonnx.op.versioned_signature import VersionedSignature, bind_attributes, signature_at

if TYPE_CHECKING:
    import numpy as np


def known_op(node: Node) -> Op:
    """The op of a node. Raises ``UnsupportedOp`` if no installed package defines it."""
    if not isinstance(node.op, Op):
        raise UnsupportedOp(f"{node.title}: no installed package provides this op")
    return node.op


def bind(node: Node) -> tuple[list[Value | None], dict[str, Any]]:
    """The node's inputs and complete attributes by the op's newest signature.

    Attributes that became inputs are returned as loose constants. Raises ``InvalidModel`` for inputs or attributes that
    the op does not accept.
    """
    op = known_op(node)
    signature = op.signature
    try:
        if not op.signature_changes:
            unknown = [name for name in node.attributes if name not in signature.attributes]
            if unknown:
                raise _unknown_attribute(node, unknown, list(signature.attributes))
            inputs = list(node.inputs)
            signature.check_inputs(node, inputs)
            return pad(op, inputs), signature.complete(node, node.attributes)
        return _bind_at(node, op, signature_at(op, node.version))
    except InvalidModel:
        raise
    except TenonnxError as error:
        raise error.as_a(InvalidModel) from error


def _bind_at(node: Node, op: Op, signature: VersionedSignature) -> tuple[list[Value | None], dict[str, Any]]:
    unknown = [name for name in node.attributes if name not in signature.attributes and name not in signature.ignored]
    if unknown:
        raise _unknown_attribute(node, unknown, [*signature.attributes, *signature.ignored])
    bound = bind_attributes(signature, node.attributes)
    variadic = bool(signature.inputs) and signature.inputs[-1].variadic
    if len(node.inputs) > len(signature.inputs) and not variadic:
        raise InvalidModel(
            f"{node.title} has more than {counted(len(signature.inputs), 'input')}, the most at this version",
            given=counted(len(node.inputs), "input"),
        )
    given = dict(zip((parameter.name for parameter in signature.inputs), node.inputs, strict=False))
    inputs: list[Value | None] = []
    for parameter in op.signature.inputs:
        if parameter.variadic:
            inputs += node.inputs[len(signature.inputs) - 1 :]
        elif parameter.name in signature.input_attributes:
            inputs.append(_as_constant(node, signature, parameter.name, bound.pop(parameter.name)))
        else:
            inputs.append(given.get(parameter.name))
    op.signature.check_inputs(node, inputs)
    return inputs, op.signature.complete(node, bound)


def _unknown_attribute(node: Node, unknown: Sequence[str], known: Sequence[str]) -> InvalidModel:
    names = ", ".join(f'"{name}"' for name in unknown)
    return InvalidModel(f"{node.title} has no attribute {names}", available=", ".join(known) or "no attributes")


def _as_constant(node: Node, signature: VersionedSignature, name: str, value: Any) -> Value | None:
    """The value of an attribute that became an input: ints as int64, floats in the first input's dtype."""
    import numpy as np

    if value is None:
        return None
    if hasattr(value, "array"):
        return Value("", value.type, data=value)
    if name in signature.vectors:
        value = [value]
    sample = value[0] if isinstance(value, list) and value else value
    dtype = DType.int64
    if isinstance(sample, float):
        first = next((v for v in node.inputs if v is not None), None)
        known = first is not None and isinstance(first.type, TensorType) and first.type.dtype.is_float
        dtype = first.dtype if known and first is not None else DType.float32
    elif isinstance(sample, str):
        dtype = DType.string
    with np.errstate(over="ignore"):  # the largest float32 overflows float16
        return constant_value(np.asarray(value, dtype=dtype.numpy), dtype, None, "")


def pad(op: Op, inputs: list[Value | None]) -> list[Value | None]:
    """``inputs`` padded with None for missing optional parameters, unless the op is variadic."""
    if not op.signature.variadic:
        inputs += [None] * (len(op.signature.inputs) - len(inputs))
    return inputs


#: Exceptions of Python and numpy in rules and bodies that do not check their arguments, or that exhaust memory or the
#: recursion limit (a ``RuntimeError``). Other exceptions are bugs of the rule.
UNFORESEEN = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


@contextmanager
def foreseeing(title: str, arguments: Sequence[Any], attributes: Mapping[str, Any]) -> Iterator[None]:
    """Convert unexpected exceptions of a rule by ``cannot_compute``."""
    try:
        yield
    except UNFORESEEN as error:
        raise cannot_compute(title, arguments, attributes, error) from error


def cannot_compute(
    title: str, arguments: Sequence[Any], attributes: Mapping[str, Any], error: Exception
) -> InvalidCall | LimitExceeded:
    """The error for a call on which a rule or body raised an unexpected exception.

    Usually a ``TypeMismatch``, which inference takes for an unknown type; but not if memory or the recursion limit was
    exhausted, or if the rule itself may be wrong.
    """
    given = [_shown(argument) for argument in arguments]
    given += [f"{n}={repr(a)[:200]}" for n, a in attributes.items() if isinstance(a, int | float | str | list)]
    reason, call = str(error) or type(error).__name__, ", ".join(given)
    reason = "; ".join([reason, *getattr(error, "__notes__", ())])
    if isinstance(error, MemoryError | RecursionError):
        lacking = "memory" if isinstance(error, MemoryError) else "stack"
        return LimitExceeded(f"out of {lacking} in {title}: {reason}", given=call)
    kind = InvalidCall if isinstance(error, AttributeError) else TypeMismatch
    return kind(f"{title} cannot be computed from these inputs: {reason}", given=call)


def _shown(argument: Any) -> str:
    if argument is None or isinstance(argument, Value):
        return "-" if argument is None else repr(argument)
    shape = getattr(argument, "shape", None)
    return type(argument).__name__ if shape is None else f"{argument.dtype}{list(shape)}"


def invoke(
    op: Op, function: Callable[..., Any], arguments: Sequence[Any], attributes: Mapping[str, Any], outputs: int | None
) -> tuple[Any, ...]:
    """Call a body or rule of ``op``; the result is always a tuple, one entry for each output."""
    if op.signature.counts_outputs:
        result = function(*arguments, **attributes, _outputs=outputs)
    else:
        result = function(*arguments, **attributes)
    results = result if isinstance(result, tuple) else (result,)
    if function is op.function and (result is None or any(not isinstance(r, Value | None) for r in results)):
        if op.primitive:
            raise InvalidCall(f"{op.title} is a primitive, but lacks the rule numpy or type")
        what = f"the body of {op.title} did not return a value, or a tuple with one for each output"
        raise InvalidCall(what, given=", ".join(type(r).__name__ for r in results), do="end it with return")
    return results


def numpy_arguments(inputs: Sequence[Value | None]) -> list[np.ndarray[Any, Any] | None] | None:
    """The static contents of all inputs, or None if one is not static."""
    if any(value is not None and value.data is None for value in inputs):
        return None
    return [static(value) for value in inputs]
