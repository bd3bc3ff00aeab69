"""Comparison of outputs and gradients with frameworks that execute graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from tenonnx.extend import Graph, NotRepresentable, UnsupportedOp, Value, find_rule
from tenonnx.extend.testing import loaded
from tenonnx.extend.transforms import Builder
from tenonnx_testing.cases import Call, Case
from tenonnx_testing.gradients import differentiable, vector_jacobian, widened
from tenonnx_testing.run import Outputs, blaming, expect, is_random, present, trace

#: Dtypes that numpy and all frameworks have.
_SHARED = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")

#: Maps cotangents of the outputs (None where there is none) to gradients.
Pullback = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Framework:
    """Framework with its own automatic differentiation; ops have rules ``name`` for it.

    ``runtime`` is its Python module; ``form`` describes a converted graph, for messages. ``run`` takes a graph, feeds
    by name and the names ``wrt``, and returns the outputs and a pullback to ``wrt``. It raises ``UnsupportedOp`` or
    ``NotRepresentable`` if the framework cannot express the call.
    """

    name: str
    runtime: str
    form: str
    run: Callable[[Graph, Mapping[str, Any], Sequence[str]], tuple[list[Any], Pullback]]

    def applies(self, case: Case) -> bool:
        """Whether the op has a rule for the framework, and the framework is installed."""
        return find_spec(self.runtime) is not None and find_rule(case.op, self.name) is not None

    def is_alike(self, case: Case, drawn: Call, expected: Outputs) -> bool:
        """Check that the framework gives the same outputs and, in float64, the same gradient."""
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
                self._compare_gradients(case, replace(drawn, inputs=tuple(widened(v) for v in drawn.inputs)))
        return True

    def _compare_gradients(self, case: Case, wide: Call) -> None:
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


def installed() -> list[Framework]:
    """Frameworks declared by entry points of installed packages; imports no framework."""
    found = loaded("tenonnx.frameworks")
    return [Framework(plugin.name, module.runtime, module.form, module.run) for plugin, module in found]
