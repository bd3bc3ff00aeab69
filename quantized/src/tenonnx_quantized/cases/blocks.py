"""Cases of blockwise quantized weights with few bits."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_quantized.blocks import (
    gather_block_quantized,
    matmul_nbits,
    matmul_nbits_mlp,
    matmul_nbits_qkv,
    matmul_nbits_qlora,
)
from tenonnx_testing import Gap, Tolerance, call, cases, shapes, tensors


def stacked(draw, rows, dtype):
    """Draw rows of activations, optionally in batches."""
    return draw(tensors(dtype, shape=(*draw(shapes(0, 2, 1, 3)), draw(st.integers(1, 3)), rows)))


def weights(draw, columns, rows, bits, block, dtype):
    """Draw packed quantized values and their scales."""
    blocks = -(-rows // block)
    quantized = draw(tensors("uint8", shape=(columns, blocks, block * bits // 8), min_value=0, max_value=255))
    return quantized, draw(tensors(dtype, shape=(columns, blocks), min_value=0.01, max_value=0.1))


def zero_points(draw, columns, blocks, bits, dtype):
    """Draw packed or float zero points, or None."""
    kind = draw(st.sampled_from(["packed", "numbers", "none"]))
    if kind == "none":
        return None
    if kind == "numbers":
        return draw(tensors(dtype, shape=(columns, blocks), min_value=0, max_value=(1 << bits) - 1))
    return draw(tensors("uint8", shape=(columns, -(-blocks * bits // 8)), min_value=0, max_value=255))


def product(draw, bits, dtype, accuracy=(0, 1)):
    rows, columns = draw(st.sampled_from([16, 24, 32, 48])), draw(st.integers(1, 5))
    block = draw(st.sampled_from([16, 32]))
    blocks = -(-rows // block)
    quantized, scales = weights(draw, columns, rows, bits, block, dtype)
    bias = draw(tensors(dtype, shape=(columns,))) if draw(st.booleans()) else None
    return call(
        stacked(draw, rows, dtype),
        quantized,
        scales,
        zero_points(draw, columns, blocks, bits, dtype),
        None,
        bias,
        K=rows,
        N=columns,
        bits=bits,
        block_size=block,
        accuracy_level=draw(st.sampled_from(accuracy)),
    )


#: onnxruntime's CPU kernel ignores the attribute and misreads such weights.
PREPACKED = {"weight_prepacked": "weights in the layout of one GPU, which is not documented, are refused"}


def _is_large(drawn):
    return np.abs(drawn.inputs[0]).max(initial=0) > 1e3


CANCELLED = Gap(
    "special values", "the rule subtracts zero points from the sums, which rounds differently", when=_is_large
)


@cases(matmul_nbits, gradient=["A", "scales", "bias"], undrawn=PREPACKED, gaps=[CANCELLED])
def matmul_nbits_cases(draw):
    return product(draw, draw(st.sampled_from([2, 4, 8])), "float32")


@cases(matmul_nbits, gradient=False, gaps=[CANCELLED])
def matmul_nbits_cases_2(draw):
    return product(draw, draw(st.sampled_from([4, 8])), "float16")


@cases(matmul_nbits, gradient=False, gaps=[CANCELLED])
def matmul_nbits_cases_3(draw):
    """Bit widths whose values cross byte boundaries, for which onnxruntime has no kernel."""
    return product(draw, draw(st.sampled_from([3, 5, 6, 7])), "float32")


@cases(
    matmul_nbits,
    gradient=False,
    gaps=[
        Gap(
            "onnxruntime",
            "with g_idx onnxruntime uses the zero point 8, and ignores packed zero points",
            when=lambda c: c.inputs[3] is not None and c.inputs[3].dtype == "uint8",
        )
    ],
)
def matmul_nbits_cases_4(draw):
    """Rows permuted by ``g_idx``."""
    drawn = product(draw, 4, "float32")
    blocks = -(-drawn.attributes["K"] // drawn.attributes["block_size"])
    group = draw(tensors("int32", shape=(drawn.attributes["K"],), min_value=0, max_value=blocks - 1))
    return call(*drawn.inputs[:4], group, *drawn.inputs[5:], **drawn.attributes)


@cases(
    matmul_nbits,
    gradient=False,
    tolerance=Tolerance(0.05, 0.5, "onnxruntime quantizes A to 8 bits where accuracy_level allows it"),
)
def matmul_nbits_cases_5(draw):
    return product(draw, draw(st.sampled_from([4, 8])), "float32", accuracy=(4,))


def gathered(draw, data, sides, block, axis, gather_axis, dtype, zero_point, **attributes):
    reach = sides[gather_axis]
    indices = draw(tensors(["int32", "int64"], max_rank=2, min_value=-reach, max_value=reach - 1))
    scales = tuple(-(-d // block) if k == axis % len(sides) else d for k, d in enumerate(sides))
    scale = draw(tensors(dtype, shape=scales, min_value=0.1, max_value=1))
    return call(
        data,
        indices,
        scale,
        zero_point(scales) if draw(st.booleans()) else None,
        block_size=block,
        gather_axis=gather_axis,
        quantize_axis=axis,
        **attributes,
    )


@cases(gather_block_quantized, gradient=["scales"])
def gather_block_quantized_cases(draw):
    bits, block = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([16, 32]))
    sides = (draw(st.integers(1, 4)), *draw(shapes(0, 1, 1, 3)), draw(st.sampled_from([32, 64])))
    data = draw(tensors("uint8", shape=(*sides[:-1], sides[-1] * bits // 8), min_value=0, max_value=255))

    def zero_point(scales):
        packed = (*scales[:-1], -(-scales[-1] * bits // 8))
        return draw(tensors("uint8", shape=packed, min_value=0, max_value=255))

    axis = draw(st.sampled_from([-1, len(sides) - 1]))
    return gathered(draw, data, sides, block, axis, 0, "float32", zero_point, bits=bits)


@cases(gather_block_quantized, gradient=False)
def gather_block_quantized_cases_2(draw):
    kind, block = draw(st.sampled_from(["uint4", "int4"])), 16
    sides = draw(shapes(1, 3, 1, 3))
    axis, gather_axis = (draw(st.integers(-len(sides), len(sides) - 1)) for _ in range(2))
    sides = tuple(20 if k == axis % len(sides) else d for k, d in enumerate(sides))
    data = draw(tensors(kind, shape=sides, min_value=-8, max_value=15))
    return gathered(
        draw,
        data,
        sides,
        block,
        axis,
        gather_axis,
        draw(st.sampled_from(["float32", "float16"])),
        lambda scales: draw(tensors(kind, shape=scales, min_value=-8, max_value=15)),
    )


def normalized(draw, rows, *, optional):
    """Draw A, a residual connection and a scale, the latter two optionally absent."""
    a = draw(tensors("float32", shape=(draw(st.integers(1, 2)), draw(st.integers(1, 3)), rows)))
    skip = draw(tensors("float32", shape=a.shape)) if draw(st.booleans()) else None
    scale = None if optional and skip is None and draw(st.booleans()) else draw(tensors("float32", shape=(rows,)))
    return a, skip, scale


def projections(draw, rows, columns, bits):
    result = []
    for count in columns:
        result += [*weights(draw, count, rows, bits, 32, "float32"), None]
        if draw(st.booleans()):
            result[-1] = draw(tensors("float32", shape=(count,)))
    return result


@cases(
    matmul_nbits_mlp,
    gradient=["A", "skip"],
    tolerance=Tolerance(5e-4, 5e-4, "products of two sums, whose terms cancel, are summed in another order"),
)
def matmul_nbits_mlp_cases(draw):
    rows, columns, bits = 32, draw(st.integers(1, 4)), draw(st.sampled_from([4, 8]))
    inputs = *normalized(draw, rows, optional=True), *projections(draw, rows, [columns, columns], bits)
    return call(
        *inputs,
        K=rows,
        N=columns,
        activation=draw(st.sampled_from(["silu", "gelu", "relu"])),
        block_size=32,
        bits=bits,
        accuracy_level=draw(st.integers(0, 1)),
        epsilon=draw(st.sampled_from([1e-5, 1e-3])),
        _outputs=draw(st.integers(1, 2)),
    )


@cases(matmul_nbits_qlora, gradient=["X", "scales"])
def matmul_nbits_qlora_cases(draw):
    """With a low-rank adapter, which may have rank 0."""
    rows, columns, rank = 32, draw(st.integers(1, 4)), draw(st.integers(1, 3))
    dtype, bits, lora_bits = (
        draw(st.sampled_from(["float32", "float16"])),
        draw(st.sampled_from([2, 4, 8])),
        draw(st.sampled_from([4, 8])),
    )
    base, down = weights(draw, columns, rows, bits, 16, dtype), weights(draw, rank, rows, lora_bits, 16, dtype)
    up = weights(draw, columns, rank, lora_bits, 16, dtype)
    without = draw(st.sampled_from(["", "", "down", "up"]))
    down, up = (
        (quantized[:0] if without == name else quantized, s) for name, (quantized, s) in (("down", down), ("up", up))
    )
    attributes = {
        "K": rows,
        "N": columns,
        "bits": bits,
        "block_size": 16,
        "lora_bits": lora_bits,
        "lora_block_size": 16,
    }
    return call(stacked(draw, rows, dtype), *base, *down, *up, accuracy_level=draw(st.integers(0, 1)), **attributes)


@cases(matmul_nbits_qkv, gradient=["A", "skip"])
def matmul_nbits_qkv_cases(draw):
    rows, queries, keys = 32, draw(st.integers(1, 4)), draw(st.integers(1, 3))
    bits = draw(st.sampled_from([4, 8]))
    inputs = *normalized(draw, rows, optional=False), *projections(draw, rows, [queries, keys, keys], bits)
    return call(
        *inputs,
        K=rows,
        Nq=queries,
        Nkv=keys,
        block_size=32,
        bits=bits,
        accuracy_level=draw(st.integers(0, 1)),
        epsilon=draw(st.sampled_from([1e-6, 1e-3])),
        _outputs=draw(st.integers(3, 4)),
    )
