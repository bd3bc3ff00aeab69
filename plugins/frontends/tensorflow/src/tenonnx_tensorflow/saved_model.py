"""SavedModels, read without TensorFlow: a graph with functions, a checkpoint, and files of lookup tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidCall, InvalidModel, NotRepresentable, UnsafePath, limits
from tenonnx_frontends import read_below
from tenonnx_tensorflow.attributes import shape_of
from tenonnx_tensorflow.bundle import Checkpoint
from tenonnx_tensorflow.graphs import Library, Reference
from tenonnx_tensorflow.messages import parse
from tenonnx_tensorflow.model import Input, Model

#: Default signature, and the signature that initializes tables and variables.
_DEFAULT, SET_UP = "serving_default", "__saved_model_init_op"


def read_saved_model(folder: Path, signature: str | None, tags: Sequence[str] | None) -> Model:
    """Read one signature of a SavedModel. Raises ``InvalidCall`` naming the available ones for an unknown one."""
    message = parse("SavedModel", read_below(folder, "saved_model.pb"), f'"{folder / "saved_model.pb"}"')
    graph = meta_graph_of(message, tags)
    signatures = {entry.key: entry.value for entry in graph.signature_def}
    chosen = chosen_signature(signatures, signature)
    library = Library.of(graph.graph_def)
    found = signatures[chosen]
    for entry in (*found.inputs, *found.outputs):
        if not entry.value.name:
            raise NotRepresentable(
                "a signature takes or returns something other than dense tensors", given=f'"{entry.key}"'
            )
    inputs = [
        Input(entry.key, Reference.of(entry.value.name).node, entry.value.dtype, shape_of(entry.value.tensor_shape))
        for entry in sorted(found.inputs, key=lambda entry: entry.key)
    ]
    outputs = [
        (entry.key, Reference.of(entry.value.name)) for entry in sorted(found.outputs, key=lambda entry: entry.key)
    ]
    prefix = folder / "variables" / "variables"
    has_variables = os.path.lexists(prefix.with_name("variables.index"))
    assets = {
        Reference.of(file.tensor_info.name).node: str(folder / "assets" / Path(file.filename).name)
        for file in graph.asset_file_def
    }
    return Model(
        folder.resolve().name,
        library,
        inputs,
        outputs,
        prepared=_prepared(graph, signatures, library, has_variables),
        restored=Checkpoint(prefix).read if has_variables else None,
        asset=lambda name: _lines_of(folder, name, assets),
        assets=assets,
        names_by_key=_named(graph),
    )


def _lines_of(folder: Path, path: str, assets: Mapping[str, str]) -> list[str]:
    """The lines of an asset; tables must not read other files."""
    if path not in assets.values():
        raise UnsafePath(
            "a table reads a file that is not an asset of the SavedModel",
            given=f'"{path[:200]}"',
            available=", ".join(sorted(set(assets.values()))[:3]) or "no assets",
            do="save the model with the file as an asset: tf.lookup.TextFileInitializer(path, ...)",
        )
    name = Path(path).name
    try:
        return read_below(folder / "assets", name, limits.current().memory).decode().splitlines()
    except UnicodeDecodeError as error:
        raise InvalidModel("an asset is not UTF-8 text", given=f'"{name}": {error}') from error


def chosen_signature(signatures: Mapping[str, Any], wanted: str | None) -> str:
    """The signature to read: ``wanted``, the default one, or the only one."""
    offered = [name for name in signatures if name != SET_UP]
    chosen = wanted or (_DEFAULT if _DEFAULT in signatures else offered[0] if len(offered) == 1 else None)
    if chosen is None or chosen not in signatures:
        raise InvalidCall(
            "the SavedModel has no such signature",
            given=repr(wanted),
            available=", ".join(offered) or "none",
            do="give signature=NAME, or export the model with a signature",
        )
    return chosen


def meta_graph_of(message: Any, tags: Sequence[str] | None) -> Any:
    """The graph of a SavedModel with these tags, by default "serve", or the only graph."""
    tags_of_graphs = [list(graph.meta_info_def.tags) for graph in message.meta_graphs]
    wanted = list(tags) if tags is not None else ["serve"]
    for graph, each in zip(message.meta_graphs, tags_of_graphs, strict=True):
        if sorted(each) == sorted(wanted):
            return graph
    if tags is None and len(tags_of_graphs) == 1:
        return message.meta_graphs[0]
    if not tags_of_graphs:
        raise InvalidModel("the SavedModel holds no graph")
    raise InvalidCall(
        "the SavedModel has no graph with these tags",
        given=", ".join(wanted),
        available="; ".join(", ".join(each) for each in tags_of_graphs),
    )


def _prepared(graph: Any, signatures: Any, library: Library, has_variables: bool) -> list[str]:
    """The nodes that restore variables and initialize tables."""
    names = [graph.saver_def.restore_op_name] if has_variables and graph.saver_def.restore_op_name else []
    names += [entry.value.name for entry in signatures[SET_UP].outputs] if SET_UP in signatures else []
    found = [Reference.of(name).node for name in names if name]
    return [name for name in found if name in library.nodes]


_KEPT = "non_trainable_variables"


def _named(graph: Any) -> dict[str, tuple[str, str]]:
    """Name and role in training of variables, by key in the checkpoint.

    Keys are the shortest paths to objects, in the order of their children. Non-trainable variables of layers are in a
    list of the root, as Keras exports it.
    """
    nodes = graph.object_graph_def.nodes
    lists = {child.node_id for node in nodes[:1] for child in node.children if child.local_name == _KEPT}
    kept = {child.node_id for number in lists if number < len(nodes) for child in nodes[number].children}
    frozen = {nodes[number].variable.name for number in kept if number < len(nodes)}
    result: dict[str, tuple[str, str]] = {}
    pending, seen = [(0, "")], {0}
    for number, path in pending:
        if number >= len(nodes):
            continue
        if nodes[number].HasField("variable"):
            variable = nodes[number].variable
            kind = "frozen" if variable.name in frozen else "parameter"
            result[f"{path}/.ATTRIBUTES/VARIABLE_VALUE"] = (
                variable.name or path,
                kind if variable.trainable else "buffer",
            )
        for child in nodes[number].children:
            if child.node_id not in seen:
                seen.add(child.node_id)
                pending.append((child.node_id, f"{path}/{child.local_name}" if path else child.local_name))
    return result
