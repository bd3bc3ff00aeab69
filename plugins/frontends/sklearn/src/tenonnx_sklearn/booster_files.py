"""Files of boosters, read as the estimators that they hold."""

from __future__ import annotations

import os
from typing import Any

from tenonnx.extend import Graph, Registry
from tenonnx_sklearn import frontend
from tenonnx_sklearn.boosters import saved_booster


def read(path: str | os.PathLike[str], *examples: Any, registry: Registry | None = None, **options: Any) -> Graph:
    """The graph of the booster in a file: ``.txt`` of LightGBM, ``.ubj`` or ``.json`` of XGBoost, ``.cbm`` of CatBoost.

    Such files hold no code. The package of the booster must be installed. Options are those of ``frontend.read``.
    Raises ``InvalidCall`` for another file, and where the package is not installed.
    """
    return frontend.read(saved_booster(path), *examples, registry=registry, **options)


def verifier(path: str | os.PathLike[str], *examples: Any, **options: Any) -> Any:
    """Verifier of a graph against the booster in a file."""
    return frontend.verifier(saved_booster(path), *examples, **options)
