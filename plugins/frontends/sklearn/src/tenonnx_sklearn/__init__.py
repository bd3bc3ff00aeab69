"""Estimators of scikit-learn as graphs. A package for estimators of its own registers rules by ``converts``."""

from tenonnx_sklearn.conversion import Outputs, convert, converts
from tenonnx_sklearn.inputs import feeds
from tenonnx_sklearn.tables import Table

__all__ = ["Outputs", "Table", "convert", "converts", "feeds"]
