"""Rules ``torch``, where PyTorch and tenonnx-torch are installed: the call as a module, and its gradient there."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tenonnx.extend import UnsupportedOp, Value, find_rule
from tenonnx.extend.transforms import Builder
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.gradients import differentiable, vector_jacobian, widened
from tenonnx_testing.run import Outputs, blaming, expect, is_random, present, trace

#: Of which numpy and PyTorch have the same elements.
_SHARED = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")


def has_torch_rule(case: Case) -> bool:
    """Whether the op has a rule for PyTorch, and PyTorch is there to ask."""
    installed = all(importlib.util.find_spec(name) for name in ("torch", "tenonnx_torch"))
    return installed and find_rule(case.op, "torch") is not None


def module_is_alike(case: Case, drawn: Call, expected: Outputs) -> bool:
    """As a module of PyTorch the call gives the same numbers and, in float64, the same gradient."""
    arrays = [v for v in drawn.inputs if v is not None]
    if is_random(case.op, drawn) or not all(isinstance(v, np.ndarray) and v.dtype.name in _SHARED for v in arrays):
        return False
    try:
        _, outputs = _run(case, drawn, [])
    except UnsupportedOp:  # PyTorch lacks what it takes
        return False
    expect(case, drawn, "a module of PyTorch", [each.detach().numpy() for each in outputs], present(expected))
    if case.gradient is not False:
        _same_gradient(case, replace(drawn, inputs=tuple(widened(v) for v in drawn.inputs)))
    return True


def _same_gradient(case: Case, wide: Call) -> None:
    wrt = differentiable(case, wide)
    given, outputs = _run(case, wide, wrt)
    cotangents = [np.ones(each.shape) if str(each.dtype) == "torch.float64" else None for each in outputs]
    if not wrt or all(c is None for c in cotangents):
        return
    with blaming(f"the gradient of {case.op.title} as a module of PyTorch"):
        reached = [
            each.sum() for each, c in zip(outputs, cotangents, strict=True) if c is not None and each.requires_grad
        ]
        if reached:
            sum(reached).backward()
        theirs = [np.zeros(each.shape) if each.grad is None else each.grad.numpy() for each in given]
        ours = vector_jacobian(case, wide, cotangents, wrt, symbolic=False)
    expect(case, wide, "the gradient of a module of PyTorch", theirs, ours)


def _run(case: Case, drawn: Call, wrt: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """The tensors of the inputs at ``wrt``, and the outputs of the call as a module."""
    torch: Any = importlib.import_module("torch")

    def the_op(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
        return builder.call(case.op, values, drawn.attributes, drawn.outputs)

    graph, feeds = trace(case.op, drawn, the_op, symbolic=False)
    tensors = {v.name: torch.from_numpy(feed.copy()) for v, feed in zip(graph.inputs, feeds, strict=True)}
    given = [tensors[f"input{k}"].requires_grad_(True) for k in wrt]
    with blaming(f"{case.op.title} as a module of PyTorch", passing=UnsupportedOp):
        found = importlib.import_module("tenonnx_torch").module(graph)(*tensors.values())
    return given, [found] if isinstance(found, torch.Tensor) else list(found)
