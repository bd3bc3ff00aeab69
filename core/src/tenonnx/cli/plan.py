"""``tenonnx plan``: what a conversion would do, without doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenonnx.cli.options import InputShapes, json_option, load_model, model_argument, shapes_option, target_options
from tenonnx.cli.output import plural, say, say_json, working

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@click.command("plan")
@model_argument
@target_options
@shapes_option
@json_option
def command(
    model: str,
    opset: Mapping[str, int] | None,
    domains: Sequence[str] | None,
    input_shapes: InputShapes,
    as_json: bool,
) -> int:
    """Show what a conversion would do.

    Says what would become of each node, and everything that stands in the way. Exit code 1 if a node has no form in
    the target.
    """
    from tenonnx.cli.changes import say_changes
    from tenonnx.op.graph_inference import infer
    from tenonnx.transforms.retarget import retarget_to
    from tenonnx.transforms.targets import target_for

    graph = load_model(model)
    target = target_for(graph, opset, domains)
    with working(f"planning {model}"):
        infer(graph, input_shapes, strict=False)
        planned = retarget_to(graph, target, refuse=False)
    if as_json:
        nodes = [change.to_json() for change in planned.changes]
        say_json({"file": model, "opsets": dict(target.opsets), "possible": not planned.refused, "nodes": nodes})
        return 1 if planned.refused else 0
    kept = sum(change.action == "kept" for change in planned.changes)
    changed = len(planned.changes) - kept - len(planned.refused)
    say(f"{model} to {', '.join(f'{domain} {version}' for domain, version in target.opsets.items())}")
    say(f"{plural(kept, 'node')} kept, {plural(changed, 'node')} rewritten, {len(planned.refused):,} refused")
    say_changes(planned.changes)
    return 1 if planned.refused else 0
