"""A graph as a part of a page, as notebooks show it."""

from __future__ import annotations

from tenonnx import Graph
from tenonnx_cli.drawing.svg import to_svg
from tenonnx_cli.drawing.text import markup

#: Values of an interface that are listed.
LISTED = 50


def to_html(graph: Graph) -> str:
    """A summary of ``graph`` and its drawing, as a part of a page; groups of nodes of large graphs are closed."""
    interface = [
        (kind, value) for kind, values in (("input", graph.all_inputs), ("output", graph.outputs)) for value in values
    ]
    rows = [
        f"<tr><td>{kind}</td><td>{markup(value.name)}</td><td>{markup(str(value.type or '?'))}</td></tr>"
        for kind, value in interface[:LISTED]
    ]
    if len(interface) > LISTED:
        rows.append(f"<tr><td>and {len(interface) - LISTED:,} more</td></tr>")
    count = sum(1 for _ in graph.walk())
    opsets = ", ".join(f"{domain} {version}" for domain, version in graph.opsets.items())
    head = f"<h3>{markup(graph.name)}</h3><p>{count:,} nodes, {len(graph.variables):,} variables, {markup(opsets)}</p>"
    drawing = f'<div style="overflow:auto;max-height:80vh">{to_svg(graph)}</div>'
    return f"<div>{head}<table>{''.join(rows)}</table>{drawing}</div>"
