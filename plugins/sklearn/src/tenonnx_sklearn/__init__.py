"""Estimators of scikit-learn as graphs. A package for estimators of its own registers rules by ``converts``."""

from tenonnx_sklearn.conversion import Outputs, convert, converts

__all__ = ["Outputs", "convert", "converts"]
