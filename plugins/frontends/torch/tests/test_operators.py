"""PyTorch's operators: OpInfo samples, extreme numbers, and lowerings of all core operators."""

import itertools

import pytest
import torch
from modules import Apply
from modules.operators import samples
from torch.nn import functional

import tenonnx as tx
import tenonnx_torch
from tenonnx_torch import bessel, matrices, numerics, sort, special, statistics, windows
from tenonnx_torch.decompositions import decomposable

aten = torch.ops.aten

#: Operators of which the tests run one OpInfo sample each; benchmarks/operators.py runs all.
SAMPLED = [
    "addcmul",
    "aminmax",
    "atan2",
    "baddbmm",
    "cholesky_solve",
    "combinations",
    "copysign",
    "corrcoef",
    "cov",
    "cummax",
    "diff",
    "div.floor_rounding",
    "expm1",
    "fmax",
    "gather",
    "gcd",
    "geqrf",
    "igamma",
    "index_add",
    "linalg.det",
    "linalg.slogdet",
    "logaddexp",
    "linalg.lu_solve",
    "lu_unpack",
    "masked_select",
    "matrix_exp",
    "mode",
    "nextafter",
    "ormqr",
    "nn.functional.fractional_max_pool2d",
    "median",
    "nanmedian",
    "nn.functional.adaptive_avg_pool3d",
    "nn.functional.adaptive_max_pool2d",
    "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.conv_transpose2d",
    "nn.functional.grid_sample",
    "nn.functional.interpolate.area",
    "nn.functional.logsigmoid",
    "nn.functional.softmin.with_dtype",
    "linalg.qr",
    "nn.functional.multilabel_margin_loss",
    "remainder",
    "searchsorted",
    "special.airy_ai",
    "special.bessel_j1",
    "special.bessel_y0",
    "special.hermite_polynomial_h",
    "special.legendre_polynomial_p",
    "special.modified_bessel_k1",
    "special.scaled_modified_bessel_k0",
    "special.shifted_chebyshev_polynomial_w",
    "special.spherical_bessel_j0",
    "xlogy",
]


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_of_pytorch_are_the_same_at_opset_13(name, tmp_path):
    pytest.importorskip("expecttest", reason="PyTorch's samples need it")
    module, examples = list(samples(name))[-1]
    result = tenonnx_torch.export(module, examples, tmp_path / "m.onnx", opset_version=13)
    assert result.passed is not False  # None where PyTorch returns only NaN


def test_every_core_operator_has_a_form():
    from torch.onnx._internal.exporter import _decomp
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    written = {*_decomp.get_onnx_implemented_overloads(ONNXRegistry.from_torchlib())}
    known = decomposable()
    lacking = {
        str(overload)
        for name in dir(aten)
        for packet in [getattr(aten, name)]
        if isinstance(packet, torch._ops.OpOverloadPacket)
        for overload in (getattr(packet, each) for each in packet.overloads())
        if torch.Tag.core in overload.tags
        and not overload._schema.is_mutable  # exported programs have no in-place operations
        and overload not in written
        and overload not in known
    }
    assert not lacking


# ----- matrix factorizations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5), (1, 1), (3, 1)])
def test_factors_are_those_of_lapack(shape):
    matrix = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for mode in ("reduced", "complete", "r"):
        result = zip(matrices.qr(matrix, mode), torch.linalg.qr(matrix, mode=mode), strict=True)
        assert all(torch.allclose(mine, theirs) for mine, theirs in result)
    result = zip(matrices.lu(matrix), torch.linalg.lu(matrix), strict=True)
    assert all(torch.allclose(mine, theirs) for mine, theirs in result)
    both, places, _ = matrices.lu_factor(matrix)
    assert places.tolist() == torch.linalg.lu_factor(matrix)[1].tolist()
    if shape[-1] == shape[-2]:
        right = torch.ones(*shape[:-1], 2, dtype=torch.float64)
        for adjoint in (False, True):
            expected = torch.linalg.lu_solve(both, places, right, adjoint=adjoint)
            assert torch.allclose(matrices.lu_solve(both, places, right, adjoint=adjoint), expected)


@pytest.mark.parametrize("weights", [(), ("fweights",), ("aweights",), ("fweights", "aweights")])
@pytest.mark.parametrize("rank", [1, 2])
def test_covariance_has_the_weights_of_pytorch(weights, rank):
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))[:, :] if rank == 2 else torch.arange(6.0)
    held = {"fweights": torch.tensor([1, 2, 3, 1, 2, 1]), "aweights": torch.linspace(0.1, 1, 6)}
    given = {name: held[name] for name in weights}
    for correction in (0, 1, 2):
        expected = torch.cov(x, correction=correction, **given)
        assert torch.allclose(statistics.cov(x, correction=correction, **given), expected, atol=1e-6)
    assert torch.allclose(statistics.corrcoef(x), torch.corrcoef(x))


