"""Trains graphs: forward, backward and update are one graph of plain ops, which any backend runs."""

from tenonnx_data.loaders import Samples
from tenonnx_training.callbacks import (
    BestCheckpoint,
    Callback,
    EverySteps,
    LivePlot,
    Log,
    PlateauDecay,
    TensorBoard,
    Training,
)
from tenonnx_training.config import StepConfig, TrainingConfig
from tenonnx_training.ctc import CTC
from tenonnx_training.embedding_losses import InfoNCE, Triplet
from tenonnx_training.evaluation import evaluate
from tenonnx_training.fitting import CheckpointFailed, History, TrainingFailed, fit
from tenonnx_training.images import ImageFolder
from tenonnx_training.info import training_info
from tenonnx_training.lora import load_adapters, lora, merged, save_adapters
from tenonnx_training.losses import (
    BinaryCrossEntropy,
    Dice,
    Focal,
    FunctionLoss,
    Huber,
    KullbackLeibler,
    MeanAbsoluteError,
    MeanSquaredError,
    NegativeLogLikelihood,
    SoftmaxCrossEntropy,
)
from tenonnx_training.metrics import F1, Accuracy, Perplexity, RocAuc, TopK
from tenonnx_training.modes import evaluation_form
from tenonnx_training.optimizers import LAMB, SGD, Adagrad, Adam, AdamW, Lion, Momentum, RMSprop
from tenonnx_training.rate_finder import RateSearch, find_learning_rate
from tenonnx_training.recipe import Group
from tenonnx_training.schedules import CosineDecay, LinearDecay, OneCycle, PolynomialDecay, StepDecay, WarmRestarts
from tenonnx_training.state import averaged
from tenonnx_training.stopping import Patience
from tenonnx_training.tables import read_data
from tenonnx_training.training_step import TrainingStep

__all__ = [
    "CTC",
    "F1",
    "LAMB",
    "SGD",
    "Accuracy",
    "Adagrad",
    "Adam",
    "AdamW",
    "BestCheckpoint",
    "BinaryCrossEntropy",
    "Callback",
    "CheckpointFailed",
    "CosineDecay",
    "Dice",
    "EverySteps",
    "Focal",
    "FunctionLoss",
    "Group",
    "History",
    "Huber",
    "ImageFolder",
    "InfoNCE",
    "KullbackLeibler",
    "LinearDecay",
    "Lion",
    "LivePlot",
    "Log",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Momentum",
    "NegativeLogLikelihood",
    "OneCycle",
    "Patience",
    "Perplexity",
    "PlateauDecay",
    "PolynomialDecay",
    "RMSprop",
    "RateSearch",
    "RocAuc",
    "Samples",
    "SoftmaxCrossEntropy",
    "StepConfig",
    "StepDecay",
    "TensorBoard",
    "TopK",
    "Training",
    "TrainingConfig",
    "TrainingFailed",
    "TrainingStep",
    "Triplet",
    "WarmRestarts",
    "averaged",
    "evaluate",
    "evaluation_form",
    "find_learning_rate",
    "fit",
    "load_adapters",
    "lora",
    "merged",
    "read_data",
    "save_adapters",
    "training_info",
]
