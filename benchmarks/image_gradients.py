"""Gradients of convolutions with respect to their images: time of the chosen lowering relative to both lowerings.

``python benchmarks/image_gradients.py [--threads 1]`` alternates between the lowerings, on onnxruntime.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import geometric, rounds, table

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_standard import convolution_tuning

#: By name: input channels, output channels, side of the image, stride, and batch size.
LAYERS = {
    "residual net, last blocks": (64, 64, 8, 1, 32),
    "residual net, half as wide": (32, 32, 8, 1, 32),
    "residual net, a smaller image": (64, 64, 4, 1, 32),
    "ResNet-18, last stage": (512, 512, 7, 1, 8),
    "ResNet-18, last stage, small images": (512, 512, 4, 1, 8),
    "ResNet-18, last stage, images of 64 pixels": (512, 512, 2, 1, 8),
}

#: Number of calls of each; the minimum counts.
TURNS = 60

#: Bounds on the size of weights that force each lowering.
FORMS = {
    "one product": {"MANY_WEIGHTS": 0, "MANY_WEIGHTS_FOR_EACH": 0},
    "ConvTranspose": {"MANY_WEIGHTS": 1 << 62, "MANY_WEIGHTS_FOR_EACH": 1 << 62},
}


def gradient(before: int, behind: int, side: int, stride: int, batch: int, threads: int) -> Callable[[], Any]:
    """A call that computes the gradient of one layer."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (batch, before, side, side))
    w = graph.input("w", "float32", (behind, before, 3, 3))
    graph.output("y", ops.conv(x, w, pads=[1, 1, 1, 1], strides=[stride, stride]))
    random = np.random.default_rng(0)
    feeds = {v.name: random.normal(size=v.shape).astype(np.float32) for v in graph.inputs}
    feeds["g"] = random.normal(size=graph.run(feeds)["y"].shape).astype(np.float32)
    slope = tx.grad(graph, of="y", wrt="x", seeds={"y": "g"})
    program = slope.compile("onnxruntime", session_options={"intra_op_num_threads": threads})
    return lambda: program(feeds)["x/grad"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    rows, ratios = [], []
    for name, layer in LAYERS.items():
        calls = {"chosen": gradient(*layer, threads)}
        defaults = {bound: getattr(convolution_tuning, bound) for bound in FORMS["ConvTranspose"]}
        for form, bounds in FORMS.items():
            for bound, number in bounds.items():
                setattr(convolution_tuning, bound, number)
            calls[form] = gradient(*layer, threads)
        for bound, number in defaults.items():
            setattr(convolution_tuning, bound, number)
        expected = calls["ConvTranspose"]()
        for call in calls.values():
            np.testing.assert_allclose(call(), expected, atol=1e-2, rtol=1e-3)
        spent = rounds(calls, TURNS, summary=min)
        best = min(spent[form] for form in FORMS)
        ratios.append(spent["chosen"] / best)
        rows.append([name, *(f"{spent[form] * 1e3:.2f} ms" for form in calls), f"{ratios[-1]:.2f}"])
    title = f"Gradients of convolutions with respect to images, {threads} threads"
    table(title, ["layer", "chosen", *FORMS, "chosen, times the better"], rows)
    print(f"\nchosen, times the better: {geometric(ratios):.2f}")


if __name__ == "__main__":
    main()
