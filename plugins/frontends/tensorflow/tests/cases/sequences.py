"""Keras layers on sequences: all options of recurrent ones, masks, and convolutions of dynamic length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from judging import Case

L = keras.layers


class Halving(L.Layer):
    """A user-defined cell."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = self.state_size = units

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(shape[-1], self.units), name="w")

    def call(self, x: Any, states: Any) -> Any:
        state = keras.ops.tanh(x @ self.w) + 0.5 * states[0]
        return state, [state]


def _filled(model: Any) -> Any:
    """Replace initial zeros and ones, so that every bias has an effect."""
    for place, weight in enumerate(model.weights):
        if "seed" not in weight.path:
            weight.assign(np.random.default_rng(place).normal(size=weight.shape).astype(np.float32) * 0.5)
    return model


def _of(make: Callable[[Any], Any], shape: Any = (6, 4), dtype: str = "float32", batch: int | None = None) -> Case:
    def made() -> Any:
        keras.utils.set_random_seed(0)
        x = keras.Input(shape, dtype=dtype, batch_size=batch)
        return _filled(keras.Model(x, make(x)))

    return Case(made)


def _masked(make: Callable[[Any], Any], length: int | None = None) -> Case:
    return _of(lambda x: make(L.Embedding(7, 3, mask_zero=True)(x)), (length,), "int32")


_OPTIONS: dict[str, dict[str, Any]] = {
    "backwards": {"go_backwards": True, "return_sequences": True},
    "states_backwards": {"go_backwards": True, "return_state": True},
    "no_bias": {"use_bias": False},
    "relu": {"activation": "relu", "return_sequences": True},
    "dropout": {"dropout": 0.5, "recurrent_dropout": 0.3},
    "one_step": {"return_sequences": True},
}
_KINDS = {"lstm": L.LSTM, "gru": L.GRU, "simple_rnn": L.SimpleRNN}

CASES = (
    {
        f"{kind}_{name}": _of(
            lambda x, layer=layer, given=given: layer(5, **given)(x), (1 if name == "one_step" else None, 4)
        )
        for kind, layer in _KINDS.items()
        for name, given in _OPTIONS.items()
    }
    | {
        "lstm_masked": _of(lambda x: L.LSTM(5, return_sequences=True)(L.Masking(0.0)(x))),
        "lstm_masked_last": _masked(L.LSTM(5)),
        "gru_masked_zeros": _masked(L.GRU(5, return_sequences=True, zero_output_for_mask=True), 6),
        "both_ways_masked": _masked(L.Bidirectional(L.LSTM(3, return_sequences=True)), 6),
        "both_ways_multiplied": _masked(L.Bidirectional(L.GRU(3), merge_mode="mul")),
        "lstm_keeps": _of(lambda x: L.LSTM(5, stateful=True)(x), batch=2),
        "gru_keeps": _of(lambda x: L.GRU(5, stateful=True, return_sequences=True)(x), batch=2),
        "both_ways_states": _of(
            lambda x: L.Bidirectional(L.LSTM(3, return_state=True, return_sequences=True), merge_mode=None)(x)
        ),
        "both_ways_of_two_kinds": _of(
            lambda x: L.Bidirectional(
                L.LSTM(3, return_sequences=True),
                backward_layer=L.GRU(3, return_sequences=True, go_backwards=True),
                merge_mode="ave",
            )(x)
        ),
        "cells": _of(lambda x: L.RNN([L.LSTMCell(3), L.GRUCell(4), L.SimpleRNNCell(2)], return_sequences=True)(x)),
        "cells_states": _of(
            lambda x: L.RNN(L.StackedRNNCells([L.LSTMCell(3), L.LSTMCell(4)]), return_state=True)(x), (None, 4)
        ),
        "cell_of_ones_own": _of(lambda x: L.RNN(Halving(3), go_backwards=True)(x), (None, 4)),
        "conv_lstm_states": _of(
            lambda x: L.ConvLSTM2D(3, 3, padding="same", return_sequences=True, return_state=True, dilation_rate=2)(x),
            (4, 6, 6, 2),
        ),
        "frames": _of(
            lambda x: L.GRU(3)(L.TimeDistributed(L.GlobalMaxPooling2D())(L.TimeDistributed(L.Conv2D(4, 3, 2))(x))),
            (None, 8, 8, 3),
        ),
        "attention_masked": _masked(lambda x: L.MultiHeadAttention(2, 3)(x, x)),
        "average_masked": _masked(L.GlobalAveragePooling1D()),
        "median": _of(lambda x: keras.ops.median(x, -1) + keras.ops.quantile(x, 0.3, -1)),
    }
    | {
        f"conv_{padding}_{dilation}": _of(
            lambda x, padding=padding, dilation=dilation: L.Conv1D(4, 3, padding=padding, dilation_rate=dilation)(x),
            (None, 3),
        )
        for padding in ("same", "causal", "valid")
        for dilation in (1, 2, 3)
    }
    | {
        "conv2d_dilated": _of(lambda x: L.Conv2D(4, 3, padding="same", dilation_rate=(2, 3))(x), (None, None, 3)),
        "depthwise_dilated": _of(
            lambda x: L.DepthwiseConv2D(3, padding="same", dilation_rate=2, depth_multiplier=2)(x), (None, None, 3)
        ),
        "separable_dilated": _of(
            lambda x: L.SeparableConv2D(4, 3, padding="same", dilation_rate=2)(x), (None, None, 3)
        ),
        "transposed_wide": _of(lambda x: L.Conv2DTranspose(4, 3, strides=3, output_padding=2)(x), (None, None, 3)),
    }
)
