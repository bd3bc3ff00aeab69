"""``convert_version`` of ``onnx.version_converter``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenonnx as tx
from tenonnx_compat.models import graph_of, message_of
from tenonnx_compat.refusal import announce

if TYPE_CHECKING:
    import onnx

__all__ = ["ConvertError", "convert_version"]


class ConvertError(tx.NotRepresentable, RuntimeError):
    """A node of the model cannot be converted to the version."""


def convert_version(model: onnx.ModelProto, target_version: int) -> onnx.ModelProto:
    """Convert a model to another version of ``ai.onnx``; other domains keep their versions.

    Raises ``ValueError`` for anything but a ``ModelProto`` and for a version below 1, and ``ConvertError`` naming every
    node that cannot be converted.
    """
    announce("onnx.version_converter.convert_version", f"tx.retarget(graph, opset_version={target_version})")
    if not hasattr(model, "SerializeToString"):
        raise ValueError(f"VersionConverter only accepts ModelProto as model, incorrect type: {type(model)}")
    if target_version < 1:
        raise ValueError(f"the target version is not positive: {target_version}")
    try:
        return message_of(tx.retarget(graph_of(model), opset_version=target_version), shapes="all")
    except tx.NotRepresentable as error:
        raise error.as_a(ConvertError) from error


def __getattr__(name: str) -> Any:
    """Other attributes come from ``onnx.version_converter``; only ``ConvertError`` is a class of this module."""
    from onnx import version_converter

    return getattr(version_converter, name)
