"""``tenonnx compare``: what differs between two models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tenonnx.cli.options import (
    InputShapes,
    input_options,
    json_option,
    load_model,
    seed_option,
    shapes_option,
    tolerance_options,
)
from tenonnx.cli.output import interruptible, plural, say, say_json, say_table, working
from tenonnx.graph.types import TensorType

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph


@click.command("compare")
@click.argument("first", metavar="FIRST")
@click.argument("second", metavar="SECOND")
@input_options
@shapes_option
@seed_option
@tolerance_options
@json_option
def command(
    first: str,
    second: str,
    inputs: Sequence[str],
    archive: str | None,
    input_shapes: InputShapes,
    seed: int,
    absolute: float | None,
    relative: float | None,
    as_json: bool,
) -> int:
    """Compare two models: their structure, then their numbers, then the first node where these part.

    FIRST is run on numpy, SECOND on numpy and, where it is installed, on onnxruntime. Other structure alone is no
    failure. Exit code 1 if the interfaces or numbers differ.
    """
    from tenonnx.checks.verify import verify
    from tenonnx.cli.arrays import read_feeds

    one, other = load_model(first), load_model(second)
    differences = structural_differences(one, other)
    feeds = read_feeds(one, inputs, archive) or None
    with working(f"comparing {first} and {second}"), interruptible():
        found = verify(
            one, other, feeds=feeds, input_shapes={**_sizes(one, other), **input_shapes}, seed=seed,
            absolute=absolute, relative=relative, structure=False,
        )  # fmt: skip
    if as_json:
        say_json({"first": first, "second": second, "structure": differences, **found.to_json()})
        return 0 if found.equal else 1
    for kind, rows in differences.items():
        say(f"{kind}: {plural(len(rows), 'difference')}")
        say_table([(row["name"], row["first"], row["second"]) for row in rows], ("", first, second))
    if not differences:
        say("structure: equal")
    say(f"numbers: {found}")
    return 0 if found.equal else 1


def _sizes(one: Graph, other: Graph) -> InputShapes:
    """The numbers that the second model demands where the first leaves a dim open."""
    theirs = {value.name: value.type for value in other.inputs}
    found: InputShapes = {}
    for value in one.inputs:
        ours, kind = value.type, theirs.get(value.name)
        if isinstance(ours, TensorType) and isinstance(kind, TensorType) and ours.rank == kind.rank and ours.shape:
            pairs = zip(ours.shape, kind.shape or (), strict=True)
            found[value.name] = tuple(b if isinstance(b, int) and not isinstance(a, int) else None for a, b in pairs)
    return found


def structural_differences(one: Graph, other: Graph) -> dict[str, list[dict[str, str]]]:
    """What both have otherwise, by kind: inputs, outputs, opsets, counts of ops, and variables."""
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "inputs": (_types(one.inputs), _types(other.inputs)),
        "outputs": (_types(one.outputs), _types(other.outputs)),
        "opsets": (one.opsets, other.opsets),
        "nodes by op": (_ops(one), _ops(other)),
        "variables": (_types(one.variables), _types(other.variables)),
    }
    return {
        kind: [
            {"name": name, "first": str(ours.get(name, "-")), "second": str(theirs.get(name, "-"))}
            for name in dict.fromkeys([*ours, *theirs])
            if ours.get(name) != theirs.get(name)
        ]
        for kind, (ours, theirs) in kinds.items()
        if ours != theirs
    }


def _types(values: Sequence[Any]) -> dict[str, Any]:
    return {value.name: value.type for value in values}


def _ops(graph: Graph) -> Counter[str]:
    from tenonnx.cli.describe import op_name

    return Counter(map(op_name, graph.walk()))
