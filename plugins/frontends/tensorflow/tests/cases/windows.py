"""Convolutions, pooling, images."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from judging import Case, array

X = array(2, 9, 8, 4)
K, D, T = array(3, 2, 4, 6), array(3, 3, 4, 2), array(3, 2, 5, 4)
V, VK = array(1, 5, 6, 4, 2), array(2, 3, 2, 2, 3)
S = array(2, 10, 3)
PHOTO = array(2, 6, 7, 3, low=0, high=1)
BOXES = np.float32([[0, 0, 1, 1], [0.1, 0, 1, 0.9], [0, 0.5, 0.5, 1], [0.2, 0.2, 0.8, 0.8]])
SCORES = np.float32([0.9, 0.8, 0.3, 0.6])

_IMAGES = {
    "conv_valid": lambda x: tf.nn.conv2d(x, K, 1, "VALID"),
    "conv_same": lambda x: tf.nn.conv2d(x, K, 1, "SAME"),
    "conv_strided": lambda x: tf.nn.conv2d(x, K, [2, 3], "SAME"),
    "conv_dilated": lambda x: tf.nn.conv2d(x, K, 1, "SAME", dilations=[2, 3]),
    "conv_explicit": lambda x: tf.nn.conv2d(x, K, 2, [[0, 0], [1, 2], [0, 1], [0, 0]]),
    "conv_grouped": lambda x: tf.nn.conv2d(x, array(3, 3, 2, 6), 1, "SAME"),
    "depthwise": lambda x: tf.nn.depthwise_conv2d(x, D, [1, 2, 2, 1], "SAME"),
    "separable": lambda x: tf.nn.separable_conv2d(x, D, array(1, 1, 8, 3), [1, 1, 1, 1], "VALID"),
    "atrous": lambda x: tf.nn.atrous_conv2d(x, K, 2, "SAME"),
    "transposed_same": lambda x: tf.nn.conv2d_transpose(x, T, [2, 18, 16, 5], 2, "SAME"),
    "transposed_valid": lambda x: tf.nn.conv2d_transpose(x, T, [2, 19, 16, 5], 2, "VALID"),
    "transposed_odd": lambda x: tf.nn.conv2d_transpose(x, T, [2, 17, 15, 5], 2, "SAME"),
    "transposed_wide": lambda x: tf.nn.conv2d_transpose(x, T, [2, 27, 24, 5], 3, "SAME"),
    "transposed_computed": lambda x: tf.nn.conv2d_transpose(
        x, T, tf.stack([tf.shape(x)[0], tf.shape(x)[1] * 2, tf.shape(x)[2] * 2, 5]), 2, "SAME"
    ),
    "max_pool": lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"),
    "max_pool_same": lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"),
    "avg_pool": lambda x: tf.nn.avg_pool2d(x, 2, 2, "VALID"),
    "avg_pool_same": lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"),
    "pool_small": lambda x: tf.nn.max_pool2d(x, 1, 3, "SAME"),
    "max_pool_argmax": lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "VALID"),
    "max_pool_argmax_batch": lambda x: tf.nn.max_pool_with_argmax(x, 3, 2, "SAME", include_batch_in_index=True),
    "dilation": lambda x: tf.nn.dilation2d(x, array(2, 3, 4), [1, 1, 2, 1], "SAME", "NHWC", [1, 2, 1, 1]),
    "erosion": lambda x: tf.nn.erosion2d(x, array(2, 3, 4), [1, 1, 1, 1], "VALID", "NHWC", [1, 1, 1, 1]),
    "patches": lambda x: tf.image.extract_patches(x, [1, 2, 3, 1], [1, 2, 2, 1], [1, 1, 2, 1], "SAME"),
    "lrn": lambda x: tf.nn.local_response_normalization(x, 2, 1.5, 0.3, 0.75),
    "bias_add": lambda x: tf.nn.bias_add(x, array(4)),
    "batch_norm": lambda x: tf.nn.batch_normalization(x, array(4), array(4, low=0.5), array(4), array(4), 1e-3),
    "fused_norm": lambda x: tf.compat.v1.nn.fused_batch_norm(
        x, array(4), array(4), array(4), array(4, low=0.5), is_training=False
    )[0],
    "fused_norm_training": lambda x: tf.compat.v1.nn.fused_batch_norm(x, array(4), array(4))[:3],
    "bilinear": lambda x: tf.image.resize(x, [13, 5]),
    "bilinear_legacy": lambda x: tf.compat.v1.image.resize_bilinear(x, [13, 5]),
    "bilinear_corners": lambda x: tf.compat.v1.image.resize_bilinear(x, [13, 5], align_corners=True),
    "nearest": lambda x: tf.image.resize(x, [13, 5], method="nearest"),
    "nearest_legacy": lambda x: tf.compat.v1.image.resize_nearest_neighbor(x, [13, 5]),
    "nearest_corners": lambda x: tf.compat.v1.image.resize_nearest_neighbor(x, [13, 5], align_corners=True),
    "bicubic": lambda x: tf.image.resize(x, [13, 5], method="bicubic"),
    "bicubic_legacy": lambda x: tf.compat.v1.image.resize_bicubic(x, [13, 5]),
    "area": lambda x: tf.image.resize(x, [5, 3], method="area"),
    "area_up": lambda x: tf.image.resize(x, [13, 12], method="area"),
    "lanczos3": lambda x: tf.image.resize(x, [5, 11], method="lanczos3"),
    "lanczos5": lambda x: tf.image.resize(x, [5, 11], method="lanczos5"),
    "gaussian": lambda x: tf.image.resize(x, [5, 11], method="gaussian"),
    "mitchell": lambda x: tf.image.resize(x, [5, 11], method="mitchellcubic"),
    "antialias": lambda x: tf.image.resize(x, [4, 3], antialias=True),
    "bicubic_antialias": lambda x: tf.image.resize(x, [4, 3], method="bicubic", antialias=True),
    "aspect": lambda x: tf.image.resize(x, [12, 12], preserve_aspect_ratio=True),
    "crop": lambda x: tf.image.central_crop(x, 0.5),
    "crop_or_pad": lambda x: tf.image.resize_with_crop_or_pad(x, 12, 4),
    "flip": tf.image.flip_left_right,
    "rot90": tf.image.rot90,
    "crop_and_resize": lambda x: tf.image.crop_and_resize(x, BOXES[:2] * 1.2 - 0.1, [1, 0], [4, 3]),
    "crop_to_one": lambda x: tf.image.crop_and_resize(x, BOXES[:2], [1, 0], [1, 1], extrapolation_value=3.0),
    "conv_nchw": lambda x: tf.transpose(
        tf.nn.conv2d(tf.transpose(tf.transpose(x, [0, 3, 1, 2]), [0, 2, 3, 1]), K, 1, "SAME"), [0, 3, 1, 2]
    ),
    "total_variation": tf.image.total_variation,
    "sobel": tf.image.sobel_edges,
    "psnr": lambda x: tf.image.psnr(x, x + 0.1, 1.0),
    "ssim": lambda x: tf.image.ssim(tf.tile(x, [1, 2, 2, 1]), tf.tile(x * 0.9, [1, 2, 2, 1]), 4.0),
    "moments_conv": lambda x: tf.nn.weighted_moments(x, [1, 2], tf.ones_like(x)),
}

_PHOTOS = {
    "to_hsv": tf.image.rgb_to_hsv,
    "from_hsv": tf.image.hsv_to_rgb,
    "gray": tf.image.rgb_to_grayscale,
    "to_rgb": lambda x: tf.image.grayscale_to_rgb(x[..., :1]),
    "contrast": lambda x: tf.image.adjust_contrast(x, 1.7),
    "brightness": lambda x: tf.image.adjust_brightness(x, 0.1),
    "saturation": lambda x: tf.image.adjust_saturation(x, 1.6),
    "hue": lambda x: tf.image.adjust_hue(x, 0.2),
    "gamma": lambda x: tf.image.adjust_gamma(x, 1.4),
    "standardized": tf.image.per_image_standardization,
    "yiq": tf.image.rgb_to_yiq,
    "yuv": tf.image.rgb_to_yuv,
    "to_uint8": lambda x: tf.image.convert_image_dtype(x, tf.uint8),
    "resized_bytes": lambda x: tf.image.resize(tf.cast(x * 255, tf.uint8), [5, 4]),
}

_BOXES = {
    "nms": lambda b, s: tf.image.non_max_suppression(b, s, 3, 0.5),
    "nms_score": lambda b, s: tf.image.non_max_suppression(b, s, 3, 0.5, score_threshold=0.5),
    "nms_padded": lambda b, s: tf.image.non_max_suppression_padded(b, s, 5, 0.5, pad_to_max_output_size=True),
    "nms_scores": lambda b, s: tf.image.non_max_suppression_with_scores(b, s, 3, 0.5),
    "combined": lambda b, s: tf.image.combined_non_max_suppression(
        tf.reshape(b, [1, 4, 1, 4]), tf.reshape(tf.stack([s, s[::-1]], -1), [1, 4, 2]), 3, 5, 0.5, 0.2
    ),
    "combined_classes": lambda b, s: tf.image.combined_non_max_suppression(
        tf.reshape(b, [1, 4, 1, 4]),
        tf.reshape(tf.stack([s, s[::-1]], -1), [1, 4, 2]),
        2,
        3,
        0.5,
        0.2,
        pad_per_class=True,
    ),
}

_OTHERS = {
    "conv1d": (lambda x: tf.nn.conv1d(x, array(3, 3, 4), 2, "SAME"), S),
    "pool1d": (lambda x: tf.nn.max_pool1d(x, 3, 2, "SAME"), S),
    "transposed_1d": (lambda x: tf.nn.conv1d_transpose(x, array(3, 4, 3), [2, 20, 4], 2, "SAME"), S),
    "conv3d": (lambda x: tf.nn.conv3d(x, VK, [1, 2, 1, 1, 1], "SAME"), V),
    "max_pool3d": (lambda x: tf.nn.max_pool3d(x, 2, 2, "SAME"), V),
    "avg_pool3d": (lambda x: tf.nn.avg_pool3d(x, 2, 2, "SAME"), V),
    "transposed_3d": (lambda x: tf.nn.conv3d_transpose(x, array(2, 3, 2, 3, 2), [1, 10, 12, 8, 3], 2, "SAME"), V),
    "pool": (lambda x: tf.nn.pool(x, [3], "AVG", [2], "SAME"), S),
    "rfft": (lambda x: tf.signal.rfft(x), array(3, 8)),
    "rfft_cut": (lambda x: tf.signal.rfft(x, [6]), array(3, 8)),
    "rfft_padded": (lambda x: tf.signal.rfft(x, [11]), array(3, 8)),
    "fft": (lambda x: tf.signal.fft(tf.complex(x, x * 2)), array(3, 8)),
    "ifft": (lambda x: tf.signal.ifft(tf.complex(x, x * 2)), array(3, 8)),
    "irfft": (lambda x: tf.signal.irfft(tf.signal.rfft(x)), array(3, 8)),
    "irfft_odd": (lambda x: tf.signal.irfft(tf.signal.rfft(x, [7]), [7]), array(3, 8)),
    "fft2d": (lambda x: tf.abs(tf.signal.fft2d(tf.complex(x, x * 2))), array(2, 4, 8)),
    "rfft2d": (lambda x: tf.signal.irfft2d(tf.signal.rfft2d(x)), array(2, 4, 8)),
    "stft": (lambda x: tf.abs(tf.signal.stft(x, 16, 8)), array(2, 64)),
    "complex_broadcast": (lambda x: tf.complex(x, x[:1] * 2), np.float32([[np.inf, -1, 0], [2, -np.inf, 1]])),
    "angle": (lambda x: tf.math.angle(tf.complex(x, -x)), array(3, 4)),
    "complex_product": (lambda x: tf.math.conj(tf.complex(x, x * 2)) * tf.complex(x, x), array(3, 4)),
    "complex_quotient": (lambda x: tf.complex(x, x * 2) / tf.complex(x + 3, x), array(3, 4)),
    "complex_exponential": (lambda x: tf.exp(tf.complex(x, x * 2)), array(3, 4)),
    "complex_input": (lambda z: tf.math.real(z) + tf.math.imag(z) + tf.abs(z), array(3, 4, dtype="complex64")),
    "dct": (lambda x: tf.signal.dct(x), array(3, 8)),
    "mfcc": (lambda x: tf.signal.mfccs_from_log_mel_spectrograms(x), array(3, 8)),
    "frame": (lambda x: tf.signal.frame(x, 4, 2), array(2, 12)),
    "overlap_add": (lambda x: tf.signal.overlap_and_add(x, 2), array(2, 5, 4)),
    "complex_matmul": (
        lambda x: tf.math.real(tf.matmul(tf.complex(x, x), tf.complex(x, -x), adjoint_b=True)),
        array(2, 3, 4),
    ),
}

_FIRST = {name: Case(lambda f=f: tf.function(f), [X]) for name, f in _IMAGES.items()}
_SECOND = {name: Case(lambda f=f: tf.function(f), [PHOTO]) for name, f in _PHOTOS.items()}
_THIRD = {name: Case(lambda f=f: tf.function(f), [BOXES, SCORES]) for name, f in _BOXES.items()}
_FOURTH = {name: Case(lambda f=f: tf.function(f), [x]) for name, (f, x) in _OTHERS.items()}
_FIFTH = {
    f"{name}_of_any_size": Case(
        lambda f=_IMAGES[name]: tf.function(f), [tf.TensorSpec([None, None, None, 4], name="x")]
    )
    for name in (
        "conv_valid",
        "conv_same",
        "depthwise",
        "max_pool_same",
        "transposed_computed",
        "bilinear",
        "nearest",
        "bicubic",
        "batch_norm",
        "flip",
        "sobel",
    )
}

CASES = _FIRST | _SECOND | _THIRD | _FOURTH | _FIFTH
