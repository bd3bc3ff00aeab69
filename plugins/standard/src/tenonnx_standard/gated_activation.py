"""Gated activations: SwiGLU."""

from __future__ import annotations

from tenonnx.extend import DType, Value, op, shapes
from tenonnx_standard.activation import swish
from tenonnx_standard.casting import cast
from tenonnx_standard.math import clip, minimum


@op("SwiGLU", since=28)
def swiglu(A, B, *, alpha=1.0):
    """``B`` times the Swish of ``A`` (Shazeer 2020, arXiv:2002.05202); both have the same shape."""
    return swish(A, alpha=alpha) * B


swiglu.requires(shapes(A="sizes...", B="sizes..."))


def clamped_swiglu(
    gate: Value,
    linear: Value,
    *,
    alpha: float,
    beta: float,
    limit: float | None,
    after: int = 0,
    rounded: DType | None = None,
) -> Value:
    """SwiGLU with the gate clipped to at most ``limit``, and the linear part to ``limit`` on both sides, plus ``beta``.

    With ``after`` the activated gate is clipped instead. It is rounded to the dtype ``rounded`` first, if given.
    """
    if limit is not None:
        linear = clip(linear, -limit, limit)
    if limit is not None and not after:
        gate = minimum(gate, limit)
    gate = swish(gate, alpha=alpha)
    if limit is not None and after:
        gate = minimum(gate, limit)
    if rounded is not None:
        gate = cast(cast(gate, to=rounded), to=linear.dtype)
    return gate * (linear + beta)  # type: ignore[no-any-return]
