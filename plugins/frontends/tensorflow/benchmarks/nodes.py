"""Numbers of nodes and seconds of ``keras.applications``, by tenonnx and by tf2onnx, both at opset 17.

``python plugins/frontends/tensorflow/benchmarks/nodes.py [NAME ...]``. Each of our files is verified against Keras.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.simplefilter("ignore")

import io

import keras
import numpy as np
import onnx
import tensorflow as tf

import tenonnx as tx

SIZES = {"InceptionV3": 139}
NAMES = ["MobileNetV2", "ResNet50", "EfficientNetB0", "DenseNet121", "InceptionV3"]


def _ours(model: Any) -> onnx.ModelProto:
    stream = io.BytesIO()
    tx.export(tx.load(model), stream, opset_version=17)
    return onnx.load_from_string(stream.getvalue())


def _theirs(model: Any) -> onnx.ModelProto:
    import tf2onnx

    shapes = [tf.TensorSpec(each.shape, each.dtype, name=each.name) for each in model.inputs]
    function = tf.function(lambda x: model(x, training=False))
    result, _ = tf2onnx.convert.from_function(function, input_signature=shapes, opset=17)
    return result


def _timed(make: Any, model: Any) -> str:
    start = time.perf_counter()
    try:
        made = make(model)
    except Exception as error:
        return type(error).__name__
    return f"{len(made.graph.node)} nodes, {time.perf_counter() - start:.1f} s"


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        keras.utils.set_random_seed(0)
        size = SIZES.get(name, 96)
        model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10)
        random = np.random.default_rng(0)
        for layer in model.layers:  # statistics as after training
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.set_weights([w + np.abs(random.normal(size=w.shape)) * 0.1 for w in layer.get_weights()])
        print(f"{name}: ours {_timed(_ours, model)}; tf2onnx {_timed(_theirs, model)}", flush=True)


if __name__ == "__main__":
    main()
