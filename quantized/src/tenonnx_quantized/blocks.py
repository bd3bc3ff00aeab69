"""Weights of few bits in blocks: MatMulNBits with its fusions, and GatherBlockQuantized."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Requirement,
    TypeMismatch,
    Value,
    at_least,
    axis,
    constant,
    dims,
    dtypes,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
    symbolic,
)
from tenonnx_quantized.computed import Computed, transposed_rows
from tenonnx_quantized.formats import unpacked, unpacked_array
from tenonnx_quantized.granularity import repeated, wrong_blocks, wrong_count
from tenonnx_quantized.packed import packed_product
from tenonnx_quantized.quantize import dequantize_linear, to, wide

Array = np.ndarray[Any, Any]


# ----- MatMulNBits ----------------------------------------------------------------------------------------------------


def block_weights(
    B: Value,
    scales: Value,
    zero_points: Value | None,
    g_idx: Value | None,
    *,
    bits: int,
    block_size: int,
    columns: int,
    rows: int,
    dtype: DType,
) -> Value:
    """Dequantize packed values ``[columns, blocks, bytes]`` to weights ``[columns, rows]``.

    Zero points have the dtype of the scales, or are packed like the quantized values. ``g_idx`` has the block index of
    each row if rows are permuted.
    """
    blocks = -(-rows // block_size)
    quantized = to(unpacked(ops.reshape(B, [columns, blocks, block_size * bits // 8]), bits), dtype)
    scale = to(ops.reshape(scales, [columns, blocks]), dtype)
    shift = _zero_points(zero_points, bits, columns, blocks, dtype)
    if g_idx is None:
        shift = shift if shift.rank == 0 else ops.unsqueeze(shift, [2])
        return ops.reshape((quantized - shift) * ops.unsqueeze(scale, [2]), [columns, blocks * block_size])[:, :rows]
    quantized = ops.reshape(quantized, [columns, blocks * block_size])[:, :rows]
    group = g_idx[:rows]
    shift = shift if shift.rank == 0 else ops.gather(shift, group, axis=1)
    return (quantized - shift) * ops.gather(scale, group, axis=1)


def _zero_points(zero_points: Value | None, bits: int, columns: int, blocks: int, dtype: DType) -> Value:
    if zero_points is None:
        return constant(np.asarray(1 << bits - 1), dtype)
    if zero_points.dtype is DType.uint8:
        zero_points = unpacked(ops.reshape(zero_points, [columns, -(-blocks * bits // 8)]), bits)[:, :blocks]
    return to(ops.reshape(zero_points, [columns, blocks]), dtype)


#: Relative error where a runtime computes in the type that ``accuracy_level`` allows.
_ACCURACY = {"accuracy_level": {2: 2.0**-10, 3: 2.0**-7, 4: 2.0**-7}}


@op("MatMulNBits", domain="com.microsoft", coarseness=_ACCURACY)
def matmul_nbits(
    A,
    B,
    scales,
    zero_points=None,
    g_idx=None,
    bias=None,
    *,
    K: int,
    N: int,
    accuracy_level=0,
    bits=4,
    block_size: int,
    weight_prepacked=0,
):
    """``A`` times the transpose of weights with this number of ``bits`` and a scale and zero point per block.

    Zero points are packed like the weights or have the dtype of ``A``; they default to half of the range.
    ``accuracy_level`` allows a runtime to compute in fewer bits than ``A`` has, which is never done here.
    """
    if weight_prepacked:
        raise TypeMismatch(
            f"{matmul_nbits.title}: prepacked weights have a device-specific layout, which cannot be read",
            given=f"weight_prepacked={weight_prepacked}",
            do="export the model without prepacking",
        )
    stage = wide(A.dtype)
    weights = block_weights(
        B, scales, zero_points, g_idx, bits=bits, block_size=block_size, columns=N, rows=K, dtype=stage
    )
    y = ops.matmul(to(A, stage), ops.transpose(weights, perm=[1, 0]))
    return to(y if bias is None else y + to(bias, stage), A.dtype)


def _wrong_parameters(A, B, scales, zero_points, g_idx, K, N, bits, block_size):
    """Reason why packed quantized values and their parameters have inconsistent sizes, or None."""
    blocks = -(-K // block_size)
    packed = zero_points is None or zero_points.dtype is DType.uint8
    if not packed and zero_points.dtype is not A.dtype:
        return '"zero_points" is neither packed in uint8 nor of the element type of "A"'
    padded = g_idx is not None and bool(g_idx.tensor.shape) and g_idx.shape[0] == blocks * block_size
    return (
        _wrong_blocks({"B": B, "scales": scales}, K, N, bits, block_size)
        or wrong_count("zero_points", zero_points, N * (-(-blocks * bits // 8) if packed else blocks))
        or wrong_count("g_idx", None if padded else g_idx, K)
    )


def _wrong_blocks(given: dict[str, Value], K: int, N: int, bits: int, block_size: int) -> str | None:
    """Reason why packed quantized values and scales have inconsistent sizes, or None."""
    if block_size & (block_size - 1):
        return "block_size is not a power of two"
    blocks = N * -(-K // block_size)
    (name, quantized), (of_scales, scales) = given.items()
    return wrong_count(name, quantized, blocks * block_size * bits // 8) or wrong_count(of_scales, scales, blocks)


def _block_words(B: str, scales: str) -> tuple[Requirement, ...]:
    """Requirements for packed quantized values and their scales."""
    return dtypes(**{B: "uint8"}), one_of(bits=(2, 3, 4, 5, 6, 7, 8)), at_least(block_size=16, K=1)


matmul_nbits.requires(
    shapes(A="... K", bias="N"),
    floats("A"),
    same_dtype("A", "scales", "bias"),
    dtypes(g_idx="int32"),
    at_least(N=1),
    *_block_words("B", "scales"),
    holds(_wrong_parameters),
)


@matmul_nbits.numpy
def matmul_nbits_numpy(A, B, scales, zero_points, g_idx, bias, *, K, N, bits, block_size, **_):
    product = _kernel_for_weights(A, B, scales, zero_points, g_idx, K=K, N=N, bits=bits, block_size=block_size)
    return product(A, B, scales, zero_points, g_idx, bias)


@matmul_nbits.specialize
def matmul_nbits_specialize(A, B, scales, zero_points, g_idx, bias, *, K, N, bits, block_size, **_):
    weights = [v if v is None else v.contents for v in (B, scales, zero_points, g_idx)]
    if any(v is not None and w is None for v, w in zip((B, scales, zero_points, g_idx), weights, strict=True)):
        return None
    return _kernel_for_weights(A, *weights, K=K, N=N, bits=bits, block_size=block_size)


def _kernel_for_weights(A, B, scales, zero_points, g_idx, *, K, N, bits, block_size):
    """A kernel of MatMulNBits with these constant weights, which ignores the corresponding arguments."""
    stage = np.float64 if A.dtype == np.float64 else np.float32
    blocks = -(-K // block_size)
    shift = None if zero_points is None else zero_points.reshape(N, -1)
    if shift is not None and shift.dtype == np.uint8:
        shift = unpacked_array(shift, bits)[:, :blocks]
    scale = scales.reshape(N, blocks).astype(stage, copy=False)
    product = packed_product(B.reshape(N, blocks, -1), scale, shift, g_idx, bits, block_size)

    def multiply(A, B, scales, zero_points, g_idx, bias):
        y = product(A.reshape(math.prod(A.shape[:-1]), K).astype(stage, copy=False))
        if bias is not None:
            y += bias.astype(stage)
        return y.reshape(*A.shape[:-1], N).astype(A.dtype, copy=False)

    return multiply


_OF_BITS = {2: DType.uint2, 4: DType.uint4, 8: DType.uint8}


def unpacked_blocks(
    B: Value,
    scales: Value,
    zero_points: Value | None,
    g_idx: Value | None,
    *,
    columns: int,
    rows: int,
    bits: int,
    block_size: int,
) -> tuple[Computed, Computed, Computed] | None:
    """Constant quantized values ``[rows, columns]`` in the integer type of that many bits, with scales and zero points.

    Contents are computed lazily. None if blocked DequantizeLinear cannot express the weights.
    """
    parameters = [v for v in (B, scales, zero_points) if v is not None]
    floats = zero_points is not None and zero_points.dtype is not DType.uint8
    if bits not in _OF_BITS or floats or g_idx is not None or not all(v.is_constant for v in parameters):
        return None
    if any(v.ndim < 2 or v.shape[0] != columns for v in parameters):
        return None
    dtype, blocks = _OF_BITS[bits], -(-rows // block_size)

    def quantized(start: int, stop: int) -> Array:
        first, last = start // block_size, -(-stop // block_size)

        def inside(packed: Array) -> Array:
            found = unpacked_array(packed.reshape(len(packed), blocks, -1)[:, first:last], bits)
            part = slice(start - first * block_size, stop - first * block_size)
            return found.reshape(len(packed), -1)[:, part].astype(dtype.numpy)

        return transposed_rows(B, inside)

    def shifts(start: int, stop: int) -> Array:
        if zero_points is None:
            return np.full((stop - start, columns), 1 << bits - 1).astype(dtype.numpy)
        transposed = transposed_rows(zero_points, lambda z: unpacked_array(z.reshape(len(z), -1), bits)[:, start:stop])
        return transposed.astype(dtype.numpy)

    def steps(start: int, stop: int) -> Array:
        return transposed_rows(scales, lambda s: s.reshape(len(s), -1)[:, start:stop])

    return (
        Computed(dtype, (rows, columns), quantized),
        Computed(scales.dtype, (blocks, columns), steps),
        Computed(dtype, (blocks, columns), shifts),
    )


@matmul_nbits.lower()
def matmul_nbits_lowering(A, B, scales, zero_points, g_idx, bias, *, K, N, bits, block_size, weight_prepacked, **_):
    """Lower to a blocked DequantizeLinear; weights stay packed if the opset supports that many bits."""
    found = unpacked_blocks(B, scales, zero_points, g_idx, columns=N, rows=K, bits=bits, block_size=block_size)
    if found is None or weight_prepacked:
        return None
    quantized, scale, zero = (Value("", contents.type, data=contents) for contents in found)
    y = ops.matmul(A, dequantize_linear(quantized, scale, zero, axis=0, block_size=block_size))
    return y if bias is None else y + bias


_ACTIVATIONS = {"silu": ops.swish, "gelu": ops.gelu, "relu": ops.relu}


def _normalized(A: Value, skip: Value | None, norm_scale: Value | None, epsilon: float) -> tuple[Value, Value]:
    """The input of the projections, and the residual sum."""
    total = A if skip is None else A + skip
    if norm_scale is None:
        return total, total
    return ops.rms_normalization(total, norm_scale, epsilon=epsilon, stash_type=int(wide(total.dtype))), total


@op("MatMulNBitsMlp", domain="com.microsoft", coarseness=_ACCURACY)
def matmul_nbits_mlp(
    A,
    skip=None,
    norm_scale=None,
    gate_B=REQUIRED,
    gate_scales=REQUIRED,
    gate_bias=None,
    up_B=REQUIRED,
    up_scales=REQUIRED,
    up_bias=None,
    *,
    K: int,
    N: int,
    accuracy_level=0,
    activation: str,
    bits=4,
    block_size: int,
    epsilon=1e-5,
    _outputs=None,
):
    """``activation(gate) * up``, each of them MatMulNBits of ``A + skip``.

    The sum is normalized by RMSNormalization if ``norm_scale`` is given; the optional second output is the sum.
    """
    x, total = _normalized(A, skip, norm_scale, epsilon)
    attributes: dict[str, Any] = {"K": K, "N": N, "accuracy_level": accuracy_level, "bits": bits}
    gate = matmul_nbits(x, gate_B, gate_scales, None, None, gate_bias, block_size=block_size, **attributes)
    up = matmul_nbits(x, up_B, up_scales, None, None, up_bias, block_size=block_size, **attributes)
    y = _ACTIVATIONS[activation](gate) * up
    return (y, total) if _outputs is not None and _outputs > 1 else y


def _fitting_layers(gate_B, gate_scales, up_B, up_scales, K, N, bits, block_size):
    return _wrong_blocks({"gate_B": gate_B, "gate_scales": gate_scales}, K, N, bits, block_size) or _wrong_blocks(
        {"up_B": up_B, "up_scales": up_scales}, K, N, bits, block_size
    )


matmul_nbits_mlp.requires(
    one_of(activation=_ACTIVATIONS),
    shapes(A="batch... K", skip="batch... K", norm_scale="K"),
    same_dtype("A", "skip", "norm_scale", "gate_scales", "gate_bias", "up_scales", "up_bias"),
    *_block_words("gate_B", "gate_scales"),
    holds(_fitting_layers),
)


@op("MatMulNBitsQkv", domain="com.microsoft", coarseness=_ACCURACY)
def matmul_nbits_qkv(
    A,
    skip=None,
    norm_scale=REQUIRED,
    q_B=REQUIRED,
    q_scales=REQUIRED,
    q_bias=None,
    k_B=REQUIRED,
    k_scales=REQUIRED,
    k_bias=None,
    v_B=REQUIRED,
    v_scales=REQUIRED,
    v_bias=None,
    *,
    K: int,
    Nkv: int,
    Nq: int,
    accuracy_level=0,
    bits=4,
    block_size: int,
    epsilon=1e-6,
    _outputs=None,
):
    """Queries, keys and values: three MatMulNBits of ``A + skip``, normalized by RMSNormalization.

    The optional fourth output is the sum.
    """
    x, total = _normalized(A, skip, norm_scale, epsilon)
    attributes: dict[str, Any] = {"K": K, "accuracy_level": accuracy_level, "bits": bits, "block_size": block_size}
    projections = tuple(
        matmul_nbits(x, B, scales, None, None, bias, N=N, **attributes)
        for B, scales, bias, N in (
            (q_B, q_scales, q_bias, Nq),
            (k_B, k_scales, k_bias, Nkv),
            (v_B, v_scales, v_bias, Nkv),
        )
    )
    return (*projections, total) if _outputs is not None and _outputs > 3 else projections


def _fitting_projections(q_B, q_scales, k_B, k_scales, v_B, v_scales, K, Nq, Nkv, bits, block_size):
    return (
        _wrong_blocks({"q_B": q_B, "q_scales": q_scales}, K, Nq, bits, block_size)
        or _wrong_blocks({"k_B": k_B, "k_scales": k_scales}, K, Nkv, bits, block_size)
        or _wrong_blocks({"v_B": v_B, "v_scales": v_scales}, K, Nkv, bits, block_size)
    )


matmul_nbits_qkv.requires(
    shapes(A="batch... K", skip="batch... K", norm_scale="K"),
    same_dtype("A", "skip", "norm_scale", "q_scales"),
    *_block_words("q_B", "q_scales"),
    holds(_fitting_projections),
)


@op("MatMulNBitsQLoRA", domain="com.microsoft", coarseness=_ACCURACY)
def matmul_nbits_qlora(
    X,
    W,
    scales,
    lora_A,
    lora_A_scales,
    lora_B,
    lora_B_scales,
    *,
    K: int,
    N: int,
    accuracy_level=0,
    bits=4,
    block_size=32,
    lora_bits=8,
    lora_block_size=32,
):
    """MatMulNBits plus a low-rank adapter of two MatMulNBits (QLoRA, Dettmers et al. 2023).

    Without rows in ``lora_B`` there is no adapter; without rows in ``lora_A`` its first product is zero.
    """
    base = matmul_nbits(X, W, scales, K=K, N=N, accuracy_level=accuracy_level, bits=bits, block_size=block_size)
    stage = wide(X.dtype)
    rank = dims(lora_A_scales)[0]
    down = _adapter(lora_A, lora_A_scales, lora_bits, lora_block_size, K, stage)
    up = _adapter(lora_B, lora_B_scales, lora_bits, lora_block_size, rank, stage)
    inner = to(ops.matmul(to(X, stage), ops.transpose(down, perm=[1, 0])), X.dtype)
    rest = ops.expand(constant(0.0, X.dtype), [*dims(X)[:-1], rank - dims(lora_A)[0]])
    inner = to(ops.concat(inner, rest, axis=-1), stage)[..., : dims(up)[1]]
    return base + to(ops.matmul(inner, ops.transpose(up, perm=[1, 0])), X.dtype)


def _adapter(quantized: Value, scales: Value, bits: int, block_size: int, columns: Any, stage: DType) -> Value:
    """The rows of quantized values ``[rows, blocks, bytes]``, with as many columns as their blocks cover."""
    rows, blocks, _ = dims(quantized)
    numbers = to(unpacked(quantized, bits), stage) - float(1 << bits - 1)
    weights = numbers * ops.unsqueeze(to(scales, stage)[:rows, :blocks], [2])
    return ops.reshape(weights, [rows, blocks * block_size])[:, :columns]


matmul_nbits_qlora.requires(
    shapes(X="... K", lora_A="_ _ _", lora_B="N _ _", lora_A_scales="rank _", lora_B_scales="N _"),
    floats("X"),
    same_dtype("X", "scales", "lora_A_scales", "lora_B_scales"),
    dtypes(W="uint8", lora_A="uint8", lora_B="uint8"),
    one_of(bits=(2, 4, 8), lora_bits=(2, 4, 8)),
    at_least(block_size=16, lora_block_size=16, K=1, N=1),
    holds(lambda W, scales, K, N, bits, block_size: _wrong_blocks({"W": W, "scales": scales}, K, N, bits, block_size)),
    holds(
        lambda lora_A, lora_A_scales, K, rank, lora_bits, lora_block_size: _wrong_adapter(
            {"lora_A": lora_A, "lora_A_scales": lora_A_scales}, K, rank, lora_bits, lora_block_size
        )
    ),
    holds(
        lambda lora_B, lora_B_scales, N, rank, lora_bits, lora_block_size: _wrong_adapter(
            {"lora_B": lora_B, "lora_B_scales": lora_B_scales}, rank, N, lora_bits, lora_block_size
        )
    ),
)


def _wrong_adapter(given: dict[str, Value], rows: Any, columns: Any, bits: int, block_size: int) -> str | None:
    """``_wrong_blocks`` for optional quantized values, which are absent without rows or blocks."""
    quantized = next(iter(given.values()))
    has_sizes = isinstance(rows, int) and isinstance(columns, int)
    if not has_sizes or quantized.tensor.shape is None or 0 in quantized.shape:
        return None
    return _wrong_blocks(given, rows, columns, bits, block_size)


# ----- GatherBlockQuantized -------------------------------------------------------------------------------------------


@op("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(
    data, indices, scales, zero_points=None, *, bits=4, block_size=128, gather_axis=0, quantize_axis=1
):
    """Gather from weights with a scale and a zero point per block of ``block_size`` along ``quantize_axis``.

    uint8 has quantized values of ``bits`` packed along the last axis, whose zero point defaults to half of the range.
    For 8-bit and 4-bit floats, a block may be the entire axis. Out-of-range indices result in 0.
    """
    title, rank = gather_block_quantized.title, data.ndim
    packed = data.dtype is DType.uint8
    blocked, along = quantize_axis % rank, gather_axis % rank
    if packed and (along or along == blocked):
        raise TypeMismatch(
            f"{title}: packed data is not gathered along axis 0, or quantized along that axis",
            given=f"gather_axis={gather_axis}, quantize_axis={quantize_axis}",
        )
    quantized = unpacked(data, bits) if packed else data
    stage = wide(scales.dtype)
    numbers = to(quantized, stage)
    if packed and zero_points is None:
        numbers = numbers - float(1 << bits - 1)
    elif zero_points is not None:
        shift = unpacked(zero_points, bits)[..., : dims(scales)[-1]] if packed else zero_points
        numbers = numbers - _spread(to(shift, stage), quantized, blocked, block_size)
    weights = to(numbers * _spread(to(scales, stage), quantized, blocked, block_size), scales.dtype)
    size = dims(weights)[along]
    size = to(size, indices.dtype) if isinstance(size, Value) else size
    inside = ops.and_(ops.less(indices, size), ops.greater_or_equal(indices, -size))
    found = ops.gather(weights, ops.where(inside, indices, 0), axis=along)
    return ops.where(ops.reshape(inside, [*dims(inside)] + [1] * (rank - along - 1)), found, 0.0)


def _wrong_block_parameters(data, scales, zero_points, bits, block_size, quantize_axis):
    """Reason why block parameters have inconsistent sizes, or None. Values are packed along the last axis."""
    if block_size and (block_size < 16 or block_size & (block_size - 1)):
        return "block_size is neither a power of two of at least 16, nor 0 for the whole axis"
    sizes, packed = data.tensor.shape, data.dtype is DType.uint8
    if sizes is None:
        return None
    axis, each = quantize_axis % len(sizes), 8 // bits if packed else 1
    sizes = (*sizes[:-1], symbolic.multiply(sizes[-1], each))
    whole = block_size or (sizes[axis] if isinstance(sizes[axis], int) else 0)
    problem = wrong_blocks("scales", scales, sizes, axis, whole)
    if problem or zero_points is None or not packed or scales.tensor.shape is None:
        return problem or wrong_blocks("zero_points", zero_points, sizes, axis, whole)
    return wrong_blocks("zero_points", zero_points, scales.shape, -1, each)


gather_block_quantized.requires(
    dtypes(indices="int32 int64"),
    floats("scales"),
    same_dtype("data", "zero_points"),
    axis("quantize_axis", of="data"),
    axis("gather_axis", of="data"),
    one_of(bits=(2, 4, 8)),
    holds(_wrong_block_parameters),
)


def _spread(parameter: Value, quantized: Value, along: int, block_size: int) -> Value:
    """Parameters of blocks along ``axis``, reshaped to broadcast to the quantized values."""
    return repeated(parameter, quantized, along, block_size) if block_size else parameter


for _op in (matmul_nbits_mlp, matmul_nbits_qkv, matmul_nbits_qlora):
    _op.traits(on_request=True)