# ----- numbers --------------------------------------------------------------------------------------------------------

EDGES = torch.tensor(
    [
        -1e30,
        -200,
        -90,
        -3,
        -1,
        -0.3,
        -1e-4,
        -1e-8,
        -0.0,
        0.0,
        1e-8,
        1e-4,
        0.3,
        1,
        3,
        90,
        200,
        1e30,
        torch.inf,
        -torch.inf,
        torch.nan,
    ]
)
PAIRS = torch.meshgrid(EDGES, EDGES, indexing="ij")


@pytest.mark.parametrize(
    ("function", "reference"),
    [(numerics.log1p, torch.log1p), (numerics.expm1, torch.expm1), (numerics.log_sigmoid, functional.logsigmoid)],
)
def test_functions_keep_their_digits(function, reference):
    assert torch.allclose(function(EDGES), reference(EDGES), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (numerics.logaddexp, torch.logaddexp),
        (numerics.logaddexp2, torch.logaddexp2),
        (numerics.xlogy, torch.xlogy),
        (numerics.xlog1py, torch.special.xlog1py),
        (numerics.copysign, torch.copysign),
        (numerics.atan2, torch.atan2),
        (numerics.hypot, torch.hypot),
        (numerics.heaviside, torch.heaviside),
        (numerics.fmax, torch.fmax),
        (numerics.fmin, torch.fmin),
        (numerics.remainder, torch.remainder),
        (numerics.floor_division, torch.floor_divide),
    ],
)
def test_functions_of_two_numbers_are_those_of_pytorch(function, reference):
    result, expected = function(*PAIRS), reference(*PAIRS)
    assert torch.allclose(result, expected, rtol=1e-5, atol=2e-8, equal_nan=True)
    zero = (expected == 0) & (reference is torch.copysign)
    assert torch.equal(result.signbit()[zero], expected.signbit()[zero])


def test_losses_of_large_logits_do_not_overflow():
    class Loss(torch.nn.Module):
        def forward(self, x, y):
            return functional.binary_cross_entropy_with_logits(x, y, reduction="none"), functional.logsigmoid(x)

    x = torch.tensor([0.5, -1.0, 2.0])
    graph = tx.load(Loss(), x, x.sigmoid())
    large = torch.tensor([-300.0, 300.0, -120.0])
    result = graph.run({"x": large.numpy(), "y": torch.ones(3).numpy()})
    losses, logarithms = result.values()
    assert losses.tolist() == [300.0, 0.0, 120.0]
    assert logarithms.tolist() == [-300.0, 0.0, -120.0]


# ----- windows and matrices -------------------------------------------------------------------------------------------


