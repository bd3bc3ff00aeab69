"""Generator of a small network trained on scikit-learn's handwritten digits, as float32 and as int8.

Run ``python make.py [folder]``. It writes ``digits.onnx``, ``digits-int8.onnx`` and ``samples.npz``: held-out images
(under the name of the models' input) and their true labels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quant_pre_process, quantize_dynamic
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

INPUT = "pixels"
OPSET = 21
SAMPLES = 48


def train(images: np.ndarray, labels: np.ndarray) -> MLPClassifier:
    """Fit one hidden layer of 64 units with ReLU."""
    classifier = MLPClassifier((64,), activation="relu", learning_rate_init=0.005, tol=1e-3, random_state=0)
    # On several threads, the order of additions changes the last bits of the weights.
    with threadpool_limits(limits=1):
        return classifier.fit(images, labels)


def convert(classifier: MLPClassifier) -> onnx.ModelProto:
    """Convert the classifier without ZipMap, so that its probabilities are a tensor."""
    model: onnx.ModelProto = convert_sklearn(
        classifier,
        name="digits",
        initial_types=[(INPUT, FloatTensorType([None, classifier.n_features_in_]))],
        options={"zipmap": False},
        target_opset=OPSET,
    )
    take_position_as_label(model)
    # skl2onnx lists the operator sets in the order of a Python set, which differs between runs.
    model.opset_import.sort(key=lambda opset: opset.domain)
    # It does not name the batch axis.
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def take_position_as_label(model: onnx.ModelProto) -> None:
    """Replace the lookup of the label by the argmax of the probabilities, since digit k is class k.

    This leaves only standard operators, which every runtime supports.
    """
    (look_up,) = [node for node in model.graph.node if node.op_type == "ArrayFeatureExtractor"]
    classes, position = look_up.input
    model.graph.node.remove(look_up)
    for node in model.graph.node:
        node.input[:] = [position if name == look_up.output[0] else name for name in node.input]
    kept = [tensor for tensor in model.graph.initializer if tensor.name != classes]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    del model.opset_import[:]
    model.opset_import.add(domain="", version=OPSET)


def quantize(source: Path, target: Path) -> None:
    """Quantize to int8 with dynamic quantization: activations are quantized at run time, without calibration."""
    prepared = target.with_suffix(".prepared.onnx")
    # The quantizer needs inferred shapes. Its own preprocessing would also fuse nodes, and obscure the differences.
    quant_pre_process(source, prepared, skip_optimization=True, skip_symbolic_shape=True)
    quantize_dynamic(prepared, target, weight_type=QuantType.QInt8)
    prepared.unlink()


def accuracy(path: Path, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of images that the model at ``path`` labels correctly in onnxruntime."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (predicted,) = session.run(["label"], {INPUT: images})
    return float(np.mean(predicted == labels))


def main(folder: Path = Path(__file__).parent) -> None:
    """Write the two models and the samples into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    scaled = (images / 16).astype(np.float32)
    train_images, test_images, train_labels, test_labels = train_test_split(
        scaled, labels.astype(np.int64), test_size=0.25, random_state=0, stratify=labels
    )
    float_path, int8_path = folder / "digits.onnx", folder / "digits-int8.onnx"
    onnx.save(convert(train(train_images, train_labels)), float_path)
    quantize(float_path, int8_path)
    for path in (float_path, int8_path):
        share = accuracy(path, test_images, test_labels)
        print(f"{path.name}: {share:.1%} of {len(test_labels)} held-out images")
        if share <= 0.95:
            raise SystemExit(f"{path.name} is not accurate enough")
    samples = {INPUT: test_images[:SAMPLES], "labels": test_labels[:SAMPLES]}
    np.savez(folder / "samples.npz", allow_pickle=False, **samples)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
