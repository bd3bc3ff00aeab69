"""Complex numbers as pairs, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant
from tenonnx_frontends import complex_pairs
from tenonnx_tensorflow.attributes import dtype_of, is_complex
from tenonnx_tensorflow.rules import RULES, rule
from tenonnx_tensorflow.rules import elementwise as real
from tenonnx_tensorflow.tracked_values import Complex, as_dtype, integers

#: Rules of nodes with complex inputs, by op type.
OF_COMPLEX: dict[str, Callable[..., Any]] = {}

#: Ops that only move elements, and apply to each part.
_MOVING = (
    "Identity",
    "StopGradient",
    "Reshape",
    "Transpose",
    "Squeeze",
    "ExpandDims",
    "ConcatV2",
    "Pack",
    "Unpack",
    "Split",
    "SplitV",
    "Slice",
    "StridedSlice",
    "GatherV2",
    "GatherNd",
    "Tile",
    "Pad",
    "ReverseV2",
    "Roll",
    "BroadcastTo",
    "Sum",
    "Neg",
    "ZerosLike",
    "Select",
    "SelectV2",
    "Where",
    "MatrixDiagPart",
    "Fill",
    "AddN",
    "Cumsum",
)


def of_complex(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def registered(function: Callable[..., Any]) -> Callable[..., Any]:
        OF_COMPLEX.update(dict.fromkeys(names, function))
        return function

    return registered


def _by_parts(name: str) -> Callable[..., Any]:
    def moved(node: Any, *values: Any) -> Any:
        columns = []
        for k in range(2):
            columns.append(RULES[name].function(node, *(v[k] if isinstance(v, Complex) else v for v in values)))
        if isinstance(columns[0], list):
            return [Complex(*pair) for pair in zip(*columns, strict=True)]
        return Complex(*columns)

    return moved


OF_COMPLEX.update({name: _by_parts(name) for name in _MOVING})


def complex_of(x: Any) -> Complex:
    return x if isinstance(x, Complex) else Complex(x, ops.zeros_like(x))


@of_complex("Shape", "Size", "Rank", "ShapeN")
def shape_of_complex(node: Any, *values: Any) -> Any:
    return RULES[node.op].function(node, *(v.real if isinstance(v, Complex) else v for v in values))


@rule("Complex")
def complex_from_parts(node: Any, x: Value, y: Value) -> Complex:
    if x.type == y.type:
        return Complex(x, y)
    return Complex(ops.add(x, ops.zeros_like(y)), ops.add(y, ops.zeros_like(x)))


@rule("Real", "Imag", "Conj", "ComplexAbs", "Angle")
def parts_of_real(node: Any, x: Value) -> Value:
    if node.op == "Imag":
        return ops.zeros_like(x)
    return ops.absolute(x) if node.op == "ComplexAbs" else x


@of_complex("Real")
def real_part(node: Any, x: Complex) -> Any:
    return x.real


@of_complex("Imag")
def imaginary_part(node: Any, x: Complex) -> Any:
    return x.imaginary


@of_complex("Conj")
def conjugate(node: Any, x: Complex) -> Complex:
    return Complex(*complex_pairs.conjugate(x))


@of_complex("ConjugateTranspose")
def conjugate_transpose(node: Any, x: Complex, perm: Value) -> Any:
    return conjugate(node, OF_COMPLEX["Transpose"](node, x, perm))


@of_complex("ComplexAbs", "Abs")
def magnitude(node: Any, x: Complex) -> Value:
    return complex_pairs.magnitude(x)


@of_complex("Angle")
def angle(node: Any, x: Complex) -> Value:
    result: Value = real.atan2(node, x.imaginary, x.real)
    return result


@of_complex("Add", "AddV2", "Sub")
def added(node: Any, x: Any, y: Any) -> Complex:
    combine = ops.sub if node.op == "Sub" else ops.add
    a, b = complex_of(x), complex_of(y)
    return Complex(combine(a.real, b.real), combine(a.imaginary, b.imaginary))


@of_complex("Mul")
def multiplied(node: Any, x: Any, y: Any) -> Complex:
    return Complex(*complex_pairs.product(complex_of(x), complex_of(y)))


@of_complex("Square")
def squared(node: Any, x: Complex) -> Complex:
    return multiplied(node, x, x)


@of_complex("Div", "RealDiv")
def divided(node: Any, x: Any, y: Any) -> Complex:
    return Complex(*complex_pairs.quotient(complex_of(x), complex_of(y)))


@of_complex("Exp")
def exponential(node: Any, x: Complex) -> Complex:
    return Complex(*complex_pairs.exponential(x))


@of_complex("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def matrix_product(node: Any, x: Any, y: Any) -> Complex:
    a, b = complex_of(x), complex_of(y)
    if node.op != "MatMul":
        a = conjugate(node, a) if node.get("adj_x", False) else a
        b = conjugate(node, b) if node.get("adj_y", False) else b
    product = RULES[node.op].function
    return Complex(
        ops.sub(product(node, a.real, b.real), product(node, a.imaginary, b.imaginary)),
        ops.add(product(node, a.real, b.imaginary), product(node, a.imaginary, b.real)),
    )


@of_complex("Mean")
def mean(node: Any, x: Complex, axes: Value) -> Complex:
    return x.map(lambda part: RULES["Mean"].function(node, part, axes))


@of_complex("Cast")
def cast(node: Any, x: Complex) -> Any:
    target = dtype_of(node["DstT"])
    return x.map(lambda part: as_dtype(part, target)) if is_complex(node["DstT"]) else as_dtype(x.real, target)


@of_complex("Equal", "NotEqual")
def equal(node: Any, x: Any, y: Any) -> Value:
    result = complex_pairs.equal(complex_of(x), complex_of(y))
    return result if node.op == "Equal" else ops.not_(result)


# ----- Fourier transforms ---------------------------------------------------------------------------------------------


def _transformed(x: Complex, axis: int, inverse: bool, length: Any = None) -> Complex:
    """Transform one axis, counted from the end."""
    rank = x.real.ndim
    whole = ops.concat(ops.unsqueeze(x.real, [rank]), ops.unsqueeze(x.imaginary, [rank]), axis=rank)
    found = ops.dft(whole, length, constant(np.asarray(rank + axis)), inverse=int(inverse))
    return Complex(*(ops.gather(found, constant(np.asarray(k)), axis=rank) for k in range(2)))


@of_complex("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D")
def fourier(node: Any, x: Complex) -> Complex:
    count = int(node.op[-2]) if node.op.endswith("D") else 1
    for axis in range(count):
        x = _transformed(x, -1 - axis, node.op.startswith("I"))
    return x


def _resized(x: Value, axis: int, size: int) -> Value:
    """Crop or zero-pad an axis, counted from the end."""
    place = x.ndim + axis
    length = x.shape[place] if x.shape is not None else None
    if length == size:
        return x
    if not isinstance(length, int) or length < size:
        pads = np.zeros(2 * x.ndim, np.int64)
        pads[x.ndim + place] = size
        x = ops.pad(x, constant(pads))
    return ops.slice_(x, [0], [size], [place])


@rule("RFFT", "RFFT2D", "RFFT3D")
def real_fourier(node: Any, x: Value, length: Value) -> Complex:
    sizes = integers(length, "the lengths of a Fourier transform")
    for k, size in enumerate(sizes):
        x = _resized(x, k - len(sizes), size)
    result = _transformed(complex_of(x), -1, inverse=False)
    half = sizes[-1] // 2 + 1
    result = result.map(lambda part: ops.slice_(part, [0], [half], [part.ndim - 1]))
    for axis in range(1, len(sizes)):
        result = _transformed(result, -1 - axis, inverse=False)
    return result


@of_complex("IRFFT", "IRFFT2D", "IRFFT3D")
def inverse_real_fourier(node: Any, x: Complex, length: Value) -> Value:
    """Inverse of the real transform: the other half of the spectrum is the reversed conjugate of the first."""
    sizes = integers(length, "the lengths of a Fourier transform")
    half = sizes[-1] // 2 + 1
    for k, size in enumerate([*sizes[:-1], half]):
        x = Complex(*(_resized(part, k - len(sizes), size) for part in x))
    for axis in range(len(sizes) - 1):
        x = _transformed(x, axis - len(sizes), inverse=True)
    last = x.real.ndim - 1
    count = sizes[-1] - half
    if count:

        def mirrored(part: Value) -> Value:
            return ops.slice_(part, [count], [0], [last], [-1])

        x = Complex(
            ops.concat(x.real, mirrored(x.real), axis=last),
            ops.concat(x.imaginary, ops.neg(mirrored(x.imaginary)), axis=last),
        )
    result: Value = _transformed(x, -1, inverse=True).real
    return result
