"""Estimators of scikit-learn as graphs. Packages register rules for their estimators by ``converts``."""

from tenonnx_sklearn.conversion import Outputs, convert, converts
from tenonnx_sklearn.inputs import feeds
from tenonnx_sklearn.tables import Table

__all__ = ["Outputs", "Table", "convert", "converts", "feeds"]
