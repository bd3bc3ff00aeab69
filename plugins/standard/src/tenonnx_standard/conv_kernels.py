"""Convolution kernels on arrays, specialized for known sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import limits
from tenonnx_standard.windows import BLOCK, Array, Windows, taps_inside

#: A function that packs kernels, and a function of images and packed kernels; both return contiguous arrays.
Convolution = tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]
#: The same with an output array as third argument.
Way = tuple[Callable[[Array], Array], Callable[[Array, Array, Array], None]]

#: BLAS computes products with up to this many multiply-adds without packing, and on one thread.
SMALL_PRODUCT = 100**3
#: Up to this size, blocks of SMALL_PRODUCT are faster than BLAS threads, which other processes may delay.
LARGE_PRODUCT = 4 * SMALL_PRODUCT

#: Rows with fewer windows than NARROW make slow products, unless the weights fit into the first cache.
NARROW, FEW_WEIGHTS = 16, 1 << 14

#: Up to this many bytes, zero the whole array at once; in larger ones zero only the borders.
SMALL = 1 << 15


def convolution(shape: Sequence[int], kernels: Sequence[int], dtype: Any, window: Windows, group: int) -> Convolution:
    """The convolution kernel for images and kernels of these shapes, neither empty; the method depends on the sizes."""
    outputs = window.outputs(shape[2:])
    whole = limits.sized((shape[0], kernels[0], *outputs), "a convolution")
    arrange, write = _writing_convolution(shape, kernels, dtype, window, group, outputs)

    def convolve(x: Array, w: Array) -> Array:
        y = np.empty(whole, dtype)
        write(x, w, y)
        return y

    return arrange, convolve


def _writing_convolution(
    shape: Sequence[int], kernels: Sequence[int], dtype: Any, window: Windows, group: int, outputs: Sequence[int]
) -> Way:
    batch, _, *sizes = shape
    count, weights = math.prod(outputs), math.prod(kernels) // group
    begins, ends = window.padding(sizes)
    if set(window.kernel) == {1} and not any((*begins, *ends)) and (batch == 1 or count > 1):
        return _pointwise(shape, kernels, window, group, outputs)
    if kernels[1] == 1 and group > 1 and window.rank > 1:
        return _depthwise(shape, kernels, dtype, window, outputs)
    together = window.rank > 1 and window.dilations[0] == 1 and (outputs[-1] >= NARROW or weights <= FEW_WEIGHTS)
    if together and weights * math.prod(outputs[1:]) <= SMALL_PRODUCT:
        return _by_rows(shape, kernels, dtype, window, group, outputs)
    return _unfolded(shape, kernels, dtype, window, group, joined=batch > 1 and count < 64)


def padded(shape: Sequence[int], dtype: Any, begins: Sequence[int], lengths: Sequence[int]) -> Callable[[Array], Array]:
    """A function that pads images with zeros, into contiguous arrays of the spatial sizes ``lengths``."""
    sizes = shape[2:]
    if list(sizes) == list(lengths):
        return np.ascontiguousarray
    whole = limits.sized((*shape[:2], *lengths), "a padded input")
    inside = (..., *(slice(b, b + n) for b, n in zip(begins, sizes, strict=True)))
    if math.prod(whole) * np.dtype(dtype).itemsize <= SMALL:

        def fill(x: Array) -> Array:
            store = np.zeros(whole, dtype)
            store[inside] = x
            return store

        return fill
    borders = []
    for k, (b, n, length) in enumerate(zip(begins, sizes, lengths, strict=True)):
        ahead = (slice(None),) * (2 + k)
        borders += [(*ahead, part) for part in (slice(0, b), slice(b + n, length)) if part.start < part.stop]

    def surround(x: Array) -> Array:
        store = np.empty(whole, dtype)
        for border in borders:
            store[border] = 0
        store[inside] = x
        return store

    return surround


def steps_of(shape: Sequence[int], itemsize: int) -> list[int]:
    """Strides in bytes of a contiguous array."""
    return [math.prod(shape[k + 1 :]) * itemsize for k in range(len(shape))]


# ----- pointwise kernels ----------------------------------------------------------------------------------------------


def _pointwise(
    shape: Sequence[int], kernels: Sequence[int], window: Windows, group: int, outputs: Sequence[int]
) -> Way:
    batch, channels, *_ = shape
    results, count = kernels[0], math.prod(outputs)
    taken = (..., *(slice(None, None, s) for s in window.strides)) if set(window.strides) != {1} else None
    terms = results // group * (channels // group) * count
    parts = 1 if terms <= SMALL_PRODUCT or terms > LARGE_PRODUCT else -(-terms // SMALL_PRODUCT)
    parts = next((p for p in range(parts, 2 * parts + 1) if count % p == 0), 1)
    if parts > 1:
        weights = (group, 1, results // group, channels // group)
        images, target = ((batch, group, n // group, parts, count // parts) for n in (channels, results))
    elif batch == group == 1:
        weights, images, target = (results, channels), (channels, count), (results, count)
    else:
        weights = (group, results // group, channels // group)
        images, target = (batch, group, channels // group, count), (batch, group, results // group, count)

    def convolve(x: Array, w: Array, y: Array) -> None:
        x = x if taken is None else x[taken]
        x, y = x.reshape(images), y.reshape(target)
        if parts > 1:
            x, y = x.swapaxes(2, 3), y.swapaxes(2, 3)
        np.matmul(w, x, out=y)

    return lambda w: w.reshape(weights), convolve


# ----- depthwise ------------------------------------------------------------------------------------------------------


def _depthwise(
    shape: Sequence[int], kernels: Sequence[int], dtype: Any, window: Windows, outputs: Sequence[int]
) -> Way:
    """Convolve each channel separately: unfold all axes but the first, then multiply by each row of the kernel.

    The products are shifted and summed.
    """
    batch, channels, *sizes = shape
    per_channel = kernels[0] // channels
    begins, _ = window.padding(sizes)
    rows, *inner = window.kernel
    height = max(begins[0] + sizes[0], (outputs[0] - 1) * window.strides[0] + window.extents[0])
    along = [taps_inside(n, window, k, begins[k], outputs[k]) for k, n in enumerate(sizes)][1:]
    width = math.prod(inner)
    some = min(channels, max(1, BLOCK // ((width + per_channel * rows) * height * math.prod(outputs[1:]))))
    limits.sized((some, width + per_channel * rows, height, *outputs[1:]), "what the windows of a convolution read")
    down = slice(begins[0], begins[0] + sizes[0])
    reads = []
    for place in np.ndindex(*inner):
        taps = [axis[k] for axis, k in zip(along, place, strict=True)]
        target, source = [slice(low, high) for low, high, _ in taps], [read for _, _, read in taps]
        reads.append(((slice(None), *place, down, *target), (..., *source)))
    below = []
    for row in range(rows):
        start = row * window.dilations[0]
        stop = start + (outputs[0] - 1) * window.strides[0] + 1
        below.append((slice(None), slice(None), row, slice(start, stop, window.strides[0])))
    blocks = [(image, slice(k, min(k + some, channels))) for image in range(batch) for k in range(0, channels, some)]

    def convolve(x: Array, weights: Array, y: Array) -> None:
        y = y.reshape(batch, channels, per_channel, *outputs)
        for image, chosen in blocks:
            count = chosen.stop - chosen.start
            part, result = x[image, chosen], y[image, chosen]
            lines = np.zeros((count, *inner, height, *outputs[1:]), dtype)
            for target, source in reads:
                lines[target] = part[source]
            shares = np.matmul(weights[chosen], lines.reshape(count, width, -1))
            shares = shares.reshape(count, per_channel, rows, height, *outputs[1:])
            if rows == 1:
                result[...] = shares[below[0]]
                continue
            np.add(shares[below[0]], shares[below[1]], out=result)
            for rest in below[2:]:
                result += shares[rest]

    return lambda w: w.reshape(channels, per_channel * rows, width), convolve


# ----- products over unfolded blocks ----------------------------------------------------------------------------------


def _by_rows(
    shape: Sequence[int], kernels: Sequence[int], dtype: Any, window: Windows, group: int, outputs: Sequence[int]
) -> Way:
    """Unfold images row by row along all axes but the first, so that the input of a row of windows is contiguous.

    Each row of the result is then one product, without a copy for each row of the kernel.
    """
    batch, channels, *sizes = shape
    begins, _ = window.padding(sizes)
    rows, *inner = window.kernel
    height = max(begins[0] + sizes[0], (outputs[0] - 1) * window.strides[0] + rows)
    along = [taps_inside(n, window, k, begins[k], outputs[k]) for k, n in enumerate(sizes)][1:]
    split, width = channels // group, math.prod(outputs[1:])
    line = (*inner, split, *outputs[1:])
    some = min(batch, max(1, BLOCK // (group * height * math.prod(line))))
    lines = limits.sized((some, group, height, *line), "what the windows of a convolution read")
    down = slice(begins[0], begins[0] + sizes[0])
    reads = []
    for place in np.ndindex(*inner):
        taps = [axis[k] for axis, k in zip(along, place, strict=True)]
        target, source = [slice(low, high) for low, high, _ in taps], [read for _, _, read in taps]
        reads.append(((slice(None), slice(None), down, *place, slice(None), *target), (..., *source)))
    depth = math.prod(kernels[1:])
    steps = steps_of((some, group, height, math.prod(line) // width, width), np.dtype(dtype).itemsize)
    steps[2:3] = [steps[2] * window.strides[0]]
    weights = (group, kernels[0] // group, split, *window.kernel)
    blocks = [slice(k, min(k + some, batch)) for k in range(0, batch, some)]

    def arrange(w: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(w.reshape(weights), 2, -1)).reshape(group, 1, -1, depth)

    def convolve(x: Array, w: Array, y: Array) -> None:
        x = x.reshape(batch, group, split, *sizes).swapaxes(2, 3)
        y = y.reshape(batch, group, -1, outputs[0], width).swapaxes(2, 3)
        store = np.zeros(lines, dtype)
        for block in blocks:
            part = x[block]
            count = len(part)
            for target, source in reads:
                store[:count][target] = part[source]
            read = np.ndarray((count, group, outputs[0], depth, width), dtype, store, 0, steps)
            np.matmul(w, read, out=y[block])

    return arrange, convolve


def _unfolded(
    shape: Sequence[int], kernels: Sequence[int], dtype: Any, window: Windows, group: int, *, joined: bool
) -> Way:
    batch = shape[0]
    outputs = window.outputs(shape[2:])
    rest, count = math.prod(outputs[1:]), math.prod(outputs)
    depth = math.prod(kernels[1:])
    unfold = columns(shape, dtype, window, joined=joined)
    single = batch == group == 1

    def convolve(x: Array, weights: Array, y: Array) -> None:
        if single:
            target = y.reshape(-1, count)
            for _, rows, block in unfold(x):
                np.matmul(weights, block.reshape(depth, -1), out=target[:, rows.start * rest : rows.stop * rest])
            return
        target = y.reshape(batch, group, -1, count)
        for images, rows, block in unfold(x):
            part = target[images, ..., rows.start * rest : rows.stop * rest]
            if joined:
                product = np.matmul(weights, block.reshape(group, depth, -1))
                part[...] = product.reshape(group, -1, *part.shape[::3]).transpose(2, 0, 1, 3)
            else:
                np.matmul(weights, block.reshape(len(block), group, depth, -1), out=part)

    return lambda w: w.reshape(-1, depth) if single else w.reshape(group, -1, depth), convolve


def columns(
    shape: Sequence[int], dtype: Any, window: Windows, *, joined: bool = False
) -> Callable[[Array], Iterator[tuple[slice, slice, Array]]]:
    """A function that unfolds images block by block: a block covers some images and some rows of windows.

    A block has the axes (image, channel, *kernel, *windows), or if ``joined`` (channel, *kernel, image, *windows); the
    next one reuses its memory. Rows run along the first spatial axis; a block with only some of them has one image.
    """
    batch, channels, *sizes = shape
    outputs = window.outputs(sizes)
    begins, ends = window.padding(sizes)
    width = channels * math.prod(window.kernel)
    per_row = max(1, width * math.prod(outputs[1:]))
    images = min(batch, max(1, BLOCK // (per_row * outputs[0])))
    parts = -(-outputs[0] // min(outputs[0], max(1, BLOCK // per_row)))
    rows = -(-outputs[0] // parts)
    reach = [(n - 1) * s + e for n, s, e in zip(outputs, window.strides, window.extents, strict=True)]
    lengths = [max(b + n + e, r) for b, n, e, r in zip(begins, sizes, ends, reach, strict=True)]
    steps = steps_of((channels, *lengths), np.dtype(dtype).itemsize)
    apart = channels * steps[0]
    inner = [d * step for d, step in zip(window.dilations, steps[1:], strict=True)]
    outer = [s * step for s, step in zip(window.strides, steps[1:], strict=True)]
    blocks = []
    for first in range(0, batch, images):
        count = min(images, batch - first)
        surround = padded((count, channels, *sizes), dtype, begins, lengths)
        for low in range(0, outputs[0], rows):
            high = min(outputs[0], low + rows)
            view = [channels, *window.kernel, high - low, *outputs[1:]]
            strides = [steps[0], *inner, *outer]
            place = 1 + window.rank if joined else 0
            view.insert(place, count)
            strides.insert(place, apart)
            taken = None if low else (slice(first, first + count), surround)
            blocks.append((taken, slice(first, first + count), slice(low, high), view, low * outer[0], strides))
    block = limits.sized((images, width, rows, *outputs[1:]), "what the windows of a convolution read")

    def unfold(x: Array) -> Iterator[tuple[slice, slice, Array]]:
        buffer = np.empty(math.prod(block), dtype)
        for taken, chosen, low_to_high, view, offset, strides in blocks:
            if taken is not None:
                store = taken[1](x[taken[0]])
            windows = buffer[: math.prod(view)].reshape(view)
            windows[...] = np.ndarray(view, dtype, store, offset, strides)
            yield chosen, low_to_high, windows

    return unfold


# ----- transposed -----------------------------------------------------------------------------------------------------


def transposed(
    shape: Sequence[int],
    kernels: Sequence[int],
    dtype: Any,
    window: Windows,
    begins: Sequence[int],
    outputs: Sequence[int],
    group: int,
) -> Convolution:
    """The transpose of a convolution.

    Each position adds its multiple of a kernel to a window of the result, of which ``outputs`` positions are kept from
    ``begins`` on. The result elements of each stride phase are one convolution; all phases are computed at once, with
    more kernels.
    """
    batch, channels, *sizes = shape
    strides, rank = window.strides, window.rank
    per_group, depth = kernels[1], channels // group
    reach = [-(-extent // s) for extent, s in zip(window.extents, strides, strict=True)]
    apart = Windows(window.title, tuple(reach), (1,) * rank, (1,) * rank, tuple(n - 1 for n in reach) * 2)
    positions = apart.outputs(sizes)
    arranged = limits.sized((group * per_group * math.prod(strides), depth, *reach), "kernels with their gaps")
    whole = [n * s for n, s in zip(positions, strides, strict=True)]
    target = limits.sized((batch, group * per_group, *outputs), "a transposed convolution")
    prepare, run = convolution(shape, arranged, dtype, apart, group)
    spread = (group, depth, per_group, *(n for pair in zip(reach, strides, strict=True) for n in pair))
    places = (..., *(slice(0, extent, d) for extent, d in zip(window.extents, window.dilations, strict=True)))
    order = (0, 2, *range(4, 4 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2))
    turned = tuple(range(3 + rank, 3 + 2 * rank))
    interleaved = (0, 1, *(axis for k in range(rank) for axis in (2 + rank + k, 2 + k)))
    kept = [min(n, b + m) for n, b, m in zip(whole, begins, outputs, strict=True)]
    cut = (..., *(slice(b, n) for b, n in zip(begins, kept, strict=True)))
    filled = (..., *(slice(0, max(n - b, 0)) for b, n in zip(begins, kept, strict=True)))
    covers = all(n - b == m for n, b, m in zip(kept, begins, outputs, strict=True))

    def arrange(w: Array) -> Array:
        apart = np.zeros((group, depth, per_group, *(n * s for n, s in zip(reach, strides, strict=True))), dtype)
        apart[places] = w.reshape(group, depth, per_group, *window.kernel)
        turned_round = np.flip(apart.reshape(spread).transpose(order), turned)
        return prepare(np.ascontiguousarray(turned_round).reshape(arranged))

    def convolve(x: Array, w: Array) -> Array:
        phases = run(x, w).reshape(batch, -1, *strides, *positions).transpose(interleaved)
        y = phases.reshape(batch, -1, *whole)[cut]
        if covers:
            return np.ascontiguousarray(y)
        result = np.zeros(target, dtype)
        result[filled] = y
        return result

    return arrange, convolve
