"""``tenonnx compare``: what differs between two models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.comparison import ComparisonOptions, comparison_options
from tenonnx_cli.options import json_option, load_model, models_argument
from tenonnx_cli.output import plural, say, say_json, say_lines, say_table
from tenonnx_cli.parts import pairs

if TYPE_CHECKING:
    from tenonnx import Graph


@click.command("compare")
@models_argument
@click.option(
    "--map", "mapping", multiple=True, callback=pairs, metavar="A=B",
    help="Input or output A of FIRST is named B in SECOND. Repeatable.",
)  # fmt: skip
@comparison_options
@json_option
def command(first: str, second: str, mapping: dict[str, str], comparison: ComparisonOptions, as_json: bool) -> int:
    """Compare two models: their structure, their numbers, and the first node that diverges.

    FIRST runs on numpy, SECOND on numpy and, if installed, on onnxruntime. Exit code 1 if inputs, outputs or their
    values differ; a different graph structure alone is not a failure.
    """
    one, other = load_model(first), load_model(second)
    _call_alike(one, other, mapping)
    differences = structural_differences(one, other)
    found = comparison.run(one, other, f"comparing {first} and {second}", structure=False)
    if as_json:
        say_json({"first": first, "second": second, "structure": differences, **found.to_json()})
        return 0 if found.equal else 1
    for kind, rows in differences.items():
        say(f"{kind.replace('_', ' ')}: {plural(len(rows), 'difference')}")
        say_table([(row["name"], row["first"], row["second"]) for row in rows], ("", first, second))
    if not differences:
        say("structure: equal")
    say_lines(f"numbers: {found}")
    return 0 if found.equal else 1


def _call_alike(one: Graph, other: Graph, mapping: Mapping[str, str]) -> None:
    """Give inputs and outputs of the second model the names that they have in the first."""
    from tenonnx import InvalidCall
    from tenonnx_cli.parts import rename_all

    for graph, names in ((one, mapping.keys()), (other, mapping.values())):
        known = [value.name for value in (*graph.all_inputs, *graph.outputs)]
        strange = [name for name in names if name not in known]
        if strange:
            what = "--map takes inputs and outputs, those of the first model ahead of those of the second"
            raise InvalidCall(what, given=", ".join(strange), available=", ".join(known))
    rename_all(other, {theirs: ours for ours, theirs in mapping.items()})


def structural_differences(one: Graph, other: Graph) -> dict[str, list[dict[str, str]]]:
    """What both have otherwise, by kind: inputs, outputs, opsets, counts of ops, and variables."""
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "inputs": (_types(one.inputs), _types(other.inputs)),
        "outputs": (_types(one.outputs), _types(other.outputs)),
        "opsets": (one.opsets, other.opsets),
        "nodes_by_op": (_ops(one), _ops(other)),
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
    from tenonnx_cli.describe import op_name

    return Counter(map(op_name, graph.walk()))
