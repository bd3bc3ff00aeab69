"""Registration of every module of this package that defines operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl

if TYPE_CHECKING:
    from tenonnx.extend import Registry


#: Alternative names of ops that have a single meaning.
ALIASES = {
    "GlobalAveragePooling": "ai.onnx::GlobalAveragePool",
    "GlobalMaxPooling": "ai.onnx::GlobalMaxPool",
    "LayerNormalization": "ai.onnx::LayerNormalization",
    "MixtureOfExperts": "com.microsoft::MoE",
    "SimplifiedLayerNormalization": "ai.onnx::SimplifiedLayerNormalization",
}

#: Ops to suggest for names without an equivalent; the attribute local_window_size is the window.
HINTS = {"WindowedAttention": "com.microsoft::GroupQueryAttention"}


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_aliases("com.microsoft", ALIASES, HINTS)


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_package(
        "tenonnx_contrib_ms",
        half_precision="needs_float32",
        patterns="pattern",
        weights="weights",
    )
