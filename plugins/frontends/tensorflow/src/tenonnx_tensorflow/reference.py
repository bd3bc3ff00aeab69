"""Reference outputs of files, computed by TensorFlow for verification.

TensorFlow never loads a SavedModel, which would run the initializers of its objects. Only the part of the graph for a
signature is run, with the nodes that restore variables and initialize tables, and only if no op of the file has side
effects (``effects``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tenonnx.extend import InvalidModel
from tenonnx_tensorflow.effects import RunnablePart, effects_of, needed_part
from tenonnx_tensorflow.model import Model
from tenonnx_tensorflow.options import Options
from tenonnx_tensorflow.saved_model import SET_UP, chosen_signature, meta_graph_of


class FileRunner:
    """Runs a part of a ``GraphDef``: ``outputs`` of ``inputs``, after the nodes ``before``, with a new session per
    call.

    ``file_names`` maps tensors with names of files to their paths.
    """

    def __init__(
        self,
        graph: Any,
        inputs: Mapping[str, str],
        outputs: Sequence[str],
        before: Sequence[str] = (),
        file_names: Mapping[str, str] | None = None,
    ) -> None:
        self._whole, self._inputs, self._outputs = graph, inputs, outputs
        self._before, self._file_names = before, file_names or {}

    @cached_property
    def _part(self) -> Any:
        return needed_part(self._whole, [*self._outputs, *self._before])

    @cached_property
    def refusal(self) -> str:
        """Reason why the file must not run; empty if it may."""
        names = frozenset(name.partition(":")[0] for name in self._file_names)
        found = effects_of(self._whole) or RunnablePart(self._part, names).problems()
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        return f"the model contains {', '.join(found[:3])}{more}" if found else ""

    @cached_property
    def _graph(self) -> Any:
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(self._part, name="")
        return graph

    def __call__(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        names = {node.name for node in self._part.node}
        paths = {name: path for name, path in self._file_names.items() if name.partition(":")[0] in names}
        wanted = [self._tensor(name) for name in self._outputs]
        files = {self._tensor(name): path for name, path in paths.items()}
        given = {self._tensor(self._inputs[name]): array for name, array in feeds.items()}
        with tf.compat.v1.Session(graph=self._graph) as session:
            for name in self._before:
                session.run(self._graph.get_operation_by_name(name), files)
            return [np.asarray(found) for found in session.run(wanted, {**files, **given})]

    def _tensor(self, name: str) -> Any:
        return self._graph.get_tensor_by_name(name if ":" in name else f"{name}:0")


def file_runner(path: Path, options: Options, model: Model) -> FileRunner:
    """The runner of a SavedModel or a frozen graph. Raises ``InvalidModel`` where TensorFlow cannot parse it."""
    if path.is_dir():
        return _saved_model_runner(path, options, model)
    return _frozen_runner(path, model)


def _saved_model_runner(folder: Path, options: Options, model: Model) -> FileRunner:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    meta = meta_graph_of(_parsed(SavedModel(), folder / "saved_model.pb"), options.tags)
    found = meta.signature_def[chosen_signature(dict(meta.signature_def), options.signature)]
    restore = meta.saver_def.restore_op_name if model.restored is not None else ""
    set_up = [info.name for info in meta.signature_def[SET_UP].outputs.values()] if SET_UP in meta.signature_def else []
    file_names = dict(model.assets)
    if restore:
        file_names[meta.saver_def.filename_tensor_name] = str(folder / "variables" / "variables")
    return FileRunner(
        meta.graph_def,
        {name: info.name for name, info in found.inputs.items()},
        [found.outputs[name].name for name, _ in model.outputs],
        [name.partition(":")[0] for name in [*([restore] if restore else []), *set_up]],
        file_names,
    )


def _frozen_runner(path: Path, model: Model) -> FileRunner:
    return FileRunner(
        _parsed(tf.compat.v1.GraphDef(), path),
        {given.name: given.node for given in model.inputs},
        [f"{reference.node}:{reference.position}" for _, reference in model.outputs],
    )


def _parsed(message: Any, path: Path) -> Any:
    try:
        message.ParseFromString(path.read_bytes())
    except Exception as error:  # the class of protobuf's error depends on its implementation
        raise InvalidModel(f'cannot parse "{path}" as TensorFlow does', given=str(error)) from error
    return message
