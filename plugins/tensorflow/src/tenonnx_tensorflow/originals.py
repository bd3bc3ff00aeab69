"""The originals of files, run by TensorFlow, to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tenonnx_tensorflow.functions import unchanged
from tenonnx_tensorflow.model import Model

Runner = Callable[[Mapping[str, Any]], Sequence[Any]]


def saved_model_runner(folder: Path, signature: str | None, tags: Sequence[str] | None, model: Model) -> Runner:
    @cache
    def loaded() -> Any:
        return tf.saved_model.load(str(folder), tags=list(tags) if tags is not None else None)

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        signatures = loaded().signatures
        chosen = signature or ("serving_default" if "serving_default" in signatures else next(iter(signatures)))
        function = signatures[chosen]
        specs = function.structured_input_signature[1]
        with unchanged(function.variables):
            found = function(**{name: tf.constant(feeds[name], specs[name].dtype) for name in specs})
        return [np.asarray(found[name]) for name, _ in model.outputs]

    return run


def frozen_runner(path: Path, model: Model) -> Runner:
    @cache
    def imported() -> Any:
        message = tf.compat.v1.GraphDef()
        message.ParseFromString(path.read_bytes())
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(message, name="")
        return graph

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        graph = imported()
        wanted = [graph.get_tensor_by_name(f"{r.node}:{r.position}") for _, r in model.outputs]
        given = {graph.get_tensor_by_name(f"{i.node}:0"): feeds[i.name] for i in model.inputs}
        with tf.compat.v1.Session(graph=graph) as session:
            found: Sequence[Any] = session.run(wanted, given)
        return found

    return run
