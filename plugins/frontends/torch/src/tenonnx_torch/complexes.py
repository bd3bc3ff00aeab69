"""Complex numbers as pairs of reals, for operations without a lowering in the exporter."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from onnx_ir import DataType
from onnxscript import opset18 as onnx

aten = torch.ops.aten

#: Ops whose operands must all be pairs: the exporter would add a real number to both parts.
_ALIKE = {
    getattr(getattr(aten, name), overload)
    for name in ("add", "sub", "mul", "div", "eq", "ne", "mm", "bmm", "addmm", "matmul", "dot", "cat", "stack", "where")
    for overload in ("default", "Tensor", "Scalar", "self")
    if overload in getattr(aten, name).overloads()
}

#: Ops that make complex tensors from real ones or from nothing.
_MADE = {aten.full.default, aten.zeros.default, aten.ones.default, aten.empty.memory_format, aten._to_copy.default}


def pair_operands(node: Any) -> None:
    """Make all operands of a complex call complex, and replace casts from real by ``complex``."""
    value = node.meta.get("val")
    operands = [each.meta.get("val") for each in node.all_input_nodes]
    paired = any(_is_complex(each) for each in operands)
    if not paired and not _is_complex(value):
        return
    if node.target in _ALIKE:
        dtype = _real(next(each.dtype for each in (value, *operands) if _is_complex(each)))
        paired_args = node.args[1:] if node.target is aten.where.self else node.args
        new_args = torch.fx.node.map_aggregate(paired_args, lambda each: _paired(node, each, dtype))
        node.args = (*node.args[: len(node.args) - len(new_args)], *new_args)
        if node.target._overloadname == "Scalar":
            node.target = node.target.overloadpacket.Tensor
    elif not paired and node.target in _MADE:
        node.kwargs = {**node.kwargs, "dtype": _real(value.dtype)}
        node.meta["val"] = value.real
        _replace(node)


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def _replace(node: Any) -> None:
    with node.graph.inserting_after(node):
        zero = _call(node.graph, aten.zeros_like.default, node)
    with node.graph.inserting_after(zero):
        found = _complex(node.graph, node, zero)
    node.replace_all_uses_with(found, delete_user_cb=lambda user: user not in (zero, found))


def _complex(graph: Any, real: Any, imaginary: Any) -> Any:
    """Call ``aten.complex`` with a given fake tensor: its own shape rule would fix dynamic sizes."""
    new_node = graph.call_function(aten.complex.default, (real, imaginary))
    new_node.meta["val"] = real.meta["val"].to(real.meta["val"].dtype.to_complex())
    return new_node


def _call(graph: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    new_node = graph.call_function(function, arguments, keywords)
    examples = torch.fx.map_arg((arguments, keywords), lambda each: each.meta["val"])
    new_node.meta["val"] = function(*examples[0], **examples[1])
    return new_node


def _paired(user: Any, operand: Any, dtype: torch.dtype) -> Any:
    """A tensor or a number as a complex tensor with parts of this dtype."""
    graph = user.graph
    if isinstance(operand, torch.fx.Node) and isinstance(operand.meta.get("val"), torch.Tensor):
        if operand.meta["val"].is_complex():
            return operand
        with graph.inserting_before(user):
            same = operand.meta["val"].dtype is dtype
            part = operand if same else _call(graph, aten._to_copy.default, operand, dtype=dtype)
            return _complex(graph, part, _call(graph, aten.zeros_like.default, part))
    if isinstance(operand, int | float | complex) and not isinstance(operand, bool):
        parts = complex(operand)
        with graph.inserting_before(user):
            return _complex(
                graph, *(_call(graph, aten.full.default, [], part, dtype=dtype) for part in (parts.real, parts.imag))
            )
    return operand


# ----- lowerings of pairs ---------------------------------------------------------------------------------------------


def _parts(z: Any) -> Any:
    return [onnx.Slice(z, [place], [place + 1], [-1]) for place in (0, 1)]


def _joined(real: Any, imaginary: Any) -> Any:
    return onnx.Concat(real, imaginary, axis=-1)


def _half(x: Any) -> Any:
    return onnx.Mul(x, onnx.CastLike(0.5, x))


def _exp(z: Any) -> Any:
    real, imaginary = _parts(z)
    size = onnx.Exp(real)
    return _joined(onnx.Mul(size, onnx.Cos(imaginary)), onnx.Mul(size, onnx.Sin(imaginary)))


def _size(z: Any) -> Any:
    return onnx.ReduceL2(z, [-1], keepdims=1)


def _sqrt(z: Any) -> Any:
    real, imaginary = _parts(z)
    size = _size(z)
    left, right = (
        onnx.Sqrt(_half(onnx.Max(part, onnx.CastLike(0.0, part))))
        for part in (onnx.Add(size, real), onnx.Sub(size, real))
    )
    below = onnx.Less(imaginary, onnx.CastLike(0.0, imaginary))
    return _joined(left, onnx.Where(below, onnx.Neg(right), right))


def _product(a: Any, b: Any) -> Any:
    (ar, ai), (br, bi) = _parts(a), _parts(b)
    return _joined(onnx.Sub(onnx.Mul(ar, br), onnx.Mul(ai, bi)), onnx.Add(onnx.Mul(ar, bi), onnx.Mul(ai, br)))


def _matrix_product(a: Any, b: Any) -> Any:
    (ar, ai), (br, bi) = ([onnx.Squeeze(part, [-1]) for part in _parts(each)] for each in (a, b))
    real = onnx.Sub(onnx.MatMul(ar, br), onnx.MatMul(ai, bi))
    imaginary = onnx.Add(onnx.MatMul(ar, bi), onnx.MatMul(ai, br))
    return _joined(onnx.Unsqueeze(real, [-1]), onnx.Unsqueeze(imaginary, [-1]))


def _added_product(x: Any, a: Any, b: Any, **factors: Any) -> Any:
    if any(factor != 1 for factor in factors.values()):
        raise NotImplementedError("factors of a product of complex matrices")
    return onnx.Add(x, _matrix_product(a, b))


def _angle(z: Any) -> Any:
    """The angle in all four quadrants; for negative real numbers by the sign of the zero imaginary part."""
    real, imaginary = (onnx.Squeeze(part, [-1]) for part in _parts(z))
    zero, half_turn = onnx.CastLike(0.0, real), onnx.CastLike(math.pi, real)
    nothing = onnx.And(onnx.Equal(real, zero), onnx.Equal(imaginary, zero))
    slope = onnx.Atan(onnx.Div(imaginary, onnx.Where(nothing, half_turn, real)))
    below = onnx.Or(onnx.Less(imaginary, zero), onnx.Less(onnx.Reciprocal(imaginary), zero))
    turned = onnx.Add(slope, onnx.Where(below, onnx.Neg(half_turn), half_turn))
    return onnx.Where(onnx.Less(real, zero), turned, slope)


def _conjugate(z: Any) -> Any:
    real, imaginary = _parts(z)
    return _joined(real, onnx.Neg(imaginary))


def _same(z: Any, *_: Any, **__: Any) -> Any:
    return onnx.Identity(z)


def _cast(z: Any, *, dtype: Any = None, **_: Any) -> Any:
    """Cast to another complex dtype, or to a real one by taking the real parts."""
    kind = DataType(dtype) if dtype is not None else None
    if kind in (None, DataType.COMPLEX64, DataType.COMPLEX128):
        return onnx.Cast(z, to=DataType.DOUBLE if kind is DataType.COMPLEX128 else DataType.FLOAT)
    return onnx.Cast(onnx.Squeeze(_parts(z)[0], [-1]), to=kind)


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    return onnx.Where(onnx.Unsqueeze(condition, [-1]), a, b)


#: Ops whose result differs for imaginary parts 0 and -0.
_OF_SIGNS = {aten.angle, aten.atan2, aten.arctan2, aten.copysign, aten.log, aten.pow, aten.signbit, aten.sqrt}


def asks_signs(program: Any) -> bool:
    """Whether the result of a program may depend on the sign of a zero."""
    return any(getattr(node.target, "overloadpacket", None) in _OF_SIGNS for node in program.graph.nodes)


def _is_own_conjugate(bins: Any, length: Any) -> Any:
    """For each of the first bins of a spectrum, whether it is its own conjugate: the first, and the Nyquist bin."""
    zero, one, two = (onnx.Constant(value_int=number) for number in (0, 1, 2))
    return onnx.Equal(onnx.Mod(onnx.Mul(onnx.Range(zero, bins, one), two), length), zero)


def _with_real(spectrum: Any, own: Any) -> Any:
    """Set the imaginary parts of self-conjugate bins to 0; rounding leaves other numbers there."""
    imaginary = onnx.Cast(onnx.Constant(value_ints=[0, 1]), to=DataType.BOOL)
    return onnx.Where(onnx.And(own, imaginary), onnx.CastLike(0.0, spectrum), spectrum)


def _size_of(x: Any, axis: int) -> Any:
    return onnx.Gather(onnx.Shape(x), onnx.Constant(value_int=axis))


def spectra(registry: Any) -> Mapping[Any, Callable[..., Any]]:
    """Lowerings of spectra of real signals, by operator, with PyTorch's signs of zeros."""

    def plain(operator: Any) -> Callable[..., Any]:
        return next(each.onnx_function for each in registry.get_decomps(operator) if not each.is_complex)

    whole = plain(aten._fft_r2c.default)

    def transformed(x: Any, dim: Sequence[int], *rest: Any) -> Any:
        found, rank, own = whole(x, dim, *rest), len(x.shape), None
        for axis in (each % rank for each in dim):
            shape = onnx.Constant(value_ints=[-1 if k == axis else 1 for k in range(rank + 1)])
            real = onnx.Reshape(_is_own_conjugate(_size_of(found, axis), _size_of(x, axis)), shape)
            own = real if own is None else onnx.And(own, real)
        return _with_real(found, own)

    def of_frames(operator: Any) -> Callable[..., Any]:
        form = plain(operator)

        def framed(x: Any, n_fft: int, *rest: Any, **options: Any) -> Any:
            found = form(x, n_fft, *rest, **options)  # [..., bins, frames, 2]
            own = _is_own_conjugate(_size_of(found, -3), onnx.Constant(value_int=n_fft))
            return _with_real(found, onnx.Reshape(own, onnx.Constant(value_ints=[-1, 1, 1])))

        return framed

    frames = {each: of_frames(each) for each in (aten.stft.default,) if registry.get_decomps(each)}
    return {aten._fft_r2c.default: transformed, **frames}


