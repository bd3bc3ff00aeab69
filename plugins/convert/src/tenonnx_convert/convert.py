"""``convert``, ``plan`` and ``export``: all steps of a conversion, the steps without writing, or the final ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from tenonnx import limits
from tenonnx.errors import InvalidCall, NotRepresentable, OutOfTime, TenonnxError, VerificationFailed
from tenonnx.graph.graph import Graph
from tenonnx.graph.order import check_whole
from tenonnx.transforms.report import Change
from tenonnx_convert.conversion import Conversion, Place
from tenonnx_convert.options import ConvertConfig, ExportConfig
from tenonnx_convert.plugin_steps import given_config
from tenonnx_convert.report import ConversionPlan, Report
from tenonnx_convert.steps import STEPS

if TYPE_CHECKING:
    import onnx


def not_verified(seconds: float) -> VerificationFailed:
    """The error of a verification that exceeded its time limit."""
    return VerificationFailed(
        f"not verified: not finished within {seconds:g} s",
        do="allow more time (--timeout SECONDS), or smaller inputs (--input-shapes, --inputs)",
    )


@contextmanager
def ending_within(seconds: float, late: Callable[[float], TenonnxError] = not_verified) -> Iterator[None]:
    """Limit the time of work on a model. Raises ``late(seconds)`` when it is exceeded."""
    try:
        with limits.within(seconds):
            yield
    except OutOfTime as error:
        raise late(seconds) from error


def convert(
    source: Any,
    path: Place,
    *examples: Any,
    config: ConvertConfig | None = None,
    reading: Mapping[str, Any] | None = None,
    **options: Any,
) -> Report:
    """Read a model, convert it, compare it with its source, and write it to a path or a binary stream.

    ``source`` is a graph, or an argument of ``load``, with ``examples`` and its options as ``reading``. ``options`` are
    those of ``tenonnx convert``, fields of ``ConvertConfig`` and options of packages' transforms; they override
    ``config``. Raises ``NotRepresentable`` naming every node that the target cannot express, ``VerificationFailed`` if
    outputs differ from the original's or the comparison takes too long, and the errors of ``load``; then nothing is
    written.
    """
    settings: ConvertConfig = given_config(ConvertConfig, config, options)
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "the original"
    conversion = Conversion(source, path, settings, STEPS, examples=examples, reading=reading or {}, name=name)
    with closing(conversion):
        with ending_within(settings.timeout):
            conversion.run(until="write")
        return conversion.run().report


def export(graph: Graph, path: Place, config: ExportConfig | None = None, **fields: Any) -> Report:
    """Write ``graph`` to a path or a binary stream; ``fields`` override those of ``config``.

    Without a target, or with the graph's own opsets, unmodified nodes are written as they were read. Raises
    ``NotRepresentable`` naming every node that the target cannot express; then nothing is written.
    """
    if not isinstance(path, str | os.PathLike) and not hasattr(path, "write"):
        raise InvalidCall("export was given neither a path nor a binary stream", given=type(path).__name__)
    return _tail(graph, path, config, fields).run().report


def to_proto(graph: Graph, **fields: Any) -> onnx.ModelProto:
    """The ``ModelProto`` that ``export`` with these fields of ``ExportConfig`` would write."""
    from tenonnx.formats.onnx.tensors import to_inline_proto

    done = _tail(graph, None, None, fields).run(until="write").state
    done.model.graph.initializer.extend(to_inline_proto(contents, name) for name, contents in done.initializers)
    return done.model


def _tail(graph: Graph, path: Place | None, config: ExportConfig | None, fields: Mapping[str, Any]) -> Conversion:
    """Run the steps that follow reading; only requested transforms and verifications are included."""
    settings = given_config(ExportConfig, config, fields, without=("read", "dims"))
    check_whole(graph)
    whole = given_config(ConvertConfig, settings, {"verify": False if settings.verify is None else settings.verify})
    return Conversion(graph, path, whole, STEPS, first="functions", automatic=False)


def plan(graph: Graph, config: ExportConfig | None = None, **options: Any) -> ConversionPlan:
    """Plan of ``convert`` with these options: the outcome of each node, with all obstacles."""
    return planned(graph, config, **options)[0]


def planned(graph: Graph, config: ExportConfig | None = None, **options: Any) -> tuple[ConversionPlan, Graph]:
    """The plan of ``convert``, and the resulting graph, in which refused nodes are unchanged."""
    from tenonnx.formats.onnx.ir import ir_version

    conversion = Conversion(graph, None, given_config(ConvertConfig, config, options), STEPS, refuse=False)
    conversion.run(until="tidy")
    try:
        state = conversion.run(until="message").state
        version = ir_version(state.graph, state.target.runtime)
        return ConversionPlan(state.target, list(state.changes), version), state.graph
    except NotRepresentable as error:
        refused = Change(graph.name, "graph", "refused", f"{error.what}: {error.given}", do=error.do)
        state = conversion.state
        return ConversionPlan(state.target, [*state.changes, refused], None), state.graph
