"""Constant propagation: output types, and contents that small static inputs determine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx.graph.constants import PROPAGATED_BYTES, ArrayConstant, Constant
from tenonnx.graph.graph import Graph, Value
from tenonnx.graph.symbolic import Expr
from tenonnx.graph.types import TensorType, Type
from tenonnx.op.binding import invoke, numpy_arguments
from tenonnx.op.call import interpreting
from tenonnx.op.evaluate import Evaluator
from tenonnx.op.op import Op
from tenonnx.op.rules import find_rule


@dataclass(slots=True)
class Known:
    """Inferred facts of one output: its type, and contents that are static or expressions of symbolic dims."""

    type: Type | None
    symbolic_contents: Any = None
    data: Constant | None = None

    @property
    def tensor(self) -> TensorType:
        assert isinstance(self.type, TensorType)
        return self.type

    def give(self, value: Value) -> None:
        value._replace_fields(type=self.type, data=self.data)
        value.symbolic_contents = self.symbolic_contents

    def value(self, name: str) -> Value:
        """A new value with these facts."""
        placeholder = Value(name, self.type)
        self.give(placeholder)
        return placeholder

    def copy(self) -> Known:
        return Known(self.type, self.symbolic_contents, self.data)


def know_contents(
    op: Op,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, Any],
    outputs: int | None,
    known: list[Known | None],
) -> None:
    """Add the contents of outputs to ``known`` if they follow from the inputs and are cheap to compute."""
    if any(v is not None and v.data is None and v.symbolic_contents is None for v in inputs):
        return
    if not _may_be_computed(op, inputs, attributes, known):
        return
    arrays = numpy_arguments(inputs)
    if arrays is not None:
        for entry, array in _arrays(known, _computed(op, arrays, attributes, outputs)):
            entry.data = ArrayConstant(array, entry.tensor.dtype)
            entry.type = entry.data.type
    elif all(k is None or _holds_dims(k) for k in known):
        for entry, array in _arrays(known, _computed_in_dims(op, inputs, attributes, outputs), object):
            if all(isinstance(element, int) for element in array.reshape(-1)):
                entry.data = ArrayConstant(array.astype(entry.tensor.dtype.numpy))
            else:
                entry.symbolic_contents = array
            entry.type = entry.tensor.with_shape(array.shape)


def _may_be_computed(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], known: Sequence[Known | None]
) -> bool:
    """Whether a call is deterministic and small, and has outputs whose contents are unknown."""
    return not (
        (op.primitive and find_rule(op, "numpy") is None)
        or not op.pure
        or any(k is not None and k.data is not None for k in known)
        or any(v is not None and v.data is not None and v.data.nbytes > PROPAGATED_BYTES for v in inputs)
        or any(isinstance(a, Graph) or callable(a) for a in attributes.values())
        or not all(k is None or _is_small(k.type) for k in known)
    )


def _computed(op: Op, arrays: Sequence[Any], attributes: Mapping[str, Any], outputs: int | None) -> Sequence[Any]:
    """Results of an op on arrays, by numpy rule or body; empty if it fails."""
    import numpy as np

    rule = find_rule(op, "numpy")
    try:
        with np.errstate(all="ignore"):
            if rule is not None:
                return invoke(op, rule, arrays, attributes, outputs)
            return _by_body(op, arrays, attributes, outputs)
    except ArithmeticError:
        return ()


def _computed_in_dims(
    op: Op, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int | None
) -> Sequence[Any]:
    """Results of the symbolic rule on arrays of symbolic dims; empty if it depends on their values."""
    rule = find_rule(op, "symbolic")
    if rule is None:
        return ()
    try:
        return invoke(op, rule, [None if v is None else _symbolic_array(v) for v in inputs], attributes, outputs)
    except (ArithmeticError, AttributeError, TypeError):  # numpy has no method or loop for objects
        return ()


def _arrays(known: Sequence[Known | None], results: Sequence[Any], dtype: Any = None) -> Iterator[tuple[Known, Any]]:
    """Known facts of the tensors among the outputs, with their contents."""
    import numpy as np

    for entry, result in zip(known, results, strict=False):
        is_array = isinstance(result, np.ndarray | np.generic | int | Expr)
        if is_array and entry is not None and isinstance(entry.type, TensorType):
            yield entry, np.asarray(result, dtype=dtype)


def _by_body(op: Op, arrays: Sequence[Any], attributes: Mapping[str, Any], outputs: int | None) -> tuple[Any, ...]:
    evaluator = Evaluator()
    with interpreting(evaluator):
        found = evaluator.call(op, [None if a is None else evaluator.wrap(a) for a in arrays], attributes, outputs)
    return tuple(None if value is None else evaluator.contents(value) for value in found)


def _holds_dims(known: Known) -> bool:
    """Whether a tensor can hold dims and their negatives, or comparisons of dims."""
    return isinstance(known.type, TensorType) and known.type.dtype.name in ("int64", "int32", "bool")


def _is_small(kind: Type | None) -> bool:
    dims = kind.shape if isinstance(kind, TensorType) else None
    if dims is None:
        return False
    sizes = [dim for dim in dims if isinstance(dim, int)]
    return len(sizes) == len(dims) and math.prod(sizes) * 8 <= PROPAGATED_BYTES


def _symbolic_array(value: Value) -> Any:
    if value.symbolic_contents is not None:
        return value.symbolic_contents
    assert value.data is not None
    array = value.data.array()
    return array.astype(object) if array.dtype.kind in "iu" else array