def forms(registry: Any) -> Mapping[Any, Callable[..., Any]]:
    """Lowerings of complex operations, by operator."""

    def function(operator: Any, pairs: bool = False) -> Callable[..., Any]:
        return next(each.onnx_function for each in registry.get_decomps(operator) if each.is_complex is pairs)

    def along(operator: Any, z: Any, dim: Any, *rest: Any) -> Any:
        """Call the exporter's function with negative axes shifted by the axis of the pairs."""
        axes = [d - (d < 0) for d in dim] if isinstance(dim, list | tuple) else dim - (dim < 0)
        return function(operator)(z, axes, *rest)

    def split(operator: Any, z: Any, sizes: Any, dim: int = 0) -> Any:
        return function(operator)(z, sizes, dim - (dim < 0))

    def sized(operator: Any, last: int, z: Any, sizes: Sequence[Any], **_: Any) -> Any:
        return function(operator)(z, [*sizes, last])

    def log(z: Any) -> Any:
        return _joined(onnx.Log(_size(z)), onnx.Unsqueeze(_angle(z), [-1]))

    def power(z: Any, exponent: Any) -> Any:
        if exponent == 0.5:
            return _sqrt(z)
        if isinstance(exponent, int | float) and exponent == int(exponent) and 1 <= exponent <= 16:
            return functools.reduce(_product, [z] * int(exponent))
        scaled = onnx.Mul(log(z), onnx.CastLike(float(exponent), z))
        return _exp(scaled)

    aligned = {
        operator: functools.partial(along, operator)
        for operator in (
            aten.unsqueeze.default,
            aten.select.int,
            aten.index_select.default,
            aten.unbind.int,
            aten.cumsum.default,
        )
    }
    return {
        **aligned,
        aten.split_with_sizes.default: functools.partial(split, aten.split_with_sizes.default),
        aten.split.Tensor: functools.partial(split, aten.split.Tensor),
        aten.expand.default: functools.partial(sized, aten.expand.default, 2),
        aten.repeat.default: functools.partial(sized, aten.repeat.default, 1),
        aten.reshape.default: function(aten.view.default, pairs=True),
        aten.index.Tensor: function(aten.index.Tensor),
        aten.mul.Tensor: _product,
        aten.angle.default: _angle,
        aten.exp.default: _exp,
        aten.log.default: log,
        aten.sqrt.default: _sqrt,
        aten.pow.Tensor_Scalar: power,
        aten.mm.default: _matrix_product,
        aten.bmm.default: _matrix_product,
        aten.addmm.default: _added_product,
        aten.conj_physical.default: _conjugate,
        aten._conj_physical.default: _conjugate,
        aten.where.self: _chosen,
        aten.alias.default: _same,
        aten.detach.default: _same,
        aten.lift_fresh_copy.default: _same,
        aten._to_copy.default: _cast,
    }
