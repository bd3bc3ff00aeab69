"""Optimizers as functions made of ops.

The slots of an optimizer are its state for each parameter: tensors of the parameter's shape. Half-precision parameters
have float32 slots, and are updated in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from tenonnx.extend import InvalidCall, Value
from tenonnx_standard.logic import and_, greater, where
from tenonnx_standard.math import pow_, sign, sqrt
from tenonnx_standard.reduction import reduce_sum

#: A learning rate, or a function from the step, counted from 0, to its learning rate.
Rate = float | Callable[[int], float]


class Optimizer(Protocol):
    """``scalars`` computes the numbers shared by all parameters, ``update`` a new parameter and its slots."""

    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]]

    @property
    def learning_rate(self) -> Rate: ...

    def scalars(self, rate: Value, step: Value) -> Mapping[str, Value]:
        """Numbers of one step, from its learning rate and its number, counted from 1; all are float64 scalars.

        ``update`` receives them in the dtype of the slots.
        """
        ...

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        """The next parameter, then its next slots."""
        ...

    def initial(self, slot: str) -> float:
        """Initial value of every element of a slot."""
        ...

    def settings(self) -> dict[str, Any]:
        """Settings to store in a file, as JSON types."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """Common settings of optimizers. ``weight_decay`` adds that share of a parameter to its gradient."""

    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in (part.name for part in fields(self)):
            value = _plain(getattr(self, name))
            object.__setattr__(self, name, value)
            schedule = name == "learning_rate" and callable(value)
            if not schedule and not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise InvalidCall(f"{type(self).__name__}: {name} is negative or NaN", given=repr(value))

    def initial(self, slot: str) -> float:
        return 0.0

    def scalars(self, rate: Value, step: Value) -> Mapping[str, Value]:
        return {"rate": rate}

    def settings(self) -> dict[str, Any]:
        """Settings as JSON types: a schedule is its name and its numbers, and any other function is None."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: _schedule_settings(value) if callable(value) else value for name, value in values.items()}

    def _decayed(self, gradient: Value, parameter: Value) -> Value:
        return gradient + parameter * self.weight_decay if self.weight_decay else gradient


def _plain(value: Any) -> Any:
    """Convert a numpy scalar to a Python number, for JSON."""
    return value.item() if isinstance(value, np.generic) else value


def _schedule_settings(schedule: Any) -> dict[str, Any] | None:
    if not is_dataclass(schedule) or isinstance(schedule, type):
        return None
    return {"schedule": type(schedule).__name__, **{name: _plain(value) for name, value in asdict(schedule).items()}}


@dataclass(frozen=True)
class SGD(_Settings):
    """Stochastic gradient descent: subtract the gradient times the learning rate."""

    name: ClassVar[str] = "sgd"
    slots: ClassVar[tuple[str, ...]] = ()
    learning_rate: Rate = 1e-2

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        return (parameter - self._decayed(gradient, parameter) * scalars["rate"],)


@dataclass(frozen=True)
class Momentum(_Settings):
    """Descent along a decaying sum of gradients (Polyak 1964), with look-ahead by ``nesterov`` (Sutskever 2013)."""

    name: ClassVar[str] = "momentum"
    slots: ClassVar[tuple[str, ...]] = ("momentum",)
    learning_rate: Rate = 1e-2
    momentum: float = 0.9
    nesterov: bool = False

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        gradient = self._decayed(gradient, parameter)
        velocity = slots[0] * self.momentum + gradient
        along = gradient + velocity * self.momentum if self.nesterov else velocity
        return parameter - along * scalars["rate"], velocity


@dataclass(frozen=True)
class Adagrad(_Settings):
    """Adagrad: rates shrink with the sum of squared gradients (Duchi et al. 2011)."""

    name: ClassVar[str] = "adagrad"
    slots: ClassVar[tuple[str, ...]] = ("sum",)
    learning_rate: Rate = 1e-2
    rate_decay: float = 0.0
    initial_sum: float = 0.0
    epsilon: float = 1e-10

    def initial(self, slot: str) -> float:
        return self.initial_sum

    def scalars(self, rate: Value, step: Value) -> Mapping[str, Value]:
        return {"rate": rate / ((step - 1.0) * self.rate_decay + 1.0) if self.rate_decay else rate}

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        gradient = self._decayed(gradient, parameter)
        total = slots[0] + gradient * gradient
        return parameter - gradient / (sqrt(total) + self.epsilon) * scalars["rate"], total


