"""Products of arrays with packed weights, unpacked a few columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tenonnx_quantized.formats import unpacked_array

Array = np.ndarray[Any, Any]

#: Number of weights unpacked at a time, which fit into the cache.
_BLOCK = 1 << 18

#: Up to this many rows, products are scaled; for more rows, the weights are.
_FEW = 4


def packed_product(
    quantized: Array, scale: Array, shift: Array | None, group: Array | None, bits: int, block_size: int
) -> Callable[[Array], Array]:
    """A function that multiplies rows by the transpose of the weights ``(quantized - shift) * scale``.

    ``quantized`` is packed, ``[columns, blocks, bytes]``; ``scale`` and ``shift`` are per column and block; ``shift``
    defaults to half of the range. ``group`` has the block index of each weight row if rows are permuted. The product
    has the dtype of ``scale``.
    """
    columns, blocks, _ = quantized.shape
    inner = blocks * block_size
    scalable = group is None and _finite(scale, shift)
    count = max(1, _BLOCK // inner)
    parts = [slice(start, start + count) for start in range(0, columns, count)]

    def product(rows: Array) -> Array:
        left = _by_lane(_padded(rows, inner), blocks, bits)
        y = np.zeros((len(rows), columns), rows.dtype)
        if len(rows) <= _FEW and scalable and _finite(rows):
            for part in parts:
                less = None if shift is None else shift[part]
                _scale_products(left, quantized[part], scale[part], less, bits, y[:, part])
            return y
        beyond = (
            None if inner == rows.shape[1] else _by_lane(np.arange(inner)[None] >= rows.shape[1], blocks, bits)[:, 0]
        )
        groups = None if group is None else _by_lane(_padded(group[None, : rows.shape[1]], inner), blocks, bits)[:, 0]
        for part in parts:
            by, less, result = scale[part], None if shift is None else shift[part], y[:, part]
            for k, weights in enumerate(_lanes(quantized[part], bits, rows.dtype, centered=shift is None)):
                if less is not None:
                    weights -= less[..., None] if groups is None else less[:, groups[k]]
                weights *= by[..., None] if groups is None else by[:, groups[k]]
                if beyond is not None:
                    weights[:, beyond[k]] = 0
                result += left[k].reshape(len(rows), weights[0].size) @ weights.reshape(len(weights), weights[0].size).T
        return y

    return product


def _scale_products(left: Array, quantized: Array, scale: Array, shift: Array | None, bits: int, result: Array) -> None:
    """Multiply by the quantized values of each block, and the products by its scale.

    If a byte has several quantized values, half of the range is subtracted from the products too, which is less work.
    """
    blocks, centered = left.transpose(0, 2, 3, 1), shift is None and _count(bits) == 1
    products: Any = 0
    for k, weights in enumerate(_lanes(quantized, bits, left.dtype, centered=centered)):
        products = products + np.matmul(weights.transpose(1, 0, 2), blocks[k])
    if not centered:
        less = left.dtype.type(1 << bits - 1) if shift is None else shift.T[..., None]
        products -= less * blocks.sum((0, 2))[:, None]
    np.einsum("bnm,nb->mn", products, scale, out=result)


def _lanes(quantized: Array, bits: int, dtype: Any, *, centered: bool) -> Iterator[Array]:
    """Quantized values in the lowest bits of all bytes, then in the next bits, and so on.

    If ``centered``, half of the range is subtracted.
    """
    count = _count(bits)
    packed = unpacked_array(quantized, bits) if count == 1 else quantized
    numbers = np.empty(packed.shape, dtype)
    for k in range(count):
        lane = packed >> np.uint8(k * bits) if k else packed
        lane = lane & np.uint8((1 << bits) - 1) if k < count - 1 else lane
        np.copyto(numbers, (lane - np.uint8(1 << bits - 1)).view(np.int8) if centered else lane)
        yield numbers


def _by_lane(x: Array, blocks: int, bits: int) -> Array:
    """The columns of ``x`` in the order of ``_lanes``: ``[lanes, rows, blocks, bytes]``."""
    parts = _count(bits)
    return np.ascontiguousarray(x.reshape(len(x), blocks, x.shape[1] // (blocks * parts), parts).transpose(3, 0, 1, 2))


def _count(bits: int) -> int:
    return 1 if 8 % bits else 8 // bits


def _padded(x: Array, size: int) -> Array:
    return np.pad(x, [(0, 0), (0, size - x.shape[1])])


def _finite(*arrays: Array | None) -> bool:
    """Whether reordering the factors only affects rounding."""
    return all(a is None or bool((np.abs(a.astype(np.float32)) < 1e15).all()) for a in arrays)
