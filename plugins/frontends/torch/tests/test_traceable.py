"""Dynamic lengths, fake quantization, masks, shifts of small integers, and spectra, at opset 13."""

import pytest
import torch
from modules import Apply
from torch import nn
from torch.ao.quantization import default_fake_quant, default_per_channel_weight_fake_quant
from torch.nn import functional

import tenonnx as tx
import tenonnx_torch
from tenonnx_torch.examples import Examples

LENGTH = {0: {2: "length"}}
QUANTIZED = [(0, 255), (-128, 127), (-7, 7), (0, 127)]


def passes(function, *examples, path, dims=None):
    torch.manual_seed(0)
    module = function if isinstance(function, nn.Module) else Apply(function)
    if dims is not None:
        names = list(Examples.of(module, examples).tensors)
        dims = {names[place]: axes for place, axes in dims.items()}
    assert tenonnx_torch.export(module.eval(), examples, path / "m.onnx", opset_version=13, dims=dims).passed


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool1d(2),
        nn.MaxPool1d(3, 2, 1, 2, ceil_mode=True),
        nn.MaxPool1d(2, return_indices=True),
        lambda x: functional.max_pool1d(x, 3, 2, 1),
    ],
)
def test_maxima_of_windows_of_any_length(pool, tmp_path):
    passes(lambda x: pool(x), torch.randn(2, 3, 9), path=tmp_path, dims=LENGTH)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(("both", "batch_first"), [(False, True), (True, False)])
def test_projections_of_sequences_of_any_length(both, batch_first, tmp_path):
    layer = nn.LSTM(4, 6, 2, proj_size=3, bidirectional=both, batch_first=batch_first)
    sizes = {0: {0: "batch", 1: "time"}} if batch_first else {0: {0: "time", 1: "batch"}}
    passes(layer, torch.randn(3, 5, 4), path=tmp_path, dims=sizes)


@pytest.mark.parametrize("side", ["right", "left"])
def test_sequences_of_any_lengths_are_padded(side, tmp_path):
    def pad(a, b, c):
        return nn.utils.rnn.pad_sequence([a, b, c], side == "left", -1.0, side)

    sizes = {0: {0: "n"}, 1: {0: "m"}}
    passes(pad, torch.randn(3, 2), torch.randn(5, 2), torch.randn(4, 2), path=tmp_path, dims=sizes)


