"""Functions of the worker process for TensorFlow and other Keras backends, since some files crash or hang.

The file is read and checked again here, so that exactly the checked content runs.
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
    """Reason why the file must not run; empty if it may."""
    return str(model.refusal())


def outputs(model: Runnable, feeds: Mapping[str, Any]) -> Sequence[Any]:
    """Outputs of the model for feeds by input name."""
    reason = model.refusal()
    if reason or model.run is None:
        raise InvalidCall("the model is not run", given=reason)
    return [np.asarray(found) for found in model.run(feeds)]


def _example(sent: Any) -> Any:
    """An example restored from ``_sendable``."""
    if isinstance(sent, list):
        return [_example(each) for each in sent]
    if not isinstance(sent, dict):
        return sent
    if SPEC in sent:
        import tensorflow as tf

        shape, dtype, name = sent[SPEC]
        return tf.TensorSpec(shape, dtype, name)
    return {key: _example(each) for key, each in sent.items()}
