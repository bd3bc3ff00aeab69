"""Conformance cases of ``ai.onnx.preview.training``."""

from typing import Any

from hypothesis import strategies as st

from tenonnx_testing import Gap, call, cases, shapes, tensors
from tenonnx_training.preview import adagrad, adam, momentum


def _arguments(draw: Any, slots: int) -> tuple[Any, ...]:
    """Rate and count, then one or two tensors with their gradients and non-negative optimizer slots."""
    import numpy as np

    count = draw(st.integers(1, 2))
    sides = [draw(shapes(1, 2)) for _ in range(count)]
    moving = [draw(tensors("float32", shape=side)) for _ in range(2) for side in sides]
    tensors_drawn = [
        draw(tensors("float32", shape=side, min_value=1, max_value=4)) for _ in range(slots) for side in sides
    ]
    return np.float32(draw(st.sampled_from([0.01, 0.1]))), np.int64(draw(st.integers(0, 9))), *moving, *tensors_drawn


@cases(adagrad, gradient=False)
def adagrad_cases(draw: Any) -> Any:
    return call(*_arguments(draw, 1), decay_factor=draw(st.sampled_from([0.0, 0.1])), norm_coefficient=0.01)


@cases(momentum, gradient=False)
def momentum_cases(draw: Any) -> Any:
    mode = draw(st.sampled_from(["standard", "nesterov"]))
    return call(*_arguments(draw, 1), alpha=0.9, beta=0.5, mode=mode, norm_coefficient=0.01)


_WIDENED = Gap(
    "reference", "onnx.reference returns float64 for float32 if the rate is corrected", lambda c: c.inputs[1] > 0
)


@cases(adam, gradient=False, gaps=[_WIDENED])
def adam_cases(draw: Any) -> Any:
    return call(*_arguments(draw, 2), alpha=0.8, beta=0.9, norm_coefficient=0.01, norm_coefficient_post=0.02)
