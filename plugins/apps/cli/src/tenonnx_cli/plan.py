"""``tenonnx plan``: a dry run of a conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.devices import mesh_options
from tenonnx_cli.model_size import ModelSize, model_size, say_sizes
from tenonnx_cli.options import (
    InputShapes,
    PlanningCommand,
    config_options,
    json_option,
    model_argument,
    note_unused,
    seed_option,
    transforms_given,
    verbosity_options,
)
from tenonnx_cli.output import plural, say, say_json, say_lines, working
from tenonnx_cli.source import SourceOptions, source_options

if TYPE_CHECKING:
    from tenonnx import Graph

#: Options that affect the planned steps.
_OPTIONS = (
    "opset_version",
    "domains",
    "target",
    "ops",
    "without",
    "assume_finite",
    "approximate",
    "functions",
    "initializers_as_constants",
    "ir_version",
    "fix_shapes",
    "free_dims",
    "dynamic_batch",
    "input_shapes",
)


@click.command(
    "plan",
    cls=PlanningCommand,
    examples=[
        "tenonnx plan model.onnx --opset 13",
        "tenonnx plan model.onnx --target tensorrt-10",
    ],
)
@model_argument
@source_options
@config_options(*_OPTIONS)
@seed_option
@mesh_options
@verbosity_options
@json_option
def command(
    model: str,
    source: SourceOptions,
    input_shapes: InputShapes,
    seed: int,
    devices: int | None,
    mesh: dict[str, int] | None,
    sharding: dict[str, Any] | None,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Show what `convert` would do, without writing a file.

    Lists what would happen to each node, including those of subgraphs, and everything that prevents the conversion.
    For a target or a list of ops, also shows nodes and multiplications before and after, and which of --assume-finite
    and --approximate would help. Exit code 1 if it is not possible.

    With --devices or --mesh, shows instead how the model would be distributed: the bytes on each device, and the data
    that devices exchange in a call. A training step (train --emit-step) includes gradients and optimizer state.
    """
    if devices is not None or mesh is not None or sharding is not None:
        return _over_devices(model, source, input_shapes, devices, mesh, sharding, as_json, options)
    from tenonnx import infer
    from tenonnx.tools import find_extension, planned
    from tenonnx_cli.changes import say_changes, say_summary, summarize

    graph = source.read(model, seed).graph
    with working(f"planning {model}"):
        infer(graph, input_shapes, strict=False)
        (where, changes, ir_version), moved = planned(graph, transforms=transforms_given(), **options)
        constant_where_fixed = find_extension("tools.constant_where_fixed")
        fixed = [] if constant_where_fixed is None else constant_where_fixed(graph)
    note_unused(
        options["opset_version"], {"ai.onnx", *graph.opsets, *(change.op.partition("::")[0] for change in changes)}
    )
    refused = sum(change.action == "refused" for change in changes)
    sizes = [] if where.runtime is None else _sizes(graph, moved, input_shapes)
    helpful = {} if where.runtime is None or not refused else _helpful_options(graph, refused, options)
    if as_json:
        say_json(
            {
                "file": model,
                "target": options["target"],
                "opsets": dict(where.opsets),
                "ir_version": ir_version,
                "possible": not refused,
                "summary": summarize(changes),
                "nodes": [change.to_dict() for change in changes],
                "constant_if_shapes_were_fixed": fixed,
                **{name: size.to_dict() for name, size in zip(("before", "after"), sizes, strict=False)},
                "would_help": helpful,
            }
        )
        return 1 if refused else 0
    kept = sum(change.action == "kept" for change in changes)
    changed = len(changes) - kept - refused
    verdict = "possible" if not refused else f"not possible: {plural(refused, 'obstacle')}"
    version = f"; IR {ir_version}" if ir_version is not None else ""
    say(f"{verdict}: {model} to {where}{version}", style="red" if refused else "green")
    say(f"{plural(kept, 'node')} kept, {plural(changed, 'node')} rewritten, {refused:,} refused")
    say_summary(changes)
    say_changes(changes, all_nodes=verbose)
    if sizes and changed:
        say_sizes(*sizes)
    for name, left in helpful.items():
        flag = f"--{name.replace('_', '-')}"
        say(f"possible with {flag}" if not left else f"{flag} would leave {plural(left, 'obstacle')}")
    if fixed:
        say(f"with fixed shapes (convert --fix-shapes) {plural(len(fixed), 'node')} more would be constant")
    return 1 if refused else 0


def _sizes(graph: Graph, moved: Graph, shapes: InputShapes) -> list[ModelSize]:
    """Sizes of the model before and after, with multiplications if these can be counted."""
    from tenonnx.tools import find_extension

    costs = find_extension("costs") is not None
    return [model_size(each, costs=costs, input_shapes=shapes) for each in (graph, moved)]


def _helpful_options(graph: Graph, refused: int, options: dict[str, Any]) -> dict[str, int]:
    """Accuracy options with which fewer nodes are refused, each with the number that remains."""
    from tenonnx.tools import plan

    result: dict[str, int] = {}
    for name in ("assume_finite", "approximate"):
        if options[name] or options["approximate"] or 0 in result.values():
            continue
        changes = plan(graph, transforms=transforms_given(), **{**options, name: True}).changes
        left = sum(change.action == "refused" for change in changes)
        if left < min([refused, *result.values()]):
            result[name] = left
    return result


def _over_devices(
    model: str,
    source: SourceOptions,
    shapes: InputShapes,
    devices: int | None,
    mesh: dict[str, int] | None,
    sharding: dict[str, Any] | None,
    as_json: bool,
    options: dict[str, Any],
) -> int:
    """Show the arrays of each device, and the communication between devices."""
    from tenonnx import InvalidCall, infer
    from tenonnx.tools import extension

    if devices is None and mesh is None:
        raise InvalidCall("--sharding was given without --mesh", do="add a mesh: --mesh data=4,model=2")
    given_by = click.get_current_context().get_parameter_source
    context = click.get_current_context()
    given = [each for each in context.command.get_params(context) if each.name in options]
    option_names = [
        each.opts[0] for each in given if (found := given_by(str(each.name))) and found.name == "COMMANDLINE"
    ]
    option_names += [f"--{name.replace('_', '-')}" for name in transforms_given()]
    if option_names:
        raise InvalidCall(
            "options of a conversion and of devices were given for one plan",
            given=f"{option_names[0]} beside --devices, --mesh or --sharding",
            do="convert the model first, then plan its devices",
        )
    graph = source.read(model, 0).graph
    with working(f"planning {model}"):
        infer(graph, shapes, strict=False)
        numbers = {
            name: tuple(n if isinstance(n, int) else None for n in shape) for name, shape in (shapes or {}).items()
        }
        found = extension("tools.layout_plan")(graph, mesh, sharding, devices=devices, shapes=numbers)
    if as_json:
        say_json({"file": model, **found.to_dict()})
    else:
        say(f"{model} on {plural(found.devices, 'device')}")
        say_lines(str(found))
    return 0
