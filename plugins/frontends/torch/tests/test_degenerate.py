"""Operations on empty tensors and scalars, and optional outputs of normalizations."""

import numpy as np
import pytest
import torch
from modules import Apply

import tenonnx as tx
import tenonnx_torch
from tenonnx_torch import empty_tensors

OPSETS = [13, 17, 21]
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")

NOTHING = [
    lambda x: x.sum(-1),
    lambda x: x.sum(-2, keepdim=True),
    lambda x: x.sum(),
    lambda x: x.prod(-1),
    lambda x: x.mean(-1),
    lambda x: x.mean(0),
    lambda x: x.mean(),
    lambda x: x.std(-1),
    lambda x: x.var(0, correction=0),
    lambda x: torch.var_mean(x),
    lambda x: torch.std_mean(x, -1),
    lambda x: x.logsumexp(-1),
    lambda x: torch.linalg.vector_norm(x, 1, -1),
    lambda x: torch.linalg.vector_norm(x, 3, -1, keepdim=True),
    lambda x: (x > 0).all(-1),
    lambda x: (x > 0).any(-1),
    lambda x: x.cumsum(-1),
    lambda x: x.sort(),
    lambda x: x.median(),
    lambda x: x.cummax(-1),
    lambda x: torch.cdist(x, x),
]

ALONG_AN_AXIS = [  # the axis must have elements
    lambda x: x.argmax(-1),
    lambda x: x.argmin(-1, keepdim=True),
    lambda x: x.max(-1),
    lambda x: x.min(-1, keepdim=True),
    lambda x: x.amax(-1),
    lambda x: x.aminmax(dim=-1),
    lambda x: x.mode(-1),
]

SCALAR = [
    *NOTHING,
    *ALONG_AN_AXIS,
    lambda x: x.topk(1),
    lambda x: x.kthvalue(1, 0),
    lambda x: x.sort(-1, descending=True),
    lambda x: x.cumprod(0),
    lambda x: x.cummin(0),
    lambda x: x.nanmedian(-1),
    lambda x: x.norm(1, 0),
    lambda x: x.softmax(-1),
]


def possible(functions, *tensors):
    """A module that returns the results of all functions that PyTorch can compute."""

    def found(function):
        try:
            return function(*tensors)
        except (IndexError, RuntimeError):
            return None

    taken = [function for function in functions if found(function) is not None]
    assert len(taken) > 0.7 * len(functions)
    return Apply(lambda *tensors: [function(*tensors) for function in taken])


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), ()], ids=str)
def test_empty_tensors_and_scalars_are_reduced_as_in_pytorch(shape, opset, tmp_path):
    functions = SCALAR if shape == () else [*NOTHING, *(ALONG_AN_AXIS if shape[-1] else [])]
    module = possible(functions, torch.full(shape, 0.7))
    assert tenonnx_torch.export(module, torch.full(shape, 0.7), tmp_path / "m.onnx", opset_version=opset).passed


@pytest.mark.parametrize("correction", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(1,), (1, 3), (2, 3), (0, 2)], ids=str)
def test_variance_without_degrees_of_freedom(shape, correction, tmp_path):
    module = Apply(lambda x: [torch.var_mean(x, 0, correction=correction), x.std(0, correction=correction)])
    example = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert tenonnx_torch.export(module, example, tmp_path / "m.onnx", opset_version=13).passed


PRODUCTS = [
    lambda a, b, c: torch.addmm(a, b, c, beta=0.2, alpha=0.6),
    lambda a, b, c: torch.addmm(a[0], b, c),
    lambda a, b, c: torch.baddbmm(a[None], b[None], c[None], beta=0.2),
    lambda a, b, c: torch.addbmm(a, b[None], c[None], beta=0.2),
    lambda a, b, c: torch.addbmm(a, b.expand(0, *b.shape), c.expand(0, *c.shape), beta=0.2),
    lambda a, b, c: torch.addmv(a[:, 0], b, c[:, 0], beta=0.2),
    lambda a, b, c: b @ c,
    lambda a, b, c: torch.einsum("ij,jk->ik", b, c),
    lambda a, b, c: torch.nn.functional.linear(b, c.T, a[0]),
]


