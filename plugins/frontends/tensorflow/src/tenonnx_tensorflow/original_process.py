"""TensorFlow, or Keras on another backend, in a worker process, since some files end it or keep it busy for ever.

The file is read here again, by the same checks, so that what is run is what was checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tenonnx.extend import InvalidCall
from tenonnx_tensorflow.frontend import model_of
from tenonnx_tensorflow.keras_backends import backend_of, call_of
from tenonnx_tensorflow.keras_files import loaded
from tenonnx_tensorflow.options import Options
from tenonnx_tensorflow.original import SPEC


class Runnable(Protocol):
    """A model, or a call of a Keras model on another backend."""

    @property
    def refusal(self) -> Any: ...

    @property
    def run(self) -> Any: ...


def opened(path: str, examples: Any, options: Mapping[str, Any]) -> Runnable:
    """The model of a file."""
    chosen, given = Options(**options), [_example(each) for each in examples]
    source, _ = loaded(Path(path))
    if backend_of(source) is not None:
        return call_of(source, given, chosen)
    from tenonnx_tensorflow.reference import file_runner

    return model_of(source, given, chosen, file_runner)


def refusal(model: Runnable) -> str:
    """Reason why the file is not run; empty where it is."""
    return str(model.refusal())


def outputs(model: Runnable, feeds: Mapping[str, Any]) -> Sequence[Any]:
    """Outputs of the model for feeds by the names of its inputs."""
    reason = model.refusal()
    if reason or model.run is None:
        raise InvalidCall("the model is not run", given=reason)
    return [np.asarray(found) for found in model.run(feeds)]


def _example(sent: Any) -> Any:
    """An example as it was before it was sent."""
    if isinstance(sent, list):
        return [_example(each) for each in sent]
    if not isinstance(sent, dict):
        return sent
    if SPEC in sent:
        import tensorflow as tf

        shape, dtype, name = sent[SPEC]
        return tf.TensorSpec(shape, dtype, name)
    return {key: _example(each) for key, each in sent.items()}
