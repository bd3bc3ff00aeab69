"""Frozen graphs: one ``GraphDef`` in a file, with variables as constants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidCall, InvalidModel
from tenonnx_tensorflow.graphs import Library, Node, Reference
from tenonnx_tensorflow.messages import parse
from tenonnx_tensorflow.model import Input, Model

#: Ops without readers that are not outputs.
_SILENT = frozenset(
    {
        "NoOp",
        "Assert",
        "Const",
        "Placeholder",
        "PlaceholderWithDefault",
        "SaveV2",
        "MergeV2Checkpoints",
        "RestoreV2",
        "VarHandleOp",
        "VariableV2",
        "Assign",
        "AssignVariableOp",
        "VarIsInitializedOp",
        "Print",
        "PrintV2",
    }
)


def read_frozen(path: Path, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Model:
    """Read a frozen graph between named nodes: by default from all placeholders to all nodes without readers."""
    message = parse("GraphDef", path.read_bytes(), f'"{path}"')
    library = Library.of(message)
    if not library.nodes:
        raise InvalidModel(f'"{path}" is not a graph of TensorFlow, or has no nodes')
    ends = [Reference.of(name) for name in outputs] if outputs else _unread(library)
    if not ends:
        raise InvalidModel("the graph has no outputs: another node reads every node", do="name them: outputs=[...]")
    for reference in ends:
        _check(library, reference.node)
    if inputs:
        for name in inputs:
            _check(library, Reference.of(name).node)
        starts = [library.nodes[Reference.of(name).node] for name in inputs]
    else:
        needed = {id(node) for node in library.all_nodes([reference.node for reference in ends])}
        starts = [n for n in library.nodes.values() if n.op.startswith("Placeholder") and id(n) in needed]
    taken: dict[str, int] = {}
    named = []
    for reference in ends:
        count = taken[reference.node] = taken.get(reference.node, -1) + 1
        named.append(
            (
                reference.node if not count and not reference.position else f"{reference.node}_{reference.position}",
                reference,
            )
        )
    return Model(path.stem, library, [_input(node) for node in starts], named)


def _unread(library: Library) -> list[Reference]:
    """Nodes without readers, except the unused output of a Switch in control flow of TensorFlow 1."""
    read = {r.node for node in library.nodes.values() for r in node.inputs}
    sides = {
        name
        for name, node in library.nodes.items()
        if node.op == "Identity" and library.nodes[node.inputs[0].node].op == "Switch"
    }
    unread = [name for name, node in library.nodes.items() if name not in read and node.op not in _SILENT]
    return [Reference(name) for name in unread if name not in sides] or [Reference(name) for name in unread]


def _check(library: Library, name: str) -> None:
    if name in library.nodes:
        return
    similar = [each for each in library.nodes if name.lower() in each.lower()]
    raise InvalidCall(
        "an input or output is not a node of the graph",
        given=f'"{name}"',
        available=", ".join((similar or list(library.nodes))[:8]),
    )


def _input(node: Node) -> Input:
    kind: Any = node.get("dtype", node.get("T", 1))
    shape = node.get("shape")
    if not shape and "_output_shapes" in node:
        shape = node["_output_shapes"][0]
    return Input(node.name, node.name, kind, None if shape is None else tuple(shape))
