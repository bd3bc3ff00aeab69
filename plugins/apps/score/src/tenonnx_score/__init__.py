"""Scoring of folders of tables and images on one machine, Ray or Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_score.options import ScoreConfig
    from tenonnx_score.run import Progress, Scores, Started, Watch, score
    from tenonnx_score.scorer import Scored, Scorer
    from tenonnx_score.writing import OutputFailed

__all__ = ["OutputFailed", "Progress", "ScoreConfig", "Scored", "Scorer", "Scores", "Started", "Watch", "score"]

_MODULES = {"ScoreConfig": "options", "Scored": "scorer", "Scorer": "scorer", "OutputFailed": "writing"}


def __getattr__(name: str) -> Any:
    """Import a name lazily, so that a conversion step can declare its options without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'run')}"), name)
