"""Dynamic sizes that PyTorch would fix to those of the examples, or cannot trace."""

import functools

import pytest
import torch
from modules import Apply
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import tenonnx as tx

BATCH = {0: "batch"}
COUNTS = torch.arange(5)
IMAGE = {0: "batch", 2: "height", 3: "width"}


def energy(x):
    return functional.silu(x - x.mean(1, keepdim=True)).square().sum()


def by_branch(x):
    return x * 2 if x.shape[2] == x.shape[3] else x + x


FUNCTIONS = {
    "a branch on equal sizes": (by_branch, (2, 3, 8, 8), IMAGE),
    "average pooling to a size": (lambda x: functional.adaptive_avg_pool2d(x, (4, 3)), (2, 3, 12, 9), IMAGE),
    "average pooling of one axis": (lambda x: functional.adaptive_avg_pool1d(x[:, :, 0], 3), (2, 3, 12, 9), IMAGE),
    "maximum pooling to a size": (lambda x: functional.adaptive_max_pool2d(x, (3, 2)), (2, 3, 12, 9), IMAGE),
    "maximum pooling of one axis": (lambda x: functional.adaptive_max_pool1d(x[:, 0], 3), (2, 3, 12, 9), IMAGE),
    "resizing by areas": (lambda x: functional.interpolate(x, size=(4, 4), mode="area"), (2, 3, 12, 9), IMAGE),
    "take_along_dim": (lambda x: torch.take_along_dim(x, x.argsort(1)[:, :1], 1), (4, 5), BATCH),
    "take_along_dim of all": (lambda x: torch.take_along_dim(x, torch.tensor([2, 0])), (4, 5), BATCH),
    "a range of the length": (lambda x: torch.linspace(-1, 2, x.shape[0]) + x[:, 0], (4, 5), BATCH),
    "a gaussian likelihood": (lambda x: functional.gaussian_nll_loss(x, x * 2, x.exp(), full=True), (4, 5), BATCH),
    "a gradient of each row": (
        lambda x: torch.func.vmap(torch.func.grad(lambda row: (row * row).sin().sum()))(x),
        (4, 5),
        BATCH,
    ),
    "forces": (lambda x: -torch.func.grad(energy)(x), (5, 3), BATCH),
    "a gradient of a gradient": (
        lambda x: torch.func.grad(lambda z: torch.func.grad(energy)(z).square().sum())(x),
        (5, 3),
        BATCH,
    ),
    "negative edges": (lambda x: functional.pad(x, (-4, 5, 2, -1), "replicate"), (2, 3, 4, 4), BATCH),
    "blocks of nothing": (lambda x: functional.unfold(x, (2, 3), padding=1), (0, 1, 5, 5), {}),
    "a range of one": (lambda x: torch.linspace(x[0, 0], x[0, 1], 1), (4, 5), BATCH),
    "given statistics": (
        lambda x: torch._native_batch_norm_legit(x, None, None, x[0] * 0, x[0] * 0 + 2, False, 0.5, 0.1)[0],
        (4, 5),
        {},
    ),
    "a mean by places": (
        lambda x: x.index_reduce(1, torch.tensor([0, 2, 2]), x[:, :3], "mean", include_self=False),
        (4, 5),
        BATCH,
    ),
    "a sum put to places": (lambda x: x.put(torch.tensor([[-1], [0]]), x[:2, :1], True), (4, 5), BATCH),
    "taken by a number": (lambda x: torch.take(x, torch.tensor(-2)), (4, 5), BATCH),
    "a product scattered": (
        lambda x: x.scatter(1, torch.zeros(4, 2, dtype=torch.int64), 2.5, reduce="multiply"),
        (4, 5),
        {},
    ),
    "a histogram": (lambda x: torch.histogram(x, 4, density=True), (4, 5), {}),
    "a number of 64 bits": (lambda x: torch.full_like(x, 0.1, dtype=torch.float64), (4, 5), BATCH),
    "nothing joined": (lambda x: torch.cat([x[:, :0], x[:, 5:]], 1).sum(), (4, 5), {}),
    "operands of two types under second names": (
        lambda x: torch.divide(torch.subtract(torch.multiply(x, COUNTS), COUNTS), COUNTS + 1),
        (4, 5),
        BATCH,
    ),
    "comparisons of two types": (
        lambda x: torch.where(torch.greater(x, COUNTS) | torch.less_equal(COUNTS, 2.5), torch.arctan2(x, COUNTS), x),
        (4, 5),
        BATCH,
    ),
    "a quotient of integers": (lambda x: torch.divide(COUNTS, 2) + torch.clip(COUNTS, 0.5, 2.5) + x, (4, 5), BATCH),
    "a stack of two types": (lambda x: torch.stack([x[0], COUNTS]), (4, 5), BATCH),
    "a triangle": (lambda x: torch.triangular_solve(x[:, :1], x[:, 1:], upper=False)[0], (4, 5), {}),
    "few drawn numbers": (lambda x: (torch.bernoulli(x.sigmoid()[0, :1]), x + 1), (4, 5), {}),
    "places of a number": (lambda x: x[0, 0].nonzero(), (4, 5), BATCH),
    "a number of places": (lambda x: torch.nonzero_static(x > 0, size=7, fill_value=-2), (4, 5), {}),
    "weighed counts": (lambda x: torch.bincount(torch.tensor([0, 1, 1, 3]), x[:, 0], minlength=3), (4, 5), {}),
    "samples of a volume": (
        lambda x: functional.grid_sample(x, x[:, :3].movedim(1, -1), align_corners=False),
        (2, 3, 3, 4, 5),
        BATCH,
    ),
    "a loss of a product": (
        lambda x: functional.linear_cross_entropy(x, torch.ones(3, 5), torch.tensor([0, 2, 1, 1])),
        (4, 5),
        {},
    ),
}


