"""Engines: local processes, Ray or Spark."""

from tenonnx_score.engines.engine import Engine, engine_of

__all__ = ["Engine", "engine_of"]
