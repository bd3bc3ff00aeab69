"""Drawing graphs: for Graphviz, as SVG with a layout of our own, and as HTML."""

from tenonnx_cli.drawing.dot import to_dot
from tenonnx_cli.drawing.outline import automatic, group_keys, path_of, subgraphs
from tenonnx_cli.drawing.page import to_html
from tenonnx_cli.drawing.picture import kind_of, picture
from tenonnx_cli.drawing.svg import COLORS, to_svg
from tenonnx_cli.drawing.text import escape

__all__ = [
    "COLORS",
    "automatic",
    "escape",
    "group_keys",
    "kind_of",
    "path_of",
    "picture",
    "subgraphs",
    "to_dot",
    "to_html",
    "to_svg",
]
