"""Linear algebra on matrices of static size: unrolled elimination."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _steps(matrix: Tensor) -> range:
    """Steps of an elimination. Raises ``NotImplementedError`` for a dynamic size, or more than 64 steps."""
    size = matrix.shape[-1]
    if not isinstance(size, int) or size > 64:
        raise NotImplementedError("matrices have a dynamic size, or one above 64")
    return range(size)


def _no_errors(matrix: Tensor) -> Tensor:
    return torch.zeros(matrix.shape[:-2], dtype=torch.int32)


def _eliminate(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Solve ``matrix @ x = right`` by Gauss-Jordan elimination with partial pivoting; returns it and signed pivots."""
    both = torch.cat([matrix, right], -1)
    rows = torch.arange(matrix.shape[-1])
    pivots = []
    for k in _steps(matrix):
        sizes = torch.where(rows >= k, both[..., k].abs(), -1.0)
        chosen = (rows == sizes.argmax(-1, keepdim=True)).to(both.dtype)
        row = (chosen.unsqueeze(-1) * both).sum(-2, keepdim=True)
        swapped = torch.where(chosen.unsqueeze(-1) > 0, both[..., k : k + 1, :], both)
        pivot = row[..., k : k + 1]
        sign = 2 * chosen[..., k] - 1
        pivots.append(pivot[..., 0, 0] * sign)
        row = row / pivot
        reduced = swapped - swapped[..., k : k + 1] * row
        both = torch.where((rows == k).unsqueeze(-1), row, reduced)
    ends = torch.stack(pivots, -1) if pivots else both.new_ones((*matrix.shape[:-2], 0))
    return both[..., matrix.shape[-1] :], ends


def inverse(matrix: Tensor, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype).expand(matrix.shape)
    return _eliminate(matrix, unit)[0], _no_errors(matrix)


