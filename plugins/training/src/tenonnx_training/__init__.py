"""Trains graphs: forward, backward and update are one graph of plain ops, which any backend runs."""

from tenonnx_training.config import StepConfig, TrainingConfig
from tenonnx_training.data import Samples
from tenonnx_training.evaluation import evaluate
from tenonnx_training.fitting import History, TrainingFailed, fit
from tenonnx_training.images import ImageFolder
from tenonnx_training.info import training_info
from tenonnx_training.lora import load_adapters, lora, merged, save_adapters
from tenonnx_training.losses import (
    BinaryCrossEntropy,
    FunctionLoss,
    MeanAbsoluteError,
    MeanSquaredError,
    NegativeLogLikelihood,
    SoftmaxCrossEntropy,
)
from tenonnx_training.metrics import F1, Accuracy, Perplexity, RocAuc, TopK
from tenonnx_training.modes import evaluation_form
from tenonnx_training.optimizers import LAMB, SGD, Adagrad, Adam, AdamW, Lion, Momentum, RMSprop
from tenonnx_training.recipe import Group
from tenonnx_training.schedules import CosineDecay, LinearDecay, StepDecay
from tenonnx_training.state import averaged
from tenonnx_training.stopping import Patience
from tenonnx_training.training_step import TrainingStep

__all__ = [
    "F1", "LAMB", "SGD", "Accuracy", "Adagrad", "Adam", "AdamW", "BinaryCrossEntropy", "CosineDecay",
    "FunctionLoss", "Group", "History", "ImageFolder", "LinearDecay", "Lion", "MeanAbsoluteError",
    "MeanSquaredError", "Momentum", "NegativeLogLikelihood", "Patience", "Perplexity", "RMSprop", "RocAuc",
    "Samples", "SoftmaxCrossEntropy", "StepConfig", "StepDecay", "TopK", "TrainingConfig", "TrainingFailed",
    "TrainingStep", "averaged", "evaluate", "evaluation_form", "fit", "load_adapters", "lora", "merged",
    "save_adapters", "training_info",
]  # fmt: skip
