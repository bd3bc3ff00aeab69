"""Generator of two classifiers with ``ai.onnx.ml`` ops, trained on scikit-learn's iris data.

Run ``python make.py [folder]``. It writes ``iris.onnx`` (a scaler and a logistic regression, integer labels) with
``samples.npz``, and ``tree.onnx`` (a random forest, string labels) with ``samples-tree.npz``. The samples are held-out
flowers (under the name of the models' input) and their true labels.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

INPUT = "measurements"
OPSET = 21


def write(
    name: str,
    classifier: BaseEstimator,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    model_path: Path,
    samples_path: Path,
) -> None:
    """Fit the classifier, write its model and its samples, and check the model in onnxruntime."""
    # On several threads, the order of additions changes the last bits of the coefficients.
    with threadpool_limits(limits=1):
        classifier.fit(*train)
    measurements, labels = test
    types = [(INPUT, FloatTensorType([None, measurements.shape[1]]))]
    model: onnx.ModelProto = convert_sklearn(classifier, name=name, initial_types=types, target_opset=OPSET)
    # skl2onnx lists the operator sets in the order of a Python set, which differs between runs.
    model.opset_import.sort(key=lambda opset: opset.domain)
    onnx.save(model, model_path)
    np.savez(samples_path, allow_pickle=False, **{INPUT: measurements, "labels": labels})
    session = onnxruntime.InferenceSession(model_path, providers=["CPUExecutionProvider"])
    predicted, probabilities = session.run(None, {INPUT: measurements})
    # ZipMap returns a dictionary per flower; the class with the largest probability is the label.
    if [max(row, key=row.get) for row in probabilities] != list(predicted):
        raise SystemExit(f"{model_path.name}: labels and probabilities disagree")
    share = float(np.mean(np.array(predicted) == labels))
    print(f"{model_path.name}: {share:.1%} of {len(labels)} held-out flowers")
    if share <= 0.9:
        raise SystemExit(f"{model_path.name} is not accurate enough")


def main(folder: Path = Path(__file__).parent) -> None:
    """Write the two models and their samples into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    iris = load_iris()
    train, test, train_labels, test_labels = train_test_split(
        iris.data.astype(np.float32),
        iris.target.astype(np.int64),
        test_size=0.3,
        random_state=0,
        stratify=iris.target,
    )
    regression = make_pipeline(StandardScaler(), LogisticRegression())
    regression_paths = folder / "iris.onnx", folder / "samples.npz"
    write("iris", regression, (train, train_labels), (test, test_labels), *regression_paths)
    names = iris.target_names
    forest = RandomForestClassifier(n_estimators=5, max_depth=3, random_state=0)
    forest_paths = folder / "tree.onnx", folder / "samples-tree.npz"
    write("tree", forest, (train, names[train_labels]), (test, names[test_labels]), *forest_paths)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
