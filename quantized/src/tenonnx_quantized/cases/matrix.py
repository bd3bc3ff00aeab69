"""Cases of MatMulInteger and QLinearMatMul."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_quantized.cases.quantize import QUANTIZED_NAN, seven_bits
from tenonnx_quantized.matrix import matmul_integer, qlinear_matmul
from tenonnx_testing import Gap, call, cases, shapes, tensors

EIGHT_BITS = ["uint8", "int8"]
FLOAT8 = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"]


def matrices(draw, left, right):
    """Draw two matrices or batches of matrices."""
    batch, (m, k, n) = draw(shapes(0, 2, 1, 3)), draw(shapes(3, 3))
    a = draw(tensors(left, shape=(*batch, m, k), min_value=-200, max_value=200))
    stacked = draw(st.booleans())
    b = draw(tensors(right, shape=(*(batch if stacked else ()), k, n), min_value=-200, max_value=200))
    return seven_bits(a), seven_bits(b)


def parameter_shape(draw, matrix, place):
    """Draw the shape of parameters: per tensor, per row or column, or in a batch of those."""
    return draw(st.sampled_from([(), (1,), *_parted(matrix, place)]))


def _parted(matrix, place):
    whole = tuple(d if k in (matrix.ndim + place, *range(matrix.ndim - 2)) else 1 for k, d in enumerate(matrix.shape))
    return [(matrix.shape[place],), whole] if matrix.ndim == 2 else [whole]


@cases(
    matmul_integer,
    gaps=[
        Gap(
            "reference",
            "onnx.reference broadcasts zero points of rows along the columns",
            when=lambda c: c.inputs[2] is not None and c.inputs[2].ndim == 1 and c.inputs[2].size > 1,
        ),
    ],
)
def matmul_integer_cases(draw):
    a, b = matrices(draw, EIGHT_BITS, EIGHT_BITS)
    zero_points = [
        draw(tensors(x.dtype.name, shape=parameter_shape(draw, x, place), min_value=-200, max_value=200))
        if draw(st.booleans())
        else None
        for x, place in ((a, -2), (b, -1))
    ]
    return call(a, b, *zero_points)


def quantized(draw, left, right, result, scales):
    a, b = matrices(draw, left, right)
    (shape_a, shape_b), shape_y = (
        (parameter_shape(draw, x, p) for x, p in ((a, -2), (b, -1))),
        draw(st.sampled_from([(), (1,)])),
    )
    dtype = draw(st.sampled_from(scales))
    parts = []
    for x, shape in ((a, shape_a), (b, shape_b)):
        scale = draw(tensors(dtype, shape=shape, min_value=0.01, max_value=0.1))
        reach = 200 if x.dtype.kind in "iu" else 0
        parts += [x, scale, draw(tensors(x.dtype.name, shape=shape, min_value=-reach, max_value=reach))]
    reach = 200 if result in EIGHT_BITS else 0
    y_scale = draw(tensors(dtype, shape=shape_y, min_value=1, max_value=4))
    return call(*parts, y_scale, draw(tensors(result, shape=shape_y, min_value=-reach, max_value=reach)))


@cases(
    qlinear_matmul,
    gradient=False,
    gaps=[
        Gap("reference", "onnx.reference adds the zero point before it rounds, and broadcasts rows along columns"),
        QUANTIZED_NAN,
    ],
)
def qlinear_matmul_cases(draw):
    return quantized(
        draw, EIGHT_BITS, EIGHT_BITS, draw(st.sampled_from(EIGHT_BITS)), ["float32", "float16", "bfloat16"]
    )


@cases(qlinear_matmul, gradient=False)
def qlinear_matmul_cases_2(draw):
    dtype = draw(st.sampled_from(FLOAT8))
    return quantized(draw, dtype, dtype, dtype, ["float32", "float16"])
