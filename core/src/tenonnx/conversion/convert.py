"""Converting and exporting: a model through the table of steps, or through the tail of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenonnx import limits
from tenonnx.conversion.conversion import Conversion, Place
from tenonnx.conversion.options import ConvertConfig, ExportConfig, given_config
from tenonnx.conversion.report import ConversionPlan, Report
from tenonnx.conversion.steps import STEPS
from tenonnx.errors import InvalidCall, NotRepresentable, OutOfTime, TenonnxError, VerificationFailed
from tenonnx.graph.graph import Graph
from tenonnx.graph.order import check_whole
from tenonnx.transforms.report import Change

if TYPE_CHECKING:
    import onnx


def not_verified(seconds: float) -> VerificationFailed:
    """The error of a verification that took longer."""
    return VerificationFailed(
        f"not verified: the model must finish within {seconds:g} s",
        do="allow more time (--timeout SECONDS), or smaller inputs (--input-shapes, --inputs)",
    )


@contextmanager
def ending_within(seconds: float, late: Callable[[float], TenonnxError] = not_verified) -> Iterator[None]:
    """Let work on a model end within so many seconds. Raises what ``late`` gives where it does not."""
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
    """Read a model, change it as is asked, and write it to a path or a binary stream, compared with what was read.

    ``source`` is a graph, or what ``load`` takes, with ``examples`` and its options as ``reading``; ``options`` are
    those of ``tenonnx convert``, the fields of ``ConvertConfig``, and override those of ``config``. Raises
    ``NotRepresentable`` naming every node that cannot be expressed in the target, ``VerificationFailed`` where the
    outputs differ from the original's or the comparison does not end, and what
    ``load`` raises; then nothing is written.
    """
    settings: ConvertConfig = given_config(ConvertConfig, config, options)
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "the original"
    conversion = Conversion(source, path, settings, STEPS, examples=examples, reading=reading, name=name)
    with ending_within(settings.timeout):
        conversion.run(until="write")
    return conversion.run().report


def export(graph: Graph, path: Place, config: ExportConfig | None = None, **fields: Any) -> Report:
    """Write ``graph`` to a path or a binary stream; ``fields`` override those of ``config``.

    Without a target, or with the graph's own, every untouched node is written as it was read. Raises
    ``NotRepresentable`` naming every node that cannot be expressed in the target; then nothing is written.
    """
    if not isinstance(path, str | os.PathLike) and not hasattr(path, "write"):
        raise InvalidCall("export must be given a path or a binary stream", given=type(path).__name__)
    return _tail(graph, path, config, fields).run().report


def to_proto(graph: Graph, **fields: Any) -> onnx.ModelProto:
    """What ``export`` with these fields of ``ExportConfig`` would write, as one message."""
    from tenonnx.formats.onnx.tensors import to_inline_proto

    done = _tail(graph, None, None, fields).run(until="write")
    done.model.graph.initializer.extend(to_inline_proto(contents, name) for name, contents in done.initializers)
    return done.model


def _tail(graph: Graph, path: Place | None, config: ExportConfig | None, fields: Mapping[str, Any]) -> Conversion:
    """The table from where a graph is at hand: without an answer it neither fuses nor verifies."""
    settings = given_config(ExportConfig, config, fields)
    fuse, verify = settings.fuse or bool(settings.fuse_also), settings.verify
    check_whole(graph)
    whole = given_config(ConvertConfig, settings, {"fuse": fuse, "verify": False if verify is None else verify})
    return Conversion(graph, path, whole, STEPS, first="functions")


def plan(graph: Graph, config: ExportConfig | None = None, **options: Any) -> ConversionPlan:
    """What ``convert`` would do with these options: what becomes of each node, with all that stands in the way."""
    from tenonnx.formats.onnx.ir import ir_version

    conversion = Conversion(graph, None, given_config(ConvertConfig, config, options), STEPS, refuse=False)
    conversion.run(until="tidy")
    try:
        conversion.run(until="message")
        version = ir_version(conversion.graph, conversion.target.runtime)
        return ConversionPlan(conversion.target, conversion.changes, version)
    except NotRepresentable as error:
        refused = Change(graph.name, "graph", "refused", f"{error.what}: {error.given}", do=error.do)
        return ConversionPlan(conversion.target, [*conversion.changes, refused], None)
