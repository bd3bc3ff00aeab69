"""A graph as a drawing: for Graphviz, as SVG of our own layout, and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape as _escape

from tenonnx import Graph, Node, Value
from tenonnx_cli.printable import printable, printable_lines


def escape(text: str) -> str:
    """Text as a part of a drawing or page."""
    return _escape(printable_lines(text))


#: Characters of a label that are drawn, and what one takes, in units of the drawing.
LONGEST, CHARACTER = 40, 7
#: Height of a box, and the gaps between boxes of one row and between rows.
HEIGHT, GAP, ROW_GAP = 34, 16, 30
#: More nodes than this are not drawn on a page: a browser would stand still.
DRAWN = 2000


def to_dot(graph: Graph) -> str:
    """``graph`` in the language of Graphviz, nested graphs as clusters."""
    lines = ["digraph {", "  node [shape=box, fontname=sans-serif]; rankdir=TB;"]
    numbers: dict[Value | Node, str] = {}
    lines += _dot_lines(graph, numbers, "  ")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_lines(graph: Graph, numbers: dict[Value | Node, str], indent: str) -> Iterator[str]:
    for box in _boxes(graph):
        numbers[box.item] = f"n{len(numbers)}"
        shape = "" if isinstance(box.item, Node) else ", shape=ellipse"
        yield f"{indent}{numbers[box.item]} [label={_quoted(box.label)}, tooltip={_quoted(box.title)}{shape}];"
        for value in box.reads:
            source = numbers.get(value.producer or value)
            if source is not None:
                yield f"{indent}{source} -> {numbers[box.item]} [label={_quoted(str(value.type or ''))}];"
        if not isinstance(box.item, Node):
            continue
        for place, subgraph in enumerate(box.item.subgraphs):
            cluster = f"cluster_{numbers[box.item]}_{place}"  # also of graphs without a box of their own
            yield f"{indent}subgraph {cluster} {{ label={_quoted(f'{box.label}: {subgraph.name}')};"
            for outer, stand_in in zip(box.item.captures, subgraph.captures, strict=False):
                numbers[stand_in] = numbers.get(outer.producer or outer, numbers[box.item])
            yield from _dot_lines(subgraph, numbers, indent + "  ")
            yield f"{indent}}}"


def _quoted(text: str) -> str:
    text = printable_lines(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("\n", "\\n") + '"'


@dataclass(slots=True)
class _Box:
    """A node, a graph input or a graph output, and where it is drawn."""

    item: Node | Value
    label: str
    title: str
    reads: list[Value] = field(default_factory=list)
    row: int = 0
    x: float = 0

    @property
    def width(self) -> int:
        return CHARACTER * len(self.label) + 20


def _boxes(graph: Graph) -> list[_Box]:
    """Inputs, nodes in order, and outputs; contents that are static are part of the node that reads them."""
    boxes = [_Box(v, _short(v.name), printable(f"input {v.name}: {v.type or '?'}")) for v in graph.all_inputs]
    for node in graph.nodes:
        reads = [value for value in node.uses if not value.is_constant]
        types = "\n".join(printable(f"{v.name}: {v.type or '?'}") for v in node.outputs if v is not None)
        boxes.append(_Box(node, _short(node.op_type), f"{printable(node.title)}\n{types}", reads))
    for value in graph.outputs:
        if value.producer is not None:
            shown = Value(value.name, value.type)
            title = printable(f"output {value.name}: {value.type or '?'}")
            boxes.append(_Box(shown, _short(value.name), title, [value]))
    return boxes


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _markup(text: str) -> str:
    return escape(printable(text))


# ----- our own layout -------------------------------------------------------------------------------------------------


def to_svg(graph: Graph) -> str:
    """``graph`` as SVG, from inputs down to outputs; graphs nested in it are drawn below it, each with its name."""
    drawings = [(nested.name, _arranged(nested)) for nested in graph.nested()]
    top, parts, widest = 10.0, [], 100.0
    for name, boxes in drawings:
        parts.append(f'<text x="10" y="{top + 14}" font-weight="bold">{_markup(name)}</text>')
        parts += _drawn(boxes, top + 30)
        top += 60 + (1 + max((box.row for box in boxes), default=0)) * (HEIGHT + ROW_GAP)
        widest = max([widest, *(box.x + box.width + 10 for box in boxes)])
    style = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{widest:.0f}" height="{top:.0f}" {style}>'
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _arranged(graph: Graph) -> list[_Box]:
    """Boxes with their places: each a row below the last that it reads, near the middle of those."""
    boxes = _boxes(graph)
    of = {box.item: box for box in boxes}
    rows: dict[int, list[_Box]] = {}
    for box in boxes:
        sources = [of[value.producer or value] for value in box.reads if (value.producer or value) in of]
        box.row = 1 + max((source.row for source in sources), default=-1)
        middles = [source.x + source.width / 2 for source in sources]
        box.x = sum(middles) / len(middles) - box.width / 2 if middles else 10
        rows.setdefault(box.row, []).append(box)
    for row in rows.values():
        free = 10.0
        for box in sorted(row, key=lambda box: box.x):
            box.x = max(box.x, free)
            free = box.x + box.width + GAP
    return boxes


def _drawn(boxes: list[_Box], top: float) -> Iterator[str]:
    of = {box.item: box for box in boxes}
    for box in boxes:
        y = top + box.row * (HEIGHT + ROW_GAP)
        for value in box.reads:
            source = of.get(value.producer or value)
            if source is not None:
                x1, y1 = source.x + source.width / 2, top + source.row * (HEIGHT + ROW_GAP) + HEIGHT
                x2, bend = box.x + box.width / 2, (y - y1) / 2
                path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y - bend:.0f} {x2:.0f} {y:.0f}"
                yield f'<path d="{path}" fill="none" stroke="#999"><title>{_markup(value.name)}</title></path>'
    for box in boxes:
        y = top + box.row * (HEIGHT + ROW_GAP)
        fill, round_by = ("#e8f0fe", 4) if isinstance(box.item, Node) else ("#e6f4ea", 16)
        rect = f'x="{box.x:.0f}" y="{y:.0f}" width="{box.width}" height="{HEIGHT}" rx="{round_by}"'
        yield f'<g><title>{escape(box.title)}</title><rect {rect} fill="{fill}" stroke="#678"/>'
        yield f'<text x="{box.x + 10:.0f}" y="{y + 21:.0f}">{escape(box.label)}</text></g>'


# ----- a page ---------------------------------------------------------------------------------------------------------


def to_html(graph: Graph) -> str:
    """A summary of ``graph`` and its drawing, as a part of a page; large graphs are not drawn."""
    rows = [
        f"<tr><td>{kind}</td><td>{_markup(value.name)}</td><td>{_markup(str(value.type or '?'))}</td></tr>"
        for kind, values in (("input", graph.all_inputs), ("output", graph.outputs))
        for value in values
    ]
    count = sum(1 for _ in graph.walk())
    drawing = to_svg(graph) if count <= DRAWN else f"<p>{count:,} nodes, more than the {DRAWN:,} that are drawn</p>"
    opsets = ", ".join(f"{domain} {version}" for domain, version in graph.opsets.items())
    head = (
        f"<h3>{_markup(graph.name)}</h3><p>{count:,} nodes, {len(graph.variables):,} variables, {_markup(opsets)}</p>"
    )
    return f'<div>{head}<table>{"".join(rows)}</table><div style="overflow:auto">{drawing}</div></div>'
