"""Ragged tensors, given by row starts: conversion to sparse and dense tensors."""

from __future__ import annotations

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import constant, dtypes, op, shapes
from tenonnx_extensions.checks import DOMAIN

_ZERO, _ONE = np.int64(0), np.int64(1)


def _lengths(splits):
    return ops.sub(ops.slice_(splits, [1], [2**62], [0]), ops.slice_(splits, [0], [-1], [0]))


def _longest(splits):
    return ops.reduce_max(ops.concat(_lengths(splits), constant(np.zeros(1, np.int64)), axis=0), keepdims=0)


@op("RaggedTensorToSparse", domain=DOMAIN)
def ragged_tensor_to_sparse(n_element):
    """Row and column indices of the elements of a ragged tensor, and its shape; ``n_element`` has the row bounds."""
    columns = ops.range_(constant(_ZERO), _longest(n_element), constant(_ONE))
    lengths = _lengths(n_element)
    places = ops.transpose(ops.non_zero(ops.less(columns, ops.unsqueeze(lengths, [1]))), perm=[1, 0])
    return places, ops.concat(ops.shape(lengths), ops.unsqueeze(_longest(n_element), [0]), axis=0)


ragged_tensor_to_sparse.requires(dtypes(n_element="int64"), shapes(n_element="size"))


@op("RaggedTensorToDense", domain=DOMAIN)
def ragged_tensor_to_dense(unused, values, missing, n_element, *, missing_value=-1, tensor_type=""):
    """A ragged tensor as a matrix padded with ``missing``; ``n_element`` has the row starts and the end.

    ``unused`` and the attributes have no effect, as in the runtime's library.
    """
    columns = ops.range_(constant(_ZERO), _longest(n_element), constant(_ONE))
    starts = ops.unsqueeze(ops.slice_(n_element, [0], [-1], [0]), [1])
    exists = ops.less(columns, ops.unsqueeze(_lengths(n_element), [1]))
    end = ops.shape(values)
    places = ops.where(exists, ops.add(columns, starts), end)
    return ops.gather(ops.concat(values, ops.reshape(missing, [1]), axis=0), places)


ragged_tensor_to_dense.requires(
    dtypes(unused="int64", values="int64 string", missing="int64 string", n_element="int64"),
    shapes(values="count", n_element="size"),
)


@op("StringRaggedTensorToDense", domain=DOMAIN)
def string_ragged_tensor_to_dense(unused, values, n_element, missing):
    """A ragged tensor of strings as a matrix padded with ""; ``n_element`` has the row starts and the end.

    ``unused`` and ``missing`` have no effect, as in the runtime's library.
    """
    return ragged_tensor_to_dense(unused, values, constant(np.array([""], object)), n_element)


string_ragged_tensor_to_dense.requires(
    dtypes(unused="int64", values="string", n_element="int64", missing="string"),
    shapes(values="count", n_element="size"),
)
