"""Linear algebra on matrices of a size that is known when a module is traced: elimination step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _steps(matrix: Tensor) -> range:
    """The steps of an elimination. Raises ``NotImplementedError`` where the size varies, or there would be too many."""
    size = matrix.shape[-1]
    if not isinstance(size, int) or size > 64:
        raise NotImplementedError("matrices must have a size that does not vary, of 64 at most")
    return range(size)


def _no_problem(matrix: Tensor) -> Tensor:
    return torch.zeros(matrix.shape[:-2], dtype=torch.int32)


def _eliminated(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """What solves ``matrix @ x = right`` by Gauss and Jordan by the largest pivots, and these with their sign."""
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
    return _eliminated(matrix, unit)[0], _no_problem(matrix)


def solution(
    matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The solution, and in the place of the factors nothing that could be used."""
    vector = right.ndim == 1 or right.shape == matrix.shape[:-1]
    matrix, given = (matrix, right) if left else (matrix.mT, right.mT)
    given = given.unsqueeze(-1) if vector else given
    batch = torch.broadcast_shapes(matrix.shape[:-2], given.shape[:-2])
    given = given.expand(*batch, *given.shape[-2:])
    found, _ = _eliminated(matrix.expand(*batch, *matrix.shape[-2:]), given)
    found = found.squeeze(-1) if vector else found
    places = torch.zeros(matrix.shape[:-1], dtype=torch.int32)
    return found if left else found.mT, matrix, places, _no_problem(matrix)


def sign_and_logarithm(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, pivots = _eliminated(matrix, matrix[..., :0])
    sizes = pivots.abs().log().sum(-1)
    return pivots.sign().prod(-1), sizes, matrix, torch.zeros(matrix.shape[:-1], dtype=torch.int32)


def cholesky(matrix: Tensor, upper: bool = False) -> Tensor:
    """Column by column; of the input only the lower triangle counts, or the upper."""
    left = matrix.mT if upper else matrix
    rows = torch.arange(matrix.shape[-1])
    columns = []
    for k in _steps(matrix):
        root = left[..., k : k + 1, k].sqrt()
        column = torch.where(rows >= k, left[..., k] / root, 0.0)
        columns.append(column)
        left = left - column.unsqueeze(-1) * column.unsqueeze(-2)
    found = torch.stack(columns, -1) if columns else matrix
    return found.mT if upper else found


def cholesky_and_state(matrix: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    return cholesky(matrix, upper), _no_problem(matrix)


def triangular_solution(
    matrix: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    held = matrix.triu() if upper else matrix.tril()
    if unitriangular:
        unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
        held = held * (1 - unit) + unit
    if not left:
        return triangular_solution(held.mT, right.mT, upper=not upper).mT
    rows = torch.arange(matrix.shape[-1])
    batch = torch.broadcast_shapes(held.shape[:-2], right.shape[:-2])
    found = right.expand(*batch, *right.shape[-2:])
    for k in reversed(_steps(matrix)) if upper else _steps(matrix):
        row = found[..., k : k + 1, :] / held[..., k : k + 1, k : k + 1]
        found = torch.where((rows == k).unsqueeze(-1), row, found - held[..., k : k + 1] * row)
    return found


def solution_by_cholesky(right: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    half = triangular_solution(lower, right, upper=False)
    return triangular_solution(lower.mT, half, upper=True)


def inverse_by_cholesky(factor: Tensor, upper: bool = False) -> Tensor:
    return solution_by_cholesky(torch.eye(factor.shape[-1], dtype=factor.dtype), factor, upper)


#: By operator, its function. Those that check what they found are here, too, as PyTorch has such a check raise.
MATRICES: Mapping[Any, Callable[..., Any]] = {
    aten.linalg_inv.default: lambda matrix: inverse(matrix)[0],
    aten.inverse.default: lambda matrix: inverse(matrix)[0],
    aten.linalg_solve.default: lambda matrix, right, *, left=True: solution(matrix, right, left=left)[0],
    aten.linalg_cholesky.default: lambda matrix, *, upper=False: cholesky(matrix, upper),
    aten.linalg_inv_ex.default: inverse,
    aten._linalg_solve_ex.default: solution,
    aten._linalg_slogdet.default: sign_and_logarithm,
    aten.linalg_cholesky_ex.default: cholesky_and_state,
    aten.cholesky.default: cholesky,
    aten.cholesky_solve.default: solution_by_cholesky,
    aten.cholesky_inverse.default: inverse_by_cholesky,
    aten.linalg_solve_triangular.default: triangular_solution,
}
