"""Limits of a target for files: size and external data."""

from __future__ import annotations

import sys

from tenonnx.errors import InvalidCall, NotRepresentable
from tenonnx.formats.onnx.streaming import LARGEST_MESSAGE
from tenonnx_convert.conversion import ConversionState


def data_threshold(state: ConversionState) -> int | None:
    """Size in bytes from which tensors become external; infinite if the target does not support external data.

    Raises ``InvalidCall`` if such a target is combined with a threshold.
    """
    wanted, runtime = state.options.external_data_threshold, state.target.runtime
    if runtime is None or runtime.external_data:
        return wanted
    if wanted is not None:
        raise InvalidCall(
            f"target {runtime.name} takes no external data",
            given=f"external_data_threshold {wanted}",
            do="leave it out",
        )
    return sys.maxsize


def check_file(state: ConversionState, *, message: int = 0) -> None:
    """Raise ``NotRepresentable`` if tensors and a ``message`` of this many bytes exceed the limits of the target."""
    runtime = state.target.runtime
    if runtime is None:
        return
    whole = sys.maxsize if data_threshold(state) != sys.maxsize else LARGEST_MESSAGE
    limit = min(whole, runtime.file_size or sys.maxsize)
    size = message + sum(value.data.nbytes for graph in state.graph.nested() for value in graph.variables if value.data)
    if size > limit:
        raise NotRepresentable(
            f"the model is larger than {runtime.name} takes",
            given=f"{size:,} bytes",
            available=f"up to {limit:,} bytes",
            do="make it smaller: --float16, or tenonnx quantize",
        )
