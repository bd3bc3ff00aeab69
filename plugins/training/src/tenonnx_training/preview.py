"""The ops of ``ai.onnx.preview.training``: optimizer updates of several tensors at once, and Gradient.

They differ from the common optimizers of these names as the specification says: epsilon and Adam's bias corrections are
placed differently, and rates may decay with the number of updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tenonnx.extend import DType, Graph, Op, Registry, TypeMismatch, Value, hookimpl, inline, load_dtypes, op
from tenonnx.extend.transforms import Builder, Call, Rewriter, extract, grad, interpreting, needed_nodes, opened
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.checking import check_shape
from tenonnx_standard.logic import where
from tenonnx_standard.math import pow_, sqrt
from tenonnx_standard.reduction import reduce_sum

_DOMAIN = "ai.onnx.preview.training"


# ----- updates --------------------------------------------------------------------------------------------------------


def _groups(op: Op, slots: int, R: Value, T: Value, inputs: Sequence[Value]) -> list[tuple[Value, ...]]:
    """Group the inputs, all tensors, all gradients and so on, to one tuple (tensor, gradient, slots) each."""
    count, rest = divmod(len(inputs), 2 + slots)
    if rest or not count:
        raise TypeMismatch(
            f"{op.title}: numbers of tensors, gradients and the {slots} slots differ",
            given=f"{len(inputs)} tensors",
        )
    check_shape(op, "R", R, [])
    check_shape(op, "T", T, [])
    groups = list(zip(*(inputs[start * count : (start + 1) * count] for start in range(2 + slots)), strict=True))
    for tensor, *others in groups:
        for other in others:
            if other.dtype is not tensor.dtype:
                given = f"{tensor!r}, {other!r}"
                raise TypeMismatch(
                    f"{op.title}: the dtypes of a tensor, its gradient and its slots differ", given=given
                )
            if tensor.tensor.shape is not None:
                check_shape(op, "inputs", other, tensor.shape)
    return groups


def _updated(groups: Sequence[tuple[Value, ...]], update: Callable[..., tuple[Value, ...]]) -> Any:
    """Outputs of ``update`` for all groups: all first outputs, then all second ones, and so on."""
    results = [update(*group) for group in groups]
    return tuple(result for group in zip(*results, strict=True) for result in group)


@op("Adagrad", domain=_DOMAIN, since=1)
def adagrad(
    R: Value, T: Value, *inputs: Value, decay_factor: float = 0.0, epsilon: float = 1e-6, norm_coefficient: float = 0.0
) -> Any:
    """Adagrad: subtract gradients, at a rate that shrinks with the sum of squared gradients."""

    def update(x: Value, g: Value, h: Value) -> tuple[Value, ...]:
        rate = cast_like(R, x) / (cast_like(T, x) * decay_factor + 1.0)
        g = x * norm_coefficient + g
        total = h + g * g
        return x - rate * g / (sqrt(total) + epsilon), total

    return _updated(_groups(adagrad, 1, R, T, inputs), update)


@op("Momentum", domain=_DOMAIN, since=1)
def momentum(R: Value, T: Value, *inputs: Value, alpha: float, beta: float, mode: str, norm_coefficient: float) -> Any:
    """Momentum: move each tensor along a decaying sum of its gradients; ``mode`` is standard or nesterov."""
    if mode not in ("standard", "nesterov"):
        raise TypeMismatch(f"{momentum.title}: unknown mode", given=repr(mode), available="standard, nesterov")

    def update(x: Value, g: Value, v: Value) -> tuple[Value, ...]:
        g = x * norm_coefficient + g
        velocity = v * alpha + g * cast_like(where(T > 0, beta, 1.0), x)
        along = velocity if mode == "standard" else g + velocity * alpha
        return x - cast_like(R, x) * along, velocity

    return _updated(_groups(momentum, 1, R, T, inputs), update)


@op("Adam", domain=_DOMAIN, since=1)
def adam(
    R: Value,
    T: Value,
    *inputs: Value,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    """Adam: move each tensor along its mean gradient, at a rate that shrinks with the mean squared gradient."""
    steps = cast(T, to=DType.float64)
    corrected = sqrt(1.0 - pow_(beta, steps)) / (1.0 - pow_(alpha, steps))
    factor = where(T > 0, corrected, 1.0)

    def update(x: Value, g: Value, v: Value, h: Value) -> tuple[Value, ...]:
        g = x * norm_coefficient + g
        mean = v * alpha + g * (1.0 - alpha)
        square = h * beta + g * g * (1.0 - beta)
        rate = cast_like(cast_like(R, factor) * factor, x)
        moved = x - rate * mean / (sqrt(square) + epsilon)
        return moved * (1.0 - norm_coefficient_post), mean, square

    return _updated(_groups(adam, 2, R, T, inputs), update)


def _update_type(op: Op, slots: int, R: Value, T: Value, *inputs: Value, **_: Any) -> Any:
    tensors, _gradients, *slots_of = zip(*_groups(op, slots, R, T, inputs), strict=True)
    return tuple(value.type for group in (tensors, *slots_of) for value in group)


for _op, _slots in ((adagrad, 1), (momentum, 1), (adam, 2)):
    _op.type(partial(_update_type, _op, _slots))


# ----- the gradient ---------------------------------------------------------------------------------------------------


@op("Gradient", domain=_DOMAIN, since=1)
def gradient(*Inputs: Value, xs: list[str], y: str, zs: list[str] | None = None, _graph: Graph) -> Any:
    """The gradient of the sum of ``y`` with respect to ``xs``, at the values of the inputs for ``xs`` and ``zs``.

    Names refer to values of the graph that contains the node.
    """
    names = [*xs, *(zs or [])]
    if len(names) != len(Inputs):
        raise TypeMismatch(
            f"{gradient.title}: numbers of inputs and of names in xs and zs differ",
            given=f"{len(Inputs)} inputs, {len(names)} names",
        )
    part = opened(extract(_with_gradients(_graph, y), names, [y]), names).infer()
    with interpreting(Builder(part, prefix=y)):
        total = part.output(f"{y}/total", reduce_sum(part[y], keepdims=0))
    slope = grad(part, of=total.name, wrt=xs, strict=False)
    return inline(slope, Inputs)[-len(xs) :]


def _with_gradients(graph: Graph, y: str) -> Graph:
    """``graph`` with the ``Gradient`` nodes expanded on which ``y`` depends: they refer to values by name."""
    needed = set(needed_nodes(graph, [value for value in graph.values() if value.name == y]))
    if not any(node.op is gradient for node in needed):
        return graph

    def decide(rewriter: Rewriter, call: Call) -> Sequence[Value | None] | None:
        return rewriter.expand(call) if call.op is gradient and call.node in needed else None

    return Rewriter(graph, decide).run()


@gradient.type
def gradient_type(*Inputs: Value, xs: list[str], y: str, zs: list[str] | None) -> Any:
    return tuple(value.type for value in Inputs[: len(xs)])


@hookimpl
def register_tables(registry: Registry) -> None:
    registry.add_dtypes("ai.onnx.preview.training", lambda: load_dtypes("tenonnx_training"))


@hookimpl
def register_ops(registry: Registry) -> None:
    registry.add(adagrad, momentum, adam, gradient)
