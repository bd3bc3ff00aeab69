"""Training setups and gradients of operations against PyTorch, within float32 rounding."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from modules.rounding import assert_within_rounding
from torch import nn
from torch.nn import functional

import tenonnx as tx
import tenonnx_training as tt

BATCH, CLASSES, STEPS = 6, 4, 3


# ----- modules --------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer, self.head = kind(5, 6, batch_first=True, bidirectional=kind is nn.GRU), nn.LazyLinear(CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(9, 8, padding_idx=0), nn.Parameter(torch.randn(5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.tokens(ids) + self.places).mean(1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False)
        self.norm, self.head = nn.GroupNorm(2, 4), nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.silu(self.first(x))
        return self.head(functional.adaptive_avg_pool2d(y + self.norm(self.second(y)), 1).flatten(1))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(3, 1),
        nn.Flatten(),
        nn.Linear(4, CLASSES),
    )


MODULES: dict[str, Callable[[], nn.Module]] = {
    "perceptron": lambda: nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, CLASSES)),
    "no biases": lambda: nn.Sequential(
        nn.Linear(5, 5, bias=False), nn.Tanh(), nn.Linear(5, CLASSES, bias=False), nn.Flatten(1)
    ),
    "convolutions": convolutions,
    "residual": Residual,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "encoder": Encoder,
}

SHAPES = {"perceptron": (5,), "no biases": (5,), "lstm": (7, 5), "gru": (7, 5)}


def drawn(name: str, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    if name == "encoder":
        return torch.randint(0, 9, (BATCH, 5), generator=random)
    return torch.randn((BATCH, *SHAPES.get(name, (2, 7, 7))), generator=random)


@functools.cache
def loaded(name: str) -> tuple[nn.Module, tx.Graph]:
    torch.manual_seed(0)
    module = MODULES[name]()
    module(drawn(name, 0))  # initializes lazy modules
    return module, tx.load(module.eval(), drawn(name, 0), dims={0: {0: "batch"}}, verify=False)


# ----- setups ---------------------------------------------------------------------------------------------------------


class Setup(NamedTuple):
    module: str
    ours: Any
    theirs: Callable[..., torch.optim.Optimizer]
    loss: str = "softmax_cross_entropy"
    options: Mapping[str, Any] = MappingProxyType({})


def _sgd(**options: Any) -> Callable[..., torch.optim.Optimizer]:
    return functools.partial(torch.optim.SGD, **options)


ADAM = (tt.Adam(1e-2), functools.partial(torch.optim.Adam, lr=1e-2))
#: For biases before a normalization, whose gradient is rounding error: Adam would step by its sign.
STEADY = (tt.Adam(1e-2, epsilon=1e-4), functools.partial(torch.optim.Adam, lr=1e-2, eps=1e-4))
PLAIN = (tt.SGD(0.1), _sgd(lr=0.1))
OPTIMIZERS = {
    "descent": PLAIN,
    "descent with decay": (tt.SGD(0.1, weight_decay=1e-2), _sgd(lr=0.1, weight_decay=1e-2)),
    "momentum": (tt.Momentum(0.05), _sgd(lr=0.05, momentum=0.9)),
    "Nesterov": (tt.Momentum(0.05, nesterov=True), _sgd(lr=0.05, momentum=0.9, nesterov=True)),
    "Adagrad": (tt.Adagrad(0.05), functools.partial(torch.optim.Adagrad, lr=0.05)),
    "Adam": ADAM,
    "Adam with decay": (
        tt.Adam(1e-2, weight_decay=1e-2),
        functools.partial(torch.optim.Adam, lr=1e-2, weight_decay=1e-2),
    ),
    "AdamW": (tt.AdamW(1e-2), functools.partial(torch.optim.AdamW, lr=1e-2, weight_decay=1e-2)),
    "RMSprop": (tt.RMSprop(1e-2), functools.partial(torch.optim.RMSprop, lr=1e-2)),
}

LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "softmax_cross_entropy": functional.cross_entropy,
    "mean_squared_error": functional.mse_loss,
    "mean_absolute_error": functional.l1_loss,
    "binary_cross_entropy": functional.binary_cross_entropy_with_logits,
}

SETUPS = {
    **{name: Setup("perceptron", *pair) for name, pair in OPTIMIZERS.items()},
    **{f"{name}, Adam": Setup(name, *STEADY) for name in MODULES if name != "perceptron"},
    **{f"{name}, descent": Setup(name, *PLAIN) for name in ("convolutions", "lstm", "encoder")},
    **{f"{loss} of numbers": Setup("perceptron", *ADAM, loss) for loss in list(LOSSES)[1:]},
    "norms are clipped": Setup("residual", *PLAIN, options={"clip_norm": 0.05}),
    "values are clipped": Setup("residual", *PLAIN, options={"clip_value": 0.01}),
    "batches are accumulated": Setup("perceptron", *PLAIN, options={"accumulate": 3}),
    "some are trained": Setup("perceptron", *ADAM, options={"trainable": ["3.*"]}),
    "statistics stay": Setup("convolutions", *ADAM, options={"frozen_statistics": True}),
}


def labels(loss: str, step: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(100 + step)
    if loss == "softmax_cross_entropy":
        return torch.randint(0, CLASSES, (BATCH,), generator=random)
    numbers = torch.rand((BATCH, CLASSES), generator=random)
    return numbers.round() if loss == "binary_cross_entropy" else numbers


def by_pytorch(setup: Setup, dtype: torch.dtype) -> tuple[list[float], dict[str, np.ndarray]]:
    def typed(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    module = copy.deepcopy(loaded(setup.module)[0]).to(dtype)
    module.train(not setup.options.get("frozen_statistics"))
    chosen = [
        p
        for name, p in module.named_parameters()
        if "trainable" not in setup.options or name.startswith(setup.options["trainable"][0][:-1])
    ]
    optimizer, losses, every = setup.theirs(chosen), [], setup.options.get("accumulate", 1)
    for step in range(STEPS):
        loss = LOSSES[setup.loss](module(typed(drawn(setup.module, step))), typed(labels(setup.loss, step)))
        (loss / every).backward()
        losses.append(loss.item())
        if (step + 1) % every:
            continue
        if "clip_norm" in setup.options:
            nn.utils.clip_grad_norm_(chosen, setup.options["clip_norm"])
        if "clip_value" in setup.options:
            nn.utils.clip_grad_value_(chosen, setup.options["clip_value"])
        optimizer.step()
        module.zero_grad()
    return losses, {name: tensor.numpy() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("name", SETUPS)
def test_three_steps_are_those_of_pytorch(name: str) -> None:
    setup = SETUPS[name]
    graph = loaded(setup.module)[1].copy()
    before = {value.name: value.data.array().copy() for value in graph.variables}
    step = tt.TrainingStep(graph, setup.loss, setup.ours, backend="numpy", **setup.options)
    read = next(value.name for value in graph.inputs)
    losses = [
        float(step({read: drawn(setup.module, k).numpy(), "labels": labels(setup.loss, k).numpy()})["loss"])
        for k in range(STEPS)
    ]
    (expected, state), (exact_losses, exact) = (by_pytorch(setup, dtype) for dtype in (torch.float32, torch.float64))
    assert_within_rounding(losses, expected, exact_losses, "losses")
    after = {value.name: value.data.array() for value in step.write_back().variables}
    for key in state.keys() & after.keys():
        assert_within_rounding(after[key], state[key], exact[key], key)
    kept = state.keys() & after.keys() & before.keys()
    assert _moved(before, after, kept) == _moved(before, state, kept)


def _moved(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], names: Set[str]) -> set[str]:
    """Names of the numbers that changed by more than rounding of a zero gradient."""
    return {name for name in names if np.abs(after[name] - before[name]).max(initial=0) > 1e-6}


# ----- gradients ------------------------------------------------------------------------------------------------------

#: Differentiated functions of a matrix of any sign, a positive one, and weights of a layer.
FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda x, p, w: x + p.mean(0),
    "subtract": lambda x, p, w: p - x * x,
    "multiply": lambda x, p, w: x * p * x[:1],
    "divide": lambda x, p, w: x / p,
    "power": lambda x, p, w: p**x,
    "root": lambda x, p, w: p.sqrt() + p.rsqrt(),
    "exponential": lambda x, p, w: x.exp() + x.expm1(),
    "logarithm": lambda x, p, w: p.log() + p.log1p() + p.log2(),
    "sine and cosine": lambda x, p, w: x.sin() * x.cos(),
    "inverse tangent": lambda x, p, w: torch.atan2(x, p) + x.atan(),
    "hyperbolic": lambda x, p, w: x.sinh() + x.cosh() + x.tanh() + x.asinh(),
    "error function": lambda x, p, w: x.erf(),
    "sigmoid": lambda x, p, w: x.sigmoid() + functional.logsigmoid(x),
    "ReLU and its kin": lambda x, p, w: x.relu() + functional.leaky_relu(x, 0.2) + functional.relu6(4 * x),
    "ELU and its kin": lambda x, p, w: functional.elu(x) + functional.selu(x) + functional.celu(x, 0.7),
    "GELU": lambda x, p, w: functional.gelu(x) + functional.gelu(x, approximate="tanh"),
    "SiLU and mish": lambda x, p, w: functional.silu(x) + functional.mish(x),
    "softplus": lambda x, p, w: functional.softplus(x, beta=2.0),
    "hard sigmoid and swish": lambda x, p, w: functional.hardsigmoid(2 * x) + functional.hardswish(2 * x),
    "PReLU": lambda x, p, w: functional.prelu(x, w[0, 0]),
    "absolute": lambda x, p, w: x.abs() + x.sign(),
    "minimum and maximum": lambda x, p, w: torch.minimum(x, p) + torch.maximum(x, 1 - p),
    "clamp": lambda x, p, w: x.clamp(-0.5, 0.8),
    "where": lambda x, p, w: torch.where(x > 0.1, x * p, p),
    "matrix product": lambda x, p, w: x @ p.T @ w[:4],
    "linear": lambda x, p, w: functional.linear(x, w[:, :6], w[:, 0]),
    "einsum": lambda x, p, w: torch.einsum("ij,kj,k->ik", x, p, w[0, :4]),
    "sum and mean": lambda x, p, w: x.sum(1, keepdim=True) * p.mean(0),
    "product": lambda x, p, w: p.prod(1),
    "largest": lambda x, p, w: x.amax(1) + x.max(0).values.sum() + x.amin(1),
    "variance": lambda x, p, w: x.var(1) + x.std(0).sum(),
    "norm": lambda x, p, w: x.norm(dim=1) + functional.normalize(x, dim=0)[:, 0],
    "log of a sum": lambda x, p, w: x.logsumexp(1),
    "softmax": lambda x, p, w: x.softmax(1) * p + x.log_softmax(0),
    "cumulative sum": lambda x, p, w: x.cumsum(1) * p,
    "transpose and reshape": lambda x, p, w: x.T.reshape(3, 8) * p.reshape(3, 8),
    "slices": lambda x, p, w: x[1:, ::2] * p[:-1, 1::2],
    "gather": lambda x, p, w: x[torch.tensor([2, 0, 2])] * x.gather(1, torch.tensor([[0], [1], [5]])),
    "concatenation": lambda x, p, w: torch.cat([x, p, x], 1).roll(2, 1) * 2,
    "padding": lambda x, p, w: functional.pad(x[None], (1, 2), "reflect") ** 2,
    "top": lambda x, p, w: (x * p).topk(2, 1).values,
    "layer norm": lambda x, p, w: functional.layer_norm(x, (6,), p[0], w[0, :6]),
    "convolution": lambda x, p, w: functional.conv1d(x[None], w[:, :8].reshape(6, 4, 2), p[0], padding=1),
    "convolution transposed": lambda x, p, w: functional.conv_transpose1d(x[None], w[:4, :6].reshape(4, 3, 2), None, 2),
    "pooling": lambda x, p, w: functional.max_pool1d(x[None], 3, 1) + functional.avg_pool1d(p[None], 3, 1),
    "attention": lambda x, p, w: functional.scaled_dot_product_attention(x[None], p[None], (x * p)[None]),
}


class All(nn.Module):
    """All functions in one module, to export once."""

    def forward(self, x: torch.Tensor, p: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        return [function(x, p, w) for function in FUNCTIONS.values()]


def operands() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    shapes = {"x": (4, 6), "p": (4, 6), "w": (6, 8)}
    arrays = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    return {**arrays, "p": arrays["p"].abs() + 0.5}


@functools.cache
def differentiable() -> tx.Graph:
    names = [f"y{place}" for place in range(len(FUNCTIONS))]
    return tx.load(All(), *operands().values(), output_names=names, verify=False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_pytorch(name: str) -> None:
    place = list(FUNCTIONS).index(name)
    outcomes = [_by_pytorch(name, place, dtype) for dtype in (torch.float32, torch.float64)]
    (given, seed, y, expected), (_, _, exact_y, exact) = outcomes
    slope = tx.grad(
        tx.extract(differentiable(), None, f"y{place}"),
        of=f"y{place}",
        wrt=[key for key, g in zip(given, expected, strict=True) if g is not None],
        seeds={f"y{place}": "seed"},
    )
    feeds = {value.name: {**given, "seed": seed}[value.name].detach().numpy() for value in slope.inputs}
    result = slope.run(feeds, backend="numpy")
    assert_within_rounding(result[f"y{place}"], y, exact_y, "y")
    for key, *gradients in zip(given, expected, exact, strict=True):
        if gradients[0] is not None:
            assert_within_rounding(result[f"{key}/grad"], *gradients, key)


def _by_pytorch(name: str, place: int, dtype: torch.dtype) -> tuple[Any, ...]:
    given = {key: tensor.to(dtype).requires_grad_() for key, tensor in operands().items()}
    y = FUNCTIONS[name](*given.values())
    seed = torch.randn(y.shape, generator=torch.Generator().manual_seed(place)).to(dtype)
    return given, seed, y.detach(), torch.autograd.grad(y, list(given.values()), seed, allow_unused=True)


def test_statistics_of_a_module_in_training_move_by_its_momentum():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.3), nn.Linear(4, 2))
    x, labels = torch.randn(16, 3) + 2, torch.randint(0, 2, (16,))
    means = []
    for training in (False, True):
        graph = tx.load(copy.deepcopy(module).train(training), x)
        tt.fit(graph, (x.numpy(), labels.numpy()), loss="softmax_cross_entropy", epochs=3, backend="numpy")
        means.append(np.asarray(graph["1.running_mean"]))
    np.testing.assert_allclose(means[1], means[0], rtol=1e-5)
    assert np.any(means[1])
