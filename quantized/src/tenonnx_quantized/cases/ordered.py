"""Cases of the QOrdered family. Runtimes have GPU kernels only; tests/test_formulas.py has numpy formulas."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_quantized.ordered import (
    dequantize_with_order,
    qordered_gelu,
    qordered_layer_normalization,
    qordered_matmul,
    quantize_with_order,
)
from tenonnx_quantized.ordered_attention import qordered_attention, qordered_longformer_attention
from tenonnx_testing import call, cases, tensors

ROW, TILES = 1, [2, 3, 4]


def scale(draw, shape=(), low=0.01, high=0.1):
    return draw(tensors("float32", shape=shape, min_value=low, max_value=high))


def matrix(draw, order, kind="int8", batch=True):
    """Draw a matrix or a batch of matrices, with sizes that the layouts require."""
    rows, columns = (32, draw(st.sampled_from([32, 64]))) if order in TILES else (draw(st.integers(1, 4)), 3)
    stack = (draw(st.integers(1, 2)),) if batch and draw(st.booleans()) else ()
    return draw(tensors(kind, shape=(*stack, rows, columns), min_value=-4, max_value=4))


@cases(quantize_with_order, gradient=False)
def quantize_with_order_cases(draw):
    orders = draw(st.sampled_from([(ROW, ROW), (ROW, 0), (0, ROW), *((ROW, t) for t in TILES), (2, ROW)]))
    x = matrix(draw, max(orders), draw(st.sampled_from(["float32", "float16"])))
    return call(x, scale(draw), order_input=orders[0], order_output=orders[1])


@cases(dequantize_with_order, gradient=["scale_input"])
def dequantize_with_order_cases(draw):
    orders = draw(st.sampled_from([(ROW, ROW), (0, ROW), *((t, ROW) for t in TILES)]))
    return call(
        matrix(draw, max(orders)),
        scale(draw),
        order_input=orders[0],
        order_output=orders[1],
        to=draw(st.sampled_from([1, 10])),
    )


@cases(qordered_matmul, gradient=False)
def qordered_matmul_cases(draw):
    order, order_b = draw(st.sampled_from([(ROW, 0), (2, 3), (2, 4)]))
    sides = (draw(st.integers(1, 3)), 4, 3) if order == ROW else (2, 32, 32)
    batch = draw(st.integers(1, 2))
    a = draw(tensors("int8", shape=(batch, *sides[:2]), min_value=-99, max_value=99))
    b = draw(tensors("int8", shape=sides[1:], min_value=-99, max_value=99))
    added = draw(st.booleans())
    c = draw(tensors("int8", shape=(batch, sides[0], sides[2]), min_value=-99, max_value=99)) if added else None
    bias = draw(tensors("float32", shape=sides[2:])) if order == ROW and draw(st.booleans()) else None
    return call(
        a,
        scale(draw),
        b,
        scale(draw, draw(st.sampled_from([(), (sides[2],)]))),
        scale(draw, low=1, high=2),
        bias,
        c,
        scale(draw) if added else None,
        order_A=order,
        order_B=order_b,
        order_Y=order,
    )


@cases(qordered_gelu, gradient=False)
def qordered_gelu_cases(draw):
    orders = draw(st.sampled_from([{}, {"order_X": 1, "order_Y": 1}]))
    return call(draw(tensors("int8", min_value=-99, max_value=99)), scale(draw), scale(draw), **orders)


@cases(qordered_layer_normalization, gradient=False)
def qordered_layer_normalization_cases(draw):
    order, dtype = draw(st.sampled_from([ROW, 2])), draw(st.sampled_from(["float32", "float16"]))
    x = matrix(draw, order)
    vectors = [draw(tensors(dtype, shape=x.shape[-1:])) for _ in range(2)]
    return call(
        x,
        scale(draw),
        vectors[0],
        draw(st.sampled_from([None, vectors[1]])),
        scale(draw),
        order_X=order,
        order_Y=order,
        axis=draw(st.sampled_from([-1, x.ndim - 1])),
        epsilon=draw(st.sampled_from([1e-5, 1e-3])),
    )


def projection(draw, rows, columns, per_column):
    weights = draw(tensors("int8", shape=(rows, columns), min_value=-99, max_value=99))
    return weights, scale(draw, (columns,) if per_column else ()), draw(tensors("float32", shape=(columns,)))


UNSUPPORTED = "no kernel, of GPUs either, takes it, though the schema names it"


@cases(qordered_attention, gradient=False, undrawn={"past": UNSUPPORTED, "attention_bias": UNSUPPORTED})
def qordered_attention_cases(draw):
    count, size, inputs = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    batch, length, hidden = draw(st.integers(1, 2)), draw(st.integers(1, 3)), count * size
    (qw, qs, qb), (kw, ks, kb), (vw, vs, vb) = (projection(draw, inputs, hidden, draw(st.booleans())) for _ in "qkv")
    mask = draw(st.sampled_from([None, (batch,), (batch, length), (batch, length, length)]))
    seen = None if mask is None else draw(tensors("int32", shape=mask, min_value=1, max_value=length))
    between = [scale(draw), scale(draw, low=0.005, high=0.008)] if draw(st.booleans()) else [None, None]
    return call(
        draw(tensors("int8", shape=(batch, length, inputs), min_value=-99, max_value=99)),
        scale(draw),
        *(scale(draw) for _ in "qkv"),
        qw,
        kw,
        vw,
        qs,
        ks,
        vs,
        qb,
        kb,
        vb,
        *between,
        scale(draw),
        seen,
        num_heads=count,
        order_input=1,
        order_output=1,
        order_weight=0,
        unidirectional=draw(st.integers(0, 1)),
        qkv_hidden_sizes=[hidden] * 3,
    )


@cases(qordered_longformer_attention, gradient=False)
def qordered_longformer_attention_cases(draw):
    count, size = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    batch, length, hidden = draw(st.integers(1, 2)), draw(st.integers(1, 5)), count * size
    (w, ws, b), (gw, gs, gb) = (projection(draw, hidden, 3 * hidden, False) for _ in range(2))
    return call(
        draw(tensors("int8", shape=(batch, length, hidden), min_value=-99, max_value=99)),
        scale(draw),
        w,
        ws,
        b,
        scale(draw),
        scale(draw),
        draw(tensors("float16", shape=(batch, length))),
        gw,
        gs,
        gb,
        scale(draw),
        draw(tensors("int32", shape=(batch, length), min_value=0, max_value=1)),
        scale(draw),
        num_heads=count,
        window=draw(st.integers(1, 2)),
        order_input=1,
        order_output=1,
        order_weight=0,
        order_global_weight=0,
    )
