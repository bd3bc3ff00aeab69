"""Reference results of PyTorch on the same models, weights and batches, for ``test_pytorch.py``.

Run ``python make.py`` with PyTorch and onnxscript installed. It writes models ``*.onnx`` next to this file. For each
one it writes a ``*.npz`` with 20 batches, the loss of every step by optimizer, and the final running statistics.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

FOLDER = Path(__file__).parent
STEPS, BATCH, CLASSES = 20, 8, 5

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=1e-3),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.02),
    "adam": lambda p: torch.optim.Adam(p, lr=3e-3, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=1e-2),
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        result, _ = self.lstm(x)
        return self.head(result[:, -1])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(x).mean(dim=1))


def mlp():
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, CLASSES))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )


MODELS = {"mlp": (mlp, (12,)), "cnn": (cnn, (1, 8, 8)), "lstm": (Recurrent, (6, 5)), "transformer": (Encoder, (6, 16))}


def export(model, name, sample):
    """Export by dynamo, or by TorchScript for models whose BatchNormalization dynamo would fold."""
    path = FOLDER / f"{name}.onnx"
    model.train()
    if name == "cnn":
        torch.onnx.export(
            model,
            (sample,),
            path,
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["scores"],
            dynamic_axes={"x": {0: "batch"}},
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
        )
        return
    batch = torch.export.Dim("batch", min=1)
    torch.onnx.export(
        model,
        (sample,),
        path,
        dynamo=True,
        input_names=["x"],
        output_names=["scores"],
        external_data=False,
        dynamic_shapes=({0: batch},),
    )


def strip(path):
    """Remove the exporter's metadata about the machine."""
    model = onnx.load(path)
    for part in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.input,
        *model.graph.output,
    ):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.save(model, path)


def main():
    random = np.random.default_rng(0)
    for name, (build, shape) in MODELS.items():
        torch.manual_seed(0)
        start = build()
        for parameter in start.parameters():  # the exporter would merge equal ones into one initializer
            parameter.data += 0.05 * torch.randn_like(parameter)
        x = random.standard_normal((STEPS, BATCH, *shape)).astype(np.float32)
        labels = random.integers(0, CLASSES, (STEPS, BATCH))
        export(copy.deepcopy(start), name, torch.from_numpy(x[0]))
        strip(FOLDER / f"{name}.onnx")
        result = {"x": x, "labels": labels}
        for optimizer_name, make in OPTIMIZERS.items():
            model = copy.deepcopy(start).train()
            optimizer = make(model.parameters())
            losses = []
            for batch, target in zip(torch.from_numpy(x), torch.from_numpy(labels), strict=True):
                loss = nn.functional.cross_entropy(model(batch), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            result[optimizer_name] = np.array(losses)
            statistics = {k: v.numpy() for k, v in model.state_dict().items() if k.endswith(("_mean", "_var"))}
            result.update({f"{optimizer_name}/{key}": value for key, value in statistics.items()})
        np.savez_compressed(FOLDER / f"{name}.npz", **result)


if __name__ == "__main__":
    main()