@pytest.mark.parametrize("opset", OPSETS)
def test_products_over_an_inner_size_of_0_are_what_is_added(opset, tmp_path):
    module = possible(PRODUCTS, torch.ones(2, 4), torch.ones(2, 0), torch.ones(0, 4))
    tensors = torch.arange(8.0).reshape(2, 4), torch.ones(2, 0), torch.ones(0, 4)
    assert tenonnx_torch.export(module, tensors, tmp_path / "m.onnx", opset_version=opset).passed


@pytest.mark.parametrize("equation", ["...ij,j...k->...ik", "...i,i...->...", "i...,...ij->...j", "a...,...b"])
def test_ellipses_of_several_ranks(equation, tmp_path):
    first = {"...ij": (5, 3, 2, 4), "...i": (5, 3, 2), "i...": (2,), "a...": (2,)}[equation.partition(",")[0]]
    second = {"j...k": (4, 3, 6), "i...": (2, 3), "...ij": (3, 2, 4), "...b": (3, 4)}[
        equation.partition(",")[2].partition("->")[0]
    ]
    module = Apply(lambda a, b: torch.einsum(equation, a, b))
    tensors = torch.ones(first), torch.ones(second)
    assert tenonnx_torch.export(module, tensors, tmp_path / "m.onnx", opset_version=13).passed


def test_reductions_of_a_batch_that_may_be_empty_count_axes_from_the_first():
    graph = tx.load(Apply(lambda x: [x.sum(-1), x.amax(dim=-1)]), torch.ones(2, 3), dims={0: {0: "batch"}})
    empty = torch.ones(0, 3).numpy()
    result = graph.run({graph.inputs[0].name: empty}, backend="onnxruntime")
    assert [array.shape for array in result.values()] == [(0,), (0,)]


aten = torch.ops.aten
NORMALIZATIONS = {
    "training": lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, True, 0.1, 1e-5),
    "inference": lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5),
    "without running statistics": lambda x, w, b, m, v: aten._native_batch_norm_legit(x, w, b, True, 0.1, 1e-5),
    "with an update": lambda x, w, b, m, v: aten._batch_norm_with_update(x, w, b, m, v, 0.1, 1e-5)[:3],
    "of layers": lambda x, w, b, m, v: aten.native_layer_norm(x, (5,), None, None, 1e-5),
    "of groups": lambda x, w, b, m, v: aten.native_group_norm(x, w, b, 4, 3, 5, 1, 1e-5),
}


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_returned_statistics_are_those_that_the_normalization_used(name, tmp_path):
    generator = torch.Generator().manual_seed(0)
    x, *rest = (torch.rand(shape, generator=generator) for shape in ((4, 3, 5), 3, 3, 3, 3))
    done = tenonnx_torch.export(Apply(NORMALIZATIONS[name]), (x, *rest), tmp_path / "m.onnx", opset_version=17)
    assert done.passed


def test_other_calls_are_unchanged():
    assert (
        empty_tensors.DEGENERATE[aten.addmm.default](torch.ones(2), torch.ones(2, 3), torch.ones(3, 2))
        is NotImplemented
    )
    assert empty_tensors.DEGENERATE[aten.sum.dim_IntList](torch.ones(2), [0]) is NotImplemented
    graph = tx.load(Apply(lambda x: x.var(0)), torch.ones(4, 3))
    assert "Mul" in {node.op_type for node in graph.nodes}


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_nan_is_the_greatest_number_in_order_and_passes_bounds(backend):
    """Order of NaN as in docs/reference/nan.md, on every backend."""

    class Ordered(torch.nn.Module):
        def forward(self, x):
            ordered = x.sort(1, descending=True)[0], x.sort(1)[0], x.topk(2)[0]
            return *ordered, x.clamp(1, 2), torch.maximum(x, x.flip(0)), x.sign(), x.double().sgn(), (-x).half().sign()

    x = torch.tensor([[1, torch.nan, 2], [3, 2, torch.nan], [torch.nan, 1, 2]])
    graph = tx.load(Ordered(), torch.randn(3, 3))
    result = graph.run({graph.inputs[0].name: x.numpy()}, backend=backend).values()
    for got, expected in zip(result, Ordered()(x), strict=True):
        np.testing.assert_array_equal(got, expected.numpy())
