"""Notes of PyTorch's dynamo exporter about the module, the call and the parameters that a node comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tenonnx.extend import Node

#: The modules around a node, the node itself at last.
SCOPES = "pkg.torch.onnx.name_scopes"

#: The call of the traced program that a node computes, with its arguments by name.
CALL = "pkg.torch.onnx.fx_node"

#: The rewrite that made a node.
RULE = "pkg.onnxscript.rewriter.rule_name"

#: Which of the parameters of a call an input of these ops is, by its slot; of normalizations they are in order.
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
    """An entry of the metadata of a node as it was read from its file, empty where there is none."""
    return next((entry.value for entry in getattr(node.origin, "metadata_props", ()) if entry.key == key), "")


def module_of(node: Node) -> str:
    """The path of the module that a node was exported from, as PyTorch's dynamo exporter notes it; else empty."""
    scopes = re.findall(r"'([^']*)'", note(node, SCOPES))
    return scopes[-2] if len(scopes) > 1 else ""


def parameters_of(node: Node) -> list[str]:
    """The parameters and buffers among the arguments of the call that a node computes, as the tracer names them.

    ``p_layers_0_norm_weight`` is ``layers.0.norm.weight``. Weights that the author tied have one name.
    """
    _, _, arguments = note(node, CALL).partition("args = (")
    return re.findall(r"%([pb]_\w+)", arguments)


def traced_name(name: str) -> str:
    """A name of a parameter as the tracer has it, without its prefix."""
    return re.sub(r"\W", "_", name)


def parameter_at(node: Node, slot: int, name: str) -> str:
    """The parameter or buffer that input ``slot`` of a node is, which the file calls ``name``; empty if not known."""
    found = parameters_of(node)
    own = [each for each in found if each[2:] == traced_name(name)]
    if own or len(found) == 1:
        return (own or found)[0]
    place: int | None = slot - 1
    if not node.op_type.endswith("Normalization"):
        place = _PLACES.get(node.op_type, {}).get(slot)
    return "" if place is None or not found or place >= len(found) else found[place]
