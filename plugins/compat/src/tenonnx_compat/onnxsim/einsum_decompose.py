"""``decompose_einsum``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenonnx as tx
from tenonnx_compat.models import graph_of, message_of
from tenonnx_compat.refusal import announce

if TYPE_CHECKING:
    import onnx


def decompose_einsum(model: onnx.ModelProto) -> onnx.ModelProto:
    """Decompose ``Einsum`` nodes to matrix products, sums, transposes and reshapes."""
    announce("onnxsim.einsum_decompose.decompose_einsum", "tx.decompose(graph, keep=...)")
    return message_of(tx.decompose(graph_of(model), keep=lambda call: call.op.name != "Einsum"))
