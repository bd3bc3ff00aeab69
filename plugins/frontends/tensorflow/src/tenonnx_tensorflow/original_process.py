"""TensorFlow in a worker process, since some files end it or keep it busy for ever.

The file is read here again, by the same checks, so that what is run is what was checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tenonnx.extend import InvalidCall, limits
from tenonnx_tensorflow.frontend import model_of
from tenonnx_tensorflow.keras_files import loaded
from tenonnx_tensorflow.model import Model
from tenonnx_tensorflow.options import Options
from tenonnx_tensorflow.original import SPEC
from tenonnx_tensorflow.reference import file_runner

#: The model that was used last, by its key.
_held: dict[str, Model] = {}


def refusal(key: str, path: str, examples: Any, options: Any, held: Mapping[str, int]) -> str:
    """Reason why the file is not run; empty where it is."""
    with limits.override(**held):
        return _model(key, path, examples, options).refusal()


def outputs(
    key: str, path: str, examples: Any, options: Any, held: Mapping[str, int], feeds: Mapping[str, Any]
) -> Sequence[Any]:
    """Outputs of the model for feeds by the names of its inputs."""
    with limits.override(**held):
        model = _model(key, path, examples, options)
        reason = model.refusal()
        if reason or model.run is None:
            raise InvalidCall("the model is not run", given=reason)
        return [np.asarray(found) for found in model.run(feeds)]


def _model(key: str, path: str, examples: Any, options: Mapping[str, Any]) -> Model:
    if key not in _held:
        _held.clear()
        chosen = Options(**options)
        source, _ = loaded(Path(path))
        _held[key] = model_of(source, [_example(each) for each in examples], chosen, file_runner)
    return _held[key]


def _example(sent: Any) -> Any:
    """An example as it was before it was sent."""
    if isinstance(sent, list):
        return [_example(each) for each in sent]
    if not isinstance(sent, dict):
        return sent
    if SPEC in sent:
        shape, dtype, name = sent[SPEC]
        return tf.TensorSpec(shape, dtype, name)
    return {key: _example(each) for key, each in sent.items()}
