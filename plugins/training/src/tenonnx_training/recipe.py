"""Settings of a training step in addition to loss and optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from tenonnx.extend import InvalidCall

#: Types in which matrix products and convolutions may be computed.
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Group:
    """Learning rate factor ``rate`` and ``weight_decay`` of the parameters that match ``pattern``."""

    pattern: str
    rate: float = 1.0
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        for name, number in (("rate", self.rate), ("weight_decay", self.weight_decay)):
            if number is not None and not _is_number(number, 0):
                raise InvalidCall(f"Group: {name} is negative or NaN", given=repr(number))


@dataclass(frozen=True)
class Recipe:
    """Settings of a training step in addition to its objective and optimizer.

    ``trainable`` has patterns of variables, matched with their names and the paths of nodes that use them; a pattern
    with ``!`` excludes. By default all floating-point variables are trained, except scalars, in which exporters store
    constants, and scales of quantized values. A graph with adapters trains only these by default. A BatchNormalization
    updates its running statistics if its scale or shift is trained; otherwise, with adapters and with
    ``frozen_statistics`` it normalizes by them. The running variance is the unbiased estimate, as in PyTorch, or the
    biased one of ONNX without ``unbiased_statistics``.

    A parameter belongs to the first of ``groups`` whose pattern it matches. ``clip_value`` bounds every element of the
    gradients, ``clip_norm`` their common norm. Updates use the mean gradient of ``accumulate`` batches. ``average`` is
    the decay of an exponential moving average of the parameters.

    ``precision`` is the type in which matrix products, convolutions and Einsum compute; parameters keep their type. A
    backend without such kernels rounds operands and results instead; ``InvalidCall`` is raised if it cannot. float16
    scales the loss dynamically and skips updates with infinite gradients; ``loss_scale`` is a constant scale instead.

    Each pattern of ``recompute`` selects a segment of nodes, by node name, path or output name. The backward pass keeps
    only the inputs of a segment and recomputes the rest. That saves memory and costs time; a segment should be about
    one layer: ``[f"*/layer.{k}/*" for k in range(12)]``, or by module path ``[f"encoder.layers.{k}" ...]``.
    """

    trainable: str | Sequence[str] | None = None
    groups: Sequence[Group] = ()
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1
    average: float | None = None
    precision: str = "float32"
    loss_scale: float = 1.0
    frozen_statistics: bool = False
    unbiased_statistics: bool = True
    recompute: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("clip_norm", "clip_value", "loss_scale", "accumulate"):
            number = getattr(self, name)
            if number is not None and not (_is_number(number, 0) and number > 0):
                raise InvalidCall(f"{name} is not a positive number", given=repr(number))
        if not isinstance(self.accumulate, Integral) or self.accumulate >= 1 << 31:
            raise InvalidCall("accumulate is not a number of batches", given=repr(self.accumulate)[:80])
        if self.average is not None and not (_is_number(self.average, 0) and self.average < 1):
            raise InvalidCall("average is not from 0 to below 1", given=repr(self.average), do="average=0.999")
        if self.precision not in PRECISIONS:
            raise InvalidCall("unknown precision", given=repr(self.precision), available=", ".join(PRECISIONS))
        if isinstance(self.recompute, str) or not all(isinstance(pattern, str) for pattern in self.recompute):
            raise InvalidCall(
                "recompute is not a list of patterns", given=repr(self.recompute), do='recompute=["*/layer.0/*"]'
            )
        object.__setattr__(self, "recompute", tuple(self.recompute))
        if not all(isinstance(group, Group) for group in self.groups):
            raise InvalidCall(
                "groups is not a list of Group", given=repr(self.groups), do='groups=[tt.Group("head.*", rate=10.0)]'
            )

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled dynamically."""
        return self.precision == "float16" and self.loss_scale == 1.0


def _is_number(number: object, least: float) -> bool:
    return isinstance(number, Real) and least <= float(number) < math.inf
