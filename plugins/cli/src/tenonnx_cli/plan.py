"""``tenonnx plan``: what a conversion would do, without doing it."""

from __future__ import annotations

from typing import Any

import click

from tenonnx_cli.devices import mesh_options
from tenonnx_cli.options import (
    InputShapes,
    TransformingCommand,
    config_options,
    json_option,
    load_model,
    model_argument,
    note_unused,
    transforms_given,
)
from tenonnx_cli.output import plural, say, say_json, say_lines, working

#: What may be asked of the steps that are planned.
_OPTIONS = (
    "opset_version", "domains", "target", "fuse", "fuse_also", "functions", "ir_version", "fix_shapes", "free_dims",
    "input_shapes",
)  # fmt: skip


@click.command("plan", cls=TransformingCommand)
@model_argument
@config_options(*_OPTIONS)
@mesh_options
@json_option
def command(
    model: str,
    input_shapes: InputShapes,
    devices: int | None,
    mesh: dict[str, int] | None,
    sharding: dict[str, Any] | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Show what `convert` would do, without writing a file.

    Lists what would happen to each node, including those of subgraphs, and everything that prevents the conversion.
    Exit code 1 if it is not possible.

    With --devices or --mesh, shows instead how the model would be distributed: the bytes on each device, and the data
    that devices exchange in a call. A training step (train --emit-step) includes gradients and optimizer state.
    """
    if devices is not None or mesh is not None or sharding is not None:
        return _over_devices(model, input_shapes, devices, mesh, sharding, as_json, options)
    from tenonnx import infer
    from tenonnx.tools import late_if_installed, plan
    from tenonnx_cli.changes import say_changes, say_summary, summarize

    graph = load_model(model)
    with working(f"planning {model}"):
        infer(graph, input_shapes, strict=False)
        where, changes, ir_version = plan(graph, transforms=transforms_given(), **options)
        constant_where_fixed = late_if_installed("constant_where_fixed")
        fixed = [] if constant_where_fixed is None else constant_where_fixed(graph)
    note_unused(
        options["opset_version"], {"ai.onnx", *graph.opsets, *(change.op.partition("::")[0] for change in changes)}
    )
    refused = sum(change.action == "refused" for change in changes)
    if as_json:
        say_json(
            {
                "file": model,
                "target": options["target"],
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


def _over_devices(
    model: str,
    shapes: InputShapes,
    devices: int | None,
    mesh: dict[str, int] | None,
    sharding: dict[str, Any] | None,
    as_json: bool,
    options: dict[str, Any],
) -> int:
    """What each of several devices holds, and what they exchange."""
    from tenonnx import InvalidCall, infer
    from tenonnx.tools import late

    if devices is None and mesh is None:
        raise InvalidCall("--sharding needs --mesh", given="--sharding alone", do="add a mesh: --mesh data=4,model=2")
    source = click.get_current_context().get_parameter_source
    given = [each for each in click.get_current_context().command.params if each.name in options]
    asked = [each.opts[0] for each in given if (found := source(str(each.name))) and found.name == "COMMANDLINE"]
    asked += [f"--{name.replace('_', '-')}" for name in transforms_given()]
    if asked:
        raise InvalidCall(
            "a plan is for a conversion or for devices, not both",
            given=f"{asked[0]} beside --devices, --mesh or --sharding",
            do="convert the model first, then plan its devices",
        )  # fmt: skip
    graph = load_model(model)
    with working(f"planning {model}"):
        infer(graph, shapes, strict=False)
        numbers = {
            name: tuple(n if isinstance(n, int) else None for n in shape) for name, shape in (shapes or {}).items()
        }
        found = late("layout_plan")(graph, mesh, sharding, devices=devices, shapes=numbers)
    if as_json:
        say_json({"file": model, **found.to_json()})
    else:
        say(f"{model} on {plural(found.devices, 'device')}")
        say_lines(str(found))
    return 0
