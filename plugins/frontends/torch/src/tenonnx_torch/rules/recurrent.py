"""Standard recurrent layers by PyTorch's fused kernels, gradients included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import tenonnx_standard as ops
from tenonnx.extend import DType, Op, Value
from tenonnx_torch.rules import is_empty, rule

#: A layer of PyTorch: a function of a sequence, initial states, parameters, and whether it is bidirectional.
Layer = Callable[..., tuple[torch.Tensor, ...]]


def _directions(given: dict[str, Any]) -> int:
    return 2 if given["direction"] == "bidirectional" else 1


def _named(usual: Sequence[str], given: dict[str, Any]) -> tuple[str, ...]:
    """The activations of the first direction, lower case; empty if those of the other direction differ."""
    size, count = len(usual), _directions(given)
    names = tuple(name.lower() for name in given["activations"] or [*usual] * count)
    return names[:size] if names[: size * count] == names[:size] * count else ()


def _rule(op: Op, order: Sequence[int], layers: dict[tuple[str, ...], Layer]) -> None:
    """Register a rule for ``op`` by ``layers`` keyed by activations, defaults first; ``order`` permutes the gates."""
    usual = next(iter(layers))

    def takes(X: Value, W: Value, R: Value, B: Any = None, lengths: Any = None, *more: Any, **given: Any) -> bool:
        unlike = given["clip"] is not None or given.get("input_forget") or not given.get("linear_before_reset", 1)
        whole = lengths is None and more[2:] in ((), (None,)) and X.dtype in (DType.float32, DType.float64)
        return whole and not unlike and _named(usual, given) in layers

    @rule(op, takes=takes)
    def op_rule(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, *more: Any, **given: Any) -> Any:
        if is_empty(x):
            return NotImplemented
        states = [more[place] if place < len(more) else None for place in range(2 if op is ops.lstm else 1)]
        if given["layout"]:
            x, *states = (v if v is None else v.transpose(0, 1) for v in (x, *states))
        if given["direction"] == "reverse":
            x = x.flip(0)
        count, batch, hidden = _directions(given), x.shape[1], r.shape[2]
        zeros = x.new_zeros(count, batch, hidden)
        states = [zeros if v is None else v.contiguous() for v in states]
        weights = [_ordered(v, order) for v in (w, r, *(() if b is None else b.chunk(2, 1)))]
        parameters = [v[place] for place in range(count) for v in weights]
        layer, state = layers[_named(usual, given)], states if len(states) > 1 else states[0]
        y, *finals = layer(x, state, parameters, b is not None, 1, 0.0, False, count == 2, False)
        y = y.unflatten(2, (count, hidden)).transpose(1, 2)
        if given["direction"] == "reverse":
            y = y.flip(0)
        if given["layout"]:
            y, finals = y.permute(2, 0, 1, 3), [v.transpose(0, 1) for v in finals]
        return y, *finals


def _ordered(values: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Reorder the gates of parameters along the second axis."""
    gates = values.chunk(len(order), 1)
    return torch.cat([gates[place] for place in order], 1) if len(order) > 1 else values


_rule(ops.lstm, [0, 2, 3, 1], {("sigmoid", "tanh", "tanh"): torch.lstm})
_rule(ops.gru, [1, 0, 2], {("sigmoid", "tanh"): torch.gru})
_rule(ops.rnn, [0], {("tanh",): torch.rnn_tanh, ("relu",): torch.rnn_relu})
