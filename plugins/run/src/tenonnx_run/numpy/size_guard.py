"""Rejection of oversized results before allocation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx import limits
from tenonnx.errors import TenonnxError
from tenonnx.graph.constants import ArrayConstant
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Value
from tenonnx.graph.types import TensorType
from tenonnx.op.binding import bind, known_op
from tenonnx.op.infer import infer_call
from tenonnx.op.inference_cache import SIZES

if TYPE_CHECKING:
    from tenonnx_run.numpy.steps import Step


#: Smaller results are ignored.
_NOTED = 1 << 18


class Guard:
    """Predicts the results of a kernel whose inputs are large enough to allow an oversized result.

    A result may have as many elements as the limit allows, or as all ``feeds`` together. Kernels whose result size
    depends on contents, such as Tile, check it themselves.
    """

    def __init__(self, dtypes: Sequence[DType | None], feeds: Sequence[Any]) -> None:
        self._dtypes = dtypes
        fed = sum([feed.size for feed in feeds if isinstance(feed, np.ndarray)])
        self._most = max(limits.current().elements, fed)

    def check(self, step: Step, slots: Sequence[Any]) -> None:
        """Raise ``LimitExceeded`` if the step would produce a tensor of too many elements."""
        product = 1
        for slot in step.inputs:
            array = slots[slot]
            if type(array) is np.ndarray and array.size:
                product *= array.size
        if product > self._most:
            self._infer(step, slots)

    def note(self, result: Any) -> None:
        """Count the result of a step. Raises ``LimitExceeded`` if all results together are too large."""
        if type(result) is tuple:
            for each in result:
                self.note(each)
        elif type(result) is np.ndarray:
            if result.nbytes >= _NOTED:
                limits.count_allocated(result.nbytes)
        elif type(result) is list:
            limits.count_allocated(len(result) * limits.ELEMENT)

    def _infer(self, step: Step, slots: Sequence[Any]) -> None:
        inputs, attributes = bind(step.node)
        values = [_value(slots[slot], self._dtypes[slot]) for slot in step.inputs[: len(inputs)]]
        if any(value is None and slots[slot] is not None for value, slot in zip(values, step.inputs, strict=False)):
            return  # sequences
        try:
            known = infer_call(known_op(step.node), values, attributes, len(step.node.outputs))
        except TenonnxError:  # the kernel raises a better message
            return
        for each in known:
            kind = None if each is None else each.type
            shape = kind.shape if isinstance(kind, TensorType) else None
            if shape is not None and math.prod(dim for dim in shape if isinstance(dim, int)) > self._most:
                limits.check_elements(shape, "a result")


def _value(array: Any, dtype: DType | None) -> Value | None:
    if not isinstance(array, np.ndarray) or dtype is None:
        return None
    contents = ArrayConstant(array, dtype) if array.size <= SIZES else None
    return Value("input", TensorType(dtype, array.shape), data=contents)
