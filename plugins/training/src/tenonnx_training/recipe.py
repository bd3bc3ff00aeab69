"""Settings of a training step in addition to loss and optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from tenonnx.extend import InvalidCall

#: What the operands of matrix products and convolutions may be cast to.
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Group:
    """Parameters that match ``pattern`` take ``rate`` times the learning rate, and a ``weight_decay`` of their own."""

    pattern: str
    rate: float = 1.0
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        for name, number in (("rate", self.rate), ("weight_decay", self.weight_decay)):
            if number is not None and not _is_number(number, 0):
                raise InvalidCall(f"Group: {name} is negative or NaN", given=repr(number))


@dataclass(frozen=True)
class Recipe:
    """Settings of a training step, beside its objective and optimizer.

    ``trainable`` are patterns of variables, of any of their names or of the path of a node that uses them; one that
    begins with ``!`` takes variables out. By default all of floating point are trained but those without axes, in which
    exporters keep constants, and scales of quantized values, or adapters alone where there are some. A
    BatchNormalization updates its running statistics if its scale or shift is trained, by default always, beside
    adapters or with ``frozen_statistics`` never; otherwise it goes by them. The running variance follows that of the
    batch over n - 1 of its n elements, as in PyTorch, or without ``unbiased_statistics`` over n, as in ONNX.

    The first of ``groups`` whose pattern a parameter matches holds for it. ``clip_value`` bounds every element of the
    gradients, ``clip_norm`` the norm of all together. Parameters follow the mean gradient of ``accumulate`` batches.
    ``average`` is the share that an exponential moving average of the parameters keeps in each update.

    ``precision`` is what matrix products, convolutions and Einsum compute in; parameters stay as they are. A backend
    without such products rounds operands and results to it, and one that cannot is refused. With float16 the loss is
    scaled by as much as gradients bear, and an update that they do not bear is left out. ``loss_scale`` is a scale that
    stays.

    The nodes that match one pattern of ``recompute``, by name, path or the name of an output, are a stretch of which
    the way back keeps the inputs alone: it computes the rest again. That takes time and saves memory where each pattern
    is a layer or so: ``[f"*/layer.{k}/*" for k in range(12)]``, or by path of a module ``[f"encoder.layers.{k}" ...]``.
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
        if not isinstance(self.accumulate, Integral):
            raise InvalidCall("accumulate is not a number of batches", given=repr(self.accumulate))
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
        """Whether the loss is scaled by as much as gradients bear."""
        return self.precision == "float16" and self.loss_scale == 1.0


def _is_number(number: object, least: float) -> bool:
    return isinstance(number, Real) and least <= float(number) < math.inf
