"""Registration: every module of this package that defines operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl, load_dtypes

if TYPE_CHECKING:
    from tenonnx.extend import Registry


#: Ops of a vendor that files have without its domain.
_OF_MICROSOFT = (
    "BiasGelu", "EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "GroupQueryAttention",
    "MatMulNBits", "MoE", "MultiHeadAttention", "NhwcConv", "NhwcMaxPool", "QuickGelu", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)  # fmt: skip

#: Names that are used for ops, and have one meaning.
ALIASES = {
    "GlobalAveragePooling": "ai.onnx::GlobalAveragePool",
    "GlobalMaxPooling": "ai.onnx::GlobalMaxPool",
    "MixtureOfExperts": "com.microsoft::MoE",
    **{name: f"com.microsoft::{name}" for name in _OF_MICROSOFT},
}

#: Names whose nearest op does not tell all that they may mean.
HINTS = {
    "WindowedAttention": "com.microsoft::GroupQueryAttention",
    **{f"{kind}Norm": f"ai.onnx::{kind}Normalization" for kind in ("Batch", "Group", "Instance", "Layer", "RMS")},
    **dict.fromkeys(("SiLU", "Silu"), "ai.onnx::Swish"),
}


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_dtypes("ai.onnx", lambda: load_dtypes("tenonnx_standard"))
    registry.add_aliases("ai.onnx", ALIASES, HINTS)
    registry.add_operators(lambda: import_module("tenonnx_standard.operators").OPERATORS)


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_package(
        "tenonnx_standard",
        absorption="rewrite",
        control_flow_gradients="residuals vjp",
        convolution_forms="normal pattern",
        counting="normal",
        algebra="normal",
        half_precision="needs_float32",
        known_sequences="rewrite vjp",
        layouts="elementwise laid_out moves",
        normal_forms="normal",
        simplification="rewrite",
        patterns="normal on_request pattern",
        interleaving="normal",
        weights="adjusts weights",
    )
