"""Lowerings of matrix products to each other."""

from __future__ import annotations

import string

import numpy as np

import tenonnx_standard as ops
from tenonnx_standard.lowerings.registry import (
    count,
    cut,
    joined,
    like,
    lowering,
    not_of_half,
    of_floats,
    reshaped,
    sizes,
    unless,
)


@lowering(ops.matmul)
def matmul_by_gemm(A, B):
    """For two matrices, or a batch of matrices and one matrix."""
    of_floats(A)
    unless(B.rank != 2 or A.rank < 2)
    if A.rank == 2:
        return ops.gemm(A, B)
    inner, columns = B.shape
    flat = ops.gemm(ops.reshape(A, [-1, _known(inner)]), B)
    return reshaped(flat, (*A.shape[:-1], columns))


def _known(dim):
    unless(not isinstance(dim, int))
    return dim


@lowering(ops.matmul)
def matmul_of_vectors(A, B):
    unless(A.rank != 1 and B.rank != 1)
    a, b = A, B
    if A.rank == 1:
        a = reshaped(A, (1, *A.shape))
    if B.rank == 1:
        b = reshaped(B, (*B.shape, 1))
    dims = [*(A.shape[:-1] if B.rank == 1 else ()), *(B.shape[:-2] + B.shape[-1:] if A.rank == 1 < B.rank else ())]
    return reshaped(ops.matmul(a, b), dims)


@lowering(ops.matmul)
def matmul_by_slices(A, B):
    """One product per matrix of the batch."""
    a, b = sizes(A), sizes(B)
    unless(min(len(a), len(b)) < 2 or max(len(a), len(b)) < 3)
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    pieces = count(batch)
    unless(pieces == 1 and len(a) == len(b) == 2)
    products = []
    for place in np.ndindex(*batch):
        one, other = _matrix(A, a, place), _matrix(B, b, place)
        products.append(reshaped(ops.matmul(one, other), (1, a[-2], b[-1])))
    return reshaped(joined(products, 0), (*batch, a[-2], b[-1]))


def _matrix(value, dims, place):
    """The matrix at an index of the broadcast batch."""
    own = place[len(place) - len(dims) + 2 :]
    own = tuple(0 if dim == 1 else index for index, dim in zip(own, dims[:-2], strict=True))
    if len(dims) == 2:
        return value
    flat = reshaped(value, (-1, *dims[-2:]))
    index = int(np.ravel_multi_index(own, dims[:-2]))
    return reshaped(cut(flat, 0, index, index + 1), dims[-2:])


@lowering(ops.matmul)
def matmul_by_conv(A, B):
    """A pointwise convolution, whose weights are the matrix."""
    of_floats(A)
    unless(B.rank != 2 or A.rank < 2)
    inner, columns = map(_known, B.shape)
    weights = reshaped(ops.transpose(B, perm=[1, 0]), (columns, inner, 1, 1))
    flat = ops.conv(ops.reshape(A, [-1, inner, 1, 1]), weights)
    return reshaped(flat, (*A.shape[:-1], columns))


@lowering(ops.matmul)
def matmul_by_conv_of_transposed(A, B):
    """As ``matmul_by_conv``, for a batch of matrices, without a Reshape."""
    of_floats(A)
    unless(B.rank != 2 or A.rank != 3)
    weights = ops.unsqueeze(ops.transpose(B, perm=[1, 0]), [2])
    return ops.transpose(ops.conv(ops.transpose(A, perm=[0, 2, 1]), weights), perm=[0, 2, 1])


@lowering(ops.matmul, "rounding")
def matmul_by_products(A, B):
    """Sums of elementwise products."""
    of_floats(A)
    unless(min(A.rank, B.rank) < 2)
    product = ops.mul(ops.unsqueeze(A, [-1]), ops.unsqueeze(B, [-3]))
    return ops.reduce_sum(product, [-2], keepdims=0)


@lowering(ops.matmul)
def matmul_by_einsum(A, B):
    unless(min(A.rank, B.rank) < 2 or len(A.shape[:-2]) != len(B.shape[:-2]) or A.shape[:-2] != B.shape[:-2])
    batch = string.ascii_lowercase[: A.rank - 2]
    return ops.einsum(A, B, equation=f"{batch}xy,{batch}yz->{batch}xz")


@lowering(ops.gemm, "rounding")
def gemm_of_plain_matrices(A, B, C, *, alpha, beta, transA, transB):
    """Transpose, scale and add the bias by separate ops."""
    unless(not (transA or transB or alpha != 1 or C is not None))
    if alpha != 1:
        not_of_half(A)
    a = ops.transpose(A, perm=[1, 0]) if transA else A
    b = ops.transpose(B, perm=[1, 0]) if transB else B
    product = ops.gemm(a, b)
    product = product if alpha == 1 else ops.mul(product, like(A, alpha))
    if C is None:
        return product
    return ops.add(product, C if beta == 1 else ops.mul(C, like(A, beta)))


@lowering(ops.einsum, "rounding")
def einsum_by_products(*Inputs, equation):
    """Sums of elementwise products over the axes of all terms."""
    of_floats(*Inputs)
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    unless(len(terms) != 2 or not arrow or "." in equation or any(len(set(term)) < len(term) for term in terms))
    labels = wanted + "".join(sorted(set(given) - set(wanted) - {","}))
    factors = []
    for value, term in zip(Inputs, terms, strict=True):
        order = sorted(range(len(term)), key=lambda axis, term=term: labels.index(term[axis]))
        moved = value if order == sorted(order) else ops.transpose(value, perm=order)
        absent = [place for place, label in enumerate(labels) if label not in term]
        factors.append(ops.unsqueeze(moved, absent) if absent else moved)
    product, summed = ops.mul(*factors), list(range(len(wanted), len(labels)))
    return ops.reduce_sum(product, summed, keepdims=0) if summed else product


@lowering(ops.transpose, "finite")
def transpose_by_gemm(data, *, perm):
    of_floats(data)
    rows, _columns = sizes(data) if data.rank == 2 else (None, None)
    unless(rows is None or list(perm or (1, 0)) != [1, 0])
    return ops.gemm(data, like(data, np.eye(rows)), transA=1)


@lowering(ops.transpose)
def transpose_by_einsum(data, *, perm):
    letters = string.ascii_lowercase[: data.rank]
    order = perm or range(data.rank)[::-1]
    return ops.einsum(data, equation=f"{letters}->{''.join(letters[axis] for axis in order)}")


@lowering(ops.det, "finite")
def det_of_two_rows(X):
    of_floats(X)
    unless(sizes(X)[-2:] != (2, 2))
    rows = [cut(X, X.rank - 2, place, place + 1) for place in range(2)]
    (a, b), (c, d) = ([cut(row, X.rank - 1, place, place + 1) for place in range(2)] for row in rows)
    return ops.squeeze(ops.sub(ops.mul(a, d), ops.mul(b, c)), [X.rank - 2, X.rank - 1])
