"""An untrained residual network in PyTorch, with equal initializers that the exporter merges.

Run ``python merged.py`` with PyTorch installed; it writes ``merged.onnx`` and ``merged.npz`` next to this file: the
batches, the losses of 20 steps, and the final parameters and statistics by PyTorch's names.
"""

import copy

import numpy as np
import torch
from make import BATCH, CLASSES, FOLDER, STEPS, strip
from torch import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2)])
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norms[0](self.first(x)))
        for conv, norm in zip(self.convs, self.norms[1:], strict=True):
            x = torch.relu(x + norm(conv(x)))
        return self.head(x.mean(dim=(2, 3)))


def main():
    random = np.random.default_rng(1)
    torch.manual_seed(0)
    model = Residual()
    x = random.standard_normal((STEPS, BATCH, 1, 6, 6)).astype(np.float32)
    labels = random.integers(0, CLASSES, (STEPS, BATCH))
    torch.onnx.export(
        copy.deepcopy(model).eval(),
        (torch.from_numpy(x[0]),),
        FOLDER / "merged.onnx",
        dynamo=False,
        opset_version=17,
        input_names=["x"],
        output_names=["scores"],
        dynamic_axes={"x": {0: "batch"}},
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
    )
    strip(FOLDER / "merged.onnx")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for batch, target in zip(torch.from_numpy(x), torch.from_numpy(labels), strict=True):
        loss = nn.functional.cross_entropy(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    arrays = {name: value.numpy() for name, value in model.state_dict().items() if value.ndim}
    np.savez_compressed(FOLDER / "merged.npz", x=x, labels=labels, losses=np.array(losses), **arrays)


if __name__ == "__main__":
    main()
