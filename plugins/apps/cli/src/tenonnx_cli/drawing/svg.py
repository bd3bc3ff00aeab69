"""Rendering as SVG for files and notebooks: light or dark by the reader's preference, with tooltips."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tenonnx import Graph, Node, Value
from tenonnx_cli.drawing.outline import Element
from tenonnx_cli.drawing.picture import FACT, HEAD, INSET, TITLE, Picture, kind_of, picture
from tenonnx_cli.drawing.text import escape, markup
from tenonnx_cli.printable import printable

#: Kinds of boxes, with fill and border colors in light and dark mode.
COLORS = {
    "input": ("#dff3e4", "#3d8b57", "#1d3a28", "#5fb37c"),
    "output": ("#e6e1f7", "#6d55b8", "#2d2550", "#9d88e0"),
    "group": ("#f3f4f7", "#8a94a6", "#2a2f3a", "#7d899e"),
    "weights": ("#dbe8fd", "#3a6fc4", "#1c3054", "#6d9ef0"),
    "movement": ("#f1f1ee", "#8c8c80", "#31312c", "#a0a094"),
    "elementwise": ("#fdeedd", "#bf7a2c", "#46301a", "#dd9d55"),
    "control": ("#fbe0ea", "#b3456f", "#4a1f30", "#e07fa4"),
    "node": ("#e2f1f4", "#38808f", "#1c373d", "#62b1c1"),
}


def to_svg(graph: Graph, opened: Collection[str] | None = None) -> str:
    """``graph`` as SVG from inputs down to outputs, with subgraphs and, if there is room, groups of nodes open.

    Nodes are grouped by the paths of their names; elements with keys in ``opened`` are open, or as many as fit.
    """
    return draw(picture(graph, opened))


def draw(picture: Picture, *, can_choose: bool = False) -> str:
    """A picture as SVG. With ``can_choose``, box ``k`` takes the focus and has the class ``box-k``."""
    number = {id(box): k if can_choose else None for k, box in enumerate(picture.boxes)}
    width, height = picture.width, picture.height
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tenonnx" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" font-size="12">'
    )
    arrow = (
        '<defs><marker id="tenonnx-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path class="head" d="M0 0.5L8 4L0 7.5z"/></marker></defs>'
    )
    around = [box for box in picture.boxes if box.inside]
    boxes = [_box(box, number[id(box)]) for box in around]
    ground = '<rect class="ground" width="100%" height="100%" fill="#ffffff"/>'
    parts = [ground, *boxes, *_lines(picture), *(_box(box, number[id(box)]) for box in picture.boxes if not box.inside)]
    return "\n".join([head, f"<style>{_style()}</style>", arrow, *parts, "</svg>"]) + "\n"


def _style() -> str:
    """Styles of the drawing, scoped to it. Colors are also attributes, for renderers without CSS."""
    light = [".tenonnx text{fill:#1c2330}.tenonnx .fact,.tenonnx .size{fill:#566072}.tenonnx .line{stroke:#8b95a5}"]
    light.append(".tenonnx .head{fill:#8b95a5}.tenonnx .ground{fill:#ffffff}")
    dark = [".tenonnx .ground{fill:#15181e}"]
    dark += [".tenonnx text{fill:#e8ebf0}.tenonnx .fact,.tenonnx .size{fill:#aab3c2}"]
    for kind, (fill, stroke, dark_fill, dark_stroke) in COLORS.items():
        light.append(f".tenonnx .{kind}{{fill:{fill};stroke:{stroke}}}")
        dark.append(f".tenonnx .{kind}{{fill:{dark_fill};stroke:{dark_stroke}}}")
    return f"{''.join(light)}@media(prefers-color-scheme:dark){{{''.join(dark)}}}"


def _box(box: Element, number: int | None) -> str:
    kind = kind_of(box)
    chosen = "" if number is None else f' class="box-{number}" tabindex="0"'
    fill, stroke, *_ = COLORS[kind]
    rounding = 12 if kind in ("input", "output") else 6
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{rounding}"'
    more = ' fill-opacity="0.5"' if box.inside else ' stroke-dasharray="5 3"' if kind == "group" else ""
    lines = [
        f"<g{chosen}><title>{escape(_tooltip(box))}</title>"
        f'<rect class="{kind}" {place} fill="{fill}" stroke="{stroke}"{more}/>'
    ]
    if box.inside:
        lines.append(f'<text x="{box.x + INSET:.1f}" y="{box.y + HEAD - 9:.1f}">{markup(box.title)}</text>')
    else:
        middle, top = box.x + box.width / 2, box.y + TITLE
        lines.append(f'<text x="{middle:.1f}" y="{top:.1f}" text-anchor="middle">{markup(box.title)}</text>')
        for number, fact in enumerate(box.facts, 1):
            y = top + FACT * number
            lines.append(
                f'<text class="fact" x="{middle:.1f}" y="{y:.1f}" text-anchor="middle" font-size="10.5">'
                f"{markup(fact)}</text>"
            )
    return "".join([*lines, "</g>"])


def _tooltip(box: Element) -> str:
    """Tooltip of a box."""
    item = box.item
    if isinstance(item, Value):
        return printable(f"{box.kind} {item.name}: {item.type or '?'}")
    if not isinstance(item, Node):
        return printable(f"{box.title}: {box.nodes:,} nodes")
    lines = [printable(item.title)]
    for what, values in (("input", item.inputs), ("output", item.outputs)):
        lines += [printable(f"{what} {v.name}: {v.type or '?'}") for v in values if v is not None]
    return "\n".join(lines)


def _lines(picture: Picture) -> Iterator[str]:
    for x, y, title in picture.titles:
        yield f'<text class="fact" x="{x:.1f}" y="{y:.1f}">{markup(title)}</text>'
    for line in picture.lines:
        end = ' marker-end="url(#tenonnx-arrow)"' if line.arrow else ""
        yield (
            f'<path class="line" d="{curve(line.points)}" fill="none" stroke="#8b95a5"{end}>'
            f"<title>{markup(f'{line.value.name}: {line.value.type or chr(63)}')}</title></path>"
        )
        if line.text:
            x, y = line.points[0]
            yield f'<text class="size" x="{x + 4:.1f}" y="{y + 12:.1f}" font-size="10">{markup(line.text)}</text>'


def curve(points: list[tuple[float, float]]) -> str:
    """SVG path through the points, with vertical tangents at each."""
    (x, y), *others = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in others:
        bend = (to_y - y) / 2
        straight = abs(to_x - x) < 0.5
        piece = f"L{to_x:.1f} {to_y:.1f}"
        parts.append(
            piece if straight else f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}"
        )
        x, y = to_x, to_y
    return "".join(parts)
