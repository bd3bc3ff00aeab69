"""Operations on tensors: arithmetic, comparison, reductions, indexing and assignment, shapes, element types."""

import torch
from torch import nn
from torch.nn import functional

from . import case, function, normal, whole

X = normal(2, 5)

# ----- arithmetic and reductions --------------------------------------------------------------------------------------

function("arithmetic", "bool + bool", lambda x: (x > 0) + (x < -1), X, quick=True)
function("arithmetic", "bool * bool", lambda x: (x > 0) * (x < 1), X)
function("arithmetic", "floor division of integers", lambda x: (x - 5) // 3, whole(9, 2, 4))
function("arithmetic", "remainder", lambda x: x % 1.5, X)
function("arithmetic", "integers and floats", lambda x: x * 2 + torch.arange(5) * 0.5, X, quick=True)
function("arithmetic", "power", lambda x: x.abs() ** 2.5 + 2**x, X)
function("arithmetic", "clamp", lambda x: x.clamp(-0.5, 0.5) + x.clamp_min(0), X)
function(
    "arithmetic",
    "einsum",
    lambda x, y: torch.einsum("bij,bjk->bik", x, y),
    normal(2, 3, 4),
    normal(2, 4, 5),
    dims={0: {0: "b"}, 1: {0: "b"}},
    quick=True,
)
function("arithmetic", "baddbmm", torch.baddbmm, normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5), dims=None)
function("arithmetic", "logsumexp", lambda x: torch.logsumexp(x, 1), X)
function("arithmetic", "variance and deviation", lambda x: (x.var(1), x.std(1, correction=0)), X)
function("arithmetic", "norm", lambda x: (x.norm(dim=1), functional.normalize(x)), X)
function("arithmetic", "all and any", lambda x: ((x > 0).all(1), (x > 2).any()), X)
function("arithmetic", "cumulative sum", lambda x: x.cumsum(1), X, quick=True)
function("arithmetic", "cumulative product", lambda x: x.cumprod(1), X)
function("arithmetic", "product", lambda x: x.prod(1), X)
function("arithmetic", "maximum with place", lambda x: x.max(1), X)
function("arithmetic", "minimum of all", lambda x: x.min(), X)
function("arithmetic", "sort", lambda x: x.sort(1, descending=True), X)
function("arithmetic", "topk", lambda x: x.topk(3, 1), X, quick=True)
function("arithmetic", "argmax", lambda x: x.argmax(1), X)
function("arithmetic", "distance", lambda x: torch.cdist(x, x + 1), X)
function("arithmetic", "inverse trigonometry", lambda x: torch.atan2(x, x.flip(1)) + torch.asin(x.tanh()), X)

# ----- indexing and assignment ----------------------------------------------------------------------------------------


def assigned(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1] = 0
    y[:, 2:4] += 1
    return y


