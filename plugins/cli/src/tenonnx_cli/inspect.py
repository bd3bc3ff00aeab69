"""``tenonnx inspect``: what is in a model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.options import InputShapes, json_option, load_model, model_argument, shapes_option
from tenonnx_cli.output import complain, plural, say, say_json, say_lines, say_table
from tenonnx_cli.printable import printable

if TYPE_CHECKING:
    from tenonnx import Graph
    from tenonnx_optimize.costs import Costs

#: Characters of a metadata entry that are printed.
LONGEST = 160


@click.command("inspect")
@model_argument
@click.option("--variables", "all_variables", is_flag=True, help="List every initializer.")
@click.option("--nodes", "all_nodes", is_flag=True, help="List every node.")
@click.option("--costs", "with_costs", is_flag=True, help="List multiplications, bytes and live memory of each node.")
@click.option("--dot", "drawn", flag_value="dot", help="Print the graph in DOT format, for Graphviz.")
@click.option("--svg", "drawn", flag_value="svg", help="Print a drawing of the graph as SVG.")
@click.option("--html", "drawn", flag_value="html", help="Print a drawing of the graph as an HTML page.")
@shapes_option
@json_option
def command(
    model: str,
    all_variables: bool,
    all_nodes: bool,
    with_costs: bool,
    drawn: str | None,
    input_shapes: InputShapes,
    as_json: bool,
) -> None:
    """Show the inputs, outputs, opsets, operators and weights of a model.

    Types come from shape inference. Operators that no installed package provides are listed with the package to
    install.
    """
    from tenonnx import InvalidCall, infer
    from tenonnx.tools import late
    from tenonnx_cli.describe import describe, list_nodes

    if drawn is not None and (as_json or all_variables or all_nodes or with_costs):
        raise InvalidCall("a drawing is all that is printed", given=f"--{drawn} and another option of what to print")
    graph = load_model(model)
    problems = infer(graph, input_shapes, strict=False)
    if drawn is not None:
        _draw(graph, drawn)
        return
    spent = late("costs")(graph, input_shapes) if with_costs else None
    data = {"file": model, **describe(graph), "problems": [str(problem) for problem in problems]}
    if as_json:
        say_json(data | {"nodes": list_nodes(graph)} | ({} if spent is None else {"costs": asdict(spent)}))
        return
    _say_head(data)
    if all_variables and data["variables"]:
        say()
        say("variables")
        say_table([(v["name"], v["type"], plural(v["bytes"], "byte")) for v in data["variables"]])
    if all_variables and (state := data["training_state"]):
        say()
        say("training state")
        say_table([(t["name"], t["type"], plural(t["bytes"], "byte")) for t in state["tensors"]])
    if all_nodes:
        say()
        say("nodes")
        rows = [(n["name"], n["op"], ", ".join(n["inputs"]), _typed(n["outputs"])) for n in list_nodes(graph)]
        say_table(rows, ("name", "op", "inputs", "outputs"))
    if spent is not None:
        _say_costs(spent)
    for problem in problems:
        complain(f"problem: {problem}")


def _draw(graph: Graph, kind: str) -> None:
    from tenonnx_cli.drawing import escape, to_dot, to_html, to_svg

    if kind == "html":
        page = f'<meta charset="utf-8"><title>{escape(printable(graph.name))}</title>{to_html(graph)}'
        say_lines(f"<!DOCTYPE html>\n{page}")
    else:
        say_lines((to_dot if kind == "dot" else to_svg)(graph))


def _say_costs(spent: Costs) -> None:
    sizes = ", ".join(f"{name} is {size}" for name, size in spent.sizes.items())
    say()
    say(f"costs{f', where {sizes} (--input-shapes gives others)' if sizes else ''}")
    rows = [
        (each.node, each.op, *(_number(n) for n in (each.multiplications, each.weights, each.written, each.live)))
        for each in spent.nodes
    ]
    total = ("in all", "", _number(spent.multiplications), _number(spent.weights), "", f"at most {spent.peak:,}")
    say_table([*rows, total], ("node", "op", "multiplications", "bytes of weights", "bytes written", "bytes live"))


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _say_head(data: dict[str, Any]) -> None:
    opsets = ", ".join(f"{domain} {version}" for domain, version in data["opsets"].items()) or "none"
    say(f'{data["file"]}: graph "{data["name"]}"')
    head = [("opsets", opsets), ("IR version", str(data["ir_version"] or "none")), ("producer", data["producer"])]
    head += [("doc", _cut(data["doc"])), *((key, _cut(text)) for key, text in data["metadata"].items())]
    size = sum(v["bytes"] for v in data["variables"])
    head.append(("variables", f"{len(data['variables']):,}, {plural(size, 'byte')}"))
    if state := data["training_state"]:
        kept = f"{plural(len(state['tensors']), 'tensor')}, {plural(sum(t['bytes'] for t in state['tensors']), 'byte')}"
        head.append(("training state", kept))
        head += [(f"  {name}", _cut(_setting(value))) for name, value in state["settings"].items() if value]
    head.append(("nodes", f"{sum(op['count'] for op in data['ops']):,}"))
    say_table([row for row in head if row[1]])
    for kind in ("inputs", "outputs"):
        say()
        say(kind)
        if data[kind]:
            say_table([(value["name"], value["type"]) for value in data[kind]])
    say()
    say("ops")
    if data["ops"]:
        rows = [(op["op"], str(op["version"]), str(op["count"]), op["missing"] or op["package"]) for op in data["ops"]]
        say_table(rows, ("op", "version", "nodes", "provided by"))
    if data["functions"]:
        say()
        say("functions of the model")
        say_table([(f["op"], f["overload"], plural(f["nodes"], "node")) for f in data["functions"]])
    if data["subgraphs"]:
        say()
        say("subgraphs")
        say_table([(s["node"], s["op"], s["name"], plural(s["nodes"], "node")) for s in data["subgraphs"]])


def _setting(value: Any) -> str:
    """A setting in few words: what has a name goes by it."""
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    return str(value.get("name", value)) if isinstance(value, dict) else str(value)


def _cut(text: str) -> str:
    """The first line of a text, as far as it is not long; --json has all of it."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= LONGEST else f"{first[:LONGEST]}..."


def _typed(outputs: list[dict[str, Any]]) -> str:
    return ", ".join(f"{value['name']}: {value['type']}" for value in outputs)
