"""Keras layers, each as a model with a dynamic batch."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from judging import Case, array

L = keras.layers


def _model(shape: Any, *layers: Any, dtype: str = "float32") -> Any:
    def made() -> Any:
        keras.utils.set_random_seed(0)
        inputs = keras.Input(shape, dtype=dtype)
        x = inputs
        for layer in layers:
            x = layer()(x)
        return keras.Model(inputs, x)

    return made


_VECTOR, _ROWS, _IMAGE, _VOLUME = (6,), (7, 6), (9, 8, 4), (5, 6, 6, 3)

_LAYERS = {
    "dense": (_VECTOR, lambda: L.Dense(4, "tanh")),
    "dense_rows": (_ROWS, lambda: L.Dense(4)),
    "einsum_dense": (_ROWS, lambda: L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d")),
    "activation": (_VECTOR, lambda: L.Activation("swish")),
    "relu": (_VECTOR, lambda: L.ReLU(max_value=1.0, negative_slope=0.1, threshold=0.2)),
    "leaky": (_VECTOR, L.LeakyReLU),
    "prelu": (_ROWS, L.PReLU),
    "elu": (_VECTOR, L.ELU),
    "softmax": (_ROWS, L.Softmax),
    "conv1d": (_ROWS, lambda: L.Conv1D(5, 3, padding="causal", dilation_rate=2)),
    "conv2d": (_IMAGE, lambda: L.Conv2D(5, (3, 2), strides=2, padding="same")),
    "conv2d_grouped": (_IMAGE, lambda: L.Conv2D(6, 3, groups=2)),
    "conv3d": (_VOLUME, lambda: L.Conv3D(4, 2)),
    "conv1d_transpose": (_ROWS, lambda: L.Conv1DTranspose(3, 3, strides=2, padding="same")),
    "conv2d_transpose": (_IMAGE, lambda: L.Conv2DTranspose(3, 3, strides=2)),
    "conv2d_transpose_padded": (_IMAGE, lambda: L.Conv2DTranspose(3, 3, strides=2, padding="same", output_padding=0)),
    "conv3d_transpose": (_VOLUME, lambda: L.Conv3DTranspose(2, 2, strides=2)),
    "depthwise1d": (_ROWS, lambda: L.DepthwiseConv1D(3, depth_multiplier=2)),
    "depthwise2d": (_IMAGE, lambda: L.DepthwiseConv2D(3, padding="same", depth_multiplier=2)),
    "separable1d": (_ROWS, lambda: L.SeparableConv1D(5, 3)),
    "separable2d": (_IMAGE, lambda: L.SeparableConv2D(5, 3)),
    "max_pool1d": (_ROWS, L.MaxPooling1D),
    "max_pool2d": (_IMAGE, lambda: L.MaxPooling2D(3, 2, "same")),
    "max_pool3d": (_VOLUME, L.MaxPooling3D),
    "average_pool1d": (_ROWS, lambda: L.AveragePooling1D(3, 2, "same")),
    "average_pool2d": (_IMAGE, lambda: L.AveragePooling2D(3, 2, "same")),
    "average_pool3d": (_VOLUME, lambda: L.AveragePooling3D(2)),
    "global_max1d": (_ROWS, L.GlobalMaxPooling1D),
    "global_max2d": (_IMAGE, lambda: L.GlobalMaxPooling2D(keepdims=True)),
    "global_max3d": (_VOLUME, L.GlobalMaxPooling3D),
    "global_average1d": (_ROWS, L.GlobalAveragePooling1D),
    "global_average2d": (_IMAGE, L.GlobalAveragePooling2D),
    "global_average3d": (_VOLUME, L.GlobalAveragePooling3D),
    "adaptive_average": (
        _IMAGE,
        lambda: L.AdaptiveAveragePooling2D((3, 2)) if hasattr(L, "AdaptiveAveragePooling2D") else L.Flatten(),
    ),
    "batch_norm": (_IMAGE, L.BatchNormalization),
    "layer_norm": (_ROWS, L.LayerNormalization),
    "layer_norm_axes": (_IMAGE, lambda: L.LayerNormalization(axis=[1, 3])),
    "group_norm": (_IMAGE, lambda: L.GroupNormalization(2)),
    "rms_norm": (_ROWS, L.RMSNormalization),
    "unit_norm": (_ROWS, L.UnitNormalization),
    "spectral_norm": (_VECTOR, lambda: L.SpectralNormalization(L.Dense(3))),
    "lstm": (_ROWS, lambda: L.LSTM(4)),
    "lstm_sequences": (_ROWS, lambda: L.LSTM(4, return_sequences=True, go_backwards=True)),
    "lstm_any_length": ((None, 6), lambda: L.LSTM(4)),
    "lstm_hard": (_ROWS, lambda: L.LSTM(4, recurrent_activation="hard_sigmoid", use_bias=False)),
    "gru": (_ROWS, lambda: L.GRU(4, return_sequences=True)),
    "gru_before": (_ROWS, lambda: L.GRU(4, reset_after=False)),
    "simple_rnn": (_ROWS, lambda: L.SimpleRNN(4)),
    "bidirectional": (_ROWS, lambda: L.Bidirectional(L.LSTM(3, return_sequences=True))),
    "bidirectional_sum": (_ROWS, lambda: L.Bidirectional(L.GRU(3), merge_mode="sum")),
    "stacked": (_ROWS, lambda: L.RNN([L.LSTMCell(3), L.GRUCell(4)])),
    "lstm_unrolled": (_ROWS, lambda: L.LSTM(4, unroll=True)),
    "conv_lstm": ((3, 5, 6, 2), lambda: L.ConvLSTM2D(3, 2, return_sequences=True)),
    "conv_lstm1d": ((3, 6, 2), lambda: L.ConvLSTM1D(3, 2)),
    "time_distributed": ((3, 8, 8, 2), lambda: L.TimeDistributed(L.Conv2D(3, 3))),
    "flatten": (_IMAGE, L.Flatten),
    "reshape": (_IMAGE, lambda: L.Reshape((-1, 4))),
    "permute": (_ROWS, lambda: L.Permute((2, 1))),
    "repeat_vector": (_VECTOR, lambda: L.RepeatVector(3)),
    "cropping1d": (_ROWS, lambda: L.Cropping1D((1, 2))),
    "cropping2d": (_IMAGE, lambda: L.Cropping2D(((1, 2), (0, 3)))),
    "cropping3d": (_VOLUME, L.Cropping3D),
    "padding1d": (_ROWS, lambda: L.ZeroPadding1D(2)),
    "padding2d": (_IMAGE, lambda: L.ZeroPadding2D(((1, 0), (2, 3)))),
    "padding3d": (_VOLUME, L.ZeroPadding3D),
    "upsampling1d": (_ROWS, L.UpSampling1D),
    "upsampling2d": (_IMAGE, lambda: L.UpSampling2D((2, 3))),
    "upsampling2d_bilinear": (_IMAGE, lambda: L.UpSampling2D(2, interpolation="bilinear")),
    "upsampling3d": (_VOLUME, L.UpSampling3D),
    "lambda": (_VECTOR, lambda: L.Lambda(lambda x: x * 2 + 1)),
    "dropout": (_VECTOR, lambda: L.Dropout(0.5)),
    "spatial_dropout": (_IMAGE, lambda: L.SpatialDropout2D(0.5)),
    "gaussian_noise": (_VECTOR, lambda: L.GaussianNoise(0.5)),
    "gaussian_dropout": (_VECTOR, lambda: L.GaussianDropout(0.5)),
    "alpha_dropout": (_VECTOR, lambda: L.AlphaDropout(0.5)),
    "activity": (_VECTOR, lambda: L.ActivityRegularization(0.1)),
    "masking": (_ROWS, L.Masking),
    "identity": (_VECTOR, L.Identity),
    "rescaling": (_IMAGE, lambda: L.Rescaling(1 / 127.5, -1)),
    "resizing": (_IMAGE, lambda: L.Resizing(5, 11)),
    "resizing_crop": (_IMAGE, lambda: L.Resizing(5, 11, crop_to_aspect_ratio=True)),
    "center_crop": (_IMAGE, lambda: L.CenterCrop(5, 4)),
    "normalization": (_ROWS, lambda: L.Normalization(mean=[1.0] * 6, variance=[2.0] * 6)),
    "discretization": (_VECTOR, lambda: L.Discretization([-1.0, 0.0, 1.5])),
    "discretization_one_hot": (_VECTOR, lambda: L.Discretization([-1.0, 0.0, 1.5], output_mode="multi_hot")),
    "mel": (
        (400,),
        lambda: L.MelSpectrogram(
            fft_length=64, sequence_stride=32, sequence_length=64, num_mel_bins=8, sampling_rate=800, max_freq=400
        ),
    ),
    "random_flip": (_IMAGE, L.RandomFlip),
    "random_rotation": (_IMAGE, lambda: L.RandomRotation(0.2)),
    "random_contrast": (_IMAGE, lambda: L.RandomContrast(0.2)),
    "random_zoom": (_IMAGE, lambda: L.RandomZoom(0.2)),
    "random_translation": (_IMAGE, lambda: L.RandomTranslation(0.2, 0.2)),
    "solarization": (_IMAGE, lambda: L.Solarization() if hasattr(L, "Solarization") else L.Identity()),
}


def _two(function: Any, *shapes: Any, dtypes: Any = None) -> Any:
    def made() -> Any:
        keras.utils.set_random_seed(0)
        inputs = [
            keras.Input(s, dtype=d, name=f"in_{k}")
            for k, (s, d) in enumerate(zip(shapes, dtypes or ["float32"] * len(shapes), strict=True))
        ]
        return keras.Model(inputs, function(*inputs))

    return made


def _transformer(x: Any) -> Any:
    a = L.MultiHeadAttention(2, 3)(x, x)
    x = L.LayerNormalization()(x + a)
    return L.LayerNormalization()(x + L.Dense(6)(L.Dense(12, "gelu")(x)))


def _tokens() -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((7,), dtype="int32", name="tokens")
    x = L.Embedding(20, 6, mask_zero=True)(inputs)
    return keras.Model(inputs, L.Dense(2)(L.LSTM(4)(x)))


def _strings(output_mode: str) -> Any:
    def made() -> Any:
        inputs = keras.Input((2,), dtype="string")
        return keras.Model(inputs, L.StringLookup(vocabulary=["a", "b", "d"], output_mode=output_mode)(inputs))

    return made


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = L.Dense(5, "relu"), L.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.first(x)
        return {"logits": self.second(hidden), "hidden": hidden}


_MODELS = {
    "add": _two(lambda a, b: L.Add()([a, b]), (6,), (6,)),
    "subtract": _two(lambda a, b: L.Subtract()([a, b]), (6,), (6,)),
    "multiply": _two(lambda a, b: L.Multiply()([a, b]), (6,), (6,)),
    "average": _two(lambda a, b: L.Average()([a, b]), (6,), (6,)),
    "maximum": _two(lambda a, b: L.Maximum()([a, b]), (6,), (6,)),
    "minimum": _two(lambda a, b: L.Minimum()([a, b]), (6,), (6,)),
    "concatenate": _two(lambda a, b: L.Concatenate(axis=1)([a, b]), (3, 6), (4, 6)),
    "dot": _two(lambda a, b: L.Dot(axes=(1, 2), normalize=True)([a, b]), (5, 3), (4, 5)),
    "attention": _two(lambda q, v: L.Attention(use_scale=True)([q, v]), (4, 6), (5, 6)),
    "additive_attention": _two(lambda q, v: L.AdditiveAttention()([q, v]), (4, 6), (5, 6)),
    "multi_head": _two(lambda q, v: L.MultiHeadAttention(2, 3, value_dim=4)(q, v), (4, 6), (5, 6)),
    "multi_head_causal": _two(lambda q: L.MultiHeadAttention(2, 3)(q, q, use_causal_mask=True), (4, 6)),
    "grouped_query": _two(lambda q: L.GroupQueryAttention(3, 4, 2)(q, q), (4, 6)),
    "transformer": _two(_transformer, (5, 6)),
    "transformer_any_length": _two(_transformer, (None, 6)),
    "embedding_masked": _tokens,
    "embedding": _model((7,), lambda: L.Embedding(20, 6), dtype="int32"),
    "category_one_hot": _model((3,), lambda: L.CategoryEncoding(4, "one_hot"), dtype="int32")
    if False
    else _model((3,), lambda: L.CategoryEncoding(4, "multi_hot"), dtype="int32"),
    "category_count": _model((3,), lambda: L.CategoryEncoding(4, "count"), dtype="int32"),
    "integer_lookup": _model((3,), lambda: L.IntegerLookup(vocabulary=[1, 2, 5]), dtype="int64"),
    "string_lookup": _strings("int"),
    "string_multi_hot": _strings("multi_hot"),
    "string_count": _strings("count"),
    "bilinear_product": _two(lambda a, b: keras.ops.einsum("bi,bj->bij", a, b), (4,), (5,)),
    "lstm_states": _two(lambda x: L.LSTM(3, return_state=True)(x), (5, 6)),
    "residual": _two(
        lambda x: L.ReLU()(L.BatchNormalization()(L.Conv2D(4, 3, padding="same", use_bias=False)(x)) + x), (8, 8, 4)
    ),
    "dict_outputs": lambda: keras.Model((i := keras.Input((4,))), {"a": L.Dense(2)(i), "b": i * 2}),
    "sequential": lambda: keras.Sequential([keras.Input((4,)), L.Dense(5, "relu"), L.Dense(2, "softmax")]),
    "ops_mix": _two(lambda x: keras.ops.logsumexp(keras.ops.cumsum(keras.ops.sort(x, -1), -1), -1), (4, 5)),
    "take_along": _two(lambda x: keras.ops.take_along_axis(x, keras.ops.argsort(x, 1), 1), (4, 5)),
    "functional_reuse": _two(lambda a, b: (lambda d: d(a) - d(b))(L.Dense(3)), (4,), (4,)),
}

_FIRST = {name: Case(_model(shape, layer)) for name, (shape, layer) in _LAYERS.items()}
_SECOND = {name: Case(make) for name, make in _MODELS.items()}
_THIRD = {
    "subclassed": Case(Subclassed, [array(3, 4)]),
    "vector_of_numbers": Case(lambda: keras.Sequential([L.Dense(3)]), [np.zeros((2, 4), np.float32)]),
}

CASES = _FIRST | _SECOND | _THIRD
