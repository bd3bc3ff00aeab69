"""``tenonnx inspect``: what is in a model."""

from __future__ import annotations

from typing import Any

import click

from tenonnx.cli.options import InputShapes, json_option, load_model, model_argument, shapes_option
from tenonnx.cli.output import complain, plural, say, say_json, say_table

#: Characters of a metadata entry that are printed.
LONGEST = 160


@click.command("inspect")
@model_argument
@click.option("--variables", "all_variables", is_flag=True, help="List every variable.")
@click.option("--nodes", "all_nodes", is_flag=True, help="List every node.")
@shapes_option
@json_option
def command(model: str, all_variables: bool, all_nodes: bool, input_shapes: InputShapes, as_json: bool) -> None:
    """Show what is in a model.

    Types are inferred. Ops that no installed package provides are listed with the package that would.
    """
    from tenonnx.cli.describe import describe, list_nodes
    from tenonnx.op.graph_inference import infer

    graph = load_model(model)
    problems = infer(graph, input_shapes, strict=False)
    data = {"file": model, **describe(graph), "problems": [str(problem) for problem in problems]}
    if as_json:
        say_json(data | {"nodes": list_nodes(graph)})
        return
    _say_head(data)
    if all_variables and data["variables"]:
        say("\nvariables")
        say_table([(v["name"], v["type"], plural(v["bytes"], "byte")) for v in data["variables"]])
    if all_nodes:
        say("\nnodes")
        rows = [(n["name"], n["op"], ", ".join(n["inputs"]), _typed(n["outputs"])) for n in list_nodes(graph)]
        say_table(rows, ("name", "op", "inputs", "outputs"))
    for problem in problems:
        complain(f"problem: {problem}")


def _say_head(data: dict[str, Any]) -> None:
    opsets = ", ".join(f"{domain} {version}" for domain, version in data["opsets"].items()) or "none"
    say(f'{data["file"]}: graph "{data["name"]}"')
    head = [("opsets", opsets), ("IR version", str(data["ir_version"] or "none")), ("producer", data["producer"])]
    head += [("doc", _cut(data["doc"])), *((key, _cut(text)) for key, text in data["metadata"].items())]
    size = sum(v["bytes"] for v in data["variables"])
    head.append(("variables", f"{len(data['variables']):,}, {plural(size, 'byte')}"))
    head.append(("nodes", f"{sum(op['count'] for op in data['ops']):,}"))
    say_table([row for row in head if row[1]])
    for kind in ("inputs", "outputs"):
        say(f"\n{kind}")
        if data[kind]:
            say_table([(value["name"], value["type"]) for value in data[kind]])
    say("\nops")
    if data["ops"]:
        rows = [(op["op"], str(op["version"]), str(op["count"]), op["missing"] or op["package"]) for op in data["ops"]]
        say_table(rows, ("op", "version", "nodes", "provided by"))
    if data["functions"]:
        say("\nfunctions of the model")
        say_table([(f["op"], f["overload"], plural(f["nodes"], "node")) for f in data["functions"]])
    if data["subgraphs"]:
        say("\nsubgraphs")
        say_table([(s["node"], s["op"], s["name"], plural(s["nodes"], "node")) for s in data["subgraphs"]])


def _cut(text: str) -> str:
    """The first line of a text, as far as it is not long; --json has all of it."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= LONGEST else f"{first[:LONGEST]}..."


def _typed(outputs: list[dict[str, Any]]) -> str:
    return ", ".join(f"{value['name']}: {value['type']}" for value in outputs)
