"""Registration of every module of this package that defines operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl, load_dtypes

if TYPE_CHECKING:
    from tenonnx.extend import Registry


#: Alternative names of ops that have a single meaning.
ALIASES = {
    "GlobalAveragePooling": "ai.onnx::GlobalAveragePool",
    "GlobalMaxPooling": "ai.onnx::GlobalMaxPool",
}

#: Hints for names that the nearest op does not fully explain.
HINTS = {
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
        weight_folding="rewrite",
        control_flow_gradients="residuals vjp",
        convolution_forms="normal pattern",
        symbolic_ints="normal",
        algebra="normal",
        half_precision="needs_float32",
        known_sequences="rewrite vjp",
        layouts="elementwise laid_out moves",
        normal_forms="normal",
        simplification="rewrite",
        patterns="normal on_request pattern",
        concat_last_axis="normal",
        weights="adjusts weights",
    )
