"""Decision which calls a plan keeps, and which it replaces by their bodies."""

from __future__ import annotations

from typing import Any

from tenonnx.extend import Op, TensorType, find_rule
from tenonnx.extend.transforms import Call
from tenonnx_torch.rules import arrangement, control, elementwise, layers, recurrent, resizing, unsigned  # noqa: F401  (this registers them)
from tenonnx_torch.values import is_native


def has_numpy(call: Call) -> bool:
    """Whether numpy has a rule for the op of a call."""
    return find_rule(call.op, "numpy") is not None


def is_kept(call: Call) -> bool:
    """Whether a plan with gradients keeps a call: bodies of calls on quantized values would lose the gradient."""
    return (_is_native(call) and gives_quantized(call.op) and _is_of_quantized(call)) or is_computed(call)


def is_computed(call: Call) -> bool:
    """Whether a plan executes a call itself: by a rule of PyTorch, or by numpy for dtypes that PyTorch lacks."""
    if call.op.primitive:
        return True
    if not _is_native(call):
        return has_numpy(call) or find_rule(call.op, "torch.unsigned") is not None
    rule = find_rule(call.op, "torch")
    takes = getattr(rule, "takes", None)
    if rule is None or takes is None:
        return rule is not None
    attributes = {**call.attributes, "_outputs": call.outputs} if call.op.signature.counts_outputs else call.attributes
    return bool(takes(*call.inputs, **attributes))


def gives_quantized(op: Op) -> bool:
    """Whether an op has a gradient that PyTorch's autograd lacks, such as QuantizeLinear."""
    known = any(find_rule(op, kind) is not None for kind in ("vjp", "vjp.surrogate"))
    return known and find_rule(op, "torch") is None


def _is_native(call: Call) -> bool:
    return all(is_native(value.type) for value in call.inputs if value is not None)


def _is_of_quantized(call: Call) -> bool:
    """Whether a call reads quantized values, or produces only these."""
    read = [value.type for value in call.inputs if value is not None]
    given = [None if known is None else known.type for known in call.known]
    return any(map(_holds_quantized, read)) or not any(
        not isinstance(kind, TensorType) or kind.dtype.is_float for kind in given
    )


def _holds_quantized(kind: Any) -> bool:
    return isinstance(kind, TensorType) and kind.dtype.is_integer and kind.dtype.bits <= 16
