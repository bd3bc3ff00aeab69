"""Verification of a case: exported at an opset, run in onnxruntime, compared with JAX at several sizes of dims."""

from __future__ import annotations

import io
from typing import Any

import jax
import onnxruntime
from cases import Case  # noqa: TC002
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import tenonnx as tx
from tenonnx.extend.checks import accumulation, coarse_inside, compare
from tenonnx_frontends import sizes_to_compare
from tenonnx_jax.examples import Examples
from tenonnx_jax.frontend import graph_of
from tenonnx_jax.sources import source_of
from tenonnx_jax.verification import array_of, outputs_of

OPSETS = (13, 17, 21)


class Judged:
    """A case read as a graph; its methods describe failures."""

    def __init__(self, case: Case) -> None:
        self.case = case
        with jax.enable_x64(case.x64):
            self.source = source_of(case.make())
            self.examples = Examples.of(self.source, case.examples, case.keywords, dims=case.dims)
            self.graph = graph_of(self.source, self.examples, None, None)
            self.expected = []
            for sizes in sizes_to_compare(self.examples.sizes):
                arrays = self.examples.resized(sizes)
                try:
                    self.expected.append((sizes, arrays, outputs_of(self.source, self.examples, arrays)))
                except Exception:  # JAX rejects this size
                    assert sizes
        self.tolerance = coarse_inside(self.graph)
        self.terms = accumulation(self.graph)

    def at(self, opset: int) -> str:
        """Description of the failure at an opset, empty if there is none."""
        stream = io.BytesIO()
        tx.export(self.graph, stream, opset_version=opset)
        return self.in_file(stream.getvalue())

    def in_file(self, contents: bytes) -> str:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(contents, options, providers=["CPUExecutionProvider"])
        except NoKernel:  # such as for bfloat16, with few kernels
            return self._elsewhere(contents)
        for sizes, arrays, expected in self.expected:
            with jax.enable_x64(self.case.x64):
                feeds = {v.name: array_of(a) for v, a in zip(session.get_inputs(), arrays, strict=True)}
            try:
                result = self._run(session, feeds)
            except RuntimeError as error:  # onnxruntime computes it, but cannot return it
                if "No corresponding Numpy type" not in str(error):
                    raise
                return self._elsewhere(contents)
            for k, (actual, wanted) in enumerate(zip(result, expected, strict=True)):
                difference = compare(actual, wanted, accumulation=self.terms, tolerance=self.tolerance)
                if not difference.equal:
                    return f"output {k} at {sizes or 'its sizes'}: {difference}"
        return ""

    def _elsewhere(self, contents: bytes) -> str:
        """The failure of the graph with the casts that onnxruntime's kernels need, as it runs in the backend."""
        graph = tx.load(contents)
        program = graph.compile("onnxruntime", strict=True)
        for sizes, arrays, expected in self.expected:
            with jax.enable_x64(self.case.x64):
                feeds = {v.name: array_of(a) for v, a in zip(graph.inputs, arrays, strict=True)}
            result = program(feeds)
            for (name, actual), wanted in zip(result.items(), expected, strict=True):
                difference = compare(actual, wanted, accumulation=self.terms, tolerance=self.tolerance)
                if not difference.equal:
                    return f"{name} at {sizes or 'its sizes'}: {difference}"
        return ""

    def _run(self, session: Any, feeds: Any) -> list[Any]:
        values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(a) if a.dtype.kind != "V" else _value(a)
            for name, a in feeds.items()
        }
        result = session.run_with_ort_values([o.name for o in session.get_outputs()], values)
        return [_array(each) for each in result]


def _value(array: Any) -> Any:
    import numpy as np

    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), 16)


def _array(value: Any) -> Any:
    import ml_dtypes
    import numpy as np

    if "bfloat16" in value.data_type():
        held = value.numpy() if not hasattr(value, "to_dlpack") else np.asarray(value.numpy())
        return held.view(ml_dtypes.bfloat16) if held.dtype != ml_dtypes.bfloat16 else held
    return value.numpy()
