"""Registration of every module of this package that defines operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl, load_dtypes

if TYPE_CHECKING:
    from tenonnx.extend import Registry


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_aliases("ai.onnx.ml", {"TfIdfVectorizer": "ai.onnx::TfIdfVectorizer"})
    registry.add_dtypes("ai.onnx.ml", lambda: load_dtypes("tenonnx_onnx_ml"))


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_package("tenonnx_onnx_ml")