def same(found, expected, tolerance=1e-4):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert torch.allclose(ours.double(), theirs.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


def test_adaptive_pooling():
    image, volume = torch.randn(2, 3, 7, 9), torch.randn(2, 3, 7, 5, 6)
    same([windows.adaptive_average(volume, [3, 2, 4])], [aten._adaptive_avg_pool3d(volume, [3, 2, 4])])
    slope = torch.randn(2, 3, 3, 4)
    same(
        [windows.adaptive_average_backward(slope, image)],
        [aten._adaptive_avg_pool2d_backward(slope, image)],
    )
    for x, sizes in ((image, [3, 4]), (image[0], [9, 4])):
        same(windows.adaptive_maximum(x, sizes), aten.adaptive_max_pool2d(x, sizes))
    same(windows.adaptive_maximum(volume, [3, 4, 5]), aten.adaptive_max_pool3d(volume, [3, 4, 5]))


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(3, 4), (14, 20), (5, 5)])
def test_resizing_with_antialiasing(size, corners):
    x = torch.randn(2, 3, 7, 9)
    for mode in ("bilinear", "bicubic"):
        operator = getattr(aten, f"_upsample_{mode}2d_aa").default
        arguments = (x, size, corners, None, None)
        same([windows.WINDOWS[operator](*arguments)], [operator(*arguments)])


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "transposed"),
    list(itertools.product([1, 2], [0, 1], [1, 2], [1, 2], [False, True])),
)
def test_gradients_of_convolutions(stride, padding, dilation, groups, transposed):
    x = torch.randn(2, 4, 9, 8)
    weight = torch.randn(4, 6 // groups, 3, 2) if transposed else torch.randn(6, 4 // groups, 3, 2)
    settings = [stride] * 2, [padding] * 2, [dilation] * 2, transposed, [stride - 1 if transposed else 0] * 2, groups
    slope = torch.randn_like(aten.convolution(x, weight, None, *settings))
    arguments = (slope, x, weight, [6], *settings, [True] * 3)
    same(windows.convolution_backward(*arguments), aten.convolution_backward(*arguments))


@pytest.mark.parametrize(
    ("ceil", "padded", "divisor"), list(itertools.product([False, True], [False, True], [None, 5]))
)
def test_gradients_of_average_pooling(ceil, padded, divisor):
    x, settings = torch.randn(2, 3, 7, 9), ([3, 2], [1, 2], [1, 1], ceil, padded, divisor)
    slope = torch.randn_like(aten.avg_pool2d(x, *settings))
    same([windows.average_backward(slope, x, *settings)], [aten.avg_pool2d_backward(slope, x, *settings)])


def test_linear_algebra():
    a, b = torch.randn(3, 5, 5), torch.randn(3, 5, 2)
    a[0, 0, 0] = 0  # requires pivoting
    positive = a @ a.mT + torch.eye(5)
    same(matrices.inverse(a)[:1], [a.inverse()], 1e-3)
    same(matrices.solve(a, b)[:1], [torch.linalg.solve(a, b)], 1e-3)
    same(matrices.solve(a, b.mT, left=False)[:1], [torch.linalg.solve(a, b.mT, left=False)], 1e-3)
    same(matrices.slogdet(a)[:2], torch.linalg.slogdet(a))
    for upper in (False, True):
        factor = torch.linalg.cholesky(positive, upper=upper)
        same([matrices.cholesky(positive, upper)], [factor])
        same(
            [matrices.solve_triangular(factor, b, upper=upper)],
            [torch.linalg.solve_triangular(factor, b, upper=upper)],
            1e-3,
        )
        same([matrices.cholesky_solve(b, factor, upper)], [torch.cholesky_solve(b, factor, upper)], 1e-3)


def test_matrices_of_a_size_that_varies_are_refused():
    module = Apply(lambda x: torch.linalg.inv(x @ x.mT + torch.eye(x.shape[-1])))
    with pytest.raises(tx.NotRepresentable, match="dynamic size, or one above 64"):
        tx.load(module, torch.randn(3, 3), dims={0: {0: "n", 1: "n"}})


def test_medians_and_greatest_common_divisors():
    x = torch.randn(4, 7)
    x[1, 3], x[2] = torch.nan, torch.nan
    same(sort.median(x, 1)[:1], x.median(1)[:1])
    same(sort.nanmedian(x, 1)[:1], x.nanmedian(1)[:1])
    same([sort.nanmedian_of_all(x)], [x.nanmedian()])
    a, b = torch.randint(-1000, 1000, (2, 50))
    a[3:7], b[:5] = 0, 0
    assert torch.equal(sort.gcd(a, b), torch.gcd(a, b))
    assert torch.equal(sort.lcm(a, b), torch.lcm(a, b))
    far = torch.tensor([7540113804746346429]), torch.tensor([4660046610375530309])  # near Fibonacci numbers
    assert torch.equal(sort.gcd(*far), torch.gcd(*far))


class Slope(torch.nn.Module):
    """Gradient of a layer by its input, computed in forward."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x):
        return torch.func.grad(lambda y: self.layers(y).square().sum())(x)


def test_gradients_inside_of_networks_of_convolutions():
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.AvgPool2d(2), torch.nn.GroupNorm(2, 4)
    assert tx.load(Slope(*layers), torch.randn(2, 3, 9, 9)).nodes


class Jacobian(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return torch.func.jacrev(lambda y: torch.tanh(self.layer(y)))(x)


def test_a_jacobian_inside_of_a_module():
    assert tx.load(Jacobian(), torch.randn(3)).nodes


# ----- by our decompositions only -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name, dtype):
    shapes = torch.tensor([1e-6, 1e-3, 0.1, 1, 5, 30, 100, 1e4, 0, -1, torch.inf], dtype=dtype)
    ends = torch.tensor([1e-8, 0.1, 0.99, 1, 2, 7, 28, 31, 90, 110, 1040, 1e4, 0, -1, torch.inf], dtype=dtype)
    a, x = torch.meshgrid(shapes, ends, indexing="ij")
    result, expected = getattr(special, name)(a, x), getattr(torch, name)(a, x)
    assert torch.allclose(result, expected, rtol=0, atol=2e-9 if dtype is torch.float64 else 1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nextafter_is_that_of_pytorch_bit_for_bit(dtype):
    limits = torch.finfo(dtype)
    numbers = [0.0, -0.0, 1, -1, 2, 0.5, 3.3, -7.1, 1e-30, limits.max, -limits.max, torch.inf, -torch.inf, torch.nan]
    held = torch.tensor([*numbers, limits.tiny, limits.tiny * limits.eps * 3], dtype=dtype)
    x, y = torch.meshgrid(held, held, indexing="ij")
    result, expected = numerics.nextafter(x, y), torch.nextafter(x, y)
    assert result.dtype is dtype
    assert torch.equal(result.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert torch.equal(result.isnan(), expected.isnan())


def test_mode():
    x = torch.randint(0, 4, (2, 9, 12), generator=torch.Generator().manual_seed(0))
    for dim, keepdim in itertools.product((-1, 0, 1), (False, True)):
        same(sort.mode(x, dim, keepdim), x.mode(dim, keepdim), 0)
    assert torch.equal(sort.mode(x > 1, 1)[0], (x > 1).mode(1)[0])


@pytest.mark.parametrize(("kernel", "size"), [([2, 3], [4, 3]), ([2, 2], [1, 7]), ([2, 3, 2], [4, 3, 1])])
def test_fractional_max_pooling(kernel, size):
    rank = len(kernel)
    x, samples = torch.randn(2, 3, *(9, 8, 7)[:rank]), torch.rand(2, 3, rank)
    x[(0, 0, *[3] * rank)] = torch.nan
    pool = getattr(aten, f"fractional_max_pool{rank}d")
    same(windows.fractional_maximum(x, kernel, size, samples), pool(x, kernel, size, samples), 0)
    same(windows.fractional_maximum(x[1], kernel, size, samples[1:]), pool(x[1], kernel, size, samples[1:]), 0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 50.0])
def test_exponentials_of_matrices(scale):
    x = scale * torch.randn(3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.matrix_exp(x)
    assert torch.allclose(matrices.matrix_exp(x), expected, rtol=1e-11, atol=1e-11 * float(expected.abs().max()))


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5), (1, 1), (3, 1)])
@pytest.mark.parametrize("zeros", [False, True])
def test_reflections_are_those_of_lapack(shape, zeros):
    matrix = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = matrix.triu() if zeros else matrix
    normals, factors = torch.geqrf(matrix)
    same(matrices.geqrf(matrix), (normals, factors), 1e-12)
    for left, transpose in itertools.product((False, True), repeat=2):
        other = torch.ones(*shape[:-2], *((shape[-2], 2) if left else (2, shape[-2])), dtype=torch.float64)
        options = other, left, transpose
        same([matrices.ormqr(normals, factors, *options)], [torch.ormqr(normals, factors, *options)], 1e-12)
    if shape[-2] >= shape[-1]:
        expected = torch.linalg.householder_product(normals, factors)
        same([matrices.householder_product(normals, factors)], [expected], 1e-12)


def test_operands_of_two_types_are_those_of_the_result(tmp_path):
    def mixed(a, b, c):
        clamped = [a.clamp(b - 3, b), c.clamp(min=a), c.clamp(max=a)]
        return [torch.maximum(a, b), torch.minimum(b, c), torch.max(a, c), torch.pow(a, c), *clamped]

    tensors = torch.arange(4, dtype=torch.int32), torch.arange(4) + 1, torch.rand(4)
    assert tenonnx_torch.export(Apply(mixed), tensors, tmp_path / "m.onnx", opset_version=13).passed


# ----- Bessel and Airy functions --------------------------------------------------------------------------------------

BESSEL = {
    bessel.j0: torch.special.bessel_j0,
    bessel.j1: torch.special.bessel_j1,
    bessel.y0: torch.special.bessel_y0,
    bessel.y1: torch.special.bessel_y1,
    bessel.k0: torch.special.modified_bessel_k0,
    bessel.k1: torch.special.modified_bessel_k1,
    bessel.scaled_k0: torch.special.scaled_modified_bessel_k0,
    bessel.scaled_k1: torch.special.scaled_modified_bessel_k1,
    bessel.spherical_j0: torch.special.spherical_bessel_j0,
    bessel.airy: torch.special.airy_ai,
}


@pytest.mark.parametrize("function", BESSEL, ids=lambda f: f.__name__)
def test_bessel_functions_are_those_of_pytorch_on_the_line(function):
    wide = torch.linspace(-40, 40, 4001, dtype=torch.float64)
    edges = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-6, 300.0], dtype=torch.float64)
    x = torch.cat([wide, edges])
    assert torch.allclose(function(x), BESSEL[function](x), rtol=1e-8, atol=1e-9, equal_nan=True)


# ----- bugs of the exporter -------------------------------------------------------------------------------------------

LOWEST = float("-inf")
NOTHING = torch.tensor([[False] * 4, [True] * 4, [False, True, True, False]])
SHUT = torch.where(NOTHING, 0.0, LOWEST)


@pytest.mark.parametrize("mask", [NOTHING, SHUT], ids=["booleans", "floats"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_a_fully_masked_query_results_in_0(mask, scale, tmp_path):
    def attend(query, key, mask):
        return functional.scaled_dot_product_attention(query, key, key, mask, scale=scale, enable_gqa=True)

    tensors = torch.rand(2, 4, 3, 8), torch.rand(2, 2, 4, 8), mask
    assert not attend(*tensors)[:, :, 0].any()
    assert tenonnx_torch.export(Apply(attend), tensors, tmp_path / "m.onnx", opset_version=13).passed


def test_any_of_a_batch_that_is_empty_is_false():
    graph = tx.load(Apply(lambda x: (x.any(0), x.any(), x.all(0))), torch.rand(2, 3), dims={"inputs_0": {0: "n"}})
    result = graph.run({graph.inputs[0].name: torch.rand(0, 3).numpy()})
    assert [each.tolist() for each in result.values()] == [[False] * 3, False, [True] * 3]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.vander(x[0], 4, increasing=True),
        lambda x: functional.multilabel_margin_loss(x, torch.tensor([[1, 2, -1, 0]] * 3)),
        lambda x: x.put(torch.tensor([3, 0]), torch.ones(2)),
        lambda x: torch.argwhere(x > 0.5),
        lambda x: torch.triu(x > 0.5, 1),
    ],
    ids=["vander", "multilabel_margin_loss", "put", "argwhere", "triangle of booleans"],
)
def test_operations_that_the_exporter_gets_wrong_are_right(function, tmp_path):
    assert tenonnx_torch.export(Apply(function), torch.rand(3, 4), tmp_path / "m.onnx", opset_version=13).passed


def test_embedding_bags_of_other_sizes_do_not_end_the_process(tmp_path):
    bags = torch.nn.EmbeddingBag(10, 4, mode="mean", padding_idx=2, include_last_offset=True).eval()
    tensors, dims = (torch.tensor([1, 2, 4, 5]), torch.tensor([0, 3, 3, 4])), {"input": {0: "n"}, "offsets": {0: "m"}}
    assert tenonnx_torch.export(bags, tensors, tmp_path / "m.onnx", dims=dims).passed


# ----- complex intermediate results -----------------------------------------------------------------------------------

COMPLEX = {
    "numbers": lambda x: torch.view_as_real(2 + torch.complex(x, -x) * 3 - 1j),
    "a number times real ones": lambda x: torch.view_as_real(x * 1j - 1),
    "real ones times complex ones": lambda x: (torch.complex(x, x) + x).abs() + (x * torch.complex(x, x)).angle(),
    "axes": lambda x: torch.view_as_real(torch.complex(x, -x)[:, 0, None].expand(-1, 2).unsqueeze(-1).repeat(2, 1, 1)),
    "stacked": lambda x: torch.view_as_real(torch.stack([torch.complex(x, -x), x.to(torch.complex64)]).reshape(-1)),
    "powers": lambda x: torch.view_as_real(torch.fft.fft(x) ** 3 + torch.zeros(4, dtype=torch.complex64)),
    "roots": lambda x: torch.view_as_real((torch.complex(x, x - 1) ** 0.5).log() + torch.complex(x, x).exp().sqrt()),
    "a choice": lambda x: torch.view_as_real(torch.where(x > 0, torch.complex(x, x), 1j * x)),
    "matrices": lambda x: torch.view_as_real(torch.complex(x, x) @ torch.complex(x.t(), x.t() * 2)),
    "conjugates": lambda x: (
        torch.complex(x, x).conj().imag + torch.view_as_real(torch.complex(x, x).mT.conj().resolve_conj())[..., 1].T
    ),
    "rotations": lambda x: torch.view_as_real(
        torch.view_as_complex(x.reshape(-1, 2, 2)) * torch.polar(torch.ones(1, 2), torch.arange(2.0)[None])
    ).flatten(1),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_inside_are_those_of_pytorch_at_any_size(name, tmp_path):
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    dims = {"inputs_0": {0: "n"}}
    assert tenonnx_torch.export(Apply(COMPLEX[name]), x, tmp_path / "m.onnx", opset_version=13, dims=dims).passed
