"""``tenonnx grad``: the gradient of a model as a model."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tenonnx_cli.extend import (
    Command,
    json_option,
    load_model,
    model_argument,
    opened,
    output_option,
    overwrite_option,
    plural,
    quiet_option,
    say,
    say_json,
    target_options,
    working,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenonnx.extend import Graph


@click.command(
    "grad",
    cls=Command,
    examples=[
        'tenonnx grad model.onnx --of loss --wrt "conv.*" -o gradient.onnx',
        "tenonnx grad model.onnx --of y --wrt x --cotangent g -o vjp.onnx",
    ],
)
@model_argument
@click.option(
    "--of", required=True, metavar="VALUE", help="The value to differentiate: an output or an intermediate value."
)
@click.option(
    "--wrt",
    required=True,
    metavar="A,B",
    help="Differentiate with respect to these values, which may be patterns such as conv.*.",
)
@output_option
@click.option(
    "--cotangent",
    metavar="NAME",
    help="Add an input of this name for the cotangent of --of: the outputs are then vector-Jacobian products. "
    "Required unless --of is a scalar.",
)
@target_options
@overwrite_option
@quiet_option
@json_option
def command(
    model: str,
    of: str,
    wrt: str,
    output: str,
    cotangent: str | None,
    opset_version: Mapping[str, int] | None,
    domains: Sequence[str] | None,
    target: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Add gradients to a model, as an output NAME/grad for each value of --wrt.

    The result is an ordinary ONNX model that any runtime can run.
    """
    import tenonnx as tx

    graph = load_model(model)
    names = _matching(graph, [name.strip() for name in wrt.split(",")])
    with working(f"differentiating {model}"):
        gradient = tx.grad(graph, of=of, wrt=names, seeds=None if cotangent is None else {of: cotangent})
        report = tx.export(
            gradient,
            opened(output),
            opset_version=opset_version,
            domains=domains,
            target=target,
            overwrite=overwrite,
        )
    added = [f"{name}/grad" for name in names]
    if as_json:
        say_json({"file": model, "output": output, "gradients": added, **report.to_dict()})
        return
    say(f"{output}: {plural(len(gradient.nodes), 'node')}, of which the model had {len(graph.nodes):,}")
    for name in added:
        say(f"  {name}")


def _matching(graph: Graph, patterns: Sequence[str]) -> list[str]:
    """The values with these names, and the inputs and variables that match a pattern."""
    from tenonnx.extend import InvalidCall
    from tenonnx.tools import did_you_mean, listing

    exact = {value.name for value in graph.values()}
    leaves = list(dict.fromkeys(value.name for value in (*graph.all_inputs, *graph.variables)))
    found: list[str] = []
    for pattern in patterns:
        names = [pattern] if pattern in exact else fnmatch.filter(leaves, pattern)
        if not names:
            what, do = f'--wrt "{pattern}" matches no value, input or variable', did_you_mean(pattern, exact)
            raise InvalidCall(what, available=listing(leaves), do=do)
        found += names
    return list(dict.fromkeys(found))
