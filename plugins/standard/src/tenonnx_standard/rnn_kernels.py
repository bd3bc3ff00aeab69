"""Kernels of default RNN, GRU and LSTM layers of floats, without sequence lengths and clipping.

States and gates have the unit axis before the batch axis, so that each gate is contiguous. A sigmoid is computed as a
tanh of half its argument: the weights of its gates are halved beforehand, and one call serves all gates. Two directions
run simultaneously, stacked along a leading axis or, if small, as one layer with a block-diagonal recurrence matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import Operand
from tenonnx_standard.scalars import scalar

Array = np.ndarray[Any, Any]

#: Input weights, their bias or None, recurrence weights, and their bias or None.
Weights = tuple[Array, Array | None, Array, Array | None]
#: Maps the input's contributions in all steps to the hidden states of all steps and the last states.
Steps = Callable[[Array, Weights, Array, Sequence[Array]], Sequence[Array]]

#: Up to this many units, two directions are one layer: one small product is faster than two stacked ones.
_FEW = 32


class RecurrentKernel:
    """A layer for X, W and R of known shapes, with directions that are forward or ``backwards``.

    The first ``sigmoids`` of the ``gates`` are sigmoids; with ``separate`` the recurrence has its own bias. Two
    directions are one layer if ``joined``; then a state that is infinite or NaN would reach the other direction.
    """

    def __init__(
        self,
        run: Steps,
        gates: int,
        sigmoids: int,
        separate: bool,
        inputs: Sequence[Operand],
        backwards: Sequence[bool],
        joined: bool,
    ) -> None:
        x, _, r = inputs
        self.run, self.separate, self.dtype, self.joined = run, separate, x.dtype, joined
        self.length, self.batch, self.hidden = x.shape[0], x.shape[1], r.shape[2]
        self.count, self.width = len(backwards), gates * self.hidden
        self.turns = [slice(None, None, -1 if backward else 1) for backward in backwards]
        # rows of weights are indexed by outer, direction and inner
        self.outer, self.inner = (gates, self.hidden) if joined else (1, self.width)
        apart = self.count > 1 and not joined
        self.units = (self.count, self.width) if apart else (self.count * self.width,)
        self.state = (self.count, self.hidden) if apart else (self.count * self.hidden,)
        self.factors = np.ones((self.width, 1), self.dtype)
        self.factors[: sigmoids * self.hidden] = 0.5

    def arranged(self, W: Array, R: Array, B: Array | None) -> Weights:
        """Weights in the layout that the steps read."""
        bias = of_state = None
        if B is not None:
            bias, of_state = np.split(B[:, :, None], 2, axis=1)
            bias = self._ordered((bias if self.separate else bias + of_state) * self.factors)
            of_state = self._ordered(of_state).reshape(*self.units, 1)
        r = (R * self.factors).reshape(self.count, self.outer, self.inner, self.hidden)
        if self.joined:
            blocks = np.zeros((self.outer, self.count, self.inner, self.count, self.hidden), self.dtype)
            for place in range(self.count):
                blocks[:, place, :, place] = r[place]
            r = blocks
        r = r.reshape(*self.units, self.state[-1])
        return self._ordered(W * self.factors), bias, r, of_state if self.separate else None

    def _ordered(self, rows: Array) -> Array:
        """Rows by direction and unit, in order of computation."""
        parts = rows.reshape(self.count, self.outer, self.inner, rows.shape[-1])
        return parts.swapaxes(0, 1).reshape(self.count * self.width, rows.shape[-1])

    def __call__(self, X: Array, weights: Weights, initial: Sequence[Array | None]) -> tuple[Array, ...]:
        """All hidden states and the last states, from ``initial`` states or zeros."""
        shares = self._shares(X, *weights[:2])
        hs = np.empty((self.length, *self.state, self.batch), self.dtype)
        zeros = *self.state, self.batch
        first = [np.zeros(zeros, self.dtype) if v is None else v.swapaxes(1, 2).copy().reshape(zeros) for v in initial]
        last = self.run(shares, weights, hs, first)
        hs = hs.reshape(self.length, self.count, self.hidden, self.batch)
        y = np.empty((self.length, self.count, self.batch, self.hidden), self.dtype)
        for place, turn in enumerate(self.turns):
            y[:, place] = hs[turn, place].swapaxes(1, 2)
        return (y, *(state.reshape(hs.shape[1:]).swapaxes(1, 2).copy() for state in last))

    def _shares(self, X: Array, w: Array, bias: Array | None) -> Array:
        """Contributions of the input to the gates, for all steps in the order of each direction."""
        products = np.matmul(w, X.reshape(self.length * self.batch, -1).T)
        if bias is not None:
            products += bias
        products = products.reshape(self.outer, self.count, self.inner, self.length, self.batch)
        shares = np.empty((self.length, self.outer, self.count, self.inner, self.batch), self.dtype)
        for place, turn in enumerate(self.turns):
            shares[:, :, place] = products[:, place].transpose(2, 0, 1, 3)[turn]
        return shares.reshape(self.length, *self.units, self.batch)


def kernel_of(
    run: Steps,
    gates: int,
    sigmoids: int,
    separate: bool,
    inputs: Sequence[Operand | None],
    backwards: Sequence[bool],
) -> Callable[..., tuple[Array, ...]] | None:
    """The kernel of a layer for inputs X, W, R, B, sequence_lens and initial states; None if it is not supported."""
    x, w, r, b, lengths, *states = inputs
    if lengths is not None or x is None or w is None or r is None:
        return None
    if x.dtype not in (np.float32, np.float64) or any(v is not None and v.dtype != x.dtype for v in inputs):
        return None
    if r.shape[2] == 1:  # np.dot of a single element ignores 0 * NaN
        return None

    def made(joined: bool) -> Callable[..., tuple[Array, ...]]:
        kernel, known = RecurrentKernel(run, gates, sigmoids, separate, (x, w, r), backwards, joined), None
        if w.contents is not None and r.contents is not None and (b is None or b.contents is not None):
            known = kernel.arranged(w.contents, r.contents, None if b is None else b.contents)

        def layer(
            X: Array, W: Array, R: Array, B: Any = None, _: Any = None, *initial: Array | None
        ) -> tuple[Array, ...]:
            return kernel(X, known or kernel.arranged(W, R, B), initial[: len(states)])

        return layer

    if len(backwards) == 1 or r.shape[2] > _FEW:
        return made(joined=False)
    together = made(joined=True)

    def layer(*arrays: Any) -> tuple[Array, ...]:
        result = together(*arrays)
        return result if all(np.isfinite(state).all() for state in result[1:]) else made(joined=False)(*arrays)

    return layer


def _product(r: Array) -> Callable[..., Array]:
    """The product with the recurrence weights of one direction, or of two."""
    return np.dot if r.ndim == 2 else np.matmul


def remembering(shares: Array, weights: Weights, hs: Array, states: Sequence[Array]) -> Sequence[Array]:
    """LSTM, with gates input, output, forget and cell."""
    h, cell = states
    r, half = weights[2], scalar(0.5, cell.dtype)
    product = _product(r)
    z, part = np.empty_like(shares[0]), np.empty_like(h)
    i, o, forget, candidate = np.split(z, 4, axis=-2)
    gates = z[..., : 3 * h.shape[-2], :]
    for share, result in zip(shares, hs, strict=True):
        product(r, h, out=z)
        z += share
        np.tanh(z, out=z)
        gates *= half
        gates += half
        cell *= forget
        np.multiply(i, candidate, out=part)
        cell += part
        np.tanh(cell, out=part)
        h = np.multiply(part, o, out=result)
    return h, cell


def gated(shares: Array, weights: Weights, hs: Array, states: Sequence[Array]) -> Sequence[Array]:
    """GRU, with gates update, reset and hidden; the reset is applied before the product."""
    (h,) = states
    size, half = h.shape[-2], scalar(0.5, h.dtype)
    of_gates, of_candidate = np.split(weights[2], [2 * size], axis=-2)
    product = _product(of_gates)
    z, part = np.empty_like(shares[0]), np.empty_like(h)
    update, reset, candidate = np.split(z, 3, axis=-2)
    gates = z[..., : 2 * size, :]
    for share, share_of_candidate, result in zip(*np.split(shares, [2 * size], axis=-2), hs, strict=True):
        product(of_gates, h, out=gates)
        gates += share
        np.tanh(gates, out=gates)
        gates *= half
        gates += half
        np.multiply(reset, h, out=part)
        product(of_candidate, part, out=candidate)
        candidate += share_of_candidate
        h = _mixed(update, candidate, h, part, result)
    return (h,)


def gated_after(shares: Array, weights: Weights, hs: Array, states: Sequence[Array]) -> Sequence[Array]:
    """GRU whose reset is applied after the product and its bias."""
    (h,) = states
    size, half = h.shape[-2], scalar(0.5, h.dtype)
    product = _product(weights[2])
    z, part = np.empty_like(shares[0]), np.empty_like(h)
    update, reset, candidate = np.split(z, 3, axis=-2)
    gates = z[..., : 2 * size, :]
    of_gates, of_candidate = (None, None) if weights[3] is None else np.split(weights[3], [2 * size], axis=-2)
    if of_gates is not None:
        shares[..., : 2 * size, :] += of_gates * half
    for share, share_of_candidate, result in zip(*np.split(shares, [2 * size], axis=-2), hs, strict=True):
        product(weights[2], h, out=z)
        gates += share
        np.tanh(gates, out=gates)
        gates *= half
        gates += half
        if of_candidate is not None:
            candidate += of_candidate
        candidate *= reset
        candidate += share_of_candidate
        h = _mixed(update, candidate, h, part, result)
    return (h,)


def _mixed(update: Array, candidate: Array, h: Array, part: Array, result: Array) -> Array:
    """Interpolate between the tanh of the candidate and the old state by ``update``."""
    np.tanh(candidate, out=candidate)
    np.subtract(h, candidate, out=part)
    part *= update
    return np.add(part, candidate, out=result)


def plain(shares: Array, weights: Weights, hs: Array, states: Sequence[Array]) -> Sequence[Array]:
    """RNN with tanh."""
    return _elman(shares, weights, hs, states, lambda h: np.tanh(h, out=h))


def rectified(shares: Array, weights: Weights, hs: Array, states: Sequence[Array]) -> Sequence[Array]:
    """RNN with Relu."""
    zero = scalar(0.0, hs.dtype)
    return _elman(shares, weights, hs, states, lambda h: np.maximum(h, zero, out=h))


def _elman(
    shares: Array, weights: Weights, hs: Array, states: Sequence[Array], activate: Callable[[Array], Array]
) -> Sequence[Array]:
    (h,) = states
    product = _product(weights[2])
    for share, result in zip(shares, hs, strict=True):
        h = product(weights[2], h, out=result)
        h += share
        activate(h)
    return (h,)
