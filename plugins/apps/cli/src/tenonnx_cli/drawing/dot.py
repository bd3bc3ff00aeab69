"""A graph in the DOT language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from tenonnx import Graph, Node, Value
from tenonnx_cli.drawing.outline import subgraphs
from tenonnx_cli.drawing.text import short
from tenonnx_cli.printable import printable, printable_lines


def to_dot(graph: Graph) -> str:
    """``graph`` in the DOT language, with nested graphs as clusters."""
    lines = ["digraph {", "  node [shape=box, fontname=sans-serif]; rankdir=TB;"]
    numbers: dict[Value | Node, str] = {}
    lines += _lines(graph, numbers, "  ")
    return "\n".join([*lines, "}"]) + "\n"


def _lines(graph: Graph, numbers: dict[Value | Node, str], indent: str) -> Iterator[str]:
    for value in graph.all_inputs:
        numbers[value] = f"n{len(numbers)}"
        yield f"{indent}{numbers[value]} [{_of_value('input', value)}];"
    for node in graph.nodes:
        numbers[node] = f"n{len(numbers)}"
        types = "\n".join(printable(f"{v.name}: {v.type or '?'}") for v in node.outputs if v is not None)
        title = f"{printable(node.title)}\n{types}"
        yield f"{indent}{numbers[node]} [label={_quoted(short(node.op_type))}, tooltip={_quoted(title)}];"
        yield from _edges((value for value in node.uses if not value.is_constant), numbers, numbers[node], indent)
        for place, (_, inner) in enumerate(subgraphs(node)):
            cluster = f"cluster_{numbers[node]}_{place}"  # a unique name also without a box
            yield f"{indent}subgraph {cluster} {{ label={_quoted(f'{short(node.op_type)}: {inner.name}')};"
            for outer, stand_in in zip(node.captures, inner.captures, strict=False):
                numbers[stand_in] = numbers.get(outer.producer or outer, numbers[node])
            yield from _lines(inner, numbers, indent + "  ")
            yield f"{indent}}}"
    for value in graph.outputs:
        if value.producer is not None:
            number = numbers[Value(value.name)] = f"n{len(numbers)}"
            yield f"{indent}{number} [{_of_value('output', value)}];"
            yield from _edges([value], numbers, number, indent)


def _of_value(what: str, value: Value) -> str:
    title = printable(f"{what} {value.name}: {value.type or '?'}")
    return f"label={_quoted(short(value.name))}, tooltip={_quoted(title)}, shape=ellipse"


def _edges(
    values: Iterator[Value] | list[Value], numbers: dict[Value | Node, str], to: str, indent: str
) -> Iterator[str]:
    for value in values:
        source = numbers.get(value.producer or value)
        if source is not None:
            yield f"{indent}{source} -> {to} [label={_quoted(str(value.type or ''))}];"


def _quoted(text: str) -> str:
    text = printable_lines(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("\n", "\\n") + '"'
