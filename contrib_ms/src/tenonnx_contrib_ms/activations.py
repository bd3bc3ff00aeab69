"""Activation functions named by fused ops, and their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import Op, TypeMismatch, Value

#: Op and parameter names of each activation, in the order of ``activation_params``.
ACTIVATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Relu": ("relu", ()),
    "Tanh": ("tanh", ()),
    "Sigmoid": ("sigmoid", ()),
    "Silu": ("swish", ()),
    "Softplus": ("softplus", ()),
    "Softsign": ("softsign", ()),
    "LeakyRelu": ("leaky_relu", ("alpha",)),
    "ThresholdedRelu": ("thresholded_relu", ("alpha",)),
    "Elu": ("elu", ("alpha",)),
    "Selu": ("selu", ("alpha", "gamma")),
    "HardSigmoid": ("hard_sigmoid", ("alpha", "beta")),
    "ParametricSoftplus": ("parametric_softplus", ("alpha", "beta")),
    "ScaledTanh": ("scaled_tanh", ("alpha", "beta")),
    "Clip": ("clip", ("min", "max")),
    "Softmax": ("softmax", ("axis",)),
    "LogSoftmax": ("log_softmax", ("axis",)),
    "Hardmax": ("hardmax", ("axis",)),
}

#: Activations that convolution kernels support; matrix products support the others, but not Clip.
OF_CONVOLUTIONS = ("Relu", "Silu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")
OF_PRODUCTS = tuple(name for name in ACTIVATIONS if name != "Clip")


def listed(op: Op, y: Value, name: str | None, parameters: Sequence[float] | None) -> Value:
    """Apply an activation to ``y``, with a complete list of parameters; None is the identity."""
    if not name:
        return y
    function, names = _find_activation(op, name, OF_CONVOLUTIONS)
    given = parameters or ()
    if len(names) != len(given):
        raise TypeMismatch(
            f"{op.title}: activation_params does not hold {' and '.join(names) or 'nothing'}",
            given=f'activation="{name}", activation_params={list(given)}',
        )
    return _apply(function, y, dict(zip(names, given, strict=True)))


def named(op: Op, y: Value, name: str | None, **parameters: Any) -> Value:
    """Apply an activation to ``y``. None is a parameter's default; parameters that the activation lacks are ignored."""
    if not name:
        return y
    function, names = _find_activation(op, name, OF_PRODUCTS)
    return _apply(function, y, {key: v for key, v in parameters.items() if key in names and v is not None})


def _apply(function: str, y: Value, parameters: dict[str, Any]) -> Value:
    return getattr(ops, function)(y, **parameters)  # type: ignore[no-any-return]


def _find_activation(op: Op, name: str, allowed: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    if name not in allowed:
        raise TypeMismatch(
            f"{op.title}: unknown activation", given=f'activation="{name}"', available=", ".join(allowed)
        )
    return ACTIVATIONS[name]
