"""Front end for files of estimators: joblib, pickle and skops."""

from __future__ import annotations

import os
from typing import Any

from tenonnx.extend import Graph, InvalidCall, Registry
from tenonnx_sklearn import frontend
from tenonnx_sklearn.boosters import as_estimator, held_by


def read(
    path: str | os.PathLike[str],
    *examples: Any,
    registry: Registry | None = None,
    trust: bool = False,
    **options: Any,
) -> Graph:
    """Read the estimator in a file as a graph, with the options of ``frontend.read``.

    Reading a pickle or joblib file executes code from it: these are rejected unless ``trust`` is True. A skops file
    contains no code; types that skops does not trust are rejected unless ``trust`` is True. Raises ``InvalidCall`` for
    these and for a file without an estimator, ``InvalidModel`` for one that the installed versions cannot read.
    """
    return frontend.read(_estimator(path, trust), *examples, registry=registry, **options)


def _estimator(path: str | os.PathLike[str], trust: bool) -> Any:
    shown = f'"{os.fspath(path)}"'
    is_skops = os.fspath(path).lower().endswith(".skops")
    if not (trust or is_skops):
        raise InvalidCall(
            "cannot read a pickle without trust: reading it runs its code",
            given=shown,
            do="give trust=True (--trust) for a file of your own, or save the estimator with skops",
        )
    result = as_estimator(held_by(path, lambda: _of_skops(path, trust) if is_skops else _of_joblib(path)))
    if not hasattr(result, "predict") and not hasattr(result, "transform") and not hasattr(result, "fit"):
        raise InvalidCall("a file holds no estimator", given=f"{shown}, which holds a {type(result).__name__}")
    return result


def _of_joblib(path: str | os.PathLike[str]) -> Any:
    from joblib import load

    return load(path)


def _of_skops(path: str | os.PathLike[str], trust: bool) -> Any:
    from skops.io import get_untrusted_types, load

    unknown = get_untrusted_types(file=path)
    if unknown and not trust:
        raise InvalidCall(
            "a file of skops names types that skops does not trust",
            given=f'"{os.fspath(path)}", which names {", ".join(unknown)}',
            do="give trust=True (--trust) where these are your own",
        )
    return load(path, trusted=unknown)
