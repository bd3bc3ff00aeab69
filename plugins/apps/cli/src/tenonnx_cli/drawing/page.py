"""HTML fragment of a graph for notebooks: a summary, the drawing, and details of the clicked box."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from tenonnx import Graph, Node, Value, infer
from tenonnx_cli.drawing.outline import Element
from tenonnx_cli.drawing.picture import Picture, picture
from tenonnx_cli.drawing.svg import draw
from tenonnx_cli.drawing.text import short
from tenonnx_cli.html import part, table
from tenonnx_cli.printable import printable

#: Maximum number of interface values listed, and maximum length of an attribute.
LISTED, LONGEST = 50, 200


def to_html(graph: Graph) -> str:
    """HTML fragment with a summary of ``graph`` and its drawing; groups of large graphs are closed.

    A click on a box shows its details below the drawing. This uses no scripts, as they may be blocked.
    """
    infer(graph, strict=False)
    interface = [
        (kind, printable(value.name), str(value.type or "?"))
        for kind, values in (("input", graph.all_inputs), ("output", graph.outputs))
        for value in values
    ]
    more = [f"and {len(interface) - LISTED:,} more"] if len(interface) > LISTED else []
    count = sum(1 for _ in graph.walk())
    opsets = ", ".join(f"{domain} {version}" for domain, version in graph.opsets.items())
    head = f"{printable(graph.name)}: {count:,} nodes, {len(graph.variables):,} variables; {opsets}"
    values = table(("", "name", "type"), interface[:LISTED])
    drawn = picture(graph)
    drawing = f'<div style="overflow:auto;max-height:80vh">{draw(drawn, can_choose=True)}</div>'
    return f'<div class="tenonnx-graph">{_style(drawn)}{part(head, values, notes=more)}{drawing}{_details(drawn)}</div>'


def _style(picture: Picture) -> str:
    """Styles that show the details of a box while the box or the details have the focus."""
    rules = [
        ".tenonnx-graph .details{display:none}",
        ".tenonnx-graph .details:hover,.tenonnx-graph .details:focus{display:block;outline:none}",
        ".tenonnx g[tabindex]{cursor:pointer;outline:none}",
        ".tenonnx g[tabindex]:focus>rect{stroke-width:3}",
    ]
    rules += [f".tenonnx-graph:has(.box-{k}:focus) .of-{k}{{display:block}}" for k in range(len(picture.boxes))]
    return f"<style>{''.join(rules)}</style>"


def _details(picture: Picture) -> str:
    found = (part(box.title, table(("", "", ""), _facts(box))) for box in picture.boxes)
    return "".join(f'<div class="details of-{k}" tabindex="0">{text}</div>' for k, text in enumerate(found))


def _facts(box: Element) -> Iterator[tuple[str, str, str]]:
    """Facts about a box: kind of fact, name, text."""
    item = box.item
    if isinstance(item, Value):
        yield box.kind, printable(item.name), str(item.type or "?")
    elif not isinstance(item, Node):
        yield "group", printable(box.title), f"{box.nodes:,} nodes"
    else:
        about = inspect.cleandoc(getattr(item.op, "__doc__", None) or "").split("\n\n")[0]
        yield "op", f"{item.domain}::{item.op_type}@{item.version}", " ".join(about.split())
        for name, attribute in item.attributes.items():
            yield "attribute", name, short(repr(attribute), LONGEST)
        for what, values in (("input", item.inputs), ("output", item.outputs)):
            for value in values:
                if value is not None:
                    yield what, printable(value.name), str(value.type or "?")
