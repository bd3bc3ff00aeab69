"""Registration: every module of this package that defines operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tenonnx.extend import hookimpl, load_dtypes

if TYPE_CHECKING:
    from tenonnx.extend import Registry


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_dtypes("ai.onnx", lambda: load_dtypes("tenonnx_standard"))
    registry.add_operators(lambda: import_module("tenonnx_standard.operators").OPERATORS)


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add_package(
        "tenonnx_standard",
        control_flow_gradients="residuals vjp",
        convolution_forms="normal spot",
        costs="cost",
        counting="normal",
        factors="normal",
        half_precision="half",
        normal_forms="normal",
        simplification="simplify pack join",
        spots="filled normal rare spot",
        weaving="normal",
    )
