"""Comparison of attributions with captum: differences of the values, and times of both in the same process.

Needs PyTorch, captum and the package tenonnx-torch:

    pip install torch==2.13.0 captum onnxruntime
    python plugins/explain/benchmarks/against_captum.py
"""

import time
import warnings
from functools import partial

import numpy as np
import torch
from captum import attr
from torch import nn

import tenonnx as tx

warnings.simplefilter("ignore")

STEPS = 50


class Residual(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


def networks():
    """Networks, each with the layer of its feature map and a batch of inputs."""
    torch.manual_seed(0)
    images = torch.randn(2, 3, 32, 32)
    plain = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    residual = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        Residual(16),
        Residual(16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    smooth = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=16),
        nn.GELU(),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    yield "convolutions", plain.eval(), plain[3], images
    yield "residual blocks", residual.eval(), residual[2], images
    yield "depthwise, SiLU, GELU", smooth.eval(), smooth[2], images
    dense = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.LayerNorm(64), nn.Linear(64, 5))
    yield "perceptron", dense.eval(), None, torch.randn(8, 20)


def fastest(function, times=3):
    """The result of a function, and the time of its fastest call in seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def feature_map(graph, model, layer, x):
    """Name of the graph's value that a layer computes."""
    outputs = []
    hook = layer.register_forward_hook(lambda module, inputs, result: outputs.append(result.detach().numpy()))
    model(x)
    hook.remove()
    name = graph.inputs[0].name
    for node in graph.nodes:
        value = node.outputs[0]
        if value.rank == outputs[0].ndim and value.shape[1:] == outputs[0].shape[1:]:
            array = graph.extract([name], [value.name]).run({name: x.numpy()})[value.name]
            if np.allclose(array, outputs[0], atol=1e-5):
                return value.name
    raise LookupError(layer)


def main():
    print(f"{'network':24}{'method':24}{'difference':>12}{'tenonnx':>10}{'captum':>10}   milliseconds")
    for name, model, layer, x in networks():
        graph = tx.load(model, x, dynamic_batch=True).infer()
        classes = model(x).argmax(dim=1)
        window = (3, 8, 8) if x.ndim == 4 else (3,)
        strides = (3, 4, 4) if x.ndim == 4 else (2,)
        methods = {
            "gradient-times-input": (attr.InputXGradient(model), {}, {}),
            "integrated-gradients": (
                attr.IntegratedGradients(model),
                {"steps": STEPS},
                {"n_steps": STEPS, "method": "riemann_middle"},
            ),
            "occlusion": (
                attr.Occlusion(model),
                {"window": window, "strides": strides},
                {"sliding_window_shapes": window, "strides": strides},
            ),
        }
        if layer is not None:
            at = feature_map(graph, model, layer, x)
            methods["grad-cam"] = (attr.LayerGradCam(model, layer), {"at": at}, {"relu_attributions": True})
        for method, (theirs, options, others) in methods.items():
            explained = tx.explain(graph, method, **options)
            output = next(value.name for value in explained.outputs if value.name.endswith("/attribution"))
            program, feeds = explained.compile("onnxruntime"), {graph.inputs[0].name: x.numpy()}
            ours, seconds = fastest(partial(program, feeds))
            ours = ours[output]
            reference, longer = fastest(partial(theirs.attribute, x, target=classes, **others))
            reference = reference.detach().numpy().reshape(ours.shape)
            line = f"{np.abs(ours - reference).max():12.1e}{seconds * 1e3:10.1f}{longer * 1e3:10.1f}"
            print(f"{name:24}{method:24}{line}", flush=True)


if __name__ == "__main__":
    main()