def assigned_by_mask(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[y < 0] = -1.0
    return y


def scattered(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(x.shape[0], 8).scatter_add(1, torch.arange(5).expand(x.shape[0], 5) % 3, x)


function("indexing", "gather", lambda x, i: x.gather(1, i), X, whole(5, 2, 3), dims={0: {0: "b"}, 1: {0: "b"}})
function("indexing", "by a list of places", lambda x: x[:, [3, 0, 3]], X, quick=True)
function("indexing", "by two tensors", lambda x, i, j: x[i, :, j], normal(4, 3, 5), whole(4, 6), whole(5, 6), dims=None)
function("indexing", "by negative numbers and steps", lambda x: x[:, -3:-1] + x[:, ::2][:, :2], X)
function("indexing", "by a mask", lambda x: x[x > 0], X, dims=None)
function("indexing", "nonzero", lambda x: (x > 0).nonzero(), X, dims=None)
function("indexing", "index_select", lambda x: x.index_select(1, torch.tensor([4, 1])), X)
function("indexing", "take_along_dim", lambda x: x.take_along_dim(x.argsort(1), 1), X)
function("indexing", "assignment of slices", assigned, X, quick=True)
function("indexing", "assignment by a mask", assigned_by_mask, X)
function("indexing", "masked_fill", lambda x: x.masked_fill(x > 0, float("-inf")), X)
function("indexing", "scatter_add", scattered, X)
function(
    "indexing",
    "scatter_reduce by mean",
    lambda x, i, y: (x.scatter_reduce(1, i, y, "mean"), x.scatter_reduce(1, i, y, "mean", include_self=False)),
    normal(2, 5),
    whole(5, 2, 3),
    normal(2, 4),
    dims={k: {0: "b"} for k in range(3)},
    quick=True,
)
function(
    "indexing", "index_put by tensors", lambda x: x.index_put((torch.tensor([0, 1]),), torch.ones(5)), X, dims=None
)
function("indexing", "one_hot", lambda i: functional.one_hot(i, 4), whole(4, 3), quick=True)
function("indexing", "searching where", lambda x: torch.where(x > 0, x, 0.1 * x), X)
function("indexing", "triangles", lambda x: x.tril() + x.triu(1), normal(2, 4, 4))

# ----- shapes and element types ---------------------------------------------------------------------------------------

function("shapes", "view by the size of the input", lambda x: x.view(x.shape[0], -1).T, normal(2, 3, 4), quick=True)
function("shapes", "reshape to fewer axes", lambda x: x.reshape(x.shape[0] * 3, 4), normal(2, 3, 4))
function("shapes", "cat and stack", lambda x: (torch.cat([x, x], 1), torch.stack([x, x], 1)), X)
function("shapes", "chunk and split", lambda x: (*x.chunk(2, 1), *x.split([1, 4], 1)), X)
function("shapes", "roll and flip", lambda x: x.roll(2, 1).flip(1), X)
function("shapes", "expand and repeat", lambda x: x[:, None].expand(-1, 3, -1).repeat(1, 2, 1), X)
function(
    "shapes",
    "a mask of the length of the input",
    lambda x: torch.ones(x.shape[1], x.shape[1]).tril() @ x.mT,
    X,
    dims={0: {0: "b", 1: "n"}},
)
function(
    "shapes",
    "a range of the length of the input",
    lambda x: x + torch.arange(x.shape[1]),
    X,
    dims={0: {0: "b", 1: "n"}},
    quick=True,
)
function("shapes", "padding", lambda x: functional.pad(x, (1, 2), value=3.0), X)
function(
    "shapes",
    "grid_sample",
    lambda x, g: functional.grid_sample(x, g, align_corners=False),
    normal(2, 3, 5, 5),
    normal(2, 4, 4, 2),
    dims=None,
)
function("shapes", "pixel_unshuffle", lambda x: functional.pixel_unshuffle(x, 2), normal(2, 3, 4, 4))
function("shapes", "meshgrid", lambda x: torch.stack(torch.meshgrid(x[0], x[1], indexing="ij")), X, dims=None)

function("element types", "float64", lambda x: x.double().exp(), X)
case("element types", "a network of float64", quick=True)(
    lambda: (nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 3), nn.BatchNorm1d(3)).double(), torch.randn(2, 5).double())
)
function("element types", "float16", lambda x: (x.half() * 2).float(), X, quick=True)
function("element types", "bfloat16", lambda x: (x.bfloat16() + 1).float(), X)
function("element types", "integers of 32 bits", lambda x: x.int() * 3 - 1, whole(9, 2, 4))
function("element types", "int8 and uint8", lambda x: (x.to(torch.int8), x.to(torch.uint8)), whole(9, 2, 4))
function("element types", "bits", lambda x: (x & 3) | (x ^ 5), whole(9, 2, 4))
function("element types", "shifts", lambda x: x << 2, whole(9, 2, 4))
function("element types", "from booleans", lambda x: (x > 0).float().sum(1) + (x > 0).sum(1), X)
