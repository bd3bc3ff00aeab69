"""Kernels of the recurrent layers as they are usual: three kinds of them, in floats, without lengths and clipping.

States and gates have an axis of units before that of the batch, so that each gate lies in one piece. A sigmoid is half
a hyperbolic tangent of half its argument: the gates' weights are halved beforehand, and one call serves all gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Operand

Array = np.ndarray[Any, Any]

#: One direction: the weights of the input, their bias or None, the weights of the state, and its bias or None.
Weights = tuple[Array, Array | None, Array, Array | None]
#: Runs one direction over the shares of the input in all steps, into the hidden states of all steps.
Run = Callable[[Array, Weights, Array, Sequence[Array], Sequence[int]], Sequence[Array]]


def usual(
    run: Run, gates: int, sigmoids: int, separate: bool, inputs: Sequence[Operand | None], backwards: Sequence[bool]
) -> Callable[..., tuple[Array, ...]] | None:
    """The kernel of a layer for inputs X, W, R, B, sequence_lens and initial states; None where it is not usual.

    The first ``sigmoids`` gates are sigmoids; with ``separate`` the bias of the state is kept apart.
    """
    x, w, r, b, lengths, *states = inputs
    present = [v for v in inputs if v is not None]
    if lengths is not None or x is None or w is None or r is None or any(v.dtype != x.dtype for v in present):
        return None
    if x.dtype not in (np.float32, np.float64) or r.shape[2] == 1:  # of one number, np.dot loses 0 times NaN
        return None
    dtype, (length, batch, _), hidden = x.dtype, x.shape, r.shape[2]
    shape = (length, len(backwards), batch, hidden)
    orders = [range(length)[:: -1 if backward else 1] for backward in backwards]
    factors = np.ones((gates, 1), dtype)
    factors[:sigmoids] = 0.5
    factors = np.repeat(factors, hidden, axis=0)

    def arranged(W: Array, R: Array, B: Array | None) -> list[Weights]:
        found: list[Weights] = []
        for place in range(len(backwards)):
            bias = of_state = None
            if B is not None:
                bias, of_state = np.split(B[place, :, None], 2)
                bias = (bias if separate else bias + of_state) * factors
            w, r = W[place] * factors, R[place] * factors
            found.append((w, bias, r, of_state if separate else None))
        return found

    known = None
    if w.contents is not None and r.contents is not None and (b is None or b.contents is not None):
        known = arranged(w.contents, r.contents, None if b is None else b.contents)

    def layer(X: Array, W: Array, R: Array, B: Any = None, _: Any = None, *initial: Array | None) -> tuple[Array, ...]:
        y, finals = np.empty(shape, dtype), []
        columns = X.reshape(length * batch, -1).T
        for place, weights in enumerate(known or arranged(W, R, B)):
            shares = np.matmul(weights[0], columns)
            if weights[1] is not None:
                shares += weights[1]
            shares = np.ascontiguousarray(shares.reshape(-1, length, batch).swapaxes(0, 1))
            given = initial[: len(states)]
            first = [np.zeros((hidden, batch), dtype) if v is None else v[place].T.copy() for v in given]
            hs = np.empty((length, hidden, batch), dtype)
            finals.append(run(shares, weights, hs, first, orders[place]))
            y[:, place] = hs.swapaxes(1, 2)
        return (y, *(np.stack([state.T for state in final]) for final in zip(*finals, strict=True)))

    return layer


def remembering(
    shares: Array, weights: Weights, hs: Array, states: Sequence[Array], order: Sequence[int]
) -> Sequence[Array]:
    """LSTM, whose gates are input, output, forget and cell."""
    h, cell = states
    r, size = weights[2], len(h)
    z, part = np.empty_like(shares[0]), np.empty_like(h)
    gates, i, o, forget, candidate = z[: 3 * size], *np.split(z, 4)
    for time in order:
        np.dot(r, h, out=z)
        z += shares[time]
        np.tanh(z, out=z)
        gates *= 0.5
        gates += 0.5
        cell *= forget
        np.multiply(i, candidate, out=part)
        cell += part
        h = hs[time]
        np.tanh(cell, out=part)
        np.multiply(part, o, out=h)
    return h, cell


def gated(shares: Array, weights: Weights, hs: Array, states: Sequence[Array], order: Sequence[int]) -> Sequence[Array]:
    """GRU, whose gates are update, reset and hidden; the reset comes before the product."""
    (h,) = states
    size = len(h)
    of_gates, of_candidate = np.split(weights[2], [2 * size])
    z, part = np.empty_like(shares[0]), np.empty_like(h)
    gates, update, reset, candidate = z[: 2 * size], *np.split(z, 3)
    for time in order:
        share = shares[time]
        np.dot(of_gates, h, out=gates)
        gates += share[: 2 * size]
        np.tanh(gates, out=gates)
        gates *= 0.5
        gates += 0.5
        np.multiply(reset, h, out=part)
        np.dot(of_candidate, part, out=candidate)
        candidate += share[2 * size :]
        h = _mixed(update, candidate, h, part, hs[time])
    return (h,)


def gated_after(
    shares: Array, weights: Weights, hs: Array, states: Sequence[Array], order: Sequence[int]
) -> Sequence[Array]:
    """GRU whose reset comes behind the product and its bias."""
    (h,) = states
    size = len(h)
    z, part = np.empty_like(shares[0]), np.empty_like(h)
    gates, update, reset, candidate = z[: 2 * size], *np.split(z, 3)
    of_gates, of_candidate = (None, None) if weights[3] is None else np.split(weights[3], [2 * size])
    if of_gates is not None:
        shares[:, : 2 * size] += of_gates * 0.5
    for time in order:
        share = shares[time]
        np.dot(weights[2], h, out=z)
        gates += share[: 2 * size]
        np.tanh(gates, out=gates)
        gates *= 0.5
        gates += 0.5
        if of_candidate is not None:
            candidate += of_candidate
        candidate *= reset
        candidate += share[2 * size :]
        h = _mixed(update, candidate, h, part, hs[time])
    return (h,)


def _mixed(update: Array, candidate: Array, h: Array, part: Array, result: Array) -> Array:
    """The hyperbolic tangent of the candidate, and of the old state as much as ``update`` says."""
    np.tanh(candidate, out=candidate)
    np.subtract(h, candidate, out=part)
    part *= update
    return np.add(part, candidate, out=result)


def plain(shares: Array, weights: Weights, hs: Array, states: Sequence[Array], order: Sequence[int]) -> Sequence[Array]:
    """RNN."""
    (h,) = states
    for time in order:
        h = np.dot(weights[2], h, out=hs[time])
        h += shares[time]
        np.tanh(h, out=h)
    return (h,)
