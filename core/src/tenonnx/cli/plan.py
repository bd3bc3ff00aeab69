"""``tenonnx plan``: what a conversion would do, without doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenonnx.cli.options import (
    InputShapes,
    TransformingCommand,
    fuse_option,
    has_more_ops,
    json_option,
    load_model,
    model_argument,
    note_unused,
    shapes_option,
    target_options,
    transformed,
)
from tenonnx.cli.output import plural, say, say_json, working

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@click.command("plan", cls=TransformingCommand)
@model_argument
@target_options
@fuse_option
@shapes_option
@json_option
def command(
    model: str,
    opset_version: Mapping[str, int] | None,
    domains: Sequence[str] | None,
    target: str | None,
    fuse: bool | None,
    input_shapes: InputShapes,
    as_json: bool,
) -> int:
    """Show what a conversion would do.

    Says what would become of each node, those of subgraphs included, and everything that stands in the way. Exit code 1
    if anything does.
    """
    from tenonnx.cli.changes import say_changes, say_summary, summarize
    from tenonnx.formats.export import ExportConfig, plan
    from tenonnx.op.graph_inference import infer
    from tenonnx.transforms.simplify import constant_where_fixed

    graph = transformed(load_model(model))
    with working(f"planning {model}"):
        infer(graph, input_shapes, strict=False)
        fused = has_more_ops(graph, opset_version, domains) if fuse is None else fuse
        where, changes, ir_version = plan(graph, ExportConfig(opset_version, domains, target, fuse=fused))
        fixed = constant_where_fixed(graph)
    note_unused(opset_version, {"ai.onnx", *graph.opsets, *(change.op.partition("::")[0] for change in changes)})
    refused = sum(change.action == "refused" for change in changes)
    if as_json:
        say_json(
            {
                "file": model,
                "target": target,
                "opsets": dict(where.opsets),
                "ir_version": ir_version,
                "possible": not refused,
                "summary": summarize(changes),
                "nodes": [change.to_json() for change in changes],
                "constant_if_shapes_were_fixed": fixed,
            }
        )
        return 1 if refused else 0
    kept = sum(change.action == "kept" for change in changes)
    changed = len(changes) - kept - refused
    say(f"{model} to {where}" + (f"; IR {ir_version}" if ir_version is not None else ""))
    say("possible" if not refused else f"not possible: {plural(refused, 'obstacle')}")
    say(f"{plural(kept, 'node')} kept, {plural(changed, 'node')} rewritten, {refused:,} refused")
    say_summary(changes)
    say_changes(changes)
    if fixed:
        say(f"with fixed shapes (convert --fix-shapes) {plural(len(fixed), 'node')} more would be constant")
    return 1 if refused else 0