@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_the_same_at_any_size(name):
    function, shape, dims = FUNCTIONS[name]
    torch.manual_seed(0)
    graph = tx.load(Apply(function), torch.randn(shape), dims={"inputs_0": dims} if dims else None)
    assert graph.outputs


class Packed(nn.Module):
    def __init__(self, kind, batch_first=True, **packing):
        super().__init__()
        self.layer, self.batch_first = (
            kind(4, 5, num_layers=2, bidirectional=True, batch_first=batch_first),
            batch_first,
        )
        self.packing = packing

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=self.batch_first, enforce_sorted=False)
        steps, last = self.layer(packed)
        return *pad_packed_sequence(steps, batch_first=self.batch_first, **self.packing), last


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize(
    "sizes", [{"size": (12, 4)}, {"size": (28, 9)}, {"scale_factor": (1.5, 0.7)}, {"scale_factor": 2}], ids=str
)
def test_nearest_elements_are_those_of_pytorch_at_any_size(mode, sizes):
    module = Apply(lambda x: functional.interpolate(x, mode=mode, **sizes))
    graph = tx.load(module, torch.zeros(1, 1, 10, 5), dims={"inputs_0": {2: "height"}})
    for height in (4, 20, 21, 26, 39, 40, 42, 45, 49, 50, 52, 62, 76, 78):
        x = torch.arange(5.0 * height).reshape(1, 1, height, 5)
        for backend in ("numpy", "onnxruntime"):
            (result,) = graph.run({"inputs_0": x.numpy()}, backend=backend).values()
            assert torch.equal(torch.from_numpy(result), module(x)), (height, backend)


@pytest.mark.parametrize(("before", "kind"), [(10, "Resize"), (6, "Resize"), (40, "Gather")])
def test_static_sizes_are_resized_where_positions_agree(before, kind):
    module = Apply(lambda x: functional.interpolate(x, size=12, mode="nearest"))
    x = torch.arange(1.0 * before).reshape(1, 1, before)
    graph = tx.load(module, x)
    assert {node.op_type for node in graph.nodes} == {kind}
    for backend in ("numpy", "onnxruntime"):
        (result,) = graph.run({"inputs_0": x.numpy()}, backend=backend).values()
        assert torch.equal(torch.from_numpy(result), module(x))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, functools.partial(nn.LSTM, proj_size=3)])
def test_packed_sequences_have_any_lengths(kind, tmp_path):
    module = Packed(kind, padding_value=-1.0).eval()
    dims = {"x": {0: "batch", 1: "time"}, "lengths": BATCH}
    graph = tx.load(module, torch.randn(3, 6, 4), torch.tensor([2, 6, 3]), dims=dims)
    for lengths in ([1, 3, 4, 2], [1], [5, 5]):
        x, given = torch.randn(len(lengths), 5, 4), torch.tensor(lengths)
        steps = module(x, given)[0].detach()
        result = graph.run({"x": x.numpy(), "lengths": given.numpy()})
        assert steps.shape[1] == max(lengths)
        torch.testing.assert_close(torch.from_numpy(result["output_0"].copy()), steps, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_zero_points_of_channels_may_be_floats(axis):
    def quantized(x):
        scales, zeros = torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0.0, 3.5, -4.25])
        return torch.fake_quantize_per_channel_affine(x, scales, zeros, axis, -128, 127)

    x = torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(0)) * 9
    graph = tx.load(Apply(quantized), x)
    for backend in ("numpy", "onnxruntime"):
        (result,) = graph.run({"inputs_0": x.numpy()}, backend=backend).values()
        torch.testing.assert_close(torch.from_numpy(result.copy()), quantized(x), atol=1e-5, rtol=1e-5)


def test_packed_sequences_may_lie_by_time_and_be_padded_to_a_length():
    module = Packed(nn.GRU, batch_first=False, total_length=8).eval()
    graph = tx.load(module, torch.randn(6, 3, 4), torch.tensor([2, 6, 3]), dims={"x": {1: "batch"}, "lengths": BATCH})
    assert str(graph.outputs[0].type) == "float32[8, batch, 10]"


def test_other_consumers_of_packed_sequences_are_refused():
    class Averaged(Packed):
        def forward(self, x, lengths):
            return self.layer(pack_padded_sequence(x, lengths, batch_first=True))[0].data.mean()

    with pytest.raises(tx.TenonnxError, match=r"packed sequences go through something other than LSTM"):
        tx.load(Averaged(nn.GRU).eval(), torch.randn(3, 6, 4), torch.tensor([6, 6, 6]))


def test_the_outputs_of_a_detector_have_the_order_of_the_task():
    function = lambda x: (x[:, :4], x[:, 0], (x[:, 0] > 0).to(torch.int64))  # noqa: E731
    with pytest.raises(tx.InvalidCall, match=r"does not return boxes, labels and scores, in this order"):
        tx.load(Apply(function), torch.randn(3, 5), task="detection")
