"""Parameters with zeros, ones or scalars, as after initialization, are trained as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tenonnx as tx
import tenonnx_training as tt

Kind = Callable[["Network", Tensor], Tensor]


class Network(nn.Module):
    def __init__(self, kind: Kind, number: float) -> None:
        super().__init__()
        self.kind, self.layer, self.head = kind, nn.Linear(4, 4), nn.Linear(4, 3)
        self.number, self.slopes = nn.Parameter(torch.tensor(number)), nn.PReLU()
        self.ones, self.others = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        for layer in (self.layer, self.head):
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.kind(self, x))  # type: ignore[no-any-return]


def root_mean_square(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


KINDS: dict[str, tuple[Kind, float]] = {
    "bias": (lambda net, x: functional.relu(net.layer(x)), 0.0),
    "residual of nothing": (lambda net, x: x + net.number * functional.relu(net.layer(x)), 0.0),
    "scale of a layer": (lambda net, x: x + net.ones * functional.relu(net.layer(x)), 0.0),
    "two of one": (lambda net, x: torch.sigmoid(x * net.ones) * torch.tanh(x * net.others), 0.0),
    "gate": (lambda net, x: x * torch.sigmoid(net.number * x), 1.702),
    "slopes": (lambda net, x: net.slopes(net.layer(x)), 0.0),
    "slope": (lambda net, x: torch.where(x < 0, x * net.number, x), 0.25),
    "bound": (lambda net, x: torch.maximum(x, net.number), 0.0),
    "temperature": (lambda net, x: torch.softmax(x / net.number, -1), 1.0),
    "within a gelu": (lambda net, x: x * 0.5 * (1 + torch.erf(x * net.number)), 0.5**0.5),
    "normalization": (lambda net, x: root_mean_square(x) * net.ones, 0.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_trained(kind: str) -> None:
    torch.manual_seed(0)
    module = Network(*KINDS[kind]).train()
    random = np.random.default_rng(0)
    x, labels = random.normal(size=(32, 4)).astype(np.float32), random.integers(0, 3, 32)
    graph = tx.load(module, torch.from_numpy(x[:8]), dims={"x": {0: "batch"}})
    tt.fit(
        graph, (x, labels), loss="softmax_cross_entropy", optimizer=tt.SGD(0.1), epochs=2, batch_size=8, shuffle=False
    )
    steps = torch.optim.SGD(module.parameters(), 0.1)
    for start in [*range(0, 32, 8)] * 2:
        steps.zero_grad()
        batch = slice(start, start + 8)
        functional.cross_entropy(module(torch.from_numpy(x[batch])), torch.from_numpy(labels[batch])).backward()
        steps.step()
    (result,) = graph.run({"x": x}).values()
    np.testing.assert_allclose(result, module(torch.from_numpy(x)).detach(), rtol=1e-5, atol=1e-5)
