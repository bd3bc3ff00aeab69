"""TFLite recurrent layers in each arithmetic of their kernels, in files that the converter does not produce."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from judging import Case, array
from lite_files import Op, T, built

_TANH, _RELU = 4, 1
_SIZES = {"batch": 2, "steps": 5, "inputs": 6, "cells": 4}


def _quantized(*shape: int, seed: int = 0, most: int = 127) -> Any:
    return np.random.default_rng([seed, *shape]).integers(-most, most + 1, shape).astype(np.int8)


class _Tensors:
    """The tensors of a file, by index."""

    def __init__(self) -> None:
        self.held: list[T] = []

    def add(self, tensor: T) -> int:
        self.held.append(tensor)
        return len(self.held) - 1


def _weights(kind: str, *shape: int, seed: int) -> T:
    if kind == "float":
        return T(array(*shape, seed=seed) / 3)
    return T(_quantized(*shape, seed=seed), scale=0.006 + 0.001 * (seed % 4))


def lstm(
    kind: str,
    peephole: bool = False,
    projection: bool = False,
    norm: bool = False,
    coupled: bool = False,
    clip: float = 0.0,
    time_major: bool = False,
    asymmetric: bool = False,
    single: bool = False,
    name: str = "UNIDIRECTIONAL_SEQUENCE_LSTM",
    kernel: int = 0,
    diagonal: bool = False,
) -> Path:
    batch, steps, inputs, cells = _SIZES.values()
    outputs = 3 if projection else cells
    tensors, fixed = _Tensors(), kind == "int8"
    shape = (batch, inputs) if single else (steps, batch, inputs) if time_major else (batch, steps, inputs)
    out_shape = (*shape[:-1], outputs)
    x_scale, h_scale, h_zero = 0.02, 1 / 128, 5
    x = tensors.add(T(shape=shape, dtype=np.int8, scale=x_scale, zero=3) if fixed else T(shape=shape))
    gates = [k for k in range(4) if not (coupled and k == 0)]

    def each(make: Any, of: Any = gates) -> list[int]:
        return [tensors.add(make(k)) if k in of else -1 for k in range(4)]

    def bias(k: int) -> T:
        if not fixed:
            return T(array(cells, seed=20 + k))
        if norm:
            return T((array(cells, seed=20 + k) * 2**24).astype(np.int32), scale=2.0**-24)
        size = x_scale * (0.006 + 0.001 * ((1 + k) % 4))
        return T((array(cells, seed=20 + k) / size).astype(np.int32), scale=size)

    def vector(k: int) -> T:
        if kind == "hybrid" and k < 10:
            return T(_quantized(cells, seed=40 + k), scale=0.01)
        if not fixed:
            return T(array(cells, seed=40 + k))
        return T((array(cells, seed=40 + k) * 2**14).astype(np.int16), scale=2.0**-14)

    weights = each(lambda k: _weights(kind, cells, inputs, seed=1 + k))
    recurrent = each(lambda k: _weights(kind, cells, outputs, seed=8 + k))
    peepholes = [tensors.add(vector(k)) if peephole and not (coupled and k == 0) else -1 for k in range(3)]
    biases = each(bias)
    projected = tensors.add(_weights(kind, outputs, cells, seed=30)) if projection else -1
    if fixed:
        hidden = tensors.add(T(shape=(batch, outputs), dtype=np.int8, scale=h_scale, zero=h_zero, is_variable=True))
        cell = tensors.add(T(shape=(batch, cells), dtype=np.int16, scale=2.0**-11, is_variable=True))
    else:
        hidden, cell = (tensors.add(T(shape=(batch, n), is_variable=True)) for n in (outputs, cells))
    norms = each(lambda k: vector(k + 10)) if norm else []
    inside = [tensors.add(T(shape=(1,), dtype=np.int16, scale=2.0**-11)) for _ in range(4)] if fixed else []
    if fixed:
        before = {"scale": 0.01, "zero": 2} if projection else {"scale": h_scale, "zero": h_zero}
        inside.append(tensors.add(T(shape=(1,), dtype=np.int8, **before)))
    y = tensors.add(T(shape=out_shape, dtype=np.int8, scale=h_scale, zero=h_zero) if fixed else T(shape=out_shape))
    given = [x, *weights, *recurrent, *peepholes, *biases, projected, -1, hidden, cell, *norms]
    options: dict[str, Any] = {
        "fusedActivationFunction": _TANH,
        "cellClip": clip,
        "asymmetricQuantizeInputs": asymmetric,
    }
    if name == "LSTM":
        options["kernelType"] = kernel
    else:
        options |= {"timeMajor": time_major, "diagonalRecurrentTensors": diagonal}
    kind_of_options = "LSTMOptions" if name == "LSTM" else "UnidirectionalSequenceLSTMOptions"
    return built(tensors.held, [Op(name, given, [y], (kind_of_options, options), inside)], [x], [y])


def bidirectional_lstm(kind: str, merged: bool) -> Path:
    batch, steps, inputs, cells = _SIZES.values()
    tensors = _Tensors()
    x = tensors.add(T(shape=(batch, steps, inputs)))
    ways = []
    for way in (0, 50):
        weights = [tensors.add(_weights(kind, cells, inputs, seed=way + 1 + k)) for k in range(4)]
        recurrent = [tensors.add(_weights(kind, cells, cells, seed=way + 8 + k)) for k in range(4)]
        biases = [tensors.add(T(array(cells, seed=way + 20 + k))) for k in range(4)]
        ways += [*weights, *recurrent, -1, -1, -1, *biases, -1, -1]
    states = [tensors.add(T(shape=(batch, cells), is_variable=True)) for _ in range(4)]
    outs = [tensors.add(T(shape=(batch, steps, 2 * cells if merged else cells))) for _ in range(1 if merged else 2)]
    options = {"fusedActivationFunction": _TANH, "mergeOutputs": merged, "timeMajor": False}
    given = [x, *ways, *states, *[-1] * 9]
    op = Op("BIDIRECTIONAL_SEQUENCE_LSTM", given, outs, ("BidirectionalSequenceLSTMOptions", options))
    return built(tensors.held, [op], [x], outs)


def rnn(kind: str, name: str, asymmetric: bool = False, activation: int = _TANH) -> Path:
    batch, steps, inputs, cells = _SIZES.values()
    tensors = _Tensors()
    single, both = name == "RNN", name.startswith("BI")
    shape = (batch, inputs) if single else (batch, steps, inputs)
    x = tensors.add(T(shape=shape))
    given = [x]
    for way in (0, 50) if both else (0,):
        parts = [
            _weights(kind, cells, inputs, seed=way + 1),
            _weights(kind, cells, cells, seed=way + 2),
            T(array(cells, seed=way + 3)),
        ]
        given += [tensors.add(each) for each in (*parts, T(shape=(batch, cells), is_variable=True))]
    outs = [tensors.add(T(shape=(*shape[:-1], cells))) for _ in range(2 if both else 1)]
    options: dict[str, Any] = {"fusedActivationFunction": activation, "asymmetricQuantizeInputs": asymmetric}
    if not single:
        options["timeMajor"] = False
    kind_of_options = {"RNN": "RNNOptions", "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions"}.get(
        name, "BidirectionalSequenceRNNOptions"
    )
    return built(
        tensors.held, [Op(name, [*given, *([-1] * 3 if both else [])], outs, (kind_of_options, options))], [x], outs
    )


def svdf(kind: str, rank: int = 2, asymmetric: bool = False, activation: int = 0, bias: bool = True) -> Path:
    batch, inputs, units, memory = 2, 6, 4, 5
    filters, fixed = units * rank, kind == "int8"
    tensors = _Tensors()
    x = tensors.add(T(shape=(batch, inputs), dtype=np.int8, scale=0.05, zero=-4) if fixed else T(shape=(batch, inputs)))
    features = tensors.add(_weights(kind, filters, inputs, seed=3))
    if fixed:
        time = T((array(filters, memory) * 8000).astype(np.int16), scale=1e-4)
        state = T(shape=(batch, filters * memory), dtype=np.int16, scale=5e-4, is_variable=True)
        added = T((array(units) / 5e-8).astype(np.int32), scale=5e-8)
        y = T(shape=(batch, units), dtype=np.int8, scale=0.05, zero=7)
    else:
        time = T(_quantized(filters, memory, seed=4), scale=0.01) if kind == "hybrid" else T(array(filters, memory))
        state, added = T(shape=(batch, filters * memory), is_variable=True), T(array(units))
        y = T(shape=(batch, units))
    given = [x, features, tensors.add(time), tensors.add(added) if bias else -1, tensors.add(state)]
    out = tensors.add(y)
    options = {"rank": rank, "fusedActivationFunction": activation, "asymmetricQuantizeInputs": asymmetric}
    return built(tensors.held, [Op("SVDF", given, [out], ("SVDFOptions", options))], [x], [out])


_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "peephole": {"peephole": True},
    "projection": {"projection": True},
    "norm": {"norm": True},
    "coupled": {"coupled": True},
    "clipped": {"clip": 0.5},
    "time_major": {"time_major": True},
    "all": {"peephole": True, "norm": True, "clip": 1.0},
}

CASES = {
    f"lstm_{kind}_{name}": Case(lambda kind=kind, given=given: lstm(kind, **given))
    for kind in ("float", "hybrid", "int8")
    for name, given in _VARIANTS.items()
} | {
    "lstm_hybrid_asymmetric": Case(lambda: lstm("hybrid", asymmetric=True)),
    "lstm_single": Case(lambda: lstm("float", single=True, name="LSTM")),
    "lstm_single_hybrid": Case(lambda: lstm("hybrid", single=True, name="LSTM")),
    "lstm_single_int8": Case(lambda: lstm("int8", single=True, name="LSTM")),
    "lstm_float_all_of_it": Case(lambda: lstm("float", peephole=True, projection=True, norm=True, clip=1.0)),
    "lstm_hybrid_all_of_it": Case(lambda: lstm("hybrid", peephole=True, projection=True, norm=True, clip=1.0)),
    "bidirectional_lstm": Case(lambda: bidirectional_lstm("float", merged=False)),
    "bidirectional_lstm_hybrid": Case(lambda: bidirectional_lstm("hybrid", merged=False)),
    "rnn": Case(lambda: rnn("float", "RNN", activation=_RELU)),
    "rnn_hybrid": Case(lambda: rnn("hybrid", "RNN")),
    "sequence_rnn": Case(lambda: rnn("float", "UNIDIRECTIONAL_SEQUENCE_RNN")),
    "sequence_rnn_hybrid": Case(lambda: rnn("hybrid", "UNIDIRECTIONAL_SEQUENCE_RNN")),
    "sequence_rnn_asymmetric": Case(lambda: rnn("hybrid", "UNIDIRECTIONAL_SEQUENCE_RNN", asymmetric=True)),
    "bidirectional_rnn": Case(lambda: rnn("float", "BIDIRECTIONAL_SEQUENCE_RNN")),
    "bidirectional_rnn_hybrid": Case(lambda: rnn("hybrid", "BIDIRECTIONAL_SEQUENCE_RNN")),
    "svdf": Case(lambda: svdf("float", activation=_RELU)),
    "svdf_rank_1": Case(lambda: svdf("float", rank=1, bias=False)),
    "svdf_hybrid": Case(lambda: svdf("hybrid")),
    "svdf_asymmetric": Case(lambda: svdf("hybrid", asymmetric=True)),
    "svdf_int8": Case(lambda: svdf("int8", activation=_RELU)),
    "svdf_int8_rank_1": Case(lambda: svdf("int8", rank=1, activation=_RELU)),
}
