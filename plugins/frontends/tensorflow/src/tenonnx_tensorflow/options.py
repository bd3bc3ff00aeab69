"""Options for reading a source of TensorFlow or Keras."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx.extend.frontends import check_takes
from tenonnx_frontends import Dims
from tenonnx_tensorflow.forms import Form


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``tx.load`` for TensorFlow and Keras, in addition to those of all front ends.

    A SavedModel is read by its ``signature`` (by default ``serving_default``) and ``tags``; a frozen graph (``.pb``)
    between its nodes ``inputs`` and ``outputs``, by default from all placeholders to all nodes without readers.
    ``shapes`` replace the shapes of inputs, with names or None for dynamic sizes. ``dims`` (or ``dynamic_axes``) names
    dynamic axes, and may be JSON or a JSON file; ``dynamic_batch`` names the first axis of every input "batch".
    ``training`` traces a Keras model in training mode. ``forms`` are functions by op type or node name: they map a node
    and its inputs to its outputs, or return None to use the default rule. ``trust`` allows to execute code from a file:
    ops with side effects for verification, and functions and classes that its config names.
    """

    signature: str | None = None
    tags: Sequence[str] | None = None
    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    shapes: Mapping[str, Sequence[int | str | None]] | None = None
    dims: Dims | str | os.PathLike[str] | None = None
    dynamic_axes: Dims | str | os.PathLike[str] | None = None
    dynamic_batch: bool = False
    input_names: Sequence[str] | None = None
    training: bool = False
    forms: Mapping[str, Form] | None = None
    trust: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Options from keywords. Raises ``InvalidCall`` for unknown ones."""
        check_takes("the front end of TensorFlow does not take these options", cls, **given)
        return cls(**given)
