"""The training API of onnxruntime-training 1.19, by files of plain ONNX that any runtime drives.

Scripts for on-device training run with the import changed: ``from tenonnx_training import artifacts`` in place of
``from onnxruntime.training import artifacts``, and ``from tenonnx_training.artifacts import CheckpointState, Module,
Optimizer`` in place of ``from onnxruntime.training.api import ...``.
"""

from tenonnx_training.artifacts.generating import LossType, OptimType, generate_artifacts
from tenonnx_training.artifacts.running import CheckpointState, LinearLRScheduler, Module, Optimizer, Parameter

__all__ = [
    "CheckpointState",
    "LinearLRScheduler",
    "LossType",
    "Module",
    "OptimType",
    "Optimizer",
    "Parameter",
    "generate_artifacts",
]
