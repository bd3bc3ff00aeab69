"""Single-node models of drawn calls, at one version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tenonnx.extend import Graph, Known, NotRepresentable, Op, Type, Value
from tenonnx.extend.formats import to_model
from tenonnx.extend.testing import signature_at, type_of, unbind_attributes
from tenonnx.extend.transforms import Builder, interpreting, retarget
from tenonnx_testing.cases import Call
from tenonnx_testing.run import is_index
from tenonnx_testing.schemas import Schema, schema_at


@dataclass(frozen=True, slots=True)
class Trial:
    """A model with feeds and expected outputs."""

    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    expected: tuple[Any, ...]


def single_node(
    op: Op,
    drawn: Call,
    version: int,
    expected: tuple[Any, ...],
    newest: int,
    *,
    constant: Callable[[Op, int], bool] = is_index,
) -> Trial | None:
    """Return the call as a model at ``version`` of the op's domain; opset ``newest`` imports the other domains.

    Returns None if that version cannot express the call or does not accept its element types. Inputs are initializers
    if ``constant`` returns True for the op and their position, or if runtimes cannot be fed with their element types.
    """
    form = signature_at(op, version)
    static: dict[str, Any] = {}
    given: list[tuple[Any, bool]] = []
    for position, contents in enumerate(drawn.inputs):
        name = op.signature.input_at(position).name
        if name in form.lacks:
            if contents is not None:
                return None
        elif name in form.input_attributes:
            if contents is not None:
                static[name] = _as_attribute(contents, name in form.vectors)
        else:
            given.append((contents, constant(op, position)))
    schema = schema_at(op, version)
    kinds = [_type(contents) for contents, _ in given]
    kept = expected if schema is None else expected[: schema.maximum_outputs]
    if schema is not None:
        types = [_type(e) for e in kept]
        kinds = [schema.as_taken(position, kind) for position, kind in enumerate(kinds)]
        if not schema.accepts(kinds) or (not schema.gives(types) and version < op.version):
            return None
    try:
        rank = getattr(drawn.inputs[0], "ndim", None) if drawn.inputs else None
        written = unbind_attributes(op, version, drawn.attributes, static, rank)
    except NotRepresentable:
        return None
    graph = Graph("conformance", opsets={"ai.onnx": newest} | {op.domain: version})
    feeds: dict[str, Any] = {}
    values = [_input(graph, f"input{p}", kinds[p], *each, feeds) for p, each in enumerate(given)]
    known = [None if e is None and len(kept) > 1 else Known(type_of(e)) for e in kept]
    builder = Builder(graph)
    with interpreting(builder):
        outputs = builder.add(op, values, drawn.attributes, known, version=version, written=_typed(schema, written))
    graph.outputs = [v for v in outputs if v is not None]
    present = tuple(e for e, v in zip(kept, outputs, strict=True) if v is not None)
    if graph.nodes[0].subgraphs:  # nodes of subgraphs are not adapted to the version
        try:
            graph = retarget(graph, graph.opsets)
        except NotRepresentable:
            return None
    return Trial(to_model(graph), feeds, present)


def _type(contents: Any) -> Type | None:
    return None if contents is None else type_of(contents)


def _input(
    graph: Graph, name: str, kind: Type | None, contents: Any, constant: bool, feeds: dict[str, Any]
) -> Value | None:
    if kind is None:
        return None
    if isinstance(contents, np.ndarray) and (constant or _is_extended(contents)):
        return graph.variable(name, contents)
    feeds[name] = contents
    return graph.input(name, kind)


def _is_extended(array: np.ndarray[Any, Any]) -> bool:
    """Whether numpy lacks the element type, so that ml_dtypes provides it."""
    return bool(array.dtype.isbuiltin == 2)


def _as_attribute(contents: Any, is_number: bool) -> Any:
    return contents.reshape(-1)[0].item() if is_number else contents.tolist()


def _typed(schema: Schema | None, written: dict[str, Any]) -> dict[str, Any]:
    """Convert integers to floats where the schema has float attributes."""
    typed = dict(written)
    for name, value in written.items():
        if schema is not None and name in schema.attributes and schema.attributes[name].is_float:
            typed[name] = [float(v) for v in value] if isinstance(value, list | tuple) else float(value)
    return typed


def without_output_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without output types, which the runtime infers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for output in copy.graph.output:
        output.ClearField("type")
    return copy
