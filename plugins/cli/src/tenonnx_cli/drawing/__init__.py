"""A graph as a drawing: for Graphviz, as SVG in a layout of our own, and as a part of a page."""

from tenonnx_cli.drawing.dot import to_dot
from tenonnx_cli.drawing.page import to_html
from tenonnx_cli.drawing.svg import to_svg
from tenonnx_cli.drawing.text import escape

__all__ = ["escape", "to_dot", "to_html", "to_svg"]
