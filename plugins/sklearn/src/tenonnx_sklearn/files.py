"""The front end for files of estimators: joblib, pickle and skops."""

from __future__ import annotations

import os
from typing import Any

from tenonnx.extend import Graph, InvalidCall, Registry
from tenonnx_sklearn import frontend


def read(
    path: str | os.PathLike[str],
    *examples: Any,
    registry: Registry | None = None,
    trust: bool = False,
    **options: Any,
) -> Graph:
    """The graph of the estimator in a file, with the options of ``frontend.read``.

    Reading a pickle or a file of joblib runs the code that it holds: they are refused unless ``trust`` is True. A file
    of skops holds no code; what it names beyond the types that skops trusts is refused by skops.
    """
    return frontend.read(_estimator(path, trust), *examples, registry=registry, **options)


def _estimator(path: str | os.PathLike[str], trust: bool) -> Any:
    if os.fspath(path).lower().endswith(".skops"):
        from skops.io import load as load_skops

        return load_skops(path)
    if not trust:
        raise InvalidCall(
            "a pickle must be trusted, since reading it runs the code that it holds",
            given=f'"{os.fspath(path)}"',
            do="give trust=True (--trust) for a file of your own, or save the estimator with skops",
        )
    from joblib import load

    return load(path)
