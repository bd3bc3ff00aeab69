"""Devices of OrtValues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnxruntime import OrtValue

from tenonnx.extend import DType
from tenonnx_onnxruntime.element_types import is_extended
from tenonnx_onnxruntime.values import Array, to_runtime


class Place(NamedTuple):
    """Device of tensors between calls: device type and id."""

    device: str = "cpu"
    number: int = 0

    def put(self, array: Array, dtype: DType) -> OrtValue:
        """An OrtValue copied to the device; types that numpy lacks are copied at each call instead."""
        if self.device == "cpu" or is_extended(dtype) or dtype.bits < 8:
            return to_runtime(array, dtype)
        return OrtValue.ortvalue_from_numpy(array, self.device, self.number)

    def empty(self, shape: Sequence[int], dtype: DType) -> OrtValue:
        """Allocate an uninitialized OrtValue."""
        return OrtValue.ortvalue_from_shape_and_type(list(shape), int(dtype), self.device, self.number)
