"""Folders of tables and images through a model: on the cores of one machine, on Ray or on Spark."""

from tenonnx_score.options import ScoreConfig
from tenonnx_score.run import Progress, Scores, Started, Watch, score
from tenonnx_score.scorer import Scored, Scorer
from tenonnx_score.writing import OutputFailed

__all__ = ["OutputFailed", "Progress", "ScoreConfig", "Scored", "Scorer", "Scores", "Started", "Watch", "score"]
