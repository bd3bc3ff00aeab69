"""Normalization fused with the addition of a residual connection."""

from __future__ import annotations

from tenonnx.extend import DType, Op, TensorType, TypeMismatch, Value, op
from tenonnx_standard.normalization import layer_normalization, rms_normalization

#: The default of ``epsilon`` as a file holds it.
_EPSILON = 1e-12


def _total(input: Value, skip: Value, bias: Value | None) -> Value:
    return input + skip if bias is None else input + skip + bias


def _stash(x: Value) -> int:
    """The type to take statistics in."""
    return int(DType.float64 if x.dtype is DType.float64 else DType.float32)


@op("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(input, skip, gamma, beta=None, bias=None, *, epsilon=_EPSILON):
    """LayerNormalization over the last axis of ``input + skip + bias``; that sum is the fourth output.

    Outputs 2 and 3, statistics that no kernel for inference saves, are absent.
    """
    total = _total(input, skip, bias)
    return layer_normalization(total, gamma, beta, epsilon=epsilon, stash_type=_stash(total))[0], None, None, total


@op("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_simplified_layer_normalization(input, skip, gamma, bias=None, *, epsilon=_EPSILON):
    """RMSNormalization over the last axis of ``input + skip + bias``; that sum is the fourth output.

    Outputs 2 and 3, statistics that no kernel for inference saves, are absent.
    """
    total = _total(input, skip, bias)
    return rms_normalization(total, gamma, epsilon=epsilon, stash_type=_stash(total)), None, None, total


def _skip_types(made: Op) -> None:
    """The outputs have the type of ``input``, to which the others broadcast."""

    @made.type
    def _(input: Value, *others: Value | None, epsilon: float) -> tuple[TensorType | None, ...]:
        for value in others:
            if value is None:
                continue
            if value.dtype is not input.dtype or not value.dtype.is_float:
                raise TypeMismatch(
                    f"{made.title}: the inputs must be floats of one dtype", given=f"{input!r}, {value!r}"
                )
            ours, theirs = input.tensor.shape, value.tensor.shape
            if ours is None or theirs is None:
                continue
            pairs = zip(reversed(ours), reversed(theirs), strict=False)
            known = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
            if len(theirs) > len(ours) or any(b not in (1, a) for a, b in known):
                given = f"{value!r} for input {input!r}"
                raise TypeMismatch(f"{made.title}: every input must broadcast to the first", given=given)
        return input.tensor, None, None, input.tensor


_skip_types(skip_layer_normalization)
_skip_types(skip_simplified_layer_normalization)