def solve(
    matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The solution, with unusable placeholders for the factors."""
    vector = right.ndim == 1 or right.shape == matrix.shape[:-1]
    matrix, given = (matrix, right) if left else (matrix.mT, right.mT)
    given = given.unsqueeze(-1) if vector else given
    batch = torch.broadcast_shapes(matrix.shape[:-2], given.shape[:-2])
    given = given.expand(*batch, *given.shape[-2:])
    found, _ = _eliminate(matrix.expand(*batch, *matrix.shape[-2:]), given)
    found = found.squeeze(-1) if vector else found
    places = torch.zeros(matrix.shape[:-1], dtype=torch.int32)
    return found if left else found.mT, matrix, places, _no_errors(matrix)


def slogdet(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, pivots = _eliminate(matrix, matrix[..., :0])
    sizes = pivots.abs().log().sum(-1)
    return pivots.sign().prod(-1), sizes, matrix, torch.zeros(matrix.shape[:-1], dtype=torch.int32)


def cholesky(matrix: Tensor, upper: bool = False) -> Tensor:
    """Cholesky factor, column by column; only the lower (or upper) triangle of the input is read."""
    left = matrix.mT if upper else matrix
    rows = torch.arange(matrix.shape[-1])
    columns = []
    for k in _steps(matrix):
        root = left[..., k : k + 1, k].sqrt()
        column = torch.where(rows >= k, left[..., k] / root, 0.0)
        columns.append(column)
        left = left - column.unsqueeze(-1) * column.unsqueeze(-2)
    result = torch.stack(columns, -1) if columns else matrix
    return result.mT if upper else result


def cholesky_ex(matrix: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    return cholesky(matrix, upper), _no_errors(matrix)


def solve_triangular(
    matrix: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    triangle = matrix.triu() if upper else matrix.tril()
    if unitriangular:
        unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
        triangle = triangle * (1 - unit) + unit
    if not left:
        return solve_triangular(triangle.mT, right.mT, upper=not upper).mT
    rows = torch.arange(matrix.shape[-1])
    batch = torch.broadcast_shapes(triangle.shape[:-2], right.shape[:-2])
    result = right.expand(*batch, *right.shape[-2:])
    for k in reversed(_steps(matrix)) if upper else _steps(matrix):
        row = result[..., k : k + 1, :] / triangle[..., k : k + 1, k : k + 1]
        result = torch.where((rows == k).unsqueeze(-1), row, result - triangle[..., k : k + 1] * row)
    return result


def triangular_solve(
    right: Tensor, matrix: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    triangle = matrix.mT if transpose else matrix
    result = solve_triangular(triangle, right, upper=upper != transpose, unitriangular=unitriangular)
    return result, matrix.expand([*result.shape[:-2], *matrix.shape[-2:]]).clone()


def cholesky_solve(right: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    half = solve_triangular(lower, right, upper=False)
    return solve_triangular(lower.mT, half, upper=True)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    return cholesky_solve(torch.eye(factor.shape[-1], dtype=factor.dtype), factor, upper)


# ----- factors --------------------------------------------------------------------------------------------------------


def _swapped(matrix: Tensor, k: int, place: Tensor) -> Tensor:
    """Swap row ``k`` with row ``place``, for each matrix of a batch."""
    rows = torch.arange(matrix.shape[-2])
    chosen = (rows == place.unsqueeze(-1)).unsqueeze(-1)
    row = torch.where(chosen, matrix, 0.0).sum(-2, keepdim=True)
    other = torch.where(chosen, matrix[..., k : k + 1, :], matrix)
    return torch.where((rows == k).unsqueeze(-1), row, other)


def lu_factor(matrix: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Both triangles in one matrix, and the pivot rows, counted from 1, of each step."""
    _steps(matrix)
    rows, columns, both = torch.arange(matrix.shape[-2]), torch.arange(matrix.shape[-1]), matrix
    places = []
    for k in range(min(matrix.shape[-2:])):
        sizes = torch.where(rows >= k, both[..., k].abs(), -1.0)
        place = sizes.argmax(-1) if pivot else torch.full(matrix.shape[:-2], k)
        places.append(place + 1)
        both = _swapped(both, k, place)
        row = both[..., k : k + 1, :]
        share = both[..., k : k + 1] / row[..., k : k + 1]
        below = (rows > k).unsqueeze(-1)
        both = torch.where(below & (columns > k), both - share * row, torch.where(below & (columns == k), share, both))
    exchanged = torch.stack(places, -1) if places else torch.zeros((*matrix.shape[:-2], 0))
    return both, exchanged.to(torch.int32), _no_errors(matrix)


def _permutation(places: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    found = torch.eye(size, dtype=dtype).expand(*places.shape[:-1], size, size)
    for k in range(places.shape[-1]):
        found = _swapped(found, k, places[..., k].to(torch.int64) - 1)
    return found.mT


def lu_unpack(both: Tensor, places: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Tensor, ...]:
    """The permutation, and the lower and upper triangle."""
    size = min(both.shape[-2:])
    nothing = both.new_zeros(0)
    unit = torch.eye(both.shape[-2], size, dtype=both.dtype)
    triangles = (both[..., :size].tril(-1) + unit, both[..., :size, :].triu()) if unpack_data else (nothing, nothing)
    return (_permutation(places, both.shape[-2], both.dtype) if unpack_pivots else nothing, *triangles)


def lu(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, ...]:
    both, places, _ = lu_factor(matrix, pivot=pivot)
    return lu_unpack(both, places, unpack_pivots=pivot)


def lu_solve(both: Tensor, places: Tensor, right: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    permutation, lower, upper = lu_unpack(both, places)
    if adjoint or not left:
        whole = permutation @ lower @ upper
        return solve(whole.mT if adjoint else whole, right, left=left)[0]
    half = solve_triangular(lower, permutation.mT @ right, upper=False, unitriangular=True)
    return solve_triangular(upper, half, upper=True)


def geqrf(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """QR factors in LAPACK's format: R in the upper triangle, Householder vectors below, and scalar factors."""
    _steps(matrix)
    rows, columns, product, factors = torch.arange(matrix.shape[-2]), torch.arange(matrix.shape[-1]), matrix, []
    for k in range(min(matrix.shape[-2:])):
        column, first = product[..., k], product[..., k : k + 1, k]
        rest = torch.where(rows > k, column, 0.0).square().sum(-1, keepdim=True)
        norm = torch.where(rest > 0, (first.square() + rest).sqrt(), first.abs())
        end = torch.where(rest > 0, torch.where(first < 0, norm, -norm), first)
        factor = torch.where(rest > 0, (end - first) / torch.where(rest > 0, end, 1.0), 0.0)
        below = torch.where(rows > k, column / torch.where(rest > 0, first - end, 1.0), 0.0)
        normal = (below + (rows == k).to(matrix.dtype)).unsqueeze(-1)
        turned = product - factor.unsqueeze(-1) * normal * (normal.mT @ product)
        shown = torch.where((rows > k).unsqueeze(-1), normal, turned)
        product = torch.where(columns > k, turned, torch.where(columns == k, shown, product))
        factors.append(factor[..., 0])
    return product, torch.stack(factors, -1) if factors else matrix.new_zeros((*matrix.shape[:-2], 0))


def ormqr(normals: Tensor, factors: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """A matrix times the product of Householder reflections."""
    if not left:
        return ormqr(normals, factors, other.mT, transpose=not transpose).mT
    _steps(normals)
    rows, order = torch.arange(normals.shape[-2]), range(factors.shape[-1])
    for k in order if transpose else reversed(order):
        normal = torch.where(rows > k, normals[..., k], (rows == k).to(normals.dtype)).unsqueeze(-1)
        other = other - factors[..., k, None, None] * normal * (normal.mT @ other)
    return other


def householder_product(normals: Tensor, factors: Tensor, width: int | None = None) -> Tensor:
    unit = torch.eye(normals.shape[-2], normals.shape[-1] if width is None else width, dtype=normals.dtype)
    return ormqr(normals, factors, unit.expand(*normals.shape[:-2], *unit.shape))


def qr(matrix: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    size = matrix.shape[-2] if mode == "complete" else min(matrix.shape[-2:])
    normals, factors = geqrf(matrix)
    orthogonal = matrix.new_zeros(0) if mode == "r" else householder_product(normals, factors, size)
    return orthogonal, normals[..., :size, :].triu()


def matrix_exp(matrix: Tensor) -> Tensor:
    """Matrix exponential by scaling and squaring: a Taylor sum of the matrix with a norm below 1/2; for any size.

    The number of squarings is limited by the digits of the dtype; beyond it no digit would be right.
    """
    halvings = -round(math.log2(torch.finfo(matrix.dtype).eps))
    norm = matrix.abs().sum(-1, keepdim=True).amax(-2, keepdim=True) if matrix.numel() else matrix
    count = (norm.clamp(min=0.5).log2() + 1).ceil().clamp(max=halvings)
    small = matrix * torch.exp2(-count)
    unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    result: Tensor = unit + small / _TERMS
    for k in reversed(range(1, _TERMS)):
        result = unit + small @ result / k
    for k in range(halvings):
        result = torch.where(count > k, result @ result, result)
    return result


#: Number of terms that is exact to the last digit of float64.
_TERMS = 14


#: Functions by operator, including checked variants, whose check PyTorch makes itself.
MATRICES: Mapping[Any, Callable[..., Any]] = {
    aten.linalg_inv.default: lambda matrix: inverse(matrix)[0],
    aten.inverse.default: lambda matrix: inverse(matrix)[0],
    aten.linalg_solve.default: lambda matrix, right, *, left=True: solve(matrix, right, left=left)[0],
    aten.linalg_cholesky.default: lambda matrix, *, upper=False: cholesky(matrix, upper),
    aten.linalg_inv_ex.default: inverse,
    aten._linalg_solve_ex.default: solve,
    aten._linalg_slogdet.default: slogdet,
    aten.linalg_cholesky_ex.default: cholesky_ex,
    aten.cholesky.default: cholesky,
    aten.cholesky_solve.default: cholesky_solve,
    aten.cholesky_inverse.default: cholesky_inverse,
    aten.linalg_solve_triangular.default: solve_triangular,
    aten.triangular_solve.default: triangular_solve,
    aten.linalg_lu_factor_ex.default: lu_factor,
    aten.linalg_lu_factor.default: lambda matrix, *, pivot=True: lu_factor(matrix, pivot=pivot)[:2],
    aten.linalg_lu.default: lu,
    aten.lu_unpack.default: lu_unpack,
    aten.linalg_lu_solve.default: lu_solve,
    aten.lu_solve.default: lambda right, both, places: lu_solve(both, places, right),
    aten.linalg_qr.default: qr,
    aten.geqrf.default: geqrf,
    aten.ormqr.default: ormqr,
    aten.linalg_householder_product.default: householder_product,
    aten.orgqr.default: householder_product,
    aten.linalg_matrix_exp.default: matrix_exp,
    aten.matrix_exp.default: matrix_exp,
    aten.qr.default: lambda matrix, some=True: qr(matrix, "reduced" if some else "complete"),
}
