"""Einsum, expressed by transposition, reduction and matrix products."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import TypeMismatch, Value, constant, dims, op, same_dtype
from tenonnx_standard.checking import counted
from tenonnx_standard.constants import range_
from tenonnx_standard.linear_algebra import matmul, size
from tenonnx_standard.logic import equal, where
from tenonnx_standard.reduction import reduce_sum
from tenonnx_standard.shapes import reshape, squeeze, transpose, unsqueeze

#: Subscripts: letters, and numbers for the axes of an ellipsis, counted from the last.
Labels = tuple[Any, ...]


@op("Einsum", since=12)
def einsum(*Inputs, equation: str):
    """Sum the products of elements with equal subscripts over the subscripts that ``equation`` drops.

    Subscripts are letters; those after ``->`` remain, by default those that occur once, in alphabetical order. An
    ellipsis denotes the same number of axes in each term, which broadcast.
    """
    terms, wanted = _parsed(equation, [v.ndim for v in Inputs])
    operands = [_diagonal(x, labels) for x, labels in zip(Inputs, terms, strict=True)]
    x, labels = operands[0]
    for position, (other, others) in enumerate(operands[1:], start=2):
        kept = {*wanted, *(label for _, later in operands[position:] for label in later)}
        x, labels = _contract(x, labels, other, others, kept)
    return _arranged(*_summed(x, labels, set(wanted)), wanted)


# ----- the equation ---------------------------------------------------------------------------------------------------


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The subscripts of every operand and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise TypeMismatch(
            f"{einsum.title}: number of terms in the equation differs from the number of inputs",
            given=f'"{equation}" for {len(ranks)} inputs',
        )
    terms = [_labels(equation, text, rank) for text, rank in zip(texts, ranks, strict=True)]
    dotted = [term for term, text in zip(terms, texts, strict=True) if "..." in text]
    covered = {sum(isinstance(label, int) for label in term) for term in dotted}
    if len(covered) > 1:
        raise TypeMismatch(
            f"{einsum.title}: the ellipsis stands for different numbers of axes",
            given=f'"{equation}" for inputs of rank {", ".join(map(str, ranks))}',
        )
    counts = Counter(label for term in terms for label in term)
    ellipsis = sorted((label for label in counts if isinstance(label, int)), reverse=True)
    if not arrow:
        return terms, (*ellipsis, *sorted(label for label in counts if counts[label] == 1 and isinstance(label, str)))
    before, dots, after = right.partition("...")
    wanted = (*before, *(ellipsis if dots else ()), *after)
    unknown = [label for label in wanted if label not in counts or wanted.count(label) > 1]
    if unknown:
        raise TypeMismatch(
            f"{einsum.title}: an output subscript is in no input, or occurs twice",
            given=f'"{equation}"',
        )
    return terms, wanted


def _labels(equation: str, text: str, rank: int) -> Labels:
    before, dots, after = text.partition("...")
    letters = before + after
    if any(letter not in string.ascii_letters for letter in letters):
        raise TypeMismatch(f"{einsum.title}: a subscript is not a letter", given=f'"{equation}"')
    covered = rank - len(letters)
    if covered < 0 or (covered and not dots):
        raise TypeMismatch(
            f"{einsum.title}: number of letters in a term differs from the rank of its input",
            given=f'"{text}" in "{equation}" for an input of rank {rank}',
        )
    return (*before, *range(covered - 1, -1, -1), *after)


einsum.requires(same_dtype("Inputs"))


# ----- one operand ----------------------------------------------------------------------------------------------------


def _diagonal(x: Value, labels: Labels) -> tuple[Value, Labels]:
    """``x`` without repeated subscripts: the diagonal is masked out and one of the axes summed."""
    for second in range(len(labels) - 1, 0, -1):
        first = labels.index(labels[second])
        if first == second:
            continue
        length = dims(x)[second]
        places = counted(length, "a diagonal") if isinstance(length, int) else range_(0, length, 1)
        rows = reshape(places, [-1 if k == first else 1 for k in range(len(labels))])
        columns = reshape(places, [-1 if k == second else 1 for k in range(len(labels))])
        x = reduce_sum(where(equal(rows, columns), x, constant(np.zeros(()), x.dtype)), [second], keepdims=0)
        labels = labels[:second] + labels[second + 1 :]
    return x, labels


def _summed(x: Value, labels: Labels, kept: set[Any]) -> tuple[Value, Labels]:
    """``x`` summed over the subscripts not in ``kept``."""
    axes = [axis for axis, label in enumerate(labels) if label not in kept]
    if not axes:
        return x, labels
    return reduce_sum(x, axes, keepdims=0), tuple(label for label in labels if label in kept)


def _arranged(x: Value, labels: Labels, wanted: Sequence[Any]) -> Value:
    """``x`` transposed so that its subscripts are in the order of ``wanted``."""
    perm = [labels.index(label) for label in wanted]
    return x if perm == list(range(len(perm))) else transpose(x, perm=perm)


# ----- two operands ---------------------------------------------------------------------------------------------------


def _contract(x: Value, a: Labels, y: Value, b: Labels, kept: set[Any]) -> tuple[Value, Labels]:
    """The product of two operands, summed over the subscripts not in ``kept``."""
    x, a, y, b = *_without_ones(x, a, y, b), *_without_ones(y, b, x, a)
    x, a = _summed(x, a, kept | set(b))
    y, b = _summed(y, b, kept | set(a))
    shared = [label for label in a if label in b and label in kept]
    inner = [label for label in a if label in b and label not in kept]
    left = [label for label in a if label not in b]
    right = [label for label in b if label not in a]
    result = (*shared, *left, *right)
    x = _arranged(x, a, shared + left + inner)
    y = _arranged(y, b, shared + inner + right)
    if not inner:
        return _outer(x, y, len(left), len(right)), result
    product = matmul(_as_matrices(x, len(shared), len(left)), _as_matrices(y, len(shared), len(inner)))
    if len(left) != 1 or len(right) != 1:
        lengths = [
            *dims(product)[: len(shared)],
            *dims(x)[len(shared) : len(a) - len(inner)],
            *dims(y)[len(b) - len(right) :],
        ]
        product = ops.as_shape(product, lengths)
    return product, result


def _outer(x: Value, y: Value, left: int, right: int) -> Value:
    """The outer product of the last ``left`` axes of ``x`` and the last ``right`` axes of ``y``."""
    x = unsqueeze(x, list(range(x.ndim, x.ndim + right))) if right else x
    shared = y.ndim - right
    return x * (unsqueeze(y, list(range(shared, shared + left))) if left and shared else y)


def _as_matrices(x: Value, shared: int, rows: int) -> Value:
    """``x`` with the ``rows`` axes after the shared ones merged into one, and all later axes into another."""
    if rows == 1 and x.ndim == shared + 2:
        return x
    lengths = dims(x)
    return ops.as_shape(x, [*lengths[:shared], size(lengths[shared : shared + rows]), size(lengths[shared + rows :])])


def _without_ones(x: Value, a: Labels, y: Value, b: Labels) -> tuple[Value, Labels]:
    """``x`` without the axes of length 1 that broadcast to axes of ``y``."""
    lengths = dict(zip(b, y.shape, strict=True))
    ones = [
        axis
        for axis, (label, dim) in enumerate(zip(a, x.shape, strict=True))
        if dim == 1 and lengths.get(label, 1) != 1
    ]
    return (squeeze(x, ones), tuple(label for axis, label in enumerate(a) if axis not in ones)) if ones else (x, a)
