"""What the floors above do for graphs, by name: the one place where this floor knows of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tenonnx.errors import PluginError, installing
from tenonnx.graph.garbage import uncollected

#: Each is imported when it is first asked for.
PLACES = {
    "building": "tenonnx.op.build",
    "compile_graph": "tenonnx.backend.compiling",
    "apply_graph": "tenonnx.transforms.editing",
    "assign": "tenonnx.transforms.editing",
    "constant_where_fixed": "tenonnx_optimize.simplify",
    "compose": "tenonnx_optimize.compose",
    "copy_graph": "tenonnx.transforms.rewrite",
    "default_registry": "tenonnx.registry.registry",
    "costs": "tenonnx_optimize.costs",
    "editing": "tenonnx.transforms.editing",
    "extract": "tenonnx.transforms.extract",
    "fuse": "tenonnx_optimize.fuse",
    "infer": "tenonnx.op.graph_inference",
    "insert": "tenonnx.transforms.editing",
    "insert_after": "tenonnx.transforms.editing",
    "layout_plan": "tenonnx_jax.layout_plans",
    "pickled": "tenonnx.formats.onnx.messages",
    "remove": "tenonnx.transforms.editing",
    "rename": "tenonnx.transforms.editing",
    "replace": "tenonnx.transforms.editing",
    "run": "tenonnx.backend.compiling",
    "save": "tenonnx.formats.onnx.messages",
    "set_part": "tenonnx.transforms.setting",
    "set_inputs": "tenonnx.transforms.setting",
    "set_parts": "tenonnx.transforms.setting",
    "simplify": "tenonnx_optimize.simplify",
    "summary": "tenonnx.transforms.summary",
    "to_dot": "tenonnx_cli.drawing",
    "to_html": "tenonnx_cli.notebooks",
    "to_proto": "tenonnx.conversion.convert",
    "to_svg": "tenonnx_cli.drawing",
}


@cache
def late(name: str) -> Any:
    """The function of that name from a floor above, or from a package. Raises ``PluginError`` where that is missing."""
    found = late_if_installed(name)
    if found is None:
        package = PLACES[name].partition(".")[0].replace("_", "-")
        raise PluginError(f"{name} is in {package}, which is not installed", do=installing(package))
    return found


@cache
def late_if_installed(name: str) -> Any:
    """As ``late``, but None for what is in a package that is not installed."""
    package = PLACES[name].partition(".")[0]
    if package != "tenonnx" and find_spec(package) is None:
        return None
    with uncollected():  # what is imported stays
        return getattr(import_module(PLACES[name]), name)


def html_of(thing: Any) -> str | None:
    """What ``thing`` shows of itself in a notebook, None without the package that draws."""
    drawn = late_if_installed("to_html")
    return None if drawn is None else drawn(thing)
