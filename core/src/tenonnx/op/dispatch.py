"""Dispatch of calls: values are traced, arrays are type-checked and evaluated.

This module imports the whole layer; interpreters reach each other through the active one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenonnx.errors import TypeMismatch
from tenonnx.graph.definitions import defined_by
from tenonnx.graph.graph import Value
from tenonnx.op.build import Builder
from tenonnx.op.call import Interpreter, as_inputs, current, interpreting
from tenonnx.op.evaluate import Evaluator
from tenonnx.op.graph_inference import ensure_inferred
from tenonnx.op.infer import infer_call
from tenonnx.op.inference_cache import types_alone
from tenonnx.op.op import Op


def apply(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Apply ``op``; the result is one value, or a tuple when it has several outputs."""
    inputs, attributes = op.signature.arrange(op, args, kwargs)
    interpreter, wanted = current(), kwargs.get("_outputs")
    if interpreter is not None:
        return _call_on_values(interpreter, op, inputs, attributes, wanted)
    graph = next((v.graph for v in _flatten(inputs) if isinstance(v, Value) and v.graph is not None), None)
    if graph is None:
        return _call_on_arrays(op, inputs, attributes, wanted)
    if any(isinstance(v, Value) and v.type is None for v in _flatten(inputs)):
        ensure_inferred(graph)
    builder = Builder(graph)
    with defined_by(graph.root.registry), interpreting(builder):
        return _call_on_values(builder, op, inputs, attributes, wanted)


def _call_on_values(
    interpreter: Interpreter, op: Op, inputs: list[Any], attributes: dict[str, Any], outputs: int | None
) -> Any:
    """Execute a call with the active interpreter."""
    values = as_inputs(op, inputs)
    if any(isinstance(value, list | dict) for value in values):
        raise TypeMismatch(f"{op.title}: a sequence or map was given for a constant of a graph", do="make it an input")
    results = interpreter.call(op, values, attributes, outputs)
    return results[0] if len(results) == 1 else results


def _call_on_arrays(op: Op, inputs: list[Any], attributes: dict[str, Any], outputs: int | None) -> Any:
    """Execute the outermost call on arrays: wrap, evaluate, unwrap."""
    evaluator = Evaluator()
    with interpreting(evaluator):
        values = [v if v is None or isinstance(v, Value) else evaluator.wrap(v) for v in as_inputs(op, inputs)]
        try:
            infer_call(op, types_alone(op, values), attributes, outputs)
            op.requirements.check_numbers(values)
            results = evaluator.call(op, values, attributes, outputs)
        except TypeMismatch as error:
            if op.title not in error.what:  # the error is about an op of the body
                error.what = f"{op.title}: {error.what}"
            raise
    arrays = tuple(None if r is None else evaluator.contents(r) for r in results)
    return arrays[0] if len(arrays) == 1 else arrays


def _flatten(inputs: Sequence[Any]) -> Iterator[Any]:
    for item in inputs:
        if isinstance(item, list | tuple):
            yield from item
        else:
            yield item


Op.apply = apply
