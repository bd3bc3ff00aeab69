"""``tenonnx inspect``: the contents of a model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.attributes import attribute_text
from tenonnx_cli.command import Command
from tenonnx_cli.options import InputShapes, json_option, load_model, model_argument, shapes_option
from tenonnx_cli.output import complain, plural, say, say_json, say_lines, say_table
from tenonnx_cli.printable import printable
from tenonnx_cli.trust import run_python_files, trust_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenonnx import Graph
    from tenonnx_optimize.cost_model import Costs

#: Maximum length of a printed metadata entry.
LONGEST = 160


@click.command(
    "inspect",
    cls=Command,
    examples=[
        "tenonnx inspect model.onnx",
        "tenonnx inspect model.onnx --nodes",
    ],
)
@model_argument
@click.option(
    "--variables", "all_variables", is_flag=True, help="List every initializer with the range and mean of its numbers."
)
@click.option("--nodes", "all_nodes", is_flag=True, help="List every node with its attributes.")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Show this node alone, whole. Repeatable.")
@click.option("--op", "ops", multiple=True, metavar="TYPE", help="List the nodes of this type alone. Repeatable.")
@click.option("--tree", is_flag=True, help="Fold the nodes by the modules that they come from.")
@click.option("--costs", "with_costs", is_flag=True, help="List multiplications, bytes and live memory of each node.")
@click.option("--dot", "drawn", flag_value="dot", help="Print the graph in DOT format, for Graphviz.")
@click.option("--svg", "drawn", flag_value="svg", help="Print a drawing of the graph as SVG.")
@click.option("--html", "drawn", flag_value="html", help="Print a drawing of the graph as an HTML page.")
@shapes_option
@trust_options
@json_option
def command(
    model: str,
    all_variables: bool,
    all_nodes: bool,
    nodes: Sequence[str],
    ops: Sequence[str],
    tree: bool,
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
    from tenonnx.tools import extension
    from tenonnx_cli.describe import add_statistics, describe, list_nodes
    from tenonnx_cli.module_tree import module_tree

    if drawn is not None and (as_json or all_variables or all_nodes or with_costs or nodes or ops or tree):
        raise InvalidCall(
            "a drawing was requested together with other output", given=f"--{drawn} and another option of what to print"
        )
    run_python_files()
    graph = load_model(model)
    problems = infer(graph, input_shapes, strict=False)
    if drawn is not None:
        _draw(graph, drawn)
        return
    spent = extension("costs")(graph, input_shapes) if with_costs else None
    data = {"file": model, **describe(graph), "problems": [str(problem) for problem in problems]}
    listed = _chosen(list_nodes(graph), nodes, ops)
    modules = module_tree(graph) if tree else None
    if all_variables:
        add_statistics(graph, data["variables"])
    if as_json:
        folded = {} if modules is None else {"modules": modules.to_dict()}
        say_json(data | {"nodes": listed} | folded | ({} if spent is None else {"costs": asdict(spent)}))
        return
    if nodes or ops:
        if nodes:
            _say_whole(listed)
        else:
            _say_nodes(listed)
        return
    _say_head(data)
    if modules is not None:
        say()
        say_table(modules.rows(), ("modules", "nodes", "parameters", "ops"))
    if all_variables and data["variables"]:
        say()
        headers = ("variables", "type", "bytes", "minimum", "maximum", "mean", "zeros")
        say_table([_variable(v) for v in data["variables"]], headers)
    if all_variables and (state := data["training_state"]):
        say()
        say("training state")
        say_table([(t["name"], t["type"], plural(t["bytes"], "byte")) for t in state["tensors"]])
    if all_nodes:
        say()
        _say_nodes(listed)
    if spent is not None:
        _say_costs(spent)
    for problem in problems:
        complain(f"problem: {problem}")


def _chosen(listed: list[dict[str, Any]], nodes: Sequence[str], ops: Sequence[str]) -> list[dict[str, Any]]:
    """The nodes with these names, of these values or of these op types; all if none are given."""
    if not nodes and not ops:
        return listed
    result = []
    known_names = {name for each in listed for name in _names(each)}
    known_ops = {name for each in listed for name in (each["op"], each["op"].rpartition("::")[2])}
    for kind, given, known in (("node", nodes, known_names), ("node of type", ops, known_ops)):
        for name in given:
            if name not in known:
                raise _unknown(kind, name, sorted(known))
    for each in listed:
        if _names(each) & set(nodes) or {each["op"], each["op"].rpartition("::")[2]} & set(ops):
            result.append(each)
    return result


def _names(node: Mapping[str, Any]) -> set[str]:
    return {node["name"], *(value["name"] for value in node["outputs"])} - {""}


def _unknown(kind: str, name: str, known: Sequence[str]) -> Exception:
    from tenonnx import InvalidCall
    from tenonnx.tools import did_you_mean

    do = did_you_mean(name, known) or "tenonnx inspect MODEL --nodes lists all"
    return InvalidCall(f'the model has no {kind} "{name}"', do=do)


def _variable(variable: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (variable[key] for key in ("minimum", "maximum", "mean"))
    zeros = "" if variable["zeros"] is None else f"{variable['zeros']:.1%}"
    shown = ("" if number is None else f"{number:.4g}" for number in numbers)
    return variable["name"], variable["type"], f"{variable['bytes']:,}", *shown, zeros


def _say_nodes(listed: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (n["name"], n["op"], ", ".join(n["inputs"]), _typed(n["outputs"]), _attributes(n["attributes"])) for n in listed
    ]
    say_table(rows, ("nodes", "op", "inputs", "outputs", "attributes"))


def _attributes(attributes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={attribute_text(value)}" for name, value in attributes.items())


def _say_whole(listed: Sequence[Mapping[str, Any]]) -> None:
    """Print each node on several lines."""
    for node in listed:
        say(f"{node['op']}@{node['version']} {node['name']}".rstrip())
        rows = [("input", name or "-", "") for name in node["inputs"]]
        rows += [("output", value["name"], value["type"]) for value in node["outputs"]]
        rows += [("attribute", name, attribute_text(value)) for name, value in node["attributes"].items()]
        say_table(rows or [("no inputs, outputs or attributes", "", "")])


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
    """Short text of a setting; objects with a name are represented by it."""
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    return str(value.get("name", value)) if isinstance(value, dict) else str(value)


def _cut(text: str) -> str:
    """The first line of a text, truncated; --json has all of it."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= LONGEST else f"{first[:LONGEST]}..."


def _typed(outputs: list[dict[str, Any]]) -> str:
    return ", ".join(f"{value['name']}: {value['type']}" for value in outputs)
