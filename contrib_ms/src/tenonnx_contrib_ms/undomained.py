"""Aliases in ai.onnx for ops of com.microsoft that some models use without the domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl
from tenonnx_contrib_ms.plugin import HINTS

if TYPE_CHECKING:
    from tenonnx.extend import Registry

#: Ops that some models use in ai.onnx.
_NAMES = (
    "BiasGelu",
    "EmbedLayerNormalization",
    "FastGelu",
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
    "GroupQueryAttention",
    "MoE",
    "MultiHeadAttention",
    "NhwcConv",
    "NhwcMaxPool",
    "QuickGelu",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)

ALIASES = {"MixtureOfExperts": "com.microsoft::MoE", **{name: f"com.microsoft::{name}" for name in _NAMES}}


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_aliases("ai.onnx", ALIASES, HINTS)


@hookimpl
def register_ops(registry: Registry) -> None:
    """Register nothing: the ops are those of ``com.microsoft``."""
