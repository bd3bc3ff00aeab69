"""Rules ``torch`` and ``jax``, where the framework is installed: the call as its function, and the gradient there."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tenonnx.extend import Graph, NotRepresentable, UnsupportedOp, Value, find_rule
from tenonnx.extend.transforms import Builder
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.gradients import differentiable, vector_jacobian, widened
from tenonnx_testing.run import Outputs, blaming, expect, is_random, present, trace

#: Of which numpy and the frameworks have the same elements.
_SHARED = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")

#: From cotangents of the outputs, None for those that have none, to gradients.
Pullback = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Framework:
    """What computes graphs by rules ``name``, and derives them by itself.

    ``run`` gives the outputs of a graph for feeds by name, and what leads back to those of ``wrt``. It raises
    ``UnsupportedOp`` or ``NotRepresentable`` where the framework lacks what the call takes.
    """

    name: str
    needs: tuple[str, ...]
    form: str
    run: Callable[[Graph, Mapping[str, Any], Sequence[str]], tuple[list[Any], Pullback]]

    def applies(self, case: Case) -> bool:
        """Whether the op has a rule for the framework, and that is there to ask."""
        return all(map(importlib.util.find_spec, self.needs)) and find_rule(case.op, self.name) is not None

    def is_alike(self, case: Case, drawn: Call, expected: Outputs) -> bool:
        """The call gives the same numbers there and, in float64, the same gradient."""
        arrays = [v for v in drawn.inputs if v is not None]
        if is_random(case.op, drawn) or not all(isinstance(v, np.ndarray) and v.dtype.name in _SHARED for v in arrays):
            return False
        try:
            outputs, _ = self._called(case, drawn, [])
        except (UnsupportedOp, NotRepresentable):
            return False
        expect(case, drawn, self.form, outputs, present(expected))
        if case.gradient is not False:
            with suppress(UnsupportedOp, NotRepresentable):
                self._same_gradient(case, replace(drawn, inputs=tuple(widened(v) for v in drawn.inputs)))
        return True

    def _same_gradient(self, case: Case, wide: Call) -> None:
        wrt = differentiable(case, wide)
        outputs, pullback = self._called(case, wide, wrt)
        if not wrt or any(isinstance(each, list) for each in outputs):
            return
        cotangents = [np.ones(each.shape) if str(each.dtype) == "float64" else None for each in outputs]
        if all(c is None for c in cotangents):
            return
        with blaming(f"the gradient of {case.op.title} as {self.form}"):
            theirs = pullback(cotangents)
            ours = vector_jacobian(case, wide, cotangents, wrt, symbolic=False)
        expect(case, wide, f"the gradient of {self.form}", theirs, ours)

    def _called(self, case: Case, drawn: Call, wrt: Sequence[int]) -> tuple[list[Any], Pullback]:
        def the_op(builder: Builder, values: list[Value | None]) -> Sequence[Value | None]:
            return builder.call(case.op, values, drawn.attributes, drawn.outputs)

        graph, given = trace(case.op, drawn, the_op, symbolic=False)
        feeds = {value.name: feed for value, feed in zip(graph.inputs, given, strict=True)}
        with blaming(f"{case.op.title} as {self.form}", passing=(UnsupportedOp, NotRepresentable)):
            return self.run(graph, feeds, [f"input{k}" for k in wrt])


def _on_pytorch(graph: Graph, feeds: Mapping[str, Any], wrt: Sequence[str]) -> tuple[list[Any], Pullback]:
    torch: Any = importlib.import_module("torch")
    tensors = {name: torch.from_numpy(feed.copy()) for name, feed in feeds.items()}
    given = [tensors[name].requires_grad_(True) for name in wrt]
    found = importlib.import_module("tenonnx_torch").module(graph)(*tensors.values())
    outputs = [found] if isinstance(found, torch.Tensor) else list(found)

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if c is not None and y.requires_grad]
        if pairs:
            torch.autograd.backward([y for y, _ in pairs], [torch.from_numpy(c) for _, c in pairs])
        return [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in given]

    return [each.detach().numpy() for each in outputs], pullback


def _on_jax(graph: Graph, feeds: Mapping[str, Any], wrt: Sequence[str]) -> tuple[list[Any], Pullback]:
    """Compiled, unless contents decide a shape."""
    jax: Any = importlib.import_module("jax")
    function = importlib.import_module("tenonnx_jax").function(graph)

    def computed(given: Mapping[str, Any]) -> list[Any]:
        return list(function({}, {**feeds, **given}).values())

    chosen = {name: feeds[name] for name in wrt}
    with jax.enable_x64(True):
        if wrt:
            outputs, back = jax.vjp(computed, chosen)
        else:
            try:
                outputs = jax.jit(computed)(feeds)
            except NotRepresentable:
                outputs = computed({})

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        with jax.enable_x64(True):
            whole = [_zeros(y, jax.dtypes.float0) if c is None else c for y, c in zip(outputs, cotangents, strict=True)]
            return [np.asarray(each) for each in back(whole)[0].values()]

    return list(jax.tree.map(np.asarray, outputs)), pullback


def _zeros(output: Any, of_integers: Any) -> Any:
    return np.zeros(output.shape, output.dtype if np.issubdtype(output.dtype, np.inexact) else of_integers)


TORCH = Framework("torch", ("torch", "tenonnx_torch"), "a module of PyTorch", _on_pytorch)
JAX = Framework("jax", ("jax", "tenonnx_jax"), "a function of JAX", _on_jax)