class Experts(nn.Module):
    """Three experts, of which a loop calls those that rows select; nothing selects a fourth."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4, 3)
        self.experts = nn.ModuleDict({f"expert_{place}": nn.Linear(4, 4) for place in range(4)})
        self.weights = nn.Parameter(torch.randn(3, 4, 4))

    def forward(self, x):
        self.router = self.router.to(torch.float32)
        chosen = functional.one_hot(self.router(x).topk(2, 1)[1], 4).permute(2, 1, 0)
        result = torch.zeros_like(x)
        for place in torch.greater(chosen.sum((-1, -2)), 0).nonzero():
            at, rows = torch.where(chosen[place[0]].squeeze(0))
            if rows.numel() == 0:
                continue
            y = self.experts[f"expert_{place[0]}"](x[rows]) @ self.weights[place[0]]
            result.index_add_(0, rows, y * (at + 1)[:, None])
        return result


def test_loops_over_selected_experts():
    torch.manual_seed(0)
    module = Experts().eval()
    graph = tx.load(module, torch.randn(5, 4), dims={"x": {0: "rows"}}, verify=False)
    for rows in (1, 7):  # one row selects two of the three
        x = torch.randn(rows, 4)
        (result,) = graph.run({"x": x.numpy()}, backend="onnxruntime").values()
        assert torch.allclose(torch.from_numpy(result), module(x), atol=1e-5)


def test_loops_over_nonzero_entries_that_select_nothing_are_refused():
    def total(x):
        result = torch.zeros(())
        for place in (x[:3] > 0).nonzero():
            result = result + x[place[0]]
        return result

    with pytest.raises(tx.NotRepresentable, match="trace"):
        tx.load(Apply(total), torch.randn(4))


@pytest.mark.parametrize("ends", QUANTIZED)
@pytest.mark.parametrize("dims", [None, {0: {0: "rows"}}])
def test_fake_quantization_of_any_range(ends, dims, tmp_path):
    def quantize(x):
        scales, zeros = torch.tensor([0.1, 0.2, 0.4]), torch.tensor([0, 1, 2], dtype=torch.int32)
        by_channel = torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, *ends)
        return torch.fake_quantize_per_tensor_affine(x, 0.0625, 1, *ends), by_channel

    passes(quantize, torch.randn(4, 3) * 3, path=tmp_path, dims=dims)


@pytest.mark.parametrize("kind", [default_fake_quant, default_per_channel_weight_fake_quant])
@pytest.mark.filterwarnings("ignore")
def test_modules_that_quantize_and_observe_no_more(kind, tmp_path):
    observed = kind()
    observed(torch.randn(4, 4))
    observed.disable_observer()
    passes(nn.Sequential(observed), torch.randn(4, 4), path=tmp_path)
    assert "forward" not in vars(observed)


@pytest.mark.filterwarnings("ignore")
def test_a_module_that_still_observes_is_refused():
    with pytest.raises(tx.NotRepresentable, match="trace"):
        tx.load(default_fake_quant(), torch.randn(4, 4))


MASK, PAIRS = torch.tensor([True, False, True]), torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) > 0.5
WHOLE = slice(None)


@pytest.mark.parametrize(
    ("index", "value", "shape"),
    [
        (lambda m: (WHOLE, m), 0.0, (4, 3)),
        (lambda m: (..., m), lambda x, m: x[..., m] * 2, (2, 4, 3)),
        (lambda m: (WHOLE, m), lambda x, m: x.sum(1, keepdim=True), (4, 3)),
        (lambda m: (WHOLE, m, WHOLE), lambda x, m: x[:, m] + 1, (4, 3, 2)),
        (lambda m: (slice(1, 3), m), 7.0, (4, 3)),
        (lambda m: (WHOLE, PAIRS), lambda x, m: x[:, PAIRS] + 1, (2, 4, 3)),
        (lambda m: (WHOLE, PAIRS), 5.0, (2, 4, 3)),
    ],
)
def test_places_that_a_mask_of_later_axes_names_are_written(index, value, shape, tmp_path):
    def write(x, mask):
        x = x.clone()
        x[index(mask)] = value(x, mask) if callable(value) else value
        return x

    path = tmp_path / "m.onnx"
    x = torch.randn(shape)
    done = tenonnx_torch.export(Apply(write), (x, MASK), path, opset_version=13)
    assert done.passed
    graph, names = tx.load(path), [value.name for value in tx.load(path).inputs]
    for mask in (torch.tensor([False] * 3), torch.tensor([True] * 3)):  # none, and all
        given = dict(zip(names, (x.numpy(), mask.numpy()), strict=False))
        result = next(iter(graph.run(given).values()))
        torch.testing.assert_close(torch.from_numpy(result), write(x, mask))


def test_masks_together_with_further_indices(tmp_path):
    def write(x, rows, columns, last, i):
        result = []
        for place in [(rows, i), (rows, 0), (rows, WHOLE, -1), (WHOLE, columns, i), (i[:2], WHOLE, last)]:
            y = x.clone()
            y[place] = x[place] * 2 + 1
            result += [x[place], y]
        y = x.index_put((rows, i), torch.tensor(0.5), accumulate=True)
        return *result, x[rows, i[:, None]], y

    masks = (torch.tensor(mask) > 0 for mask in ([1, 0, 1, 1], [1, 0, 1, 0, 1], [1, 0, 1]))
    passes(write, torch.randn(4, 5, 3), *masks, torch.tensor([0, 2, 1]), path=tmp_path)


def test_a_mask_with_a_further_index_of_any_length(tmp_path):
    def write(x, labels):
        kept = labels >= 0
        y = x.clone()
        y[kept, 0] = x[kept, 1]
        return x[kept, labels[kept]], y

    passes(write, torch.randn(4, 3), torch.tensor([0, -1, 2, 1]), path=tmp_path, dims={0: {0: "n"}, 1: {0: "n"}})


def test_order_statistics_of_any_length(tmp_path):
    def compute(x):
        middle = x.median(1).values, x.median(0, keepdim=True).values, x.median(), x.nanmedian(-1).values
        return *middle, x.quantile(0.3, 1), x.nanquantile(torch.tensor([0.1, 0.5]), 0), x.round().mode(1).values

    passes(compute, torch.randn(4, 7), path=tmp_path, dims={0: {0: "n", 1: "k"}})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_shifts_keep_the_type(dtype, tmp_path):
    def shift(x, y):
        z = x.clone()
        z >>= 2
        return x >> 1, x << 3, x >> y, x << y, z, torch.bitwise_right_shift(x, 1)

    x = torch.arange(-4, 6).to(dtype) if dtype.is_signed else torch.arange(246, 256).to(dtype)
    passes(shift, x, torch.ones(10).to(dtype), path=tmp_path)


@pytest.mark.parametrize(
    "transform",
    [
        torch.fft.rfft,
        torch.fft.fft,
        torch.fft.rfft2,
        lambda x: torch.fft.rfft(x).conj(),
        lambda x: torch.stft(x[:, 0], 8, center=False, window=torch.hann_window(8), return_complex=True),
    ],
)
def test_angles_of_real_spectra_have_the_signs_of_pytorch(transform, tmp_path):
    torch.manual_seed(1)
    x = torch.randn(3, 6, 16) - 0.5
    passes(lambda x: (transform(x).angle(), transform(x).log().imag), x, path=tmp_path)


def branching(limit):
    return lambda x: x * 2 if x.shape[2] < limit else x


@pytest.mark.parametrize("function", [branching(100), branching(5)])
def test_a_branch_on_a_length_is_compared_beyond_its_border(function):
    with pytest.raises(tx.VerificationFailed, match="elements differ"):
        tx.load(Apply(function), torch.randn(2, 3, 4), dims={"inputs_0": {2: "length"}})


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x: functional.conv1d(x, torch.ones(2, 3, 7)), {"length=8", "length=15"}),
        (lambda x: functional.avg_pool1d(x, 7), {"length=8", "length=15"}),
        (lambda x: functional.pad(x, (-6, 0)), {"length=8", "length=15"}),
        (lambda x: x.unfold(2, 7, 1), {"length=8", "length=15"}),
    ],
)
def test_sizes_that_a_module_refuses_are_replaced_by_larger_ones(function, sizes, tmp_path):
    done = tenonnx_torch.export(
        Apply(function), torch.randn(2, 3, 7), tmp_path / "m.onnx", opset_version=17, dims={"inputs_0": {2: "length"}}
    )
    assert sizes <= {output.run for output in done.verification.outputs}
    assert any("length=1)" in note and "does not take that" in note for note in done.verification.notes)


def test_a_dim_of_one_size_is_refused():
    def fixed(x):
        if not torch.compiler.is_compiling() and x.shape[2] != 7:
            raise ValueError("seven")
        return x * 2

    with pytest.raises(tx.VerificationFailed, match='"length" cannot vary: PyTorch takes 7 alone'):
        tx.load(Apply(fixed), torch.randn(2, 3, 7), dims={"inputs_0": {2: "length"}})