@dataclass(frozen=True)
class Adam(_Settings):
    """Adam: descent along the mean gradient, divided by the root of the mean squared gradient (Kingma and Ba 2015).

    The slots are the two moments. Bias correction is applied to the rate and to epsilon, which is equivalent and costs
    nothing per parameter.
    """

    name: ClassVar[str] = "adam"
    slots: ClassVar[tuple[str, ...]] = ("m", "v")
    learning_rate: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.beta1, self.beta2) >= 1:
            raise InvalidCall("Adam: a beta is not below 1", given=f"{self.beta1}, {self.beta2}")

    def scalars(self, rate: Value, step: Value) -> Mapping[str, Value]:
        spread = sqrt(1.0 - pow_(self.beta2, step))
        return {
            "rate": rate * spread / (1.0 - pow_(self.beta1, step)),
            "epsilon": spread * self.epsilon,
            "plain rate": rate,
        }

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        return self._moved(parameter, self._decayed(gradient, parameter), slots, scalars)

    def _moved(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        mean = slots[0] * self.beta1 + gradient * (1.0 - self.beta1)
        square = slots[1] * self.beta2 + gradient * gradient * (1.0 - self.beta2)
        return parameter - mean / (sqrt(square) + scalars["epsilon"]) * scalars["rate"], mean, square


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    name: ClassVar[str] = "adamw"
    weight_decay: float = field(default=1e-2, kw_only=True)

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        kept = parameter * (1.0 - scalars["plain rate"] * self.weight_decay) if self.weight_decay else parameter
        return self._moved(kept, gradient, slots, scalars)


@dataclass(frozen=True)
class RMSprop(_Settings):
    """RMSprop: rates shrink with a decaying mean of squared gradients (Tieleman and Hinton 2012)."""

    name: ClassVar[str] = "rmsprop"
    slots: ClassVar[tuple[str, ...]] = ("square",)
    learning_rate: Rate = 1e-2
    alpha: float = 0.99
    epsilon: float = 1e-8

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        gradient = self._decayed(gradient, parameter)
        square = slots[0] * self.alpha + gradient * gradient * (1.0 - self.alpha)
        return parameter - gradient / (sqrt(square) + self.epsilon) * scalars["rate"], square


@dataclass(frozen=True)
class Lion(_Settings):
    """Lion: steps of equal size along the sign of the mean gradient, with decoupled weight decay (Chen et al. 2023)."""

    name: ClassVar[str] = "lion"
    slots: ClassVar[tuple[str, ...]] = ("m",)
    learning_rate: Rate = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        rate = scalars["rate"]
        kept = parameter * (1.0 - rate * self.weight_decay) if self.weight_decay else parameter
        along = sign(slots[0] * self.beta1 + gradient * (1.0 - self.beta1))
        return kept - along * rate, slots[0] * self.beta2 + gradient * (1.0 - self.beta2)


@dataclass(frozen=True)
class LAMB(Adam):
    """LAMB: Adam steps scaled to the norm of each parameter (You et al. 2020)."""

    name: ClassVar[str] = "lamb"
    epsilon: float = 1e-6

    def scalars(self, rate: Value, step: Value) -> Mapping[str, Value]:
        return {"rate": rate, "mean": 1.0 - pow_(self.beta1, step), "square": 1.0 - pow_(self.beta2, step)}

    def update(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], scalars: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        mean = slots[0] * self.beta1 + gradient * (1.0 - self.beta1)
        square = slots[1] * self.beta2 + gradient * gradient * (1.0 - self.beta2)
        along = mean / scalars["mean"] / (sqrt(square / scalars["square"]) + self.epsilon)
        along = self._decayed(along, parameter)
        length, step = (sqrt(reduce_sum(v * v, keepdims=0)) for v in (parameter, along))
        moves = and_(greater(length, 0.0), greater(step, 0.0))
        trust = where(moves, length / where(moves, step, 1.0), 1.0)
        return parameter - along * (scalars["rate"] * trust), mean, square


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    kind.name: kind for kind in (SGD, Momentum, Adagrad, Adam, AdamW, RMSprop, Lion, LAMB)
}
