"""Metadata of PyTorch's dynamo exporter: the module, the call and the parameters of a node."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tenonnx.extend import Node

#: Names of the modules around a node; the last one is the node's own.
SCOPES = "pkg.torch.onnx.name_scopes"

#: The call in the traced program that a node implements, with its arguments by name.
CALL = "pkg.torch.onnx.fx_node"

#: The onnxscript rewrite that made a node.
RULE = "pkg.onnxscript.rewriter.rule_name"

#: Position, by input slot, of the parameter among those of a call; those of normalizations are in order.
_FIRST, _LAST = 0, -1
_PLACES: Mapping[str, Mapping[int, int]] = {
    "MatMul": {0: _FIRST, 1: _FIRST},
    "Mul": {0: _FIRST, 1: _FIRST},
    "Gather": {0: _FIRST},
    "Add": {0: _LAST, 1: _LAST},
    "Gemm": {1: 0, 2: 1},
    "Conv": {1: 0, 2: 1},
    "ConvTranspose": {1: 0, 2: 1},
}


def note(node: Node, key: str) -> str:
    """An entry of the metadata of a node in its file, empty where there is none."""
    return next((entry.value for entry in getattr(node.origin, "metadata_props", ()) if entry.key == key), "")


def module_of(node: Node) -> str:
    """The path of the module from which PyTorch's dynamo exporter made a node; else empty."""
    scopes = re.findall(r"'([^']*)'", note(node, SCOPES))
    return scopes[-2] if len(scopes) > 1 else ""


def parameters_of(node: Node) -> list[str]:
    """The tracer's names of the parameters and buffers among the arguments of a node's call.

    ``p_layers_0_norm_weight`` is ``layers.0.norm.weight``. Tied weights have one name.
    """
    _, _, arguments = note(node, CALL).partition("args = (")
    return re.findall(r"%([pb]_\w+)", arguments)


def traced_name(name: str) -> str:
    """A parameter's name as the tracer spells it, without the prefix."""
    return re.sub(r"\W", "_", name)


def parameter_at(node: Node, slot: int, name: str) -> str:
    """The parameter or buffer at input ``slot`` of a node, which the file calls ``name``; empty if unknown."""
    found = parameters_of(node)
    own = [each for each in found if each[2:] == traced_name(name)]
    if own or len(found) == 1:
        return (own or found)[0]
    place: int | None = slot - 1
    if not node.op_type.endswith("Normalization"):
        place = _PLACES.get(node.op_type, {}).get(slot)
    return "" if place is None or not found or place >= len(found) else found[place]
