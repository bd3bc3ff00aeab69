"""Operations that PyTorch's exporter lacks or translates incorrectly: at opset 13, and with dynamic sizes."""

import itertools

import pytest
import torch
from modules import Apply
from torch import nn
from torch.nn import functional

import tenonnx as tx
import tenonnx_torch
from tenonnx_torch import special

X = torch.tensor([[-2.5, -0.3, 0.0], [0.4, 1.2, 7.5], [-0.7, 3.0, 0.9], [11.0, -1.4, 0.05]])
ROWS = {0: {0: "rows"}}


class Linear(nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.layer, self.compute = nn.Linear(3, 3), compute

    def forward(self, x):
        return self.compute(self.layer, x)


def buckets(x):
    edges = torch.tensor([-1.0, 0.0, 0.4, 5.0])
    places = [torch.bucketize(x, edges), torch.bucketize(x, edges, right=True, out_int32=True)]
    return *places, torch.searchsorted(edges, 0.4), torch.bucketize(0.4, edges)


def extremes(x):
    y = x.clone()
    y[1, 1] = torch.nan
    return (
        x.cummax(1),
        x.cummin(0),
        x.round().cummax(0),
        y.cummax(-1),
        (x * 3).to(torch.int32).cummin(1),
        x.logcumsumexp(0),
    )


def specials(x):
    small = x.clamp(-2, 2).tanh()
    result = [small.erfinv(), torch.special.ndtri(x.sigmoid()), torch.special.log_ndtr(x), torch.erfc(x)]
    result += [torch.i0(x), torch.special.i0e(x), torch.special.i1(x), torch.special.i1e(x), torch.special.erfcx(small)]
    result += [x.digamma(), x.lgamma(), torch.polygamma(1, x.abs() + 0.1), torch.polygamma(2, x.abs() + 0.1)]
    return *result, torch.special.zeta(x.abs() + 1.5, 2.0)


def drawn(x):
    y = x.clone().uniform_(1, 2)
    y = y + torch.empty_like(x).normal_(1, 2) + torch.zeros_like(x).bernoulli_(0.3) + x.clone().exponential_()
    return y + x.clone().log_normal_() + x.clone().cauchy_() + x.clone().geometric_(0.4), x * 2


def averages(x):
    pooled = [functional.avg_pool2d(x, 3, 2, 1, ceil, padded, 5) for ceil in (False, True) for padded in (False, True)]
    return (
        *pooled,
        functional.avg_pool2d(x, (2, 3), divisor_override=7),
        functional.avg_pool3d(x, 2, divisor_override=3),
    )


def ctc(reduction, zero_infinity=False):
    def loss(x, targets):
        lengths = torch.tensor([6, 5, 2]), torch.tensor([3, 2, 3])
        scores = x.log_softmax(-1)
        return functional.ctc_loss(scores, targets, *lengths, reduction=reduction, zero_infinity=zero_infinity)

    return loss


LETTERS = torch.tensor([[1, 2, 2], [3, 1, 0], [4, 3, 2]])

CASES = {
    "searchsorted and bucketize": (Apply(buckets), (X,), ROWS),
    "cummax and its kin": (Apply(extremes), (X,), ROWS),
    "special functions": (Apply(specials), (X,), ROWS),
    "rrelu": (nn.RReLU().eval(), (X,), ROWS),
    "random fills": (Apply(drawn), (X,), ROWS),
    "average pooling with a divisor": (Apply(averages), (torch.randn(2, 3, 9, 8),), {0: {0: "batch", 2: "height"}}),
    "corners at any scale": (
        Apply(lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)),
        (torch.randn(2, 3, 5, 4),),
        {0: {0: "batch", 2: "height", 3: "width"}},
    ),
    "corners at any size": (
        Apply(lambda x, y: functional.interpolate(x, size=y.shape[2:], mode="bilinear", align_corners=True)),
        (torch.randn(2, 3, 5, 4), torch.randn(2, 1, 9, 8)),
        {0: {2: "h"}, 1: {2: "height", 3: "width"}},
    ),
    "a gradient": (Linear(lambda layer, x: torch.func.grad(lambda y: layer(y).square().sum())(x)), (X,), ROWS),
    "a pullback": (Linear(lambda layer, x: torch.func.vjp(layer, x)[1](x.sin())[0]), (X,), ROWS),
    "BatchNorm1d in training": (nn.BatchNorm1d(3).train(), (torch.randn(4, 3, 5),), {0: {0: "batch", 2: "steps"}}),
    **{
        f"ctc_loss, {reduction}": (Apply(ctc(reduction, reduction == "mean")), (torch.randn(6, 3, 5), LETTERS), None)
        for reduction in ("mean", "sum", "none")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_operations_that_the_exporter_lacks_are_equal_at_opset_13(name, tmp_path):
    module, examples, dims = CASES[name]
    done = tenonnx_torch.export(module, examples, tmp_path / "m.onnx", opset_version=13, dims=dims)
    assert done.passed
    assert done.verification.outputs
    assert all("does not take that" in note or "at random" in note for note in done.verification.notes)


@pytest.mark.parametrize(
    ("function", "reference", "low", "high"),
    [
        (special.erfinv, torch.erfinv, -1.01, 1.01),
        (special.ndtri, torch.special.ndtri, -0.01, 1.01),
        (special.digamma, torch.digamma, -20.3, 60.2),
        (special.lgamma, torch.lgamma, -20.3, 60.2),
        (special.i0e, torch.special.i0e, -60.0, 60.0),
        (special.i1e, torch.special.i1e, -60.0, 60.0),
        (special.erfcx, torch.special.erfcx, -5.0, 60.0),
        (special.erfc, torch.erfc, -8.0, 20.0),
        (special.log_ndtr, torch.special.log_ndtr, -60.0, 20.0),
    ],
)
def test_special_functions_are_those_of_pytorch(function, reference, low, high):
    x = torch.cat([torch.linspace(low, high, 2001, dtype=torch.float64), torch.tensor([-1.0, 0.0, 1.0, torch.nan])])
    assert torch.allclose(function(x), reference(x), rtol=1e-9, atol=1e-9, equal_nan=True)
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 0.0, -2.0, 1e4], dtype=torch.float64)
    assert torch.allclose(function(x), reference(x), rtol=1e-9, equal_nan=True)


def test_rows_times_the_matrix_of_their_group():
    @torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
    def grouped(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        ends = [0, *offs.tolist()]
        parts = [input[a:b] @ weight[k] for k, (a, b) in enumerate(itertools.pairwise(ends))]
        return torch.cat([*parts, input.new_zeros(input.shape[0] - ends[-1], weight.shape[2])])

    @grouped.register_fake
    def grouped_fake(input, weight, offs):
        return input.new_empty(input.shape[0], weight.shape[2])

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, 5))

        def forward(self, x, choice):
            order = choice.argsort(stable=True)
            ends = (choice.unsqueeze(0) == torch.arange(4).unsqueeze(1)).sum(1).cumsum(0).to(torch.int32)
            rows = torch.ops.transformers.grouped_mm_fallback(x[order], self.weight, ends)
            return rows[order.argsort()]

    examples = torch.randn(6, 3), torch.tensor([2, 0, 2, 3, 0, 2])
    graph = tx.load(Experts(), *examples, dims={0: {0: "rows"}, 1: {0: "rows"}})
    assert not {"Loop", "If"}.intersection(node.op_type for node in graph.walk())
