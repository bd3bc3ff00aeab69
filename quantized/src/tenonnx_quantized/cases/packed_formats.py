"""Cases of weights in packed formats. onnxruntime has a CPU kernel for GatherPacked only."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_quantized.packed_formats import FORMATS, gather_packed, matmul_packed, moe_packed
from tenonnx_testing import call, cases, shapes, tensors

#: Byte offsets of the scales in a block, by format; 0 for other formats.
SCALES = {0: (), 1: (), 13: (0, 2), 14: (208,), 30: ()}


def rows(draw, number, blocks, *outer):
    """Draw rows of random blocks with small scales; also return the number of elements per row."""
    form = FORMATS[number]
    packed = draw(tensors("uint8", shape=(*outer, blocks, form.size), min_value=0, max_value=255))
    random = np.random.default_rng(int(packed.sum()))
    if number in (0, 1, 30):  # float formats
        drawn = random.uniform(-1, 1, (*outer, blocks)).astype(np.float32)
        parts = drawn.astype(np.float16) if number == 1 else drawn
        packed = parts[..., None].view(np.uint8)[..., 2 if number == 30 else 0 :].copy()
    for at in SCALES.get(number, (0,)):
        scale = random.uniform(0.001, 0.01, (*outer, blocks)).astype(np.float16)
        packed[..., at : at + 2] = scale[..., None].view(np.uint8)
    return packed.reshape(*outer, blocks * form.size), blocks * form.count


def blocks_of(number):
    """Number of blocks for a matrix product: those of 256 elements, fewer for float formats."""
    return 256 // FORMATS[number].count


@cases(gather_packed, gradient=False)
def gather_packed_cases(draw):
    number = draw(st.sampled_from(sorted(FORMATS)))
    table, columns = rows(draw, number, draw(st.integers(1, 2)), draw(st.integers(1, 4)))
    kind = draw(st.sampled_from(["int32", "int64"]))
    indices = draw(tensors(kind, shape=draw(shapes(0, 2, 1, 3)), min_value=-2, max_value=len(table) + 1))
    return call(table, indices, K=columns, packed_type=number, output_dtype=draw(st.sampled_from([1, 10, 16])))


@cases(matmul_packed, gradient=False, undrawn={"global_scale": "its format is undocumented"})
def matmul_packed_cases(draw):
    number = draw(st.sampled_from(sorted(FORMATS)))
    outputs = draw(st.integers(1, 3))
    weights, columns = rows(draw, number, blocks_of(number), outputs)
    dtype = draw(st.sampled_from(["float16", "bfloat16"]))
    x = draw(tensors(dtype, shape=(*draw(shapes(0, 2, 1, 2)), columns), min_value=-1, max_value=1))
    activation = draw(st.sampled_from(["none", "relu2", "relu_squared", "silu"]))
    return call(x, weights, None, K=columns, N=outputs, packed_type=number, activation_type=activation)


@cases(moe_packed, gradient=False)
def moe_packed_cases(draw):
    experts, tokens, size = draw(st.integers(2, 3)), draw(st.integers(1, 2)), 32
    shape = draw(st.sampled_from([(tokens, size), (1, tokens, size)]))
    dtype = draw(st.sampled_from(["float16", "bfloat16"]))
    x = draw(tensors(dtype, shape=shape, min_value=-1, max_value=1))
    logits = draw(tensors("float32", shape=(tokens, experts), distinct=True))
    kinds = [draw(st.sampled_from([2, 6, 8, 20])) for _ in range(3)]
    gate, up, down = (rows(draw, kind, 1, experts, size)[0] for kind in kinds)
    attributes = {"gate_type": kinds[0], "down_type": kinds[2], "k": draw(st.integers(1, experts))}
    attributes["normalize_routing_weights"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        attributes["up_type"] = kinds[1]
    else:
        up, attributes["activation_type"] = None, draw(st.sampled_from(["relu2", "relu_squared"]))
    shares = None
    if draw(st.booleans()):
        shares = draw(tensors("float32", shape=(tokens, experts), min_value=0.1, max_value=1))
        attributes |= {"routed_scaling_factor": 2.5, "routing_epsilon": draw(st.sampled_from([0.0, 0.5]))}
    return call(x, logits, gate, up, down, shares, **attributes)
